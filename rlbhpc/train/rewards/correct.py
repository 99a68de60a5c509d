"""1 for a right answer, else 0; NaN where the verifier itself failed, which says nothing."""

from __future__ import annotations

from rlbhpc.train.rewards import Judged
from rlbhpc.verify.verdict import Status


def reward(judged: Judged) -> float:
    """Give 1 if the verifier says right."""
    if judged.verdict.status is Status.ERROR:
        return float("nan")
    return float(judged.verdict.right)
