"""The difference of two pass@k curves with both bands, and where they may cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, single_chart
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.chart import (
    DOTTED,
    INK,
    Chart,
    Colours,
    Panel,
    k_axis,
    linear_axis,
    log_axis,
    points_axis,
    row_axis,
)
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import (
    adjusted_p,
    count_text,
    interval_columns,
    interval_text,
    percent_text,
    points_text,
    probability_text,
    stack_rows,
)
from rlbhpc.stats.joint import FACTOR


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """Figure, table and crossings of one comparison."""
    crossing = pair.crossing
    sets = " and ".join(str(part) for part in crossing.sets) or "none"
    yield figure(
        "Trained minus base, paired over problems. The wide band holds the whole curve at "
        "once; the narrow one is for a single k that was fixed beforehand. The bar at the "
        "bottom: crossings that the data allow.",
        difference_chart(pair, report.colours),
    )
    sizes = {*report.k(pair.reach), pair.reach}
    rows: list[list[Cell]] = [
        [
            k,
            percent_text(float(pair.rates[0][i])),
            percent_text(float(pair.rates[1][i])),
            points_text(float(pair.pointwise.estimate[i])),
            interval_text(pair.pointwise, i, sign=True).partition(" ")[2] or "–",
            interval_text(pair.curve.band, i, sign=True).partition(" ")[2],
            bool(pair.curve.informative[i]),
        ]
        for i, k in enumerate(pair.curve.k.tolist())
        if k in sizes
    ][::-1]
    level = f"{100 * report.settings.prob:g} %"
    heads = ["k", "base", "trained", "difference", f"{level} at this k", f"{level} for all k",
             "k ≤ n/4"]  # fmt: skip
    caption = f"Difference in pass@k, points, {count_text(len(pair.problems), 'problem')}"
    yield table(caption, heads, rows)
    yield el(
        "p",
        f"Crossings that the data allow: {sets}; P(crossing ≤ {pair.reach:,}) "
        f"{probability_text(crossing.probability)}. Moved at any k: p "
        f"{adjusted_p(pair.curve.p_moved, pair.p_moved_holm, len(report.final))}.",
    )
    if pair.answer.factors:
        yield figure(
            "What “lost” and “gained” hang on: the share of problems that need at least so many "
            f"times the samples of the other side, with its band; {FACTOR:g} times is the word's.",
            factor_chart(pair, report.colours),
        )


def difference_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw trained − base: pointwise and simultaneous band, crossing sets as bars at the bottom."""
    curve, colour = pair.curve, colours[pair.trained.arm]
    band, pointwise = curve.band, pair.pointwise
    middle, low, high = (100 * e for e in (pointwise.estimate, pointwise.lower, pointwise.upper))
    y = points_axis([band], "trained − base, points")
    panel = Panel(k_axis(pair.reach), y)
    panel.doubt(pair.reach)
    panel.band(curve.k, 100 * band.lower, 100 * band.upper, colour, 0.13)
    panel.band(curve.k, low, high, colour, 0.22)
    panel.level(0)
    if pair.reach > 1:
        panel.line(curve.k, middle, colour, name=pair.trained.arm)
    else:  # one point makes no line
        panel.points(curve.k, middle, colour, low, high, name=pair.trained.arm)
    for crossing in pair.crossing.sets:
        panel.line([crossing.lower, crossing.upper], [y.low, y.low], INK, width=5)
    return Chart([panel], lambda: difference_frame([pair]))


def factor_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw the shares lost and gained by how many times the samples "lost" means."""
    frame = factor_frame([pair])
    y = linear_axis([100 * frame["upper"]], "share of problems, %", zero=True)
    panel = Panel(log_axis([frame["factor"]], "times the samples that count as lost, gained"), y)
    for side, colour in (("lost", colours[pair.base.arm]), ("gained", colours[pair.trained.arm])):
        rows = frame[frame["side"] == side]
        panel.band(rows["factor"], 100 * rows["lower"], 100 * rows["upper"], colour)
        panel.line(rows["factor"], 100 * rows["share"], colour, name=side)
        panel.end(100 * rows["share"], side, colour)
    panel.upright(FACTOR)
    return Chart([panel], frame)


def factor_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Shares lost and gained at each factor, one row per comparison, side and factor."""
    rows = []
    for pair in pairs:
        for shares in pair.answer.factors:
            for side, (estimate, lower, upper) in (
                ("lost", shares.lost),
                ("gained", shares.gained),
            ):
                ends = {"share": estimate, "lower": lower, "upper": upper}
                rows.append({**pair.key, "side": side, "factor": shares.factor, **ends})
    return pd.DataFrame(rows)


def differences_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw the pointwise differences of several arms to their base: algorithms, ablations."""
    bases = {pair.base.arm for pair in pairs}
    name = bases.pop() if len(bases) == 1 else "the base"
    y = points_axis([pair.pointwise for pair in pairs], f"difference to {name}, points")
    panel = Panel(k_axis(max(pair.reach for pair in pairs)), y, height=240)
    panel.level(0, dash=DOTTED)
    several_steps = len({pair.trained.arm for pair in pairs}) < len(pairs)
    for pair in pairs:
        colour = colours[pair.trained.arm]
        name = pair.trained.label if several_steps else pair.trained.arm
        panel.curve(pair.curve.k, pair.pointwise, colour, name, opacity=0.12)
        panel.end(100 * pair.net.estimate, name, colour)
    return Chart([panel], lambda: difference_frame(pairs))


def difference_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Trained − base with both intervals, one row per comparison and k."""
    return stack_rows(
        {
            "problem_set": pair.base.problem_set,
            "base": pair.base.arm,
            "base_step": pair.base.step,
            "trained": pair.trained.arm,
            "step": pair.trained.step,
            "k": pair.curve.k,
            "base_pass_at_k": pair.rates[0],
            "trained_pass_at_k": pair.rates[1],
            **interval_columns("difference", pair.pointwise),
            "band_lower": pair.curve.band.lower,
            "band_upper": pair.curve.band.upper,
            "sound": pair.pointwise.sound,
            "problems": pair.curve.support,
            "at_most_quarter_n": pair.curve.informative,
        }
        for pair in pairs
    )


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a comparison."""
    for pair in report.final:
        yield f"difference-{pair.slug}", difference_chart(pair, report.colours)


ablations = charts_by_set("ablations", lambda report: report.final, differences_chart)
set_differences = charts_by_set("difference", lambda report: report.final, differences_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {
        "difference": difference_frame(report.every_comparison),
        "factors": factor_frame(report.final),
    },
    metrics=("difference", "crossing"),
    charts=set_differences,
)


def gap_sentence(_: Report, pair: Comparison) -> Iterator[Node]:
    """The gap of one comparison in words."""
    yield el(
        "p",
        f"Sampling-efficiency gap, base pass@{pair.gap_k:,} − trained pass@1: "
        f"{interval_text(pair.gap, sign=True)} points; smaller is better.",
    )


def delta_se_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw base pass@K − trained pass@1 with intervals, the smallest at the top."""
    order = sorted(pairs, key=lambda pair: float(pair.gap.estimate))
    x = points_axis([pair.gap for pair in order], "base pass@K − trained pass@1, points")
    panel = Panel(x, row_axis(max(len(order), 1)), height=34 * max(len(order), 1))
    for number, pair in enumerate(order):
        name = f"{pair.trained.label}, {pair.base.problem_set} (K = {pair.gap_k:,})"
        middle = panel.row(number, name)
        ends = 100 * pair.gap.lower, 100 * pair.gap.upper
        colour = colours[pair.trained.arm]
        panel.points(100 * pair.gap.estimate, middle, colour, *ends, name=name, sideways=True)
    return Chart([panel], lambda: delta_se_frame(pairs))


def delta_se_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """The gap with its interval, one row per comparison."""
    return pd.DataFrame(
        {
            **pair.key,
            "k": pair.gap_k,
            **interval_columns("delta_se", pair.gap, sound=True),
            "problems": len(pair.problems),
        }
        for pair in pairs
    )


gap_charts = single_chart("delta_se", lambda report: report.final, delta_se_chart)

GAP = Aspect(
    Part.COMPARISONS,
    comparison=gap_sentence,
    tables=lambda report: {"delta_se": delta_se_frame(report.every_comparison)},
    metrics=("Delta_SE",),
    charts=gap_charts,
)
