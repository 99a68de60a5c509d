"""The noun *Verdict*: what a verifier says about one response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

#: By which reading of a response an answer counts; see :attr:`Verdict.strict`.
Reading = Literal["strict", "lenient"]


class Status(IntEnum):
    """Verdict codes as they are stored in the cube.

    ``MISSING`` marks a sample that does not exist and ``FAILED`` one whose generation failed;
    verifiers return the other five. ``ERROR`` is the verifier's own fault and is retried: a
    program under test that crashes is ``WRONG``.
    """

    MISSING = -1
    WRONG = 0
    RIGHT = 1
    NO_ANSWER = 2
    TIMEOUT = 3
    FAILED = 4
    ERROR = 5


#: What a verifier may say.
GIVEN: Final = (Status.WRONG, Status.RIGHT, Status.NO_ANSWER, Status.TIMEOUT, Status.ERROR)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of verifying one response.

    ``answer``: the answer as it was extracted from the response; empty if there was none.
    ``canonical``: its canonical form: equal strings mean the same answer to the same problem.
    ``rule``: which rule decided, for audits (``"rational"``, ``"symbolic"``, ``"tests"``, …).
    ``grader``: fingerprint of the grader: name, version, versions of what it stands on, sandbox
    tier. ``seconds``: time spent. Never stored in the cube, since it differs from run to run.
    ``stated``: whether the response stated its answer (a box, a tag, a marker, a phrase whose whole
    clause is a value); if not, the answer is the last value of its last sentence.
    """

    status: Status
    answer: str = ""
    canonical: str = ""
    rule: str = ""
    grader: str = ""
    seconds: float = 0.0
    stated: bool = True

    @property
    def right(self) -> bool:
        """Whether the response solved the problem."""
        return self.status is Status.RIGHT

    @property
    def strict(self) -> Status:
        """The status under the strict reading, for which an answer must be stated.

        ``status`` is the lenient one. Faults of the verifier stay what they are.
        """
        if self.stated or self.status not in (Status.RIGHT, Status.WRONG):
            return self.status
        return Status.NO_ANSWER

    def under(self, reading: Reading) -> Status:
        """The status under one of the two readings."""
        return self.strict if reading == "strict" else self.status
