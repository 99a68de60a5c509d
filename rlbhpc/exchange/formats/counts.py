"""CSV with the columns problem, n, c and possibly step."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import ImportedCounts

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
                yield self._counts(row, f"{path}:{rows.line_num}")

    @staticmethod
    def _counts(row: dict[str, str], place: str) -> ImportedCounts:
        try:
            n, c, step = int(row["n"]), int(row["c"]), int(row.get("step") or 0)
        except (TypeError, ValueError) as error:
            raise UserError(f"{place}: n, c and step are whole numbers ({error})") from error
        if not 0 <= c <= n:
            raise UserError(f"{place}: n={n}, c={c}; allowed is 0 <= c <= n")
        return ImportedCounts(row["problem"], n, c, step)
