"""How likely the model found its own response: a control that sharpens without being told anything.

The geometric mean of the probabilities of its tokens, exp(mean log p), at the rollout's
temperature; by token, so that length does not decide.
"""

from __future__ import annotations

import math

from rlbhpc.train.rewards import Judged


def reward(judged: Judged) -> float:
    """Give the mean probability of a token; NaN for a response without one."""
    if not len(judged.logprobs):
        return math.nan
    return math.exp(float(judged.logprobs.mean(dtype="float64")))
