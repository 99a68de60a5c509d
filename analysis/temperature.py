"""Each model at its best temperature, and the trained model as random as its base.

In the report of a study: `analysis: {aspects: [./analysis/temperature.py]}`.
Example: python analysis/temperature.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once
from rlbhpc.report.aspects.responses import responses
from rlbhpc.report.chart import (
    BASE_COLOUR,
    DASHED,
    Chart,
    Colours,
    Key,
    Panel,
    k_axis,
    percent_axis,
    points_axis,
)
from rlbhpc.report.compare import common_problems
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import count_text, interval_columns, interval_text, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats import k_grid
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes
from rlbhpc.stats.interval import PROB, Interval, ProblemWeights, Target, check_prob


def percentile_interval(
    estimate: ArrayLike,
    draws: NDArray[np.float64],
    prob: float,
    method: str,
    sound: ArrayLike,
) -> Interval:
    """Population interval between quantiles of draws, stretched where it misses the estimate.

    ``draws``: (draws, ...), of the same quantity as ``estimate`` (...).
    """
    point = np.asarray(estimate, np.float64)
    lower, upper = np.quantile(draws, [(1 - check_prob(prob)) / 2, (1 + prob) / 2], axis=0)
    return Interval(
        point,
        np.fmin(lower, point),
        np.fmax(upper, point),
        Target.POPULATION,
        method,
        prob,
        np.asarray(sound),
    )


@dataclass(frozen=True)
class Envelope:
    """Best mean pass@k over temperatures.

    ``interval``: value and population interval. The maximum is taken anew in each replicate, so the
    choice of temperature is part of the uncertainty. ``temperature``: the best temperature at each
    k. ``replicates``: replicates of the value, to compare two envelopes drawn with the same
    weights.
    """

    k: NDArray[np.int64]
    interval: Interval
    temperature: NDArray[np.float64]
    replicates: NDArray[np.float64]


def envelope(
    by_temperature: Mapping[float, Counts],
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> Envelope:
    """Take the best temperature of one model at each k.

    ``by_temperature``: counts at each temperature, the same problems in the same order. ``k``: draw
    sizes; a log-spaced grid where not given.

    The best of several noisy values is biased up by part of their noise, and each replicate takes
    its own best. Compare two models over equally many temperatures, where most of it cancels.
    """
    if not by_temperature:
        raise UserError("an envelope needs counts at one temperature at least")
    temperatures = np.asarray(sorted(by_temperature))
    reach = min(counts.reach for counts in by_temperature.values())
    sizes = as_sizes(reach if k is None else k)
    values = np.stack([by_temperature[t].pass_at_k(sizes) for t in temperatures.tolist()], axis=1)
    mean = values.mean(axis=0)
    best = mean.argmax(axis=0)
    replicates = weights.means(values).max(axis=1)
    interval = percentile_interval(
        mean.max(axis=0),
        replicates,
        prob,
        "problem bootstrap, percentile, temperature chosen in each replicate",
        weights.units >= 50,
    )
    return Envelope(sizes, interval, temperatures[best], replicates)


def envelope_difference(base: Envelope, trained: Envelope, prob: float = PROB) -> Interval:
    """Trained minus base envelope, paired over problems, pointwise in k."""
    if base.replicates.shape != trained.replicates.shape or (base.k != trained.k).any():
        raise UserError("envelopes differ in k or in bootstrap weights; draw both with the same")
    return percentile_interval(
        trained.interval.estimate - base.interval.estimate,
        trained.replicates - base.replicates,
        prob,
        "paired problem bootstrap, percentile, temperatures chosen in each replicate",
        base.interval.sound & trained.interval.sound,
    )


def matched_temperature(temperature: ArrayLike, entropy: ArrayLike, wanted: float) -> float:
    """Temperature at which a model's entropy equals ``wanted``, by linear interpolation.

    ``temperature``: temperatures that were sampled, at least two. ``entropy``: mean token entropy
    at each. ``wanted``: entropy of the model to match.

    >>> matched_temperature([0.6, 1.0], [0.22, 0.62], 0.47)
    0.85
    """
    t, h = _by_temperature(temperature, entropy)
    if not h.min() <= wanted <= h.max():
        raise UserError(
            f"entropy {wanted:g} is outside what the sampled temperatures give, {h.min():g} to "
            f"{h.max():g}; sample the model at a {'higher' if wanted > h.max() else 'lower'} one"
        )
    order = np.argsort(h)
    return round(float(np.interp(wanted, h[order], t[order])), 12)


def matched_pass_at_k(
    temperature: ArrayLike, entropy: ArrayLike, curves: ArrayLike, wanted: float
) -> NDArray[np.float64]:
    """pass@k at equal entropy, interpolated between the curves of neighbouring temperatures.

    ``temperature, entropy``: as in :func:`matched_temperature`. ``curves``: one curve per
    temperature (rows): means, values per problem, or replicates. ``wanted``: entropy of the model
    to match.
    """
    matched = matched_temperature(temperature, entropy, wanted)
    t = np.asarray(temperature, np.float64)
    order = np.argsort(t)
    rows = np.asarray(curves, np.float64)[order]
    t = t[order]
    right = int(np.clip(np.searchsorted(t, matched), 1, len(t) - 1))
    share = (matched - t[right - 1]) / (t[right] - t[right - 1])
    return np.asarray((1 - share) * rows[right - 1] + share * rows[right])


def _by_temperature(
    temperature: ArrayLike, entropy: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    t, h = np.asarray(temperature, np.float64), np.asarray(entropy, np.float64)
    if t.shape != h.shape or t.ndim != 1 or len(t) < 2:
        raise UserError("entropy matching needs one entropy for each of two or more temperatures")
    order = np.argsort(t)
    t, h = t[order], h[order]
    if (np.diff(h) <= 0).any():
        raise UserError(
            f"entropy does not rise with temperature: {h.tolist()} at {t.tolist()}; "
            "sample more, or compare the envelopes"
        )
    return t, h


@dataclass(frozen=True)
class Temperatures:
    """Envelopes of a base and of a model trained from it, on the problems of all their arms.

    ``arms`` holds the temperature of each arm and the arm itself at the step that is compared.
    """

    problem_set: str
    base: str
    trained: str
    arms: tuple[tuple[tuple[float, MeasuredArm], ...], tuple[tuple[float, MeasuredArm], ...]]
    envelopes: tuple[Envelope, Envelope]
    difference: Interval
    problems: int


@dataclass(frozen=True)
class Matched:
    """A base arm beside the trained model at the temperature at which both are equally random.

    ``entropy``: of the base, in nats per token; the trained model is brought to it.
    ``temperature``: where it has that entropy, between the temperatures that were sampled. ``k,
    difference``: trained minus base pass@k there, paired over problems. The interval does not know
    how uncertain the two entropies are.
    """

    measured: MeasuredArm
    trained: str
    entropy: float
    temperature: float
    k: NDArray[np.int64]
    difference: Interval


@once
def temperatures(report: Report) -> list[Temperatures]:
    """Compare envelopes of all pairs whose models were sampled at two temperatures or more."""
    by_pair: dict[tuple[str, str, str, str], Temperatures] = {}
    for pair in report.last_comparisons:
        if pair.base.arm not in report.study_arms or pair.trained.arm not in report.study_arms:
            continue
        sides = _alike(report, pair.base), _alike(report, pair.trained)
        prompt = report.study_arms[pair.base.arm].prompt
        key = (pair.base.problem_set, pair.base.model, pair.trained.model, prompt)
        if min(len(side) for side in sides) < 2 or key in by_pair:
            continue
        every = [*sides[0].values(), *sides[1].values()]
        problems = common_problems(every)
        if len(problems) > 1:
            reach = min(arm.counts_of(problems).reach for arm in every)
            weights, k, prob = (
                report.settings.weights(problems),
                k_grid(reach),
                report.settings.prob,
            )
            base, trained = (
                envelope({t: m.counts_of(problems) for t, m in side.items()}, weights, k, prob)
                for side in sides
            )
            by_pair[key] = Temperatures(
                pair.base.problem_set,
                pair.base.model,
                pair.trained.model,
                (tuple(sorted(sides[0].items())), tuple(sorted(sides[1].items()))),
                (base, trained),
                envelope_difference(base, trained, prob),
                len(problems),
            )
    return list(by_pair.values())


def _alike(report: Report, arm: MeasuredArm) -> dict[float, MeasuredArm]:
    """Arms like this one at this step but for their temperature."""
    own = report.study_arms[arm.arm]
    return {
        study_arm.sampling.temperature: other
        for other in report.measured_arms
        if other.step == arm.step and other.problem_set == arm.problem_set
        and other.has_samples.any()
        and (study_arm := report.study_arms.get(other.arm)) is not None
        and (study_arm.model, study_arm.prompt) == (own.model, own.prompt)
        and replace(study_arm.sampling, temperature=0) == replace(own.sampling, temperature=0)
    }  # fmt: skip


@once
def matched(report: Report) -> list[Matched]:
    """Match every sampled temperature of a base that the trained model's temperatures enclose."""
    if not temperatures(report):
        return []
    entropy = {id(m.measured): float(m.entropy.estimate) for m in responses(report)}
    return [
        match
        for comparison in temperatures(report)
        for _, base in comparison.arms[0]
        for match in _match(report, comparison, base, entropy)
    ]


def _match(
    report: Report, comparison: Temperatures, base: MeasuredArm, entropy: dict[int, float]
) -> Iterator[Matched]:
    arms = [arm for _, arm in comparison.arms[1]]
    if any(id(arm) not in entropy for arm in (base, *arms)):
        return
    problems = common_problems([base, *arms])
    k = comparison.envelopes[0].k
    sampled, level = [t for t, _ in comparison.arms[1]], entropy[id(base)]
    heights = [entropy[id(arm)] for arm in arms]
    curves = [arm.counts_of(problems).pass_at_k(k) for arm in arms]
    try:
        temperature = matched_temperature(sampled, heights, level)
        values = matched_pass_at_k(sampled, heights, curves, level)
    except UserError:
        return  # none of its temperatures makes the trained model as random
    each = values - base.counts_of(problems).pass_at_k(k)
    weights = report.settings.weights(problems)
    difference = percentile_interval(
        each.mean(axis=0), weights.means(each), report.settings.prob,
        "paired problem bootstrap, percentile", np.broadcast_to(weights.units >= 50, k.shape),
    )  # fmt: skip
    yield Matched(base, comparison.trained, level, temperature, k, difference)


def section(report: Report) -> Iterator[Node]:
    """Best temperatures, then what is left of a difference at equal entropy."""
    for comparison in temperatures(report):
        caption = (
            "Each model at the temperature that is best for it at each k (bold, with intervals), "
            "all temperatures thin; on the right the difference of the two, paired over problems."
        )
        head = f"{comparison.problem_set}: {comparison.trained} and {comparison.base}"
        yield el("h3", f"{head}, best temperature")
        yield figure(caption, temperature_chart(comparison, report.colours))
        k = comparison.envelopes[0].k
        rows: list[list[Cell]] = []
        for i in _ends(len(k)):
            row: list[Cell] = [int(k[i])]
            for side in comparison.envelopes:
                row += [float(side.temperature[i]), interval_text(side.interval, i)]
            rows.append([*row, interval_text(comparison.difference, i, sign=True)])
        heads = ["k", f"best T of {comparison.base}", "pass@k, %"]
        heads += [f"best T of {comparison.trained}", "pass@k, %", "trained − base, points"]
        caption = (
            f"Each model at its best temperature, {count_text(comparison.problems, 'problem')}"
        )
        yield table(caption, heads, rows)
    for set_name, matches in report.by_set(matched(report)):
        rows = [
            [match.trained, match.measured.label, f"{match.entropy:.3f}",
             f"{match.temperature:.2f}", int(match.k[i]),
             interval_text(match.difference, i, sign=True)]
            for match in matches
            for i in _ends(len(match.k))
        ]  # fmt: skip
        heads = ["trained", "base", "entropy of the base", "T of the trained", "k",
                 "trained − base, points"]  # fmt: skip
        yield el("h3", f"{set_name}: at equal entropy")
        yield from (el("p", _left(match)) for match in matches)
        yield table(f"The trained model on {set_name}, as random as its base", heads, rows)
        yield note(
            "pass@k between two sampled temperatures is interpolated. The interval does not hold "
            "the uncertainty of the entropies themselves."
        )


def temperature_chart(comparison: Temperatures, colours: Colours) -> Chart:
    """Draw all curves thinly and both envelopes boldly; on the right, their difference."""
    colour = colours[comparison.arms[1][0][1].arm]
    k = comparison.envelopes[0].k
    reach = int(k[-1])
    curves = Panel(k_axis(reach), percent_axis())
    sides = ((DASHED, BASE_COLOUR, comparison.base), ("", colour, comparison.trained))
    for arms, best, (dash, ink, name) in zip(
        comparison.arms, comparison.envelopes, sides, strict=True
    ):
        for temperature, arm in arms:
            if arm.curve is not None:
                inside = arm.curve.k <= reach
                value = 100 * arm.curve.interval.estimate[inside]
                thin = f"{name}, T = {temperature:g}"
                curves.line(arm.curve.k[inside], value, ink, name=thin, dash=dash, width=0.7)
        curves.curve(best.k, best.interval, ink, f"{name}, best temperature", dash=dash)
        curves.end(100 * best.interval.estimate, name, ink)
    low, high = 100 * comparison.difference.lower, 100 * comparison.difference.upper
    y = points_axis([comparison.difference], "best trained − best base, points")
    difference = Panel(k_axis(reach), y)
    difference.band(k, low, high, colour, 0.2)
    difference.level(0)
    difference.line(k, 100 * comparison.difference.estimate, colour, name=comparison.trained)
    legend = tuple(Key(name, ink, dash) for dash, ink, name in sides)
    return Chart([curves, difference], lambda: temperature_frame([comparison]), legend)


def temperature_frame(comparisons: Sequence[Temperatures]) -> pd.DataFrame:
    """Both envelopes with their temperatures and the difference, one row per pair and k."""
    return stack_rows(
        {
            "problem_set": comparison.problem_set,
            "base": comparison.base,
            "trained": comparison.trained,
            "k": base.k,
            **interval_columns("base_pass_at_k", base.interval, "base_"),
            "base_temperature": base.temperature,
            **interval_columns("trained_pass_at_k", trained.interval, "trained_"),
            "trained_temperature": trained.temperature,
            **interval_columns("difference", comparison.difference, sound=True),
            "problems": comparison.problems,
        }
        for comparison in comparisons
        for base, trained in [comparison.envelopes]
    )


def matched_frame(matches: Sequence[Matched]) -> pd.DataFrame:
    """Differences at equal entropy, one row per base arm, trained model and k."""
    return stack_rows(
        {
            "problem_set": match.measured.problem_set,
            "base": match.measured.arm,
            "trained": match.trained,
            "entropy": match.entropy,
            "temperature": match.temperature,
            "k": match.k,
            **interval_columns("difference", match.difference),
        }
        for match in matches
    )


def _left(match: Matched) -> str:
    last = match.difference[len(match.k) - 1]
    leads = {1: "the trained model leads", -1: "the base leads", 0: "neither leads for certain"}
    return (
        f"With {match.trained} at a temperature of {match.temperature:.2f}, where it is as random "
        f"as {match.measured.label} ({match.entropy:.3f} nat per token), "
        f"{leads[int(last.sign)]} at k = {int(match.k[-1]):,}: "
        f"{interval_text(last, sign=True)} points."
    )


def _ends(number: int) -> list[int]:
    """Last, middle and first place."""
    return sorted({0, number // 2, number - 1}, reverse=True)


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a pair of models."""
    for comparison in temperatures(report):
        models = f"{comparison.base}-{comparison.trained}-{comparison.problem_set}"
        yield f"temperature-{models}", temperature_chart(comparison, report.colours)


ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=lambda report: {
        "temperature": temperature_frame(temperatures(report)),
        "equal_entropy": matched_frame(matched(report)),
    },
    charts=charts,
)

if __name__ == "__main__":
    main(__doc__, charts)
