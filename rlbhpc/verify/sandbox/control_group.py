"""A control group of version 2 for one supervisor and its programs, where the site lends one.

Slurm and systemd own the tree; a job step is rarely given a part of it. So this tries, and takes
any refusal as "not here".
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def _own_folder() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            return _ROOT / line.removeprefix("0::/")
    return None


def join_new(memory: int, processes: int) -> Path | None:
    """Move the calling process into a new group with these limits; the group, or ``None``.

    ``memory``: bytes for all processes together, files in memory and kernel memory included.
    ``processes``: most processes and threads.
    """
    group = None
    try:
        own = _own_folder()
        needed = {"memory", "pids"}
        if own is None or not needed <= set((own / "cgroup.subtree_control").read_text().split()):
            return None
        group = own / f"rlbhpc-{os.getpid()}"
        group.mkdir()
        (group / "memory.max").write_text(str(memory))
        (group / "pids.max").write_text(str(processes))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        if group is not None:
            with suppress(OSError):
                group.rmdir()
        return None
    return group
