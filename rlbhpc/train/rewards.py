"""Rewards: from a judged response to a number.

A recipe weighs them: ``options: {rewards: {correct: 1.0, format: 0.1}}``. Keyword arguments of the
function become options beside the weight: ``{noisy: {weight: 1.0, false_positive: 0.1}}``. NaN says
that a response cannot be scored.

To add one, write a function of a :class:`Judged` and put its line into :data:`REWARDS`. A study's
own is a function ``reward`` in a file, named as ``./mine.py``.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rlbhpc import plugins
from rlbhpc.engines.completion import Finish
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.tree import shown
from rlbhpc.verify.verdict import Status, Verdict

# Rules by which the Countdown verifier read an answer that follows the rules of the game.
SOUND_RULES = ("steps", "expression")
# Characters of an error that are shown.
MAX_CAUSE_LENGTH = 300


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


def correct(judged: Judged) -> float:
    """1 for a right answer, else 0; NaN where the verifier itself failed."""
    if judged.verdict.status is Status.ERROR:
        return math.nan
    return float(judged.verdict.right)


def format_(judged: Judged) -> float:
    """1 for a response that gives an answer and then ends by itself, right or wrong."""
    if judged.verdict.status is Status.ERROR:
        return math.nan
    has_answer = judged.verdict.status is not Status.NO_ANSWER
    return float(has_answer and judged.finish is not Finish.LENGTH)


def brevity(judged: Judged) -> float:
    """The share of the length limit that is left: from 1 (empty) down to 0 (at the limit)."""
    return 1.0 - judged.n_tokens / judged.max_tokens


def random(judged: Judged) -> float:
    """1 or 0 by the toss of a coin: a control from which nothing can be learnt."""
    return float(judged.draw("random reward") < 0.5)


def inverted(judged: Judged) -> float:
    """1 for a wrong answer, else 0: a control that asks for the opposite.

    A response without an answer gets nothing, so that silence does not pay.
    """
    if judged.verdict.status is Status.ERROR:
        return math.nan
    return float(judged.verdict.status is Status.WRONG)


def likelihood(judged: Judged) -> float:
    """How likely the model found its own response: a control that sharpens without being told.

    The geometric mean of its tokens' probabilities, exp(mean log p), at the rollout's temperature.
    A mean, so that length does not decide.
    """
    if not len(judged.logprobs):
        return math.nan
    return math.exp(float(judged.logprobs.mean(dtype="float64")))


def noisy(judged: Judged, false_positive: float = 0.0, false_negative: float = 0.0) -> float:
    """`correct` by a verifier that errs at given rates, to see how much noise training bears.

    A wrong response is taken for right with probability ``false_positive``, a right one for wrong
    with ``false_negative``, each by a draw of the response's own seed. Curves and verdicts stay
    true.
    """
    true_reward = correct(judged)
    if math.isnan(true_reward):
        return true_reward
    error_rate = false_negative if true_reward else false_positive
    is_mistaken = judged.draw("verifier noise") < error_rate
    return 1.0 - true_reward if is_mistaken else true_reward


def credit(judged: Judged, sound: float = 0.1) -> float:
    """`correct`, and ``sound`` for a Countdown answer that is sound but misses the target.

    Sound: every given number once, allowed operations, arithmetic without a mistake. Other
    verifiers give no such verdict.
    """
    is_sound = judged.problem.verifier == "countdown" and judged.verdict.rule in SOUND_RULES
    if is_sound and judged.verdict.status is Status.WRONG:
        return sound
    return correct(judged)


REWARDS: dict[str, Callable[..., float]] = {
    "correct": correct,
    "format": format_,
    "brevity": brevity,
    "random": random,
    "inverted": inverted,
    "likelihood": likelihood,
    "noisy": noisy,
    "credit": credit,
}


@dataclass(frozen=True)
class WeightedReward:
    """One line of a recipe's ``rewards``."""

    name: str
    function: Callable[..., float]
    weight: float
    options: Mapping[str, float]

    def __call__(self, judged: Judged) -> float:
        """The weighted reward of a response; NaN if it cannot be scored.

        The function may be a user's own: whatever it raises is reported with its cause, and so is a
        value that is no number.
        """
        where = f"reward {self.name}: on a response to {judged.problem.id}:"
        try:
            value = self.function(judged, **self.options)
        except (Exception, SystemExit) as error:
            cause = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_CAUSE_LENGTH]
            raise UserError(f"{where} {cause}") from error
        try:
            reward = float(value)
        except (TypeError, ValueError, OverflowError):
            reward = math.inf  # refused below
        # An infinite reward makes the baseline of its group NaN, and then the weights.
        if math.isinf(reward):
            raise UserError(
                f"{where} it gave {value!r:.80}; allowed: a number, or NaN for no reward"
            )
        return self.weight * reward


def make_reward(
    weights: Mapping[str, float | Mapping[str, float]],
) -> Callable[[Judged], float]:
    """Weighted sum of the named rewards, as a function of a judged response.

    ``weights`` has a weight for each name, or a mapping with a weight and options of the function.
    """
    if not isinstance(weights, Mapping):
        raise UserError(
            f"rewards: found {shown(weights)}; allowed: a mapping from rewards to weights"
        )
    rewards = [_weighted_reward(name, given) for name, given in weights.items()]

    def total(judged: Judged) -> float:
        return float(sum(reward(judged) for reward in rewards))

    return total


def _weighted_reward(name: str, given: float | Mapping[str, float]) -> WeightedReward:
    """One reward with its weight and options, each checked.

    ``given`` is the weight, or a mapping with the weight and options of the reward function.
    """
    function = _find_function(name)
    options = dict(given) if isinstance(given, Mapping) else {"weight": given}
    weight = options.pop("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise UserError(f"reward {name}: found the weight {shown(weight)}; allowed: a number")
    _check_options(name, inspect.signature(function), options)
    return WeightedReward(name, function, float(weight), options)


def _check_options(name: str, signature: inspect.Signature, options: Mapping[str, float]) -> None:
    """Refuse an option that the function does not have, and a function that takes no response.

    The first parameter of a reward function is the judged response; the others are its options.
    """
    allowed = list(signature.parameters)[1:]
    for option, value in options.items():
        if option not in allowed:
            names = ", ".join(["weight", *allowed])
            raise UserError(f"reward {name}: unknown option {shown(option)}; allowed: {names}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UserError(f"reward {name}: {option}: found {shown(value)}; allowed: 0 to 1")
    try:
        signature.bind(None, **options)
    except TypeError:
        raise UserError(
            f"reward {name}: its parameters are {signature}; it is called as reward(judged)"
        ) from None


def _find_function(name: str) -> Callable[..., float]:
    """The function of a reward: the package's own, or one that a study or a package brings.

    A plugin is a function in a file of the study or in an installed package.
    """
    if name in REWARDS:
        plugins.reject_own_name("rewards", name)
        return REWARDS[name]
    plugin = plugins.find("rewards", name)
    if plugin is None:
        names = ", ".join((*REWARDS, *plugins.installed("rewards")))
        raise UserError(
            f"reward {shown(name)} is unknown; allowed: {names}, or a file such as ./mine.py"
        )
    if not callable(plugin.value):
        raise UserError(f"reward {name}: found {plugin.value!r}; allowed: a function of a response")
    return cast(Callable[..., float], plugin.value)
