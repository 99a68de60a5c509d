"""End the jobs of a run so that nothing is lost and nothing comes back by itself."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass

from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.launches import live, traced
from rlbhpc.launch.lock import at_work
from rlbhpc.study.layout import Layout


@dataclass(frozen=True)
class Cancelled:
    """What was cancelled; ``answered`` says whether Slurm was there to be asked.

    ``at_work`` says who submits or runs a launch at this moment, which is no job to be ended.
    """

    jobs: tuple[int, ...]
    tasks: int
    answered: bool
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
        if rows is None or is_at_work or is_here or any(row.job in folder.ids for row in rows):
            # A launch of somebody else's may not be written to; scancel alone ends it as well.
            with contextlib.suppress(PermissionError):
                (folder.path / "cancelled").touch()
    jobs = tuple(sorted({row.job for row in rows or ()}))
    complaint = ""
    for clusters in sorted({folder.clusters for folder in folders}):
        ids = {number for folder in folders if folder.clusters == clusters for number in folder.ids}
        own = [str(job) for job in jobs if job in ids]
        if not own:
            continue
        # One request for all: every request counts on a busy controller.
        where = [f"--clusters={clusters}"] if clusters else []
        done = subprocess.run(
            ["scancel", *where, *own], capture_output=True, text=True, check=False
        )
        complaint += done.stderr.strip() if done.returncode else ""
    return Cancelled(jobs, len(rows or ()), rows is not None, complaint, holder)
