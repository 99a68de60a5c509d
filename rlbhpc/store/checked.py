"""Small JSON files that tell when a byte of them was lost or flipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlbhpc import files


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of values with a checksum over them, replacing an older one in one step."""
    text = json.dumps({"sha256": digest(values), **values}, ensure_ascii=False, indent=1)
    files.put(path, text.encode("utf-8", "surrogatepass"))


def read(path: Path) -> dict[str, Any]:
    """Read a file; ValueError if it is not as it was written."""
    return _read(path)[0]


def mark(path: Path) -> str:
    """Checksum of a file's values; ValueError if they are not as they were written."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], str]:
    values = json.loads(files.retrying(path.read_bytes))
    mark = values.pop("sha256", None) if isinstance(values, dict) else None
    if mark is None or mark != digest(values):
        raise ValueError("its checksum does not match")
    return values, mark


def digest(values: Any) -> str:
    """SHA-256 over JSON values, whatever the layout of the file around them."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
