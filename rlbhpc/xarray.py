"""What xarray has of this package: ``.rlb`` on Datasets and trees, and the engine ``rlbhpc``.

``import rlbhpc.xarray`` registers both, and :func:`rlbhpc.open_cube` imports it. So does xarray
where it looks for an engine, by the entry point in ``pyproject.toml``: newer versions do not look
where a built-in engine is named. Programs without a use for ``.rlb`` import this too, so the rooms
behind it wait for a first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import xarray as xr
from xarray.backends import BackendEntrypoint

if TYPE_CHECKING:
    from rlbhpc.store.accessor import DatasetAccessor, TreeAccessor


@xr.register_dataset_accessor("rlb")  # type: ignore[no-untyped-call, untyped-decorator]
def dataset_methods(dataset: xr.Dataset) -> DatasetAccessor:
    """Give a Dataset its ``.rlb``."""
    methods: DatasetAccessor = import_module("rlbhpc.store.accessor").DatasetAccessor(dataset)
    return methods


@xr.register_datatree_accessor("rlb")  # type: ignore[no-untyped-call, untyped-decorator]
def tree_methods(tree: xr.DataTree) -> TreeAccessor:
    """Give a tree its ``.rlb``."""
    methods: TreeAccessor = import_module("rlbhpc.store.accessor").TreeAccessor(tree)
    return methods


class RunBackend(BackendEntrypoint):
    """Open the folder of a run, also while jobs write, or its cube, by ``engine="rlbhpc"``."""

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: Any = None, group: str = "/"
    ) -> xr.Dataset:
        """Open one group."""
        tree = self.open_datatree(filename_or_obj, drop_variables=drop_variables)
        return tree[group].to_dataset()

    def open_datatree(self, filename_or_obj: Any, *, drop_variables: Any = None) -> xr.DataTree:
        """Open all groups of a run, or of its cube, as a tree of Datasets.

        ``filename_or_obj``: the folder. ``drop_variables``: names of variables to leave out.
        """
        tree: xr.DataTree = import_module("rlbhpc.store.reader").open_cube(filename_or_obj)
        if drop_variables is not None:
            tree = tree.map_over_datasets(
                lambda data: data.drop_vars(drop_variables, errors="ignore")
            )
        return tree
