"""Read what other tools measured: one small file per format, and the registry of them.

To add a format, write a module with a class as in the others and add it to :data:`FORMATS`.
"""

from __future__ import annotations

from typing import Final

from rlbhpc.store.importing.counts import CountsCsv
from rlbhpc.store.importing.evalplus import EvalPlusResults
from rlbhpc.store.importing.form import Form
from rlbhpc.store.importing.inspect_log import InspectLog
from rlbhpc.store.importing.limit_of_rlvr import LimitOfRlvr
from rlbhpc.store.importing.livecodebench import LiveCodeBenchResults
from rlbhpc.store.importing.lm_eval import LmEvalSamples
from rlbhpc.store.importing.nemo_skills import NemoSkills
from rlbhpc.store.importing.scored import ScoredJsonl
from rlbhpc.store.importing.verl import VerlRollouts

#: Formats in the order in which they are tried on a file.
FORMATS: Final[tuple[Form, ...]] = (
    CountsCsv(),
    InspectLog(),
    EvalPlusResults(),
    LiveCodeBenchResults(),
    LmEvalSamples(),
    LimitOfRlvr(),
    VerlRollouts(),
    NemoSkills(),
    ScoredJsonl(),
)
