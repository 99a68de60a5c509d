"""Read what other tools measured: one small file per format, and the registry of them.

To add one, write a module with a class as in the others and add it to :data:`FORMATS`.
"""

from __future__ import annotations

from typing import Final

from rlbhpc.exchange.formats.batches import BatchRequests, BatchResponses, References
from rlbhpc.exchange.formats.code import EvalPlusResults, LiveCodeBenchResults
from rlbhpc.exchange.formats.form import Form
from rlbhpc.exchange.formats.harnesses import HelmStats, LmEvalSamples
from rlbhpc.exchange.formats.inspect_log import InspectLog
from rlbhpc.exchange.formats.nemo_skills import LimitOfRlvr, NemoSkills, VerlRollouts
from rlbhpc.exchange.formats.plain_tables import Counts, Scored

#: Formats in the order in which they are tried on a file.
FORMATS: Final[tuple[Form, ...]] = (
    Counts(),
    HelmStats(),
    InspectLog(),
    EvalPlusResults(),
    LiveCodeBenchResults(),
    LmEvalSamples(),
    LimitOfRlvr(),
    VerlRollouts(),
    NemoSkills(),
    BatchRequests(),
    BatchResponses(),
    References(),
    Scored(),
)

#: Endings, possibly before ``.gz``, of files that a folder stands for; a named file may have any.
ENDINGS: Final = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".eval")
