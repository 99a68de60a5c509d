"""1 or 0 by the toss of a coin: a control from which nothing can be learnt."""

from __future__ import annotations

from rlbhpc.train.rewards import Judged


def reward(judged: Judged) -> float:
    """Give 1 to every second response, whatever it says."""
    return float(judged.draw("random reward") < 0.5)
