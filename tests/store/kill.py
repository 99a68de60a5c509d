"""Kill real processes at every numbered step, or at a random moment.

A *step* is a system call by which the store changes the disk: creating, writing, syncing,
renaming, linking, removing. The child counts them as they happen, and dies by SIGKILL before,
within (a write that is cut short) or after the one it was told. Nothing in the store knows of it.

A *task* is a module-level function ``task(root, ack)``; it calls ``ack(word)`` when something
may not be lost any more. Children come from a fork server that has the store imported already, so
that a kill costs milliseconds.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Task = Callable[[Path, Callable[[str], None]], object]
When = Literal["before", "within", "after"]

STEPS = (
    "open", "pwrite", "write", "ftruncate", "fsync", "mkdir", "rmdir", "rename", "replace",
    "link", "symlink", "unlink", "remove",
)  # fmt: skip

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.store.kill_tasks"])


class Kill(NamedTuple):
    """Where a child is to die: at a step, or after some seconds."""

    step: int = -1
    when: When = "before"
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a child: whether it was killed, which steps it took, what it acknowledged."""

    killed: bool
    steps: list[str]
    acks: list[str]

    def as_told(self, kill: Kill) -> bool:
        """Whether the child died at its step, or ended before it came to that step.

        Zarr writes with several threads, so the number of steps differs by a few between runs.
        """
        return self.killed or len(self.steps) <= kill.step


def run(task: Task, root: Path, notes: Path, kill: Kill | None = None) -> Outcome:
    """Run a task in a child process; ``notes`` is a file of its own for what the child says."""
    kill = kill or Kill()
    child = _SERVER.Process(target=_child, args=(task, root, notes, kill))
    child.start()
    child.join(kill.seconds)
    if child.is_alive():
        child.kill()
    child.join()
    if child.exitcode not in {0, -signal.SIGKILL}:
        raise AssertionError(f"the task failed by itself: exit code {child.exitcode}")
    lines = notes.read_text().splitlines() if notes.exists() else []
    return Outcome(
        child.exitcode != 0,
        [line[5:] for line in lines if line.startswith("step ")],
        [line[4:] for line in lines if line.startswith("ack ")],
    )


def every_step(task: Task, root: Callable[[], Path], notes: Callable[[], Path]) -> Iterator[Kill]:
    """Every step that the task takes when nobody kills it; writes are also cut short."""
    steps = run(task, root(), notes()).steps
    for i, name in enumerate(steps):
        whens: tuple[When, ...] = ("before", "within") if "write" in name else ("before",)
        yield from (Kill(i, when) for when in whens)
    yield Kill(len(steps) - 1, "after")


def _child(task: Task, root: Path, notes: Path, kill: Kill) -> None:
    fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    note = os.write
    _tap(kill, lambda line: note(fd, f"{line}\n".encode()))
    task(root, lambda word: note(fd, f"ack {word}\n".encode()))


def _tap(kill: Kill, say: Callable[[str], Any]) -> None:
    """Count the steps of this process from now on, and die at one of them."""
    numbers = itertools.count()  # threads share it: taking the next one is atomic

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def tapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **kwargs)
            mine = next(numbers)
            say(f"step {name}")
            if mine == kill.step and kill.when != "after":
                if kill.when == "within" and "write" in name:
                    fd, data, *rest = args
                    call(fd, data[: len(data) // 2], *rest)
                die()
            # A kill does not empty the kernel's caches, so syncing would only cost time.
            try:
                return call(*args, **kwargs) if name != "fsync" else None
            finally:
                # A call that failed is a step as well: removing what is gone already, say.
                if mine == kill.step:
                    die()

        return step

    for name in STEPS:
        setattr(os, name, tapped(name, getattr(os, name)))
