"""A trained model as random as its base: what is left of a lead at equal entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.responses import Responses
from rlbhpc.report.temperatures import Temperatures
from rlbhpc.stats import Interval, Target
from rlbhpc.stats.temperature import matched_pass_at_k, matched_temperature


@dataclass(frozen=True)
class Matched:
    """A base arm beside the trained model at the temperature at which both are equally random.

    Attributes
    ----------
    entropy
        Of the base, in nats per token; the trained model is brought to it.
    temperature
        Where it has that entropy, between the temperatures that were sampled.
    k, difference
        Trained minus base pass@k there, paired over problems. The interval does not know how
        uncertain the two entropies are.
    """

    base: Measured
    trained: str
    entropy: float
    temperature: float
    k: NDArray[np.int64]
    difference: Interval


def matched(
    report: Report, found: Sequence[Temperatures], written: Sequence[Responses]
) -> list[Matched]:
    """Match every sampled temperature of a base that the trained model's temperatures enclose."""
    entropy = {id(one.of): float(one.entropy.estimate) for one in written}
    made = []
    for one in found:
        for _, base in one.arms[0]:
            same = _match(report, one, base, entropy)
            made += [same] if same is not None else []
    return made


def _match(
    report: Report, one: Temperatures, base: Measured, entropy: dict[int, float]
) -> Matched | None:
    arms = [arm for _, arm in one.arms[1]]
    if any(id(arm) not in entropy for arm in (base, *arms)):
        return None
    kept = [p for p, s in zip(base.problems, base.sampled, strict=True) if s]
    for arm in arms:
        known = {p for p, s in zip(arm.problems, arm.sampled, strict=True) if s}
        kept = [p for p in kept if p in known]
    k = one.envelopes[0].k
    temperature, wanted = [t for t, _ in one.arms[1]], entropy[id(base)]
    heights = [entropy[id(arm)] for arm in arms]
    curves = [arm.counts[arm.rows_of(kept)].pass_at_k(k) for arm in arms]
    try:
        at = matched_temperature(temperature, heights, wanted)
        values = matched_pass_at_k(temperature, heights, curves, wanted)
    except UserError:
        return None  # none of its temperatures makes the trained model as random
    each = values - base.counts[base.rows_of(kept)].pass_at_k(k)
    weights, prob = report.draws.of(tuple(kept)), report.settings.prob
    lower, upper = np.quantile(weights.means(each), [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    difference = Interval(
        each.mean(axis=0), lower, upper, Target.POPULATION,
        "paired problem bootstrap, percentile", prob,
        np.broadcast_to(weights.units >= 50, k.shape),
    )  # fmt: skip
    return Matched(base, one.trained, wanted, at, k, difference)
