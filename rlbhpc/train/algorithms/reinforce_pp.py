"""REINFORCE++ and its baseline variant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from rlbhpc.study.complaints import Share, Weight
from rlbhpc.train.algorithms.algorithm import (
    Algorithm,
    Degrees,
    Signals,
    group_mean,
    spread,
    whiten,
)


@dataclass(frozen=True)
class ReinforcePP(Algorithm):
    r"""Reward-to-go with the penalty inside, whitened over all response tokens of the batch.

    .. math:: A_t = \mathrm{whiten}\Bigl(\sum_{j \ge t} \gamma^{j-t} (r\,1[j = T] - \beta\,k1_j)
              \Bigr)

    Hu 2025 (arXiv 2501.03262). The whitening is over tokens, so a long response weighs more than
    a short one. ``floor`` divides by √max(var, eps) (OpenRLHF) instead of √(var + eps) (verl).
    """

    gamma: Share = 1.0
    ddof: Degrees = 1
    eps: Weight = 1e-8
    floor: bool = False

    PRESETS: ClassVar = {
        "verl": {"dual_clip": 3.0},
        "openrlhf": {"ddof": 0, "floor": True},
    }

    def advantages(self, signals: Signals) -> Tensor:
        """Whitened reward-to-go."""
        returns = self.rewards_to_go(signals, self.gamma)
        return whiten(returns, signals.mask, self.ddof, self.eps, self.floor)


@dataclass(frozen=True)
class ReinforcePPBaseline(ReinforcePP):
    r"""The same whitening over rewards that are centred within each prompt's group first.

    A group that is all right does not get exactly 0 unless every group is: the whitening subtracts
    the token-weighted mean of the batch.
    """

    def advantages(self, signals: Signals) -> Tensor:
        """Whitened centred reward."""
        centred = signals.rewards - group_mean(signals.rewards, signals.groups)
        if self.kl_beta:
            return super().advantages(replace(signals, rewards=centred))
        tokens = spread(centred, signals)
        return whiten(tokens, signals.mask, self.ddof, self.eps, self.floor)
