"""Samples and right ones of every problem: CSV, or JSON with the same columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout

_COLUMNS: Final = ("arm", "model", "problem_set", "step", "problem", "n", "c")


def write_csv(layout: Layout, sink: files.Sink) -> int:
    """Write a table with a header line."""
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    table.writeheader()
    rows = list(_counts(layout))
    table.writerows(rows)
    sink.write(text.getvalue().encode())
    return len(rows)


def write_json(layout: Layout, sink: files.Sink) -> int:
    """Write a list of objects."""
    rows = list(_counts(layout))
    sink.write(json.dumps(rows, ensure_ascii=False, indent=1).encode())
    return len(rows)


def _counts(layout: Layout) -> Iterator[dict[str, Any]]:
    """Samples and right ones of every problem and step that has samples."""
    for node in open_cube(layout.root).subtree:
        group = node.to_dataset()
        if group.attrs.get("kind") not in {"samples", "counts"}:
            continue
        names = [str(group[name].item()) for name in ("arm", "model", "problem_set")]
        table = group.rlb.counts()
        if "stop_after" in table.coords:
            raise UserError(
                f"{'/'.join(names[::2])}: its problems stop at {int(table['stop_after'])} right "
                "samples, which n and c alone cannot say; export its samples instead"
            )
        n, c = table["n"].values, table["c"].values
        problems, steps = group["problem"].values.tolist(), group["step"].values.tolist()
        for j, i in np.argwhere(n.T > 0).tolist():
            row = (*names, steps[j], problems[i], int(n[i, j]), int(c[i, j]))
            yield dict(zip(_COLUMNS, row, strict=True))
