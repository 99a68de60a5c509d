"""Rewards: one small file each, a function from a judged response to a number.

To add one, write ``rewards/<name>.py`` with a function ``reward(judged) -> float`` and put its name
into the table. A recipe weighs them: ``options: {rewards: {correct: 1.0, format: 0.1}}``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.verdict import Verdict

REWARDS = ("correct", "format", "brevity")


@dataclass(frozen=True)
class Judged:
    """A response with everything a reward may look at."""

    problem: Problem
    text: str
    n_tokens: int
    max_tokens: int
    finish: Finish
    verdict: Verdict


def make_reward(weights: Mapping[str, float]) -> Callable[[Judged], float]:
    """Weighted sum of the named rewards."""
    for name in weights:
        if name not in REWARDS:
            raise UserError(f"reward {name!r} is unknown; allowed: {', '.join(REWARDS)}")
    parts = [
        (weight, importlib.import_module(f"rlbhpc.train.rewards.{name}").reward)
        for name, weight in weights.items()
    ]

    def total(judged: Judged) -> float:
        return float(sum(weight * part(judged) for weight, part in parts))

    return total
