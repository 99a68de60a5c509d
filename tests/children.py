"""The command line in child processes that start at once and may be killed at any moment.

They are forked from a server that has everything imported and has never run a tensor operation: a
fork of a process with PyTorch's threads would hang.
"""

from __future__ import annotations

import multiprocessing
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.children_imports"])


class Child:
    """One ``rlbhpc`` call in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self._process = _SERVER.Process(target=_call, args=(arguments,))
        self._process.start()

    def send(self, number: int) -> None:
        """Send a signal, if it has not ended yet."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it ends."""
        self._process.join(seconds)

    def ended(self) -> int:
        """Wait for the end; the exit code, or minus the signal that killed it."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


def _call(arguments: tuple[str, ...]) -> None:
    from rlbhpc.cli.main import main

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    main(list(arguments))
