"""`correct` by a verifier that errs at given rates: how much noise does training bear?

A wrong response is taken for right with probability ``false_positive``, a right one for wrong with
``false_negative``, each by a draw of the response's own seed. Only the reward errs: curves and
verdicts stay true.
"""

from __future__ import annotations

import math

from rlbhpc.train.rewards import Judged
from rlbhpc.train.rewards.correct import reward as true_reward


def reward(judged: Judged, false_positive: float = 0.0, false_negative: float = 0.0) -> float:
    """Give what the noisy verifier says."""
    true = true_reward(judged)
    if math.isnan(true):
        return true
    errs = judged.draw("verifier noise") < (false_negative if true else false_positive)
    return 1.0 - true if errs else true
