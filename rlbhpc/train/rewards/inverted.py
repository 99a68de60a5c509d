"""1 for a wrong answer, else 0: a control that asks for the opposite.

A response without an answer gets nothing, so that to be silent does not pay. NaN where the verifier
itself failed.
"""

from __future__ import annotations

from rlbhpc.train.rewards import Judged
from rlbhpc.verify.verdict import Status


def reward(judged: Judged) -> float:
    """Give 1 if the verifier says wrong."""
    if judged.verdict.status is Status.ERROR:
        return float("nan")
    return float(judged.verdict.status is Status.WRONG)
