"""Rewards: one small file each, a function from a judged response to a number.

To add one, write ``rewards/<name>.py`` with a function ``reward(judged) -> float`` and put its name
into the table. A recipe weighs them: ``options: {rewards: {correct: 1.0, format: 0.1}}``. Keyword
arguments of the function become options beside the weight:
``{noisy: {weight: 1.0, false_positive: 0.1}}``. NaN says that a response cannot be scored.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rlbhpc import plugins
from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.tree import shown
from rlbhpc.verify.verdict import Verdict

REWARDS = ("correct", "format", "brevity", "random", "inverted", "likelihood", "noisy", "credit")
# What TRL's rewards take first, which get all responses at once.
_BATCHES = {"prompts", "completions", "completion_ids"}


@dataclass(frozen=True)
class Judged:
    """A response with everything a reward may look at.

    ``seed`` is the one that it was drawn from; ``logprobs`` are the sampler's, of its tokens.
    """

    problem: Problem
    text: str
    n_tokens: int
    max_tokens: int
    finish: Finish
    verdict: Verdict
    seed: int = 0
    logprobs: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def draw(self, purpose: str) -> float:
        """A number from 0 to 1 that belongs to this response, whatever interrupts the run."""
        digest = hashlib.sha256(f"{purpose}\0{self.seed}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def make_reward(
    weights: Mapping[str, float | Mapping[str, float]],
) -> Callable[[Judged], float]:
    """Weighted sum of the named rewards."""
    if not isinstance(weights, Mapping):
        raise UserError(
            f"rewards: found {shown(weights)}; allowed: a mapping from rewards to weights"
        )
    parts = [(name, *_part(name, given)) for name, given in weights.items()]

    def total(judged: Judged) -> float:
        return float(sum(weight * _value(name, part, judged) for name, weight, part in parts))

    return total


def _value(name: str, part: Callable[[Judged], float], judged: Judged) -> float:
    place = f"reward {name}: on a response to {judged.problem.id}:"
    try:
        value = part(judged)
    except (Exception, SystemExit) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(f"{place} {cause}") from error
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    # An infinite one makes a baseline of its group, and then weights, that are NaN.
    if math.isinf(number):
        raise UserError(f"{place} it gave {value!r:.80}; allowed: a number, or NaN for no reward")
    return number


def _part(name: str, given: float | Mapping[str, float]) -> tuple[float, Callable[[Judged], float]]:
    function = _function(name)
    options = dict(given) if isinstance(given, Mapping) else {"weight": given}
    weight = options.pop("weight", 1.0)
    signature = inspect.signature(function)
    allowed = list(signature.parameters)[1:]
    for option, value in options.items():
        if option not in allowed:
            options_allowed = ", ".join(["weight", *allowed])
            raise UserError(
                f"reward {name}: unknown option {shown(option)}; allowed: {options_allowed}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UserError(f"reward {name}: {option}: found {shown(value)}; allowed: 0 to 1")
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise UserError(f"reward {name}: found the weight {shown(weight)}; allowed: a number")
    try:
        takes_judged = _BATCHES.isdisjoint(signature.bind(None, **options).arguments)
    except TypeError:
        takes_judged = False
    if not takes_judged:
        raise UserError(
            f"reward {name}: its parameters are {signature}; it is called as reward(judged)"
        )
    return float(weight), partial(function, **options)


def _function(name: str) -> Callable[..., float]:
    """The function of a reward: the package's own, or one that a study or a package brings."""
    if name in REWARDS:
        plugins.reject_taken("rewards", name)
        module = importlib.import_module(f"rlbhpc.train.rewards.{name}")
        return cast(Callable[..., float], module.reward)
    plugin = plugins.find("rewards", name)
    if plugin is None:
        names = ", ".join((*REWARDS, *plugins.installed("rewards")))
        raise UserError(
            f"reward {shown(name)} is unknown; allowed: {names}, or a file such as ./mine.py"
        )
    if not callable(plugin.value):
        raise UserError(f"reward {name}: found {plugin.value!r}; allowed: a function of a response")
    return cast(Callable[..., float], plugin.value)
