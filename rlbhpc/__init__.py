"""rlbhpc: did RL training move a model's reasoning boundary, or only its sampling efficiency?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlbhpc import launch, stats
    from rlbhpc.store.reader import open_cube

__all__ = ["__version__", "launch", "open_cube", "stats"]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    """The public names, also before their first use."""
    return __all__


# Hidden from type checkers, which would take every misspelt name for one that it gives.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the public names on first use, so that ``import rlbhpc`` stays light."""
        if name == "open_cube":
            from rlbhpc.store.reader import open_cube

            return open_cube
        if name in __all__:
            import importlib

            return importlib.import_module(f"rlbhpc.{name}")
        raise AttributeError(f"module 'rlbhpc' has no attribute {name!r}")
