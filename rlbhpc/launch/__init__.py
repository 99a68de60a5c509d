"""Batch scripts, jobs and their state on a cluster, on this machine, or in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbhpc.launch.api import Launch, executor, find, write

__all__ = ["Launch", "executor", "find", "write"]


def __dir__() -> list[str]:
    """The public names, also before their first use."""
    return __all__


# Hidden from type checkers, which would take every misspelt name for one that it gives.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the public names on first use: one file of this room must not load them all."""
        if name in __all__:
            from rlbhpc.launch import api

            return getattr(api, name)
        raise AttributeError(f"module 'rlbhpc.launch' has no attribute {name!r}")
