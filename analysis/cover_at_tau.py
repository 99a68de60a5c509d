"""The whole distribution of success rates: Cover@τ as a curve, and the area under pass@k.

In the report of a study: `analysis: {aspects: [./analysis/cover_at_tau.py]}`.
Example: python analysis/cover_at_tau.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once, tables_of
from rlbhpc.report.chart import Axis, Chart, Colours, Panel, percent_axis, points_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import interval_columns, interval_text, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, k_grid
from rlbhpc.stats.priors import RatePrior, carries_rates, fit_prior

#: Thresholds of the curve, and those that the table shows.
LEVELS: Final = np.arange(1, 20) / 20
_COLUMNS: Final = (0.1, 0.5, 0.9)


def fitted(report: Report) -> list[MeasuredArm]:
    """The compared arms that have problems and samples enough for a distribution of rates."""
    return [arm for arm in report.compared_arms if carries_rates(arm.counts)]


def posterior_above(
    counts: Counts, tau: ArrayLike, prior: RatePrior | None = None
) -> NDArray[np.float64]:
    r"""Posterior probability that a problem's rate is at least τ (problems, thresholds).

    Its mean over problems is Cover@τ, the share of problems that are solved with probability at
    least τ. pass@k is its average under Beta(1, k), which looks only at τ of about 1/k:

    .. math:: \text{pass@}k = \int_0^1 \text{Cover@}\tau \; k (1-\tau)^{k-1}\, d\tau .

    Counting :math:`c/n \ge \tau` would be biased by noise near τ. Model-based in the choice of the
    fitted distribution (Beta with zeros where none is given), which matters for τ below about 3/n.

    Dragoi et al. (2025), arXiv:2510.08325.

    A *prior* is the distribution of rates over problems. Given a rate above 0, the posterior of a
    problem with c of n right is Beta(a + c, b + n − c); ``fitted.never`` is the posterior
    probability of rate 0. Distinct counts are computed once, and ``row_of_problem`` says which a
    problem has.
    """
    thresholds = np.atleast_1d(np.asarray(tau, np.float64))
    if not ((thresholds >= 0) & (thresholds <= 1)).all():
        raise UserError("Cover thresholds are success rates; allowed are numbers from 0 to 1")
    fitted = prior or fit_prior(counts, zero_inflated=True)
    distinct, row_of_problem, _ = counts.distinct_rows()
    n, c = distinct.n[:, None], distinct.c[:, None]
    above_if_nonzero = special.betaincc(fitted.a + c, fitted.b + n - c, thresholds)
    above = (1 - fitted.never(n, c)) * above_if_nonzero
    return np.where(thresholds <= 0, 1.0, above)[row_of_problem]


def log_area(counts: Counts, k: int) -> NDArray[np.float64]:
    r"""Area under pass@k over log k from 1 to ``k``, per problem, by trapezia between grid points.

    .. math:: A = \frac{1}{\log K} \int_1^K \text{pass@}k \; d \log k

    is the mean of pass@k over all orders of magnitude up to K, from 0 to 1: two curves that cross
    may have the same. Like pass@k it is a mean over problems, and unbiased.

    >>> log_area(Counts.of(4, [0, 4]), 4).tolist()
    [0.0, 1.0]
    """
    if k < 2:
        raise UserError(f"an area under pass@k up to k = {k} is none; allowed is 2 or more")
    sizes = k_grid(k)
    logs = np.log(sizes)
    return np.asarray(np.trapezoid(counts.pass_at_k(sizes), logs, axis=1) / logs[-1])


@dataclass(frozen=True)
class Covered:
    """Cover@τ and the area of an arm; where it is compared, the differences to its base too."""

    measured: MeasuredArm
    cover: Interval
    area: Interval | None
    pair: Comparison | None = None
    cover_difference: Interval | None = None
    area_difference: Interval | None = None


@once
def covered(report: Report) -> list[Covered]:
    """Work out both for the compared arms."""
    last = {id(pair.trained): pair for pair in report.last_comparisons}
    return [_of(report, arm, last.get(id(arm))) for arm in fitted(report)]


def _of(report: Report, arm: MeasuredArm, pair: Comparison | None) -> Covered:
    counts = arm.counts[arm.curve_rows]
    cover = report.mean(
        _above(report, arm)[arm.sampled_rows], arm.sampled_problems, "posterior Cover"
    )
    area = None
    if counts.reach > 1:
        area = report.mean(log_area(counts, counts.reach), arm.curve_problems)
    if pair is None or not carries_rates(pair.base.counts):
        return Covered(arm, cover, area)
    apart = _above(report, arm)[pair.trained_rows] - _above(report, pair.base)[pair.base_rows]
    cover_difference = report.difference_interval(apart, pair.problems)
    if pair.reach < 2:
        return Covered(arm, cover, area, pair, cover_difference)
    areas = log_area(pair.trained_counts, pair.reach) - log_area(pair.base_counts, pair.reach)
    area_difference = report.difference_interval(areas[:, None], pair.problems)[0]
    return Covered(arm, cover, area, pair, cover_difference, area_difference)


def _above(report: Report, arm: MeasuredArm) -> NDArray[np.float64]:
    """Chance of every problem to have a rate of at least τ; a base serves several arms."""
    key = (_above, id(arm))
    if key not in report.memo:
        above = np.full((len(arm.problems), len(LEVELS)), np.nan)
        above[arm.sampled_rows] = posterior_above(arm.counts[arm.sampled_rows], LEVELS)
        report.memo[key] = above
    of_arm: NDArray[np.float64] = report.memo[key]
    return of_arm


def section(report: Report) -> Iterator[Node]:
    """Curves, differences and areas, problem set by problem set."""
    for set_name, arms in report.by_set(covered(report)):
        caption = (
            "Left: share of problems that are solved with a probability of at least τ. "
            "Right: trained minus base, paired over problems, with an interval at each τ."
        )
        yield el("h3", f"{set_name}: rates and areas")
        yield figure(caption, cover_chart(arms, report.colours))
        places = [int(np.argmin(np.abs(LEVELS - level))) for level in _COLUMNS]
        rows: list[list[Cell]] = []
        for arm in arms:
            apart = arm.cover_difference
            row: list[Cell] = [arm.measured.label]
            for place in places:
                row += [interval_text(arm.cover, place), interval_text(apart, place, sign=True)]
            rows.append(row)
        heads = ["arm"]
        for level in _COLUMNS:
            heads += [f"Cover@{level:g}", "− base"]
        yield table(f"Cover@τ on {set_name}, percent", heads, rows)
        rows = [
            [arm.measured.label, arm.measured.counts[arm.measured.curve_rows].reach,
             interval_text(arm.area), interval_text(arm.area_difference, sign=True)]
            for arm in arms
        ]  # fmt: skip
        caption = f"Area under pass@k over log k on {set_name}, percent"
        yield table(caption, ["arm", "K", "area", "− base"], rows)
    if covered(report):
        yield note(
            "Cover@τ is the share of problems with a success rate of at least τ, from a fitted "
            "distribution of rates. The area is that under pass@k over log k from 1 to K, as a "
            "share of the largest possible: the mean of pass@k over all orders of magnitude."
        )


def cover_chart(arms: Sequence[Covered], colours: Colours) -> Chart:
    """Draw the curves of all arms, and the differences to their bases."""
    ticks = tuple((v, f"{v:g}") for v in (0.0, 0.25, 0.5, 0.75, 1.0))
    x = Axis(0, 1, "τ (success rate of a problem)", ticks)
    curves = Panel(x, percent_axis("Cover@τ, %"))
    apart = [arm.cover_difference for arm in arms if arm.cover_difference is not None]
    differences = Panel(x, points_axis(apart, "trained − base, points"))
    differences.level(0)
    for arm in arms:
        name, colour = arm.measured.arm, colours[arm.measured.arm]
        value = 100 * arm.cover.estimate
        curves.line(LEVELS, value, colour, name=name, dash=colours.dash(name))
        curves.end(value, name, colour)
        if arm.cover_difference is not None:
            differences.curve(LEVELS, arm.cover_difference, colour, name, opacity=0.1)
    panels = [curves, differences] if apart else [curves]
    legend = colours.legend(arm.measured.arm for arm in arms)
    return Chart(panels, lambda: cover_frame(arms), legend)


def cover_frame(arms: Sequence[Covered]) -> pd.DataFrame:
    """Cover@τ and the difference to the base, one row per arm and τ."""
    return stack_rows(
        {
            **arm.measured.key,
            "tau": LEVELS,
            **interval_columns("cover", arm.cover),
            "base": arm.pair.base.arm if arm.pair else "",
            **interval_columns("difference", arm.cover_difference, "difference_"),
        }
        for arm in arms
    )


def area_frame(arms: Sequence[Covered]) -> pd.DataFrame:
    """Area under pass@k over log k and the difference to the base, one row per arm."""
    rows = []
    for arm in arms:
        reach = arm.measured.counts[arm.measured.curve_rows].reach
        row = {**arm.measured.key, "k": reach, "base": arm.pair.base.arm if arm.pair else ""}
        # What no arm has is no column.
        for name, interval in (("area", arm.area), ("difference", arm.area_difference)):
            if interval is not None:
                row |= interval_columns(name, interval, f"{name}_")
        rows.append(row)
    return pd.DataFrame(rows)


charts = charts_by_set("cover_at_tau", covered, cover_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(covered, cover=cover_frame, area=area_frame),
)

if __name__ == "__main__":
    main(__doc__, charts)
