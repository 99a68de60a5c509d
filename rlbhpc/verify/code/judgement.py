"""What a format says of a program, and the protocol of a format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Cause, Outcome
from rlbhpc.verify.verdict import Status


class Strictness(StrEnum):
    """Whose verdict is wanted.

    ``SOUND`` is this project's: every test in a process of its own, programs run as what they are.
    ``COMPAT`` is what the benchmark's own harness says of an honest program, its quirks included.
    """

    SOUND = "sound"
    COMPAT = "compat"


@dataclass(frozen=True)
class Judgement:
    """Status, and in a few words on what grounds."""

    status: Status
    reason: str

    @classmethod
    def of_failure(cls, test: int, tests: int, outcome: Outcome) -> Judgement:
        """Judge a run that did not end by itself with status 0."""
        if outcome.cause.is_time:
            return cls(Status.TIMEOUT, f"test {test + 1} of {tests}: {outcome.cause} limit")
        ending = outcome.cause if outcome.cause is not Cause.EXIT else "exit"
        return cls(Status.WRONG, f"test {test + 1} of {tests}: {ending} {outcome.status}".rstrip())


class Format(Protocol):
    """A module that judges the programs of one format."""

    def extract(self, response: str, problem: Problem, strictness: Strictness) -> str:
        """Return the program of a response; empty if there is none."""
        ...

    def judge(
        self, program: str, problem: Problem, sandbox: Sandbox, strictness: Strictness
    ) -> Judgement:
        """Run a program on the problem's tests."""
        ...


def big_fields(problem: Problem) -> dict[str, Any]:
    """Return the fields of a problem that are read only when a program is judged."""
    tests = problem.extras["tests"]
    read = getattr(tests, "read", None)
    return dict(read() if read is not None else tests)
