"""How much of a gain at k = 1 is sharpening: the base's own samples, likely ones weighing more.

In the report of a study: `analysis: {aspects: [./analysis/sharpening.py]}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once, read_variables, tables_of
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, points_text
from rlbhpc.stats import Interval

#: Powers of the probability, and samples of a problem that must still count for one to be chosen.
POWERS: Final = (1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
LEAST_EFFECTIVE: Final = 8.0


class Sharpened(NamedTuple):
    """pass@1 of every problem (rows) at every power (columns), and samples that still count."""

    value: NDArray[np.float64]
    effective_n: NDArray[np.float64]


def sharpened(
    right: ArrayLike, logprob: ArrayLike, judged: ArrayLike, power: ArrayLike
) -> Sharpened:
    r"""Reweight samples to powers of their probability.

    ``right, logprob, judged``: ``[problem, sample]``: whether it is right, its summed
    log-probability, whether it counts. Samples without a log-probability are left out. ``power``:
    :math:`\alpha`, from 1 (as sampled) on.

    Huang et al. (2024), "Self-Improvement in Language Models: The Sharpening Mechanism",
    arXiv:2412.01951; Karan and Du (2025), "Reasoning with Sampling", arXiv:2510.14901.

    >>> found = sharpened([[1, 0, 0]], np.log([[0.5, 0.25, 0.25]]), [[1, 1, 1]], [1, 2])
    >>> found.value.round(3).tolist(), found.effective_n.round(2).tolist()
    ([[0.333, 0.5]], [[3.0, 2.67]])
    """
    powers = np.atleast_1d(np.asarray(power, np.float64))
    if not (powers >= 1).all():
        raise UserError("powers of a sharpened base are 1 (as sampled) or more")
    is_right, logs = np.asarray(right, bool), np.asarray(logprob, np.float64)
    counted = np.asarray(judged, bool) & np.isfinite(logs)
    logs = np.where(counted, logs, -np.inf)
    best = logs.max(axis=1, keepdims=True, initial=-np.inf)
    below = np.where(counted, logs - np.where(np.isfinite(best), best, 0.0), 0.0)
    value = np.full((len(below), len(powers)), np.nan)
    effective = np.zeros_like(value)
    for column, alpha in enumerate(powers.tolist()):
        weight = np.where(counted, np.exp((alpha - 1) * below), 0.0)
        total = weight.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            value[:, column] = np.where(is_right, weight, 0.0).sum(axis=1) / total
            effective[:, column] = np.where(total > 0, total**2 / (weight**2).sum(axis=1), 0.0)
    return Sharpened(value, effective)


@dataclass(frozen=True)
class Sharpening:
    """pass@1 of a reweighted base against a trained arm.

    ``value, rest``: of the base at each power, and trained minus that, paired over problems.
    ``effective_n``: samples of a problem that still count, the median over problems. ``chosen``:
    the power with the highest value on even samples among those with enough of them. ``on_odd,
    rest_on_odd``: its value, and trained minus that, on the odd samples of the base, which had no
    part in it.
    """

    pair: Comparison
    value: Interval
    rest: Interval
    effective_n: NDArray[np.float64]
    chosen: int
    on_odd: Interval
    rest_on_odd: Interval


@once
def sharpenings(report: Report) -> list[Sharpening]:
    """Reweight the base of every last comparison; nothing where no log-probabilities are stored."""
    bases = {id(pair.base): pair.base for pair in report.last_comparisons}
    reweighted = {}
    for arm, (logprob,) in read_variables(report, list(bases.values()), ("logprob_sum",)):
        right, judged = arm.is_right, arm.is_judged
        # All samples, even ones and odd ones.
        reweighted[id(arm)] = [
            sharpened(right[:, part], logprob[:, part], judged[:, part], POWERS)
            for part in (slice(None), slice(0, None, 2), slice(1, None, 2))
        ]
    return [
        sharpening
        for pair in report.last_comparisons
        if id(pair.base) in reweighted
        for sharpening in _against(report, pair, reweighted[id(pair.base)])
    ]


def _against(report: Report, pair: Comparison, parts: list[Sharpened]) -> Iterator[Sharpening]:
    rows = pair.base_rows
    every, even, odd = (part.value[rows] for part in parts)
    has_value = np.flatnonzero(np.isfinite(every + even + odd).all(axis=1))
    if len(has_value) < 2:
        return
    problems = tuple(pair.problems[i] for i in has_value.tolist())
    trained = pair.trained_counts.pass_at_k(1)[has_value]
    still, even_still, _ = (np.median(part.effective_n[rows][has_value], axis=0) for part in parts)
    enough = even_still >= LEAST_EFFECTIVE
    enough[0] = True
    scores = np.where(enough, even[has_value].mean(axis=0), -np.inf)
    chosen = int(scores.argmax())
    values, of_odd = every[has_value], odd[has_value][:, chosen]
    yield Sharpening(
        pair,
        report.mean(values, problems),
        report.difference_interval(trained - values, problems),
        still,
        chosen,
        report.mean(of_odd, problems),
        report.difference_interval(trained - of_odd[:, None], problems)[0],
    )


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """What sharpening the base reaches beside what training reached."""
    sharpening = next((each for each in sharpenings(report) if each.pair is pair), None)
    if sharpening is None:
        return
    rows: list[list[Cell]] = [
        [power, round(float(sharpening.effective_n[i])), interval_text(sharpening.value, i),
         interval_text(sharpening.rest, i, sign=True)]
        for i, power in enumerate(POWERS)
    ]  # fmt: skip
    heads = ["power", "samples that still count", "pass@1 of the base, %", "trained − that, points"]
    drawn = (
        ""
        if as_stored(report, pair.base)
        else " These samples were not drawn at temperature 1 from all tokens, so what is sharpened "
        "is the distribution that they were drawn from."
    )
    yield el("h4", "How much is sharpening")
    yield el("p", _words(sharpening))
    yield table("The base reweighted to powers of its probability", heads, rows)
    yield note(
        "The stored samples of the base, weighted by a power of their own probability: no "
        "new sample, no training. Where few samples still count, a value is little more than "
        f"that of the likeliest one.{drawn}"
    )


def as_stored(report: Report, arm: MeasuredArm) -> bool:
    """Whether the samples were drawn at temperature 1 from all tokens, as log-probabilities are."""
    entry = report.study_arms.get(arm.arm)
    return entry is not None and entry.sampling.temperature == 1 and entry.sampling.top_p == 1


def _words(sharpening: Sharpening) -> str:
    """Split the difference at k = 1 into what reweighting reaches and the rest."""
    plain, reached = float(sharpening.value.estimate[0]), float(sharpening.on_odd.estimate)
    power = POWERS[sharpening.chosen]
    gain = points_text(float(sharpening.rest.estimate[0]))
    if sharpening.chosen == 0:
        return (
            f"Trained minus base at k = 1 is {gain} points. No power of the base's probability "
            "with enough samples left does better than the base as it was sampled."
        )
    return (
        f"Trained minus base at k = 1 is {gain} points. Reweighting the base's own samples to "
        f"power {power:g}, chosen on even samples, reaches {percent_text(reached)} % on odd ones, "
        f"{points_text(reached - plain)} points; the trained model is "
        f"{interval_text(sharpening.rest_on_odd, sign=True)} points from there."
    )


def sharpening_frame(sharpenings: list[Sharpening]) -> pd.DataFrame:
    """One row per comparison and power; ``odd`` stands for the chosen one on odd samples."""
    rows = []
    for sharpening in sharpenings:
        pair = sharpening.pair
        parts = [("all", i, sharpening.value[i], sharpening.rest[i]) for i in range(len(POWERS))]
        parts.append(("odd", sharpening.chosen, sharpening.on_odd, sharpening.rest_on_odd))
        for which, i, value, rest in parts:
            row = {**pair.key, "samples": which, "power": POWERS[i],
                   "effective_n": float(sharpening.effective_n[i])}  # fmt: skip
            rows.append(
                row
                | interval_columns("base_pass_at_1", value)
                | interval_columns("trained_minus_that", rest, "rest_")
            )
    return pd.DataFrame(rows)


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=tables_of(sharpenings, sharpening=sharpening_frame),
)
