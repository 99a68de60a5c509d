"""Tables of problem, n, c and possibly step: as CSV, JSON list of objects or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Form, ImportedCounts
from rlbhpc.exchange.formats.rows import fields, problem_id, rows, whole_number


class Counts(Form):
    """One row a problem; a field ``step`` may be there too."""

    name = "counts in CSV, JSON or JSON Lines (a row a problem: problem, n, c)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first row."""
        return {"problem", "n", "c"} <= set(fields(path))

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Read the rows."""
        lines: dict[tuple[str, int], str] = {}
        for place, row in rows(path):
            problem = problem_id(row, place)
            try:
                # None is no number: a cell of n or c may not be empty.
                n, c = whole_number(row.get("n")), whole_number(row.get("c"))
                step = whole_number(row.get("step", 0))
            except (TypeError, ValueError, OverflowError) as error:
                raise UserError(f"{place}: n, c and step are whole numbers ({error})") from error
            if not 0 <= c <= n:
                raise UserError(f"{place}: n={n}, c={c}; allowed is 0 <= c <= n")
            first = lines.setdefault((problem, step), place)
            if first != place:
                raise UserError(
                    f"{place}: {problem} at step {step} stands in {first} already; give the rows "
                    "of one arm"
                )
            yield ImportedCounts(problem, n, c, step)
