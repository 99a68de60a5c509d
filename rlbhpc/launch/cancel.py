"""End the jobs of a run so that nothing is lost and nothing comes back by itself."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass

from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.launches import live, traced
from rlbhpc.launch.lock import at_work
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled: ``rows`` of the queue, None where Slurm does not answer.

    ``at_work`` says who submits or runs a launch at this moment, which is no job to be ended.
    """

    rows: list[slurm.Row] | None
    complaint: str
    at_work: str


def cancel(layout: Layout) -> Cancelled:
    """Mark every launch of a run as cancelled, then end its jobs, whoever owns them.

    The mark comes first: a parent that is told to end looks for it before it requeues. Jobs get
    TERM, keep what is finished and end within the site's KillWait.
    """
    folders = traced(layout)
    rows = live(folders)
    holder = at_work(layout)
    for folder in folders:
        is_at_work = f" launch {folder.path.name} " in holder
        is_here = bool(holder) and folder.record["cluster"] in HERE
        if rows is None or is_at_work or is_here or folder.own(rows):
            # A launch of somebody else's may not be written to; scancel alone ends it as well.
            with contextlib.suppress(PermissionError):
                (folder.path / "cancelled").touch()
    complaint = ""
    jobs_on: dict[str, set[int]] = {}
    for folder in folders:
        for row in folder.own(rows or ()):
            jobs_on.setdefault(folder.clusters, set()).add(row.job)
    for clusters, ids in sorted(jobs_on.items()):
        # One request for all: every request counts on a busy controller.
        where = [f"--clusters={clusters}"] if clusters else []
        done = subprocess.run(
            ["scancel", *where, *map(str, sorted(ids))], capture_output=True, text=True, check=False
        )
        complaint += done.stderr.strip() if done.returncode else ""
    return Cancelled(rows, complaint, holder)
