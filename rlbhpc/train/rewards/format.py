"""1 for a response that commits to an answer and then ends by itself, whatever the answer."""

from __future__ import annotations

from rlbhpc.engines.completion import Finish
from rlbhpc.train.rewards import Judged
from rlbhpc.verify.verdict import Status


def reward(judged: Judged) -> float:
    """Give 1 if an answer was found in a response that was not cut off; NaN if none was read."""
    if judged.verdict.status is Status.ERROR:
        return float("nan")
    answered = judged.verdict.status is not Status.NO_ANSWER
    return float(answered and judged.finish is not Finish.LENGTH)
