"""What a format says of a program, the protocol of a format, and what calls returned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.sandbox import wire
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


# --- lines that came out of a sandbox ------------------------------------------------------------


@dataclass(frozen=True)
class Returned:
    """What one call returned, or the name of what it raised, and its processor time."""

    value: Any = None
    raised: str = ""
    cpu: float = 0.0


def parse(data: bytes, sizes: Sequence[int]) -> list[Returned]:
    """Read at most ``len(sizes)`` lines, up to the first that is not as the driver writes them.

    ``sizes`` bounds the hash tables of each value by the length of what is expected there: a
    larger one can't be equal to it.
    """
    results = []
    for line, size in zip(data.split(b"\n")[:-1], sizes, strict=False):
        head, mark, tail = line.rpartition(b',"cpu":')
        try:
            cpu = float(tail.removesuffix(b"}")) if mark and len(tail) < 40 else 0.0
            if head.startswith(b'{"returned":'):
                value = wire.loads(head.removeprefix(b'{"returned":'), max(size, wire.MAX_HASHED))
                results.append(Returned(value=value, cpu=cpu))
            elif head.startswith(b'{"raised":'):
                name = json.loads(head.removeprefix(b'{"raised":')[:200])
                results.append(Returned(raised=str(name) or "?", cpu=cpu))
            else:
                break
        except (ValueError, RecursionError):
            break
    return results
