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
from typing import Final

from rlbhpc.engines.completion import Finish, Request
from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import render
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.schema import EntropyMatch
from rlbhpc.study.study import Study
from rlbhpc.sweep.load import load_engine, refuse_unseen

COLDEST: Final = 0.05
HOTTEST: Final = 10.0
# How far one step looks for a temperature on the other side of the wanted entropy.
STRIDE: Final = 1.5
# Temperatures are tried and told to this many decimals.
DECIMALS: Final = 4


@dataclass(frozen=True)
class Matched:
    """Outcome of a match.

    ``wanted`` is the entropy of the other arm and ``entropy`` that of this one at ``temperature``,
    in nats per token; ``tried`` are all temperatures with their entropies, in order.
    """

    temperature: float
    entropy: float
    wanted: float
    tried: tuple[tuple[float, float], ...]


def match(study: Study, name: str, say: Callable[[str], None]) -> Matched:
    """Find the temperature of one entry under ``match_entropy``."""
    entry = study.file.match_entropy[name]
    problems = subset(study, entry)
    with closing(_engine(study, entry.to)) as engine:
        wanted = mean_entropy(study, entry, engine, entry.to, None, problems)
    say(f"{entry.to}: {wanted:.4f} nat per token")

    def entropy(temperature: float) -> float:
        value = mean_entropy(study, entry, engine, entry.arm, temperature, problems)
        say(f"{entry.arm} at {temperature:g}: {value:.4f} nat per token")
        return value

    with closing(_engine(study, entry.arm)) as engine:
        return bisect(entropy, wanted, study.arms[entry.arm].sampling.temperature, entry.tolerance)


def bisect(
    entropy: Callable[[float], float], wanted: float, start: float, tolerance: float
) -> Matched:
    """Find a temperature whose entropy differs from ``wanted`` by at most ``tolerance``.

    Entropy grows with temperature. From ``start`` on the temperature is multiplied or divided
    until the wanted entropy lies between two of them; that interval is then halved.
    """
    tried: dict[float, float] = {}

    def at(temperature: float) -> float:
        temperature = round(temperature, DECIMALS)
        if temperature not in tried:
            tried[temperature] = entropy(temperature)
        return tried[temperature]

    low = high = min(max(round(start, DECIMALS), COLDEST), HOTTEST)
    while at(high) < wanted - tolerance and high < HOTTEST:
        low, high = high, min(round(high * STRIDE, DECIMALS), HOTTEST)
    while at(low) > wanted + tolerance and low > COLDEST:
        low, high = max(round(low / STRIDE, DECIMALS), COLDEST), low

    def best() -> float:
        return min(tried, key=lambda t: abs(tried[t] - wanted))

    while abs(tried[best()] - wanted) > tolerance and high - low > 2 * 10**-DECIMALS:
        middle = round((low + high) / 2, DECIMALS)
        if at(middle) < wanted:
            low = middle
        else:
            high = middle
    nearest = best()
    if abs(tried[nearest] - wanted) > tolerance:
        raise UserError(
            f"no temperature from {COLDEST} to {HOTTEST} brings the entropy to {wanted:.4f}; the "
            f"nearest is {tried[nearest]:.4f} at {nearest:g}; raise the match's `tolerance`, "
            "`problems` or `n`"
        )
    return Matched(nearest, tried[nearest], wanted, tuple(tried.items()))


def subset(study: Study, entry: EntropyMatch) -> list[Problem]:
    """Draw the problems on which both arms are measured, from those that both answer."""
    shared = [s for s in study.sets(entry.arm) if s in study.sets(entry.to)]
    problems = [p for set_name in shared for p in study.problems(set_name)]
    if not problems:
        raise UserError(f"arms {entry.arm} and {entry.to} have no problem set in common")
    count = min(entry.problems, len(problems))
    return random.Random(entry.seed).sample(problems, count)


def mean_entropy(
    study: Study, entry: EntropyMatch, engine: Engine, name: str, temperature: float | None,
    problems: list[Problem],
) -> float:  # fmt: skip
    """Mean entropy per sampled token of an arm's answers, all answers taken together.

    The seeds are the same at every temperature, so that neighbouring ones differ by little else.
    """
    arm = study.arms[name]
    sampling = arm.sampling
    if temperature is not None:
        sampling = replace(sampling, temperature=temperature)

    def requests() -> Iterator[Request]:
        prompts = [render(study.prompts[arm.prompt], problem) for problem in problems]
        for number, ids in enumerate(engine.tokens.encode_all(prompts)):
            problem = problems[number]
            images = problem.pictures
            for index in range(entry.n):
                key = SampleKey(name, arm.steps[-1], problem.id, index)
                seed = sample_seed(entry.seed, key)
                yield Request(number * entry.n + index, ids, seed, images)

    refuse_unseen(engine, name, problems)
    total, tokens = 0.0, 0
    for done in engine.generate(requests(), sampling):
        if done.finish is Finish.ERROR:
            raise UserError(f"arm {name}: {done.error}")
        total += float(done.entropies.sum())
        tokens += len(done.entropies)
    return total / tokens


def _engine(study: Study, arm: str) -> Engine:
    entry = study.arms[arm]
    return load_engine(study, study.engine(arm), entry.model, entry.steps[-1])
