"""Each model at its best temperature, where a study sampled it at several."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlbhpc.report.compare import common_problems
from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.stats import Interval, k_grid
from rlbhpc.stats.temperature import Envelope, envelope, envelope_difference


@dataclass(frozen=True)
class Temperatures:
    """Envelopes of a base and of a model trained from it, on the problems of all their arms.

    ``arms`` holds the temperature of each arm and the arm itself at the step that is compared.
    """

    problem_set: str
    base: str
    trained: str
    arms: tuple[tuple[tuple[float, Measured], ...], tuple[tuple[float, Measured], ...]]
    envelopes: tuple[Envelope, Envelope]
    difference: Interval
    problems: int


def temperatures(report: Report) -> list[Temperatures]:
    """Compare envelopes of all pairs whose models were sampled at two temperatures or more."""
    found: dict[tuple[str, str, str, str], Temperatures] = {}
    for one in report.final:
        if one.base.arm not in report.arms or one.trained.arm not in report.arms:
            continue
        sides = _alike(report, one.base), _alike(report, one.trained)
        prompt = report.arms[one.base.arm].prompt
        key = (one.base.problem_set, one.base.model, one.trained.model, prompt)
        if min(len(side) for side in sides) < 2 or key in found:
            continue
        made = _compare(report, *sides)
        if made is not None:
            found[key] = made
    return list(found.values())


def _alike(report: Report, one: Measured) -> dict[float, Measured]:
    """Arms like this one at this step but for their temperature."""
    here = report.arms[one.arm]
    return {
        arm.sampling.temperature: other
        for other in report.measured
        if other.step == one.step and other.problem_set == one.problem_set
        and other.sampled.any()
        and (arm := report.arms.get(other.arm)) is not None
        and (arm.model, arm.prompt) == (here.model, here.prompt)
        and replace(arm.sampling, temperature=0) == replace(here.sampling, temperature=0)
    }  # fmt: skip


def _compare(
    report: Report, base: dict[float, Measured], trained: dict[float, Measured]
) -> Temperatures | None:
    every = [*base.values(), *trained.values()]
    problems = common_problems(every)
    if len(problems) < 2:
        return None
    weights = report.draws.of(problems)
    reach = min(one.counts[one.rows_of(problems)].reach for one in every)
    k, prob = k_grid(reach), report.settings.prob
    ours, theirs = (
        envelope({t: m.counts[m.rows_of(problems)] for t, m in side.items()}, weights, k, prob)
        for side in (base, trained)
    )
    return Temperatures(
        every[0].problem_set,
        every[0].model,
        next(iter(trained.values())).model,
        (tuple(sorted(base.items())), tuple(sorted(trained.items()))),
        (ours, theirs),
        envelope_difference(ours, theirs, prob),
        len(problems),
    )
