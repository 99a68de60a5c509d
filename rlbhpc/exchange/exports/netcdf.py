"""The cube as netCDF-4, one group per arm and problem set."""

from __future__ import annotations

import io

import xarray as xr

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout


def write_netcdf(layout: Layout, sink: files.Sink) -> int:
    """Write the tree as it is; needs h5netcdf."""
    try:
        import h5netcdf
    except ImportError as error:
        raise UserError(
            "netCDF needs the package h5netcdf: pip install 'rlbhpc[netcdf]'"
        ) from error
    from xarray.backends import H5NetCDFStore

    tree = open_cube(layout.root)
    # In memory first: where a disk is full, HDF5 ends the whole process.
    whole = io.BytesIO()
    with h5netcdf.File(whole, "w") as root:
        for node in tree.subtree:
            group = root if node.path == "/" else root.create_group(node.path)
            store = H5NetCDFStore(group, mode="a")
            _compressed(node.to_dataset(inherit=False)).dump_to_store(store)
    sink.write(whole.getbuffer())
    return len(tree.leaves)


def _compressed(dataset: xr.Dataset) -> xr.Dataset:
    for variable in dataset.data_vars.values():
        if variable.ndim > 1 and variable.dtype != object:
            variable.encoding = {"zlib": True, "complevel": 1, "shuffle": True}
    return dataset
