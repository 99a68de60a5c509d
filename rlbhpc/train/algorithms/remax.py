"""ReMax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlbhpc.train.algorithms.algorithm import Algorithm, Signals, spread


@dataclass(frozen=True)
class ReMax(Algorithm):
    r"""Reward-to-go minus the reward of the greedy response to the same prompt.

    .. math:: A_{it} = \sum_{j \ge t} (r_i 1[j = T_i] - \beta\,k1_{ij}) - r(\text{greedy}_{g(i)})

    Li et al. 2023 (arXiv 2310.10505). One greedy response per prompt is the whole baseline, so a
    single sample per prompt is enough. The penalty is accumulated to the end, as in verl; the
    authors' own code keeps each token's penalty to itself.
    """

    NEEDS_GREEDY: ClassVar[bool] = True

    def advantages(self, signals: Signals) -> Tensor:
        """Baselined reward-to-go."""
        assert signals.greedy is not None
        return (self.rewards_to_go(signals) - spread(signals.greedy, signals)) * signals.mask
