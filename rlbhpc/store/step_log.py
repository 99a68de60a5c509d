"""Step logs of a trainer: one JSON object a line, the last one perhaps torn off by a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlbhpc.store import left_out
from rlbhpc.store.left_out import Note


def lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a log without a line that is being written now; none without a file.

    Every line before the last was whole when it was written: a damaged one is told and left out.
    """
    rows: list[dict[str, Any]] = []
    notes: list[Note] = []
    written = path.read_bytes().split(b"\n") if path.is_file() else []
    for number, line in enumerate(written, 1):
        try:
            row = json.loads(line)
            rows.append({"step": row.pop("step"), **row})
        except (ValueError, AttributeError, LookupError, TypeError):
            if number < len(written):
                notes.append(Note(left_out.DAMAGED, f"{path}: line {number} is damaged"))
    left_out.tell(path.parent, notes)
    return rows
