"""rlbhpc: did RL training move a model's reasoning boundary, or only its sampling efficiency?"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

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


def _accessor(name: str, data: Any) -> Any:
    """Make the ``.rlb`` of a Dataset or tree; its rooms are imported on first use."""
    from rlbhpc.store import accessor

    return getattr(accessor, name)(data)


def _register(xarray: Any) -> None:
    xarray.register_dataset_accessor("rlb")(partial(_accessor, "DatasetAccessor"))
    xarray.register_datatree_accessor("rlb")(partial(_accessor, "TreeAccessor"))


class _WhenXarrayIsImported:
    """Registers ``.rlb`` with xarray whenever that comes, which takes a third of a second."""

    searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find xarray as it would be found without this, and register once it was executed.

        A library that only looks whether xarray is there never executes what it finds.
        """
        if name != "xarray" or self.searching:
            return None
        self.searching = True
        spec = importlib.util.find_spec(name)
        self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                sys.meta_path.remove(self)
                execute(module)
                _register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "xarray" in sys.modules:
    _register(sys.modules["xarray"])
else:
    sys.meta_path.insert(0, _WhenXarrayIsImported())
