"""CISPO: the importance weight is clipped, and no token loses its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlbhpc.study.complaints import Weight
from rlbhpc.train.algorithms.algorithm import Cells
from rlbhpc.train.algorithms.grpo import GRPO
from rlbhpc.train.losses import MAX_LOG_RATIO


@dataclass(frozen=True)
class CISPO(GRPO):
    r"""GRPO's advantage times log-prob, weighed by the clipped ratio without its gradient.

    .. math:: \ell_t = -\mathrm{sg}[\mathrm{clip}(\rho_t, 1 - \epsilon_l, 1 + \epsilon_h)]\,
              A\, \log \pi_t

    MiniMax 2025 (arXiv 2506.13585). PPO's clip drops rare tokens of large ratio, such as those
    that begin a new thought; here they keep a bounded weight.
    """

    clip_low: Weight = 1.0
    clip_high: Weight = 0.28

    def loss(self, cells: Cells) -> Tensor:
        """Weighed negative log-likelihood."""
        ratio = cells.log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        weight = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return -weight * cells.advantages * cells.logp * cells.mask
