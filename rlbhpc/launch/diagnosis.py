"""Why jobs of a run ended, from their logs, their own records and the accounting; what mends it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlbhpc.launch.launches import LaunchFolder, launches
from rlbhpc.launch.status import ACTIONS, Failure, Status, status
from rlbhpc.study.layout import Layout

# What a log says, what that means, and what to do; {run} is the run's folder. The first that is
# found wins, so causes stand before what follows from them.
SIGNS: Final = (
    (r"CUDA out of memory|OutOfMemoryError", "the GPU's memory is full",
     "smaller `rows` or `memory` under engine.options, or a shorter max_tokens; then launch again"),
    (r"oom.kill|Out Of Memory|[Ee]xceeded .*memory|memory limit", "the job's memory is full",
     ACTIONS["OUT_OF_MEMORY"]),
    (r"No space left on device|Disk quota exceeded", "the disk or a quota is full",
     "free space, or rlbhpc compact {run} --seal; then launch again"),
    (r"FATAL: .*(?:image|\.sif)|could not open image", "the image cannot be opened",
     "correct `container` in the cluster's file: rlbhpc image verify FILE"),
    (r"ModuleNotFoundError: .*|No module named .*", "a module is missing where the work runs",
     "install it there, or correct `rlbhpc` in the cluster's file; then launch again"),
    (r"parent: .*: No such file or directory", "a program is missing on the node",
     "correct `rlbhpc`, `container` or `setup` in the cluster's file, then launch again"),
    (r"DUE TO TIME LIMIT", "the time limit came before the job could be requeued",
     ACTIONS["TIMEOUT"]),
    (r"parent: .* is not there", "what it needs was not made",
     "see the job before it in this list, then launch again"),
    (r"Unsupported CPU attention|head_size.* not supported|head size .* not supported",
     "vLLM cannot run this model here", "`engine: hf` in the study, then launch again"),
    (r"Bus error", "memory that a file backs was gone",
     "see whether /dev/shm or the scratch disk of the node is full, then launch again"),
    (r"^rlbhpc: .*", "rlbhpc refused", "do what the line says, then launch again"),
    (r"^(?:\[rank\d+\]: )?[\w.]*(?:Error|Exception): .*", "the work failed", ACTIONS["FAILED"]),
)  # fmt: skip
TAIL_BYTES: Final = 64_000


def diagnose(layout: Layout) -> tuple[list[Failure], Status]:
    """Every cause that ended jobs of a run, as their logs show it, and the run's status."""
    now = status(layout)
    folders = launches(layout)
    by_cause: dict[str, Failure] = {}
    for failure in now.failures:
        for job in failure.jobs:
            cause = _of_job(folders, layout, job, failure)
            before = by_cause.setdefault(cause.cause, cause)
            if job not in before.jobs:
                by_cause[cause.cause] = replace(before, jobs=(*before.jobs, job))
    return list(by_cause.values()), now


def _of_job(folders: Iterable[LaunchFolder], layout: Layout, job: str, failure: Failure) -> Failure:
    """What ended one job: what its log shows, else what its parent or Slurm said."""
    last_line = ""
    for log in _logs(folders, job):
        text = _tail(log)
        for pattern, cause, action in SIGNS:
            # The last run is the one that counts.
            lines = [line for line in text.splitlines() if re.search(pattern, line)]
            if lines:
                evidence = f"{_place(log)}: {lines[-1].strip()}"
                return Failure(cause, (job,), action.format(run=layout.root), evidence)
        of_the_work = [line for line in text.splitlines() if " parent: " not in line]
        if of_the_work:
            last_line = f"{_place(log)}: {of_the_work[-1].strip()}"
    return Failure(failure.cause, (job,), failure.action, last_line)


def _logs(folders: Iterable[LaunchFolder], job: str) -> list[Path]:
    paths: list[Path] = []
    for launch in folders:
        logs = launch.path / "logs"
        # As Slurm names them, and as submitit names those of this machine.
        paths += [*logs.glob(f"*-{job}.log"), *logs.glob(f"*/{job}_*_log.out")]
    return paths


def _place(log: Path) -> str:
    """Where a log lies in the folder of logs."""
    return f"{log.parent.name}/{log.name}" if log.suffix == ".out" else log.name


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""
