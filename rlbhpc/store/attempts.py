"""What differs from run to run: one small record per attempt, never part of the results."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rlbhpc import __version__
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout

ENDING: Final = ".json"


def begin(layout: Layout, facts: Mapping[str, Any]) -> str:
    """Record that an attempt starts.

    ``facts``: JSON values that the caller knows: shard, devices, package versions. Gives the
    attempt's name: unique, and sorted by time. Journals of the attempt bear it.
    """
    now = datetime.now(UTC)
    host = platform.node().partition(".")[0] or "unknown"
    name = f"{now:%Y%m%dT%H%M%S}-{host}-{os.getpid()}-{secrets.token_hex(4)}"
    slurm = {k: v for k, v in sorted(os.environ.items()) if k.startswith("SLURM_JOB_")}
    record = {
        "attempt": name,
        "began": now.isoformat(timespec="seconds"),
        "host": platform.node(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "rlbhpc": __version__,
        "slurm": slurm,
        **facts,
    }
    checked.write(layout.attempts / f"{name}{ENDING}", record)
    return name
