"""rlbhpc: did RL training move a model's reasoning boundary, or only its sampling efficiency?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbhpc.store.reader import open_cube as open_cube

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that ``import rlbhpc`` stays light."""
    if name == "open_cube":
        from rlbhpc.store.reader import open_cube

        return open_cube
    if name == "launch":
        import importlib

        return importlib.import_module("rlbhpc.launch")
    raise AttributeError(f"module 'rlbhpc' has no attribute {name!r}")
