"""Programs, judged as the benchmarks' own harnesses judge them; see :class:`Strictness`.

For holding our numbers against published ones. It misjudges some honest programs, on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code.programs import Strictness
from rlbhpc.verify.kinds import code
from rlbhpc.verify.verdict import Verdict

if TYPE_CHECKING:
    FINGERPRINT: str

CONCURRENT: Final = True


def __getattr__(name: str) -> Any:
    """Work the fingerprint out on first use."""
    if name == "FINGERPRINT":
        return code.fingerprint(Strictness.COMPAT)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge a response as the benchmark's harness does; see :func:`code.verify`."""
    return code.judge(response, problem, Strictness.COMPAT)
