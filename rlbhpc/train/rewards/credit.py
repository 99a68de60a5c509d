"""1 for a right answer, and ``sound`` for a Countdown answer that is sound but misses the target.

Sound: every given number once, allowed operations, arithmetic without a mistake. Other verifiers
give no such verdict, and wrong answers of theirs get 0.
"""

from __future__ import annotations

from rlbhpc.train.rewards import Judged
from rlbhpc.train.rewards.correct import reward as true_reward
from rlbhpc.verify.verdict import Status

SOUND = ("steps", "expression")


def reward(judged: Judged, sound: float = 0.1) -> float:
    """Give 1, ``sound`` or 0; NaN where the verifier failed."""
    is_sound = judged.problem.verifier == "countdown" and judged.verdict.rule in SOUND
    if is_sound and judged.verdict.status is Status.WRONG:
        return sound
    return true_reward(judged)
