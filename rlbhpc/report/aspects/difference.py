"""The difference of two pass@k curves: where they may cross, its gap, and where it moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.problems.problem import STRATA
from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    once_each,
    tables_of,
)
from rlbhpc.report.chart import (
    DOTTED,
    INK,
    Chart,
    Colours,
    Panel,
    k_axis,
    linear_axis,
    log_axis,
    points_axis,
)
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm, short_names
from rlbhpc.report.phrases import (
    BoolArray,
    adjusted_p,
    count_text,
    interval_columns,
    interval_text,
    percent_text,
    points_text,
    probability_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Counts, Interval, ProblemWeights
from rlbhpc.stats.curve import even_odd
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.joint import FACTOR


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """Figure, table and crossings of one comparison, as HTML.

    ``pair.crossing.sets``: intervals of k in which the two curves may cross. ``pair.reach``: the
    largest k. ``p_moved``: p-value of "the curves differ at any k", before and after Holm's
    adjustment. ``answer.factors``: shares of problems lost and gained by how many times the samples
    that asks for.
    """
    yield figure(
        "Trained minus base, paired over problems. The wide band holds the whole curve at "
        "once; the narrow one is for a single k that was fixed beforehand. The bar at the "
        "bottom: crossings that the data allow.",
        difference_chart(pair, report.colours),
    )
    yield _difference_table(report, pair)
    crossing = pair.crossing
    sets = " and ".join(map(str, crossing.sets)) or "none"
    yield el(
        "p",
        f"Crossings that the data allow: {sets}; P(crossing ≤ {pair.reach:,}) "
        f"{probability_text(crossing.probability)}. Moved at any k: p "
        f"{adjusted_p(pair.curve.p_moved, pair.p_moved_holm, len(report.last_comparisons))}.",
    )
    if pair.answer.factors:
        yield figure(
            "What “lost” and “gained” hang on: the share of problems that need at least so many "
            f"times the samples of the other side, with its band; {FACTOR:g} times is the word's.",
            factor_chart(pair, report.colours),
        )


def _difference_table(report: Report, pair: Comparison) -> Node:
    """The difference at the study's k and at the largest one, the largest first.

    ``report.k``: the k that tables show, up to one. ``pair.pointwise``: interval at each single k;
    ``curve.band`` holds the whole curve at once. ``interval_text`` is like ``+2.3 [−1.7, +6.4]``;
    ``partition`` leaves the bounds. ``informative``: whether k is at most a quarter of the samples.
    """
    sizes = {*report.k(pair.reach), pair.reach}
    rows = []
    for i, k in reversed([*enumerate(pair.curve.k.tolist())]):
        if k in sizes:
            _, _, pointwise = interval_text(pair.pointwise, i, sign=True).partition(" ")
            _, _, simultaneous = interval_text(pair.curve.band, i, sign=True).partition(" ")
            rows.append([
                k,
                percent_text(float(pair.base_rates[i])),
                percent_text(float(pair.trained_rates[i])),
                points_text(float(pair.pointwise.estimate[i])),
                pointwise or "–",
                simultaneous,
                bool(pair.curve.informative[i]),
            ])  # fmt: skip
    level = f"{100 * report.settings.prob:g} %"
    heads = ["k", "base", "trained", "difference", f"{level} at this k", f"{level} for all k",
             "k ≤ n/4"]  # fmt: skip
    caption = f"Difference in pass@k, points, {count_text(len(pair.problems), 'problem')}"
    return table(caption, heads, rows)


def difference_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw trained − base over k with both bands, and crossing sets as bars at the bottom.

    ``curve.band`` holds the whole curve at once; ``pair.pointwise`` is for a single k. A *crossing
    set* is an interval of k in which the two curves may cross. ``pair.reach``: the largest k.
    """
    curve, colour = pair.curve, colours[pair.trained.arm]
    panel = Panel(k_axis(pair.reach), points_axis([curve.band], "trained − base, points"))
    panel.shade_large_k(pair.reach)
    panel.band(curve.k, 100 * curve.band.lower, 100 * curve.band.upper, colour, 0.13)
    lower, upper = 100 * pair.pointwise.lower, 100 * pair.pointwise.upper
    panel.band(curve.k, lower, upper, colour, 0.22)
    panel.level(0)
    estimate = 100 * pair.pointwise.estimate
    if pair.reach > 1:
        panel.line(curve.k, estimate, colour, name=pair.trained.arm)
    else:  # one point makes no line
        panel.points(curve.k, estimate, colour, lower, upper, name=pair.trained.arm)
    bottom = panel.y.low
    for crossing in pair.crossing.sets:
        panel.line([crossing.lower, crossing.upper], [bottom, bottom], INK, width=5)
    return Chart([panel], lambda: difference_frame([pair]))


def difference_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Trained − base with both intervals, one row per comparison and k.

    ``pointwise``: interval at a single k. ``band``: bounds for all k at once. ``sound``: whether
    the former can be relied on. ``support``: problems behind each k. ``informative``: whether k is
    at most a quarter of the samples.
    """
    return stack_rows(
        {
            "problem_set": pair.problem_set,
            "base": pair.base.arm,
            "base_step": pair.base.step,
            "trained": pair.trained.arm,
            "step": pair.trained.step,
            "k": pair.curve.k,
            "base_pass_at_k": pair.base_rates,
            "trained_pass_at_k": pair.trained_rates,
            **interval_columns("difference", pair.pointwise),
            "band_lower": pair.curve.band.lower,
            "band_upper": pair.curve.band.upper,
            "sound": pair.pointwise.sound,
            "problems": len(pair.problems),
            "at_most_quarter_n": pair.curve.informative,
        }
        for pair in pairs
    )


def factor_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw the shares of problems lost and gained over the factor that the two words ask for.

    A problem is *lost* if the trained arm needs this factor times the samples of the base; *gained*
    is the other way round. ``FACTOR``, where the upright line stands, is the one behind the
    answer's words.
    """
    frame = factor_frame([pair])
    panel = Panel(
        log_axis([frame["factor"]], "times the samples that count as lost, gained"),
        linear_axis([100 * frame["upper"]], "share of problems, %", zero=True),
    )
    colour_of_side = {"lost": colours[pair.base.arm], "gained": colours[pair.trained.arm]}
    for side, colour in colour_of_side.items():
        rows = frame[frame["side"] == side]
        panel.band(rows["factor"], 100 * rows["lower"], 100 * rows["upper"], colour)
        panel.line(rows["factor"], 100 * rows["share"], colour, name=side)
        panel.end(100 * rows["share"], side, colour)
    panel.upright(FACTOR)
    return Chart([panel], frame)


def factor_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Shares lost and gained at each factor, one row per comparison, factor and side.

    The factor is how many times the samples of one arm the other needs before a problem counts.
    """
    rows = []
    for pair in pairs:
        for shares in pair.answer.factors:
            for side in ("lost", "gained"):
                share, lower, upper = getattr(shares, side)
                bounds = {"share": share, "lower": lower, "upper": upper}
                rows.append({**pair.key, "side": side, "factor": shares.factor, **bounds})
    return pd.DataFrame(rows)


def differences_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw the differences of several trained arms to their base over k in one panel.

    ``pair.pointwise``: difference with its interval at each k. ``pair.reach``: the largest k.
    """
    bases = {pair.base.arm for pair in pairs}
    base = bases.pop() if len(bases) == 1 else "the base"
    y = points_axis([pair.pointwise for pair in pairs], f"difference to {base}, points")
    panel = Panel(k_axis(max(pair.reach for pair in pairs)), y, height=240)
    panel.level(0, dash=DOTTED)
    names = short_names([pair.trained for pair in pairs])
    for pair, name in zip(pairs, names, strict=True):
        colour = colours[pair.trained.arm]
        panel.named_curve(pair.curve.k, pair.pointwise, colour, name, opacity=0.12)
    return Chart([panel], lambda: difference_frame(pairs))


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """Draw one chart for each comparison."""
    for pair in report.last_comparisons:
        yield f"difference-{pair.file_stem}", difference_chart(pair, report.colours)


def _last_comparisons(report: Report) -> Sequence[Comparison]:
    return report.last_comparisons


ablations = charts_by_set("ablations", _last_comparisons, differences_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {
        "difference": difference_frame(report.comparisons_at_all_steps),
        "factors": factor_frame(report.last_comparisons),
    },
    metrics=("difference", "crossing"),
    charts=charts_by_set("difference", _last_comparisons, differences_chart),
)


#: What a stratum is by where the base's success rate sorts the problems.
BY_RATE: Final = "base pass@1"
_QUARTILES: Final = (0.25, 0.5, 0.75)
# More strata than these are ids and no groups; fewer problems have no mean worth showing.
_MOST_STRATA: Final = 16
_LEAST_PROBLEMS: Final = 2


@dataclass(frozen=True)
class Stratum:
    """A comparison on some of its problems.

    ``by, name``: what splits the problems, and which of its values these have. ``k``: the largest k
    of the samples used. ``base_at_1``: pass@1 of the base. ``at_1, at_k``: trained minus base at
    k = 1 and at the largest k. ``lost, gained``: problems that only the base, and only the trained
    model, solves in k samples.
    """

    pair: Comparison
    by: str
    name: str
    problems: int
    k: int
    base_at_1: float
    at_1: Interval
    at_k: Interval
    lost: int
    gained: int


@once_each
def strata(report: Report) -> Iterator[Stratum]:
    """Split the last comparisons by what their problem set says, and by the base's success rate."""
    for pair in report.last_comparisons:
        yield from _strata_by_field(report, pair)
        yield from _strata_by_rate(report, pair)


def _strata_by_field(report: Report, pair: Comparison) -> Iterator[Stratum]:
    """Yield a comparison's strata by level, subject and what else its problem set says of problems.

    A *stratum* is the part of the problems with one value of a field. A field with one value, or
    with so many that it is an id, gives none. ``value_of``: the value of each problem; "" where
    there is none.
    """
    coordinates = report.tree[pair.base.group].coords
    for field in STRATA:
        if field not in coordinates:
            continue
        value_of = dict(zip(coordinates["problem"].values, coordinates[field].values, strict=True))
        values = np.array([value_of[problem] for problem in pair.problems])
        names = np.unique(values[values != ""]).tolist()
        if 1 < len(names) <= _MOST_STRATA:
            for name in names:
                yield from _stratum(
                    report, pair, field, name, values == name, pair.base_counts,
                    pair.trained_counts,
                )  # fmt: skip


def count_even_and_odd(
    report: Report, arm: MeasuredArm, problems: tuple[str, ...], depth: int
) -> tuple[Counts, Counts]:
    """Counts of the even and of the odd ones of the first ``depth`` samples of each problem.

    ``verdicts``: codes ``[problem, sample]``. Kept in ``report.memo``, since several parts of a
    report ask for the same.
    """
    key = (count_even_and_odd, id(arm), problems, depth)
    if key not in report.memo:
        assert arm.verdicts is not None
        report.memo[key] = even_odd(arm.verdicts[arm.rows_of(problems), :depth])
    halves: tuple[Counts, Counts] = report.memo[key]
    return halves


def _strata_by_rate(report: Report, pair: Comparison) -> Iterator[Stratum]:
    """Yield a comparison's strata by quarters of the base's success rate.

    Even samples of the base sort the problems, odd ones of both arms are compared: the samples that
    sort would favour the trained model where the base had bad luck. ``common_depth``: samples that
    every problem has. ``base_even.c / base_even.n``: right ones over all, of each problem.
    """
    depth = min(pair.base.common_depth, pair.trained.common_depth)
    if pair.base.verdicts is None or pair.trained.verdicts is None or depth < 2:
        return
    base_even, base_odd = count_even_and_odd(report, pair.base, pair.problems, depth)
    _, trained_odd = count_even_and_odd(report, pair.trained, pair.problems, depth)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = base_even.c / base_even.n
    if np.isnan(rate).any():
        return
    edges = np.unique(np.quantile(rate, _QUARTILES))
    quarter = np.searchsorted(edges, rate)
    for number in np.unique(quarter).tolist():
        rates = rate[quarter == number]
        low, high = percent_text(float(rates.min())), percent_text(float(rates.max()))
        name = f"{low} %" if low == high else f"{low} to {high} %"
        yield from _stratum(report, pair, BY_RATE, name, quarter == number, base_odd, trained_odd)


def _stratum(
    report: Report, pair: Comparison, by: str, name: str, is_member: BoolArray,
    base_counts: Counts, trained_counts: Counts,
) -> Iterator[Stratum]:  # fmt: skip
    """Compare both arms on a part of the problems; nothing where they are too few.

    ``by, name``: what splits the problems, and the value that these have. ``is_member``: which of
    the compared problems these are. ``base_counts, trained_counts``: samples and right ones of all
    compared problems. ``reach``: the largest k that all problems support. ``lost``: the expected
    number that only the base solves in k samples, from each problem's pass@k.
    """
    base, trained = base_counts[is_member], trained_counts[is_member]
    if len(base) < _LEAST_PROBLEMS:
        return
    k = min(base.reach, trained.reach)
    if not k:
        return
    problems = [pair.problems[i] for i in np.flatnonzero(is_member)]
    clusters = report.settings.cluster_labels(problems)
    # One replicate, since these intervals are computed and not drawn.
    weights = ProblemWeights.draw(len(base), np.random.default_rng(0), 1, clusters)
    curve = difference_curve(base, trained, weights, np.unique([1, k]), report.settings.prob)
    # 0 or 1 for a problem with k samples; with more, the chance that k of them hold a right one.
    base_solves, trained_solves = base.pass_at_k(k)[:, 0], trained.pass_at_k(k)[:, 0]
    yield Stratum(
        pair,
        by,
        name,
        len(base),
        k,
        base_at_1=float(base.pass_at_k(1).mean()),
        at_1=curve.pointwise[0],
        at_k=curve.pointwise[len(curve.k) - 1],
        lost=round(float((base_solves * (1 - trained_solves)).sum())),
        gained=round(float((trained_solves * (1 - base_solves)).sum())),
    )


def strata_table(report: Report, pair: Comparison) -> Iterator[Node]:
    """The table of one comparison on parts (*strata*) of its problems, as HTML.

    ``stratum.by, stratum.name``: what splits the problems, and the value that these have.
    """
    of_pair = [stratum for stratum in strata(report) if stratum.pair is pair]
    if not of_pair:
        return
    heads = ["stratum", "problems", "base pass@1, %", "− base at k = 1, points", "lost", "gained",
             "K", "− base at K, points"]  # fmt: skip
    rows = [
        [f"{stratum.by}: {stratum.name}", stratum.problems, percent_text(stratum.base_at_1),
         interval_text(stratum.at_1, sign=True), stratum.lost, stratum.gained, stratum.k,
         interval_text(stratum.at_k, sign=True)]
        for stratum in of_pair
    ]  # fmt: skip
    yield table("Where it moved", heads, rows, last=True)
    if any(stratum.by == BY_RATE for stratum in of_pair):
        yield note(
            "Quarters of the base's success rate: even samples of the base sort the problems, odd "
            "samples of both arms are compared, so that luck in the one is not seen in the other."
        )


def strata_frame(strata: Sequence[Stratum]) -> pd.DataFrame:
    """The comparisons on parts (*strata*) of their problems, one row per stratum and k.

    ``at_1, at_k``: trained minus base at k = 1 and at ``stratum.k``, the largest k. ``lost,
    gained``: problems that only the base, and only the trained arm, solves in so many samples.
    """
    return pd.DataFrame(
        {
            **stratum.pair.key,
            "by": stratum.by,
            "stratum": stratum.name,
            "problems": stratum.problems,
            "base_pass_at_1": stratum.base_at_1,
            "lost": stratum.lost,
            "gained": stratum.gained,
            "k": k,
            **interval_columns("difference", interval, sound=True),
        }
        for stratum in strata
        for k, interval in ((1, stratum.at_1), (stratum.k, stratum.at_k))
    )


STRATIFIED = Aspect(
    Part.COMPARISONS,
    comparison=strata_table,
    tables=tables_of(strata, strata=strata_frame),
)
