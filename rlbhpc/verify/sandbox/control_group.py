"""A control group of version 2 for one supervisor and its programs, where the site lends one.

Slurm and systemd own the tree; a job step is rarely given a part of it. So this tries, and takes
any refusal as "not here".
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def join_new() -> Path | None:
    """Move the calling process into a new group with limits; the group, or ``None``.

    The memory is that of all processes together, files in memory and kernel memory included.
    """
    try:
        own = Path("/proc/self/cgroup").read_text().partition("0::/")[2].partition("\n")[0]
        parent = _ROOT / own
        lent = (parent / "cgroup.subtree_control").read_text().split()
        if not {"memory", "pids"}.issubset(lent):
            return None
        group = parent / f"rlbhpc-{os.getpid()}"
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "memory.max").write_text("5G")
        (group / "pids.max").write_text("512")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group
