"""Batch scripts, jobs and their state on a cluster, on this machine, or in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbhpc.launch.api import Launch as Launch
    from rlbhpc.launch.api import executor as executor
    from rlbhpc.launch.api import find as find
    from rlbhpc.launch.api import write as write

_PUBLIC = ("Launch", "executor", "find", "write")


def __getattr__(name: str) -> Any:
    """Import the public names on first use: one file of this room must not load them all."""
    if name in _PUBLIC:
        from rlbhpc.launch import api

        return getattr(api, name)
    raise AttributeError(f"module 'rlbhpc.launch' has no attribute {name!r}")
