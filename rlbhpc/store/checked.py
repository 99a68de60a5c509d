"""Small JSON files that tell when a byte of them was lost or flipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlbhpc.store import files


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of values, replacing an older one in one step."""
    put(path, dumps(values))


def put(path: Path, data: bytes) -> None:
    """Write a file whole: synced, under its name in one step."""
    with files.writing(path) as sink:
        sink.write(data)


def read(path: Path) -> dict[str, Any]:
    """Read a file; ValueError if it is not as it was written."""
    return loads(files.retrying(path.read_bytes))


def mark(path: Path) -> str:
    """Checksum of a file's values; ValueError if they are not as they were written."""
    return _checked(files.retrying(path.read_bytes))[1]


def dumps(values: Mapping[str, Any]) -> bytes:
    """JSON with a checksum over all its values."""
    text = json.dumps({"sha256": digest(values), **values}, ensure_ascii=False, indent=1)
    return text.encode("utf-8", "surrogatepass")


def loads(data: bytes) -> dict[str, Any]:
    """Values of :func:`dumps`; ValueError if they are not the ones that were written."""
    return _checked(data)[0]


def _checked(data: bytes) -> tuple[dict[str, Any], str]:
    values = json.loads(data)
    mark = values.pop("sha256", None) if isinstance(values, dict) else None
    if mark is None or mark != digest(values):
        raise ValueError("its checksum does not match")
    return values, mark


def digest(values: Any) -> str:
    """SHA-256 over JSON values, whatever the layout of the file around them."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
