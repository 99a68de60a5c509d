"""Immutable Parquet files: a digest of the bytes ends each name and vouches for them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc import files
from rlbhpc.errors import UserError

ENDING: Final = ".parquet"
_DIGITS: Final = 16


def put(folder: Path, rows: pa.Table, beginning: str = "") -> Path:
    """Write rows, synced and in one step; the same rows give the same file."""
    stream = pa.BufferOutputStream()
    # In one piece: the bytes must not tell how often a run was interrupted.
    pq.write_table(rows.combine_chunks(), stream, compression="zstd")
    data = stream.getvalue().to_pybytes()
    path = folder / f"{beginning}{digest(data)}{ENDING}"
    files.put(path, data)
    return path


def read(path: Path, schema: pa.Schema, remedy: str) -> pa.Table:
    """Read all rows; an error that ends with ``remedy`` if a byte is not what was written."""
    data = files.retrying(path.read_bytes)
    if digest(data) != mark(path):
        raise UserError(
            f"{path}: damaged (its content does not have the digest in its name); {remedy}"
        )
    metadata = pq.read_schema(pa.BufferReader(data)).metadata
    return pq.read_table(pa.BufferReader(data), schema=schema).replace_schema_metadata(metadata)


def mark(path: Path) -> str:
    """Digest that a file has in its name."""
    return path.stem[-_DIGITS:]


def digest(data: bytes) -> str:
    """64 bits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
