"""What went wrong with a job over its runs, and whether a run made anything new."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from . import USAGE
from .task import say


def sizes(patterns: list[str]) -> dict[Path, int]:
    """Sizes of the files that only grow, or appear, when something new was made."""
    bytes_of = {}
    for path in [path for pattern in patterns for path in Path().glob(pattern)]:
        with contextlib.suppress(OSError):
            bytes_of[path] = path.stat().st_size
    return bytes_of


class Record:
    """What went wrong with one job over its runs, in `failures/JOB.json`."""

    def __init__(self, name: str) -> None:
        self.path = Path("failures") / f"{name}.json"
        try:
            record = json.loads(self.path.read_text())
        except (OSError, ValueError):
            record = {}
        self.runs: list[dict[str, Any]] = record.get("runs", [])
        self.stalls: int = record.get("stalls", 0)

    def add(self, code: int, cause: str, progress: bool) -> None:
        """Write down a run that ended badly, and whether it made anything new."""
        self.stalls = 0 if progress else self.stalls + 1
        self.runs.append(
            {"time": time.time(), "host": node(), "code": code, "cause": cause,
             "progress": progress}
        )  # fmt: skip
        self._write(False)

    def move(self, name: str) -> None:
        """Hand the record on to the job that takes over."""
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_name(f"{name}.json"))

    def went_on(self, ended: bool) -> None:
        """Say that the job made something new, or ended well, after all."""
        if self.runs:
            self.stalls = 0
            self._write(ended)

    def _write(self, recovered: bool) -> None:
        record = {"stalls": self.stalls, "recovered": recovered, "runs": self.runs}
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            self.path.parent.mkdir(exist_ok=True)
            partial.write_text(json.dumps(record, indent=1))
            partial.replace(self.path)
        except OSError as error:
            # A full disk: the job must be requeued all the same.
            say(f"{self.path}: {error.strerror}")


def node() -> str:
    """Name of the node, as Slurm calls it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def cause_of(code: int) -> str:
    """Say in words what an exit code means."""
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed, most likely for its memory"
    if code == USAGE:
        return "refused: the log says what to change"
    if code in (126, 127, 255):
        return "could not be started: the command, the container or a module is not there"
    return f"ended with exit code {code}" if code >= 0 else f"died of signal {-code}"
