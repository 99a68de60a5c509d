"""End the jobs of a run so that nothing is lost and nothing comes back by itself."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from rlbhpc.launch import slurm
from rlbhpc.launch.run_folder import launches
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled; ``answered`` says whether Slurm was there to be asked."""

    jobs: tuple[int, ...]
    tasks: int
    answered: bool
    complaint: str


def cancel(layout: Layout) -> Cancelled:
    """Mark every launch of a run as cancelled, then end its jobs.

    The mark comes first: a parent that is told to end looks for it before it requeues. Jobs get
    TERM, keep what is finished and end within the site's KillWait.
    """
    rows = slurm.queue()
    found: list[slurm.Row] = []
    for one in launches(layout):
        mine = set(one.submitted.values())
        live = [row for row in rows or () if row.job in mine]
        if live or rows is None:
            (one.path / "cancelled").touch()
        found += live
    jobs = tuple(sorted({row.job for row in found}))
    complaint = ""
    if jobs:
        # One request for all: every request counts on a busy controller.
        done = subprocess.run(
            ["scancel", *map(str, jobs)], capture_output=True, text=True, check=False
        )
        complaint = done.stderr.strip() if done.returncode else ""
    return Cancelled(jobs, len(found), rows is not None, complaint)
