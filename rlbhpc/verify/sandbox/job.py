"""What a sandbox is asked to do, how tightly it confines, and what came of it."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.confine import MIB


@dataclass(frozen=True)
class Tier:
    """What a sandbox is made of.

    ``seccomp``: whether system calls are filtered. Without it there is no confinement at all.
    ``landlock``: version of the kernel's Landlock interface in use, 0 without it. ``namespaces``:
    whether programs live in namespaces and under a root of their own.
    """

    seccomp: bool = True
    landlock: int = 0
    namespaces: bool = False

    @property
    def name(self) -> str:
        """Return ``T1``, ``T2`` or ``T3``, or ``T0-unsafe`` where nothing confines a program.

        T1 has the system call filter alone, T2 Landlock (rules on files) too, T3 also namespaces
        and a root of its own.
        """
        if not self.seccomp:
            return "T0-unsafe"
        if self.namespaces:
            return "T3"
        return "T2" if self.landlock else "T1"


class Mode(StrEnum):
    """How a program is run.

    ``MAIN`` as the main module of a process. ``CALL`` as a module whose function is then called.
    """

    MAIN = "main"
    CALL = "call"
    SESSION = "session"


class Shape(StrEnum):
    """What to make of a returned value before it travels."""

    VALUE = "value"
    SET = "set"
    NOT_NONE = "not_none"


@dataclass(frozen=True)
class Job:
    """One program and what to do with it.

    Parameters
    ----------
    program
        Its text.
    mode
        How to run it.
    before
        A program that is run first in the same module, for the names that it defines.
    entry
        For ``CALL``: the function, or ``Class.method`` of a class to make one object of.
    calls
        For ``CALL``: one list of arguments per call, all in one process.
    shape
        For ``CALL``: what to return of each result.
    contest
        For ``CALL``: whether the module begins with the names of contest sites
        (:mod:`rlbhpc.verify.sandbox.library`). ``MAIN`` always does.
    forgiving
        For ``CALL``: whether the text may go on after the program (prose, broken lines), and
        whether the program may fail once it has defined the entry.
    """

    program: str
    mode: Mode = Mode.MAIN
    before: str = ""
    entry: str = ""
    calls: Sequence[Sequence[Any]] = ()
    shape: Shape = Shape.VALUE
    contest: bool = False
    forgiving: bool = False

    def with_calls(self, calls: Sequence[Sequence[Any]]) -> Job:
        """Return the same job with these calls."""
        return replace(self, calls=calls)

    def encode(self) -> bytes:
        """Return the job as bytes for the child process, which trusts them.

        They are a pair, in Python's ``marshal`` format: the settings of the job, and for each call
        its arguments in the wire format (JSON with marks for what JSON lacks).
        """
        job = {
            # An interpreter that reads a file leaves out the byte-order mark, too.
            "program": self.program.removeprefix("\ufeff"), "mode": self.mode.value,
            "before": self.before, "entry": self.entry, "contest": self.contest,
            "shape": self.shape.value, "forgiving": self.forgiving,
        }  # fmt: skip
        encoded_calls = [wire.dumps(list(arguments)) for arguments in self.calls]
        return marshal.dumps((job, encoded_calls))


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    ``cpu``: seconds of processor time. Wall time doesn't decide, since it depends on the node's
    load; :attr:`wall` only ends programs that sleep, and :attr:`longest_wall` those that can't be
    judged. ``memory``: bytes of address space. ``output``: bytes of standard output; one more ends
    the run. ``result``: bytes of returned values; one more ends the run. ``threads``: most threads
    at a time.
    """

    cpu: float = 6.0
    memory: int = 4096 * MIB
    output: int = 8 * MIB
    result: int = 4 * MIB
    threads: int = 256

    @property
    def wall(self) -> float:
        """Seconds of sleep after which a run is ended."""
        return 3 * self.cpu + 2

    @property
    def longest_wall(self) -> float:
        """Seconds after which a run is given up without a verdict: the node is too busy."""
        return 100 * self.cpu + 60


class Cause(StrEnum):
    """Why a run ended: by itself (``EXIT``), by a signal, at a limit, or without processor time."""

    EXIT = "exit"
    SIGNAL = "signal"
    CPU = "cpu"
    WALL = "wall"
    STARVED = "starved"
    OUTPUT = "output"
    THREADS = "threads"
    SCRATCH = "scratch"

    @property
    def is_time(self) -> bool:
        """Whether the run took too long."""
        return self in (Cause.CPU, Cause.WALL)


# How much of standard error is kept, from its end.
STDERR_TAIL: Final = 4096
# Bytes read at a time: as many as a pipe holds, and more than any message has.
CHUNK_BYTES: Final = 65536


@dataclass(frozen=True)
class Outcome:
    """What came of one run: bytes and counts, none of which are a verdict.

    ``status`` is the exit status for ``EXIT`` and the signal for ``SIGNAL``. ``result`` holds what
    the driver or the program itself wrote to the result descriptor: lines of hostile data.
    """

    cause: Cause
    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    result: bytes = b""
    cpu: float = 0.0
    wall: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether the program ended by itself, with status 0."""
        return self.cause is Cause.EXIT and self.status == 0
