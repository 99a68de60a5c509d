"""Negative-sample reinforcement: unlearn what is wrong, hardly push what is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlbhpc.study.complaints import Weight
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals, spread


@dataclass(frozen=True)
class NegativeSample(Algorithm):
    r"""REINFORCE with advantage −1 for a wrong response and λ for a right one.

    .. math:: A_i = \lambda\,1[r_i > 0] - 1[r_i \le 0]

    Zhu et al. 2025 (arXiv 2506.01347): W-REINFORCE with λ = ``positive`` = .1, negative samples
    alone with 0. There is no baseline, so a group that is all wrong is unlearnt as well.
    """

    positive: Weight = 0.1

    PENALISES_REWARD: ClassVar[bool] = False

    def advantages(self, signals: Signals) -> Tensor:
        """Sign of the reward, the positive one weighed."""
        right = signals.rewards > 0
        values = torch.where(right, self.positive, -1.0).double()
        return spread(values, signals)
