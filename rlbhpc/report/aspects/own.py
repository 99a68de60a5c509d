"""Statistics that a study brings: a value per problem, and its mean with an interval."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once_each
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded, percent
from rlbhpc.stats import Interval


@once_each
def own_statistics(report: Report) -> Iterator[tuple[Measured, str, Interval]]:
    """Each statistic of the study for each compared arm."""
    for name in report.settings.statistics:
        for arm in report.compared:
            if arm.sampled.any():
                counts = arm.equal_counts(arm.rows)
                mean = report.mean(_values(name, counts.n, counts.c), arm.sampled_problems)
                yield arm, plugins.label(name), mean


def _values(name: str, n: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.float64]:
    """What a statistic says of each problem; from 0 to 1, as its interval needs."""
    plugin = plugins.find("statistics", name)
    place = f"analysis.statistics: {name}"
    if plugin is None or not callable(plugin.value):
        raise UserError(f"{place}: allowed: a file with a function statistic(n, c)")
    try:
        values = np.asarray(plugin.value(n, c), np.float64)
    except Exception as error:
        raise UserError(f"{place}: it raised {type(error).__name__}: {error}") from None
    if values.shape != n.shape or not ((values >= 0) & (values <= 1)).all():
        raise UserError(f"{place}: allowed: a value from 0 to 1 for each of {len(n)} problems")
    return values


def own_frame(report: Report) -> pd.DataFrame:
    """One row per arm, step, problem set and statistic."""
    return pd.DataFrame(
        {
            **arm.key,
            "statistic": name,
            **bounded("value", value, sound=True),
        }
        for arm, name, value in own_statistics(report)
    )


def section(report: Report) -> Iterator[Node]:
    """One table over all of them."""
    rows = [
        [name, arm.problem_set, arm.label, percent(float(value.estimate)),
         f"{percent(value.low)} to {percent(value.high)}"]
        for arm, name, value in own_statistics(report)
    ]  # fmt: skip
    if rows:
        heads = ["statistic", "problem set", "arm", "mean", "interval"]
        yield el("h3", "Statistics of this study")
        yield table("Means over problems, percent", heads, rows)


ASPECT = Aspect(
    Part.RESPONSES, section, tables=lambda report: {"own_statistics": own_frame(report)}
)
