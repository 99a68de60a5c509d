"""The temperature at which one arm is as random as another: bisection on a seeded subset.

RL sharpens a model, so at the same temperature a trained model's answers differ less than its
base's. Whether that alone explains a lower pass@k at large k shows when the trained model is
sampled at the temperature where its mean token entropy is the base's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.schema import EntropyMatch
from rlbhpc.study.study import Study
from rlbhpc.sweep.load import load_engine, reject_unseen_images

COLDEST: Final = 0.05
HOTTEST: Final = 10.0
# Factor between temperatures while one on the other side of the target entropy is looked for.
STRIDE: Final = 1.5
# Temperatures are tried and told to this many decimals.
DECIMALS: Final = 4


@dataclass(frozen=True)
class Matched:
    """Outcome of a match.

    ``target`` is the entropy of the other arm and ``entropy`` that of this one at ``temperature``,
    in nats per token; ``tried`` are all temperatures with their entropies, in order.
    """

    temperature: float
    entropy: float
    target: float
    tried: tuple[tuple[float, float], ...]


def match(study: Study, name: str, say: Callable[[str], None]) -> Matched:
    """Find the temperature at which one arm's mean token entropy is that of another.

    ``name``: entry under ``match_entropy``: ``entry.to`` is the arm whose entropy is the target, at
    its own temperature; ``entry.arm`` the one whose temperature is sought. ``say``: tells the user
    each measurement. ``bisect`` tries temperatures until the entropy is within the entry's
    tolerance.
    """
    entry = study.file.match_entropy[name]
    problems = draw_problems(study, entry)
    with closing(_load_arm_engine(study, entry.to)) as engine:
        target = mean_entropy(study, entry, engine, entry.to, None, problems)
    say(f"{entry.to}: {target:.4f} nat per token")

    def entropy_at(temperature: float) -> float:
        entropy = mean_entropy(study, entry, engine, entry.arm, temperature, problems)
        say(f"{entry.arm} at {temperature:g}: {entropy:.4f} nat per token")
        return entropy

    with closing(_load_arm_engine(study, entry.arm)) as engine:
        start = study.arms[entry.arm].sampling.temperature
        return bisect(entropy_at, target, start, entry.tolerance)


def bisect(
    entropy_at: Callable[[float], float], target: float, start: float, tolerance: float
) -> Matched:
    """Find a temperature whose entropy differs from ``target`` by at most ``tolerance``.

    Entropy grows with temperature. From ``start`` on the temperature is multiplied or divided until
    the target lies between two of them; that interval is then halved.

    ``entropy_at`` is expensive (it samples a model), so each temperature is measured once and kept
    in ``tried``. ``low`` and ``high`` enclose the target; the search also ends where they differ by
    no more than the resolution of temperatures.
    """
    tried: dict[float, float] = {}

    def measure(temperature: float) -> float:
        if temperature not in tried:
            tried[temperature] = entropy_at(temperature)
        return tried[temperature]

    def nearest() -> float:
        return min(tried, key=lambda temperature: abs(tried[temperature] - target))

    high = min(max(round(start, DECIMALS), COLDEST), HOTTEST)
    low = high
    while measure(high) < target - tolerance and high < HOTTEST:
        low = high
        high = min(round(high * STRIDE, DECIMALS), HOTTEST)
    while measure(low) > target + tolerance and low > COLDEST:
        high = low
        low = max(round(low / STRIDE, DECIMALS), COLDEST)
    smallest_interval = 2 * 10**-DECIMALS
    while abs(tried[nearest()] - target) > tolerance and high - low > smallest_interval:
        middle = round((low + high) / 2, DECIMALS)
        if measure(middle) < target:
            low = middle
        else:
            high = middle
    temperature = nearest()
    if abs(tried[temperature] - target) > tolerance:
        raise UserError(
            f"no temperature from {COLDEST} to {HOTTEST} brings the entropy to {target:.4f}; the "
            f"nearest is {tried[temperature]:.4f} at {temperature:g}; raise the match's "
            "`tolerance`, `problems` or `n`"
        )
    return Matched(temperature, tried[temperature], target, tuple(tried.items()))


def draw_problems(study: Study, entry: EntropyMatch) -> list[Problem]:
    """Draw the problems on which both arms are measured, from those that both answer.

    ``entry.arm`` is the arm whose temperature is sought, ``entry.to`` the one that it is matched
    to.
    """
    problems: list[Problem] = []
    for set_name in study.sets(entry.arm):
        if set_name in study.sets(entry.to):
            problems += study.problems(set_name)
    if not problems:
        raise UserError(f"arms {entry.arm} and {entry.to} have no problem set in common")
    number = min(entry.problems, len(problems))
    return random.Random(entry.seed).sample(problems, number)


def mean_entropy(
    study: Study, entry: EntropyMatch, engine: Engine, name: str, temperature: float | None,
    problems: list[Problem],
) -> float:  # fmt: skip
    """Mean entropy per sampled token of an arm's answers, all answers taken together.

    ``name``: of the arm. ``temperature``: None takes that of the arm. The seeds are the same at
    every temperature, so that neighbouring ones differ by little else.

    ``entry``: the match: ``n`` samples of each problem and a seed. Entropies come per token, in
    nats; a request that fails ends the measurement.
    """
    arm = study.arms[name]
    sampling = arm.sampling
    if temperature is not None:
        sampling = replace(sampling, temperature=temperature)

    def requests() -> Iterator[Request]:
        """Requests for the first ``n`` samples of every problem, each with the seed of its key."""
        prompts = [render(study.prompts[arm.prompt], problem) for problem in problems]
        tags = count()
        for problem, prompt_ids in zip(problems, engine.tokens.encode_all(prompts), strict=True):
            images = problem.pictures
            for index in range(entry.n):
                key = SampleKey(name, arm.steps[-1], problem.id, index)
                yield Request(next(tags), prompt_ids, sample_seed(entry.seed, key), images)

    reject_unseen_images(engine, name, problems)
    entropy_sum = 0.0
    token_count = 0
    for completion in engine.generate(requests(), sampling):
        if completion.finish is Finish.ERROR:
            raise UserError(f"arm {name}: {completion.error}")
        entropy_sum += float(completion.entropies.sum())
        token_count += len(completion.entropies)
    return entropy_sum / token_count


def _load_arm_engine(study: Study, arm_name: str) -> Engine:
    """Load the last checkpoint of an arm."""
    arm = study.arms[arm_name]
    return load_engine(study, study.engine(arm_name), arm.model, arm.steps[-1])
