"""Tables of problem, n, c and possibly step, as CSV or as a JSON list of objects."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import ImportedCounts, row_of, whole_json

_COLUMNS: Final = ("problem", "n", "c")


class CountsCsv:
    """``problem,n,c`` with a header line; a column ``step`` may be there too."""

    name = "CSV of counts (columns problem, n, c)"

    def fits(self, path: Path) -> bool:
        """By the ending alone: a CSV with other columns deserves a word about its columns."""
        return path.suffix.lower() == ".csv"

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Read the rows."""
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise UserError(
                    f"{path}:1: no column {missing[0]!r}; the first line must name the columns "
                    "problem, n, c and, where there are several, step"
                )
            for row in rows:
                yield _counts(row, f"{path}:{rows.line_num}")


class CountsJson:
    """A list of objects with ``problem``, ``n``, ``c`` and possibly ``step``."""

    name = "JSON of counts (a list of objects with problem, n, c)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first object."""
        if path.suffix.lower() != ".json":
            return False
        rows = whole_json(path)
        return (
            isinstance(rows, list)
            and bool(rows)
            and isinstance(rows[0], dict)
            and set(_COLUMNS) <= rows[0].keys()
        )

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Read the objects."""
        for number, row in enumerate(whole_json(path)):
            place = f"{path}: object {number}"
            with row_of(self.name, place):
                counts = _counts(row, place)
            yield counts


def _counts(row: dict[str, Any], place: str) -> ImportedCounts:
    try:
        n, c, step = int(row["n"]), int(row["c"]), int(row.get("step") or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{place}: n, c and step are whole numbers ({error})") from error
    if not 0 <= c <= n:
        raise UserError(f"{place}: n={n}, c={c}; allowed is 0 <= c <= n")
    return ImportedCounts(str(row["problem"]), n, c, step)
