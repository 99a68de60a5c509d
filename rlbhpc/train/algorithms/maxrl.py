"""MaxRL, the smallest example of adding an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, zeros_like

from rlbhpc.train.algorithms.algorithm import Algorithm, Signals, group_mean, spread


@dataclass(frozen=True)
class MaxRL(Algorithm):
    r"""Centred reward over the group's mean: rare successes weigh most.

    .. math:: A_i = (r_i - \mu_{g(i)}) / \mu_{g(i)}, \quad 0 \text{ where } \mu_{g(i)} \le 0

    With rewards in {0, 1} this is the gradient of log p instead of p for every prompt.
    """

    PENALISES_REWARD: ClassVar[bool] = False

    def advantages(self, signals: Signals) -> Tensor:
        """Mean-normalised reward on every token."""
        mean = group_mean(signals.rewards, signals.groups)
        ratio = (signals.rewards - mean) / mean
        return spread(ratio.where(mean > 0, zeros_like(ratio)), signals)
