"""Pass@k training: a group is rewarded for what k of its responses would solve."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt
from typing import ClassVar

import torch
from torch import Tensor

from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals, spread


@dataclass(frozen=True)
class PassAtK(Algorithm):
    r"""The expected advantage of a response over all ways to draw k of its n siblings.

    .. math:: \bar R = 1 - \frac{\binom{n^-}{k}}{\binom{n}{k}}, \quad
              \sigma = \sqrt{\bar R (1 - \bar R)}, \quad
              A^+ = \frac{1 - \bar R}{\sigma}, \quad
              A^- = \frac{1}{\sigma} \Bigl(1 - \bar R
              - \frac{\binom{n^- - 1}{k - 1}}{\binom{n - 1}{k - 1}}\Bigr)

    Chen et al. 2025 (arXiv 2508.10751), the analytical form. n⁻ counts responses whose reward is
    not above 0. With k = 1 this is GRPO with the population deviation. A group that k responses
    always or never solve has advantage 0, and k is at most the group's size.
    """

    k: Count = 4

    PENALISES_REWARD: ClassVar[bool] = False

    def advantages(self, signals: Signals) -> Tensor:
        """Advantage of right and wrong responses of each group."""
        right = signals.rewards > 0
        out = torch.zeros(len(right), dtype=torch.float64)
        for group in signals.groups.unique().tolist():
            members = signals.groups == group
            n, wrong = int(members.sum()), int((members & ~right).sum())
            k = min(self.k, n)
            solved = 1 - comb(wrong, k) / comb(n, k)
            if not 0 < solved < 1:
                continue
            scale = sqrt(solved * (1 - solved))
            out[members & right] = (1 - solved) / scale
            unlucky = comb(wrong - 1, k - 1) / comb(n - 1, k - 1)
            out[members & ~right] = (1 - solved - unlucky) / scale
        return spread(out, signals)
