"""Statistics of HELM by instance: ``per_instance_stats.json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Form, ImportedCounts, choose_score, row_of
from rlbhpc.exchange.formats.json_stream import entries, first_value


class HelmStats(Form):
    """Sums and counts of metrics per instance; the trials of an instance are added up.

    ``--metric`` names the metric, such as exact_match. Perturbed instances are left out: they are
    other problems.
    """

    name = "HELM statistics (per_instance_stats.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first object."""
        first = first_value(path)
        return isinstance(first, dict) and {"instance_id", "stats"} <= first.keys()

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedCounts]:
        """Read n and c of every instance."""
        totals: dict[str, tuple[int, int]] = {}
        for number, row in entries(path):
            place = f"{path}: object {number}"
            with row_of(self.name, place):
                if row.get("perturbation"):
                    continue
                problem = str(row["instance_id"])
                n, c = _counts(row, metric, place)
                earlier_n, earlier_c = totals.get(problem, (0, 0))
                totals[problem] = earlier_n + n, earlier_c + c
        for problem, (n, c) in totals.items():
            yield ImportedCounts(problem, n, c)


def _counts(row: dict[str, Any], metric: str | None, place: str) -> tuple[int, int]:
    scores = {str(stat["name"]["name"]): stat for stat in row["stats"]}
    stat = choose_score(scores, metric, place)
    n, c = int(stat["count"]), float(stat["sum"])
    if not 0 <= c <= n or not c.is_integer():
        raise UserError(
            f"{place}: {metric or next(iter(scores))} has the sum {c:g} over {n}; allowed is a "
            "metric that is 0 or 1 for each response"
        )
    return n, int(c)
