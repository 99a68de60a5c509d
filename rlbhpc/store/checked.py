"""Files that tell when a byte of them was lost or flipped.

Small JSON files carry a checksum over their values and are replaced whole. Parquet files never
change: a digest of the bytes ends each name and vouches for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rlbhpc import files
from rlbhpc.errors import UserError


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of values with a checksum over them, replacing an older one in one step."""
    text = json.dumps({"sha256": digest(values), **values}, ensure_ascii=False, indent=1)
    files.put(path, text.encode("utf-8", "surrogatepass"))


def read(path: Path) -> dict[str, Any]:
    """Read a file; ValueError if it is not as it was written."""
    values = json.loads(files.retry_stale(path.read_bytes))
    checksum = values.pop("sha256", None) if isinstance(values, dict) else None
    if checksum is None or checksum != digest(values):
        raise ValueError("its checksum does not match")
    return dict(values)


def digest(values: Any) -> str:
    """SHA-256 over JSON values, whatever the layout of the file around them."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


PARQUET: Final = ".parquet"
_DIGITS: Final = 16


def put_parquet(folder: Path, rows: pa.Table, prefix: str = "") -> Path:
    """Write rows to a new file, synced and in one step; the same rows give the same file.

    Its name is ``prefix`` and the digest of its bytes.
    """
    stream = pa.BufferOutputStream()
    # In one piece: the bytes must not tell how often a run was interrupted.
    pq.write_table(rows.combine_chunks(), stream, compression="zstd")
    data = stream.getvalue().to_pybytes()
    path = folder / f"{prefix}{digest_of_bytes(data)}{PARQUET}"
    files.put(path, data)
    return path


def read_parquet(path: Path, schema: pa.Schema, remedy: str) -> pa.Table:
    """Read all rows of a file whose name ends with the digest of its bytes.

    ``schema``: the columns and their types. ``remedy``: what the user is told to do where a byte is
    not what was written, which is an error.
    """
    data = files.retry_stale(path.read_bytes)
    if digest_of_bytes(data) != digest_of_name(path):
        raise UserError(
            f"{path}: damaged (its content does not have the digest in its name); {remedy}"
        )
    return pq.read_table(pa.BufferReader(data), schema=schema)


def digest_of_name(path: Path) -> str:
    """Digest that a file has in its name."""
    return path.stem[-_DIGITS:]


def digest_of_bytes(data: bytes) -> str:
    """64 bits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
