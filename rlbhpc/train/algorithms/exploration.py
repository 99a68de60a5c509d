"""Algorithms against a collapse of entropy: covariance rules, and pass@k as the reward."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, sqrt
from typing import ClassVar

import torch
from torch import Tensor

from rlbhpc.study.complaints import Share, Weight
from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import MAX_LOG_RATIO, Algorithm, Cells, Signals, spread
from rlbhpc.train.algorithms.grpo import GRPO


@dataclass(frozen=True)
class ClipCov(GRPO):
    r"""GRPO in which a share of the tokens of high covariance gives no gradient.

    .. math:: c_t = (A_t - \bar A)(\log \pi_t - \overline{\log \pi})

    Cui et al. 2025 (arXiv 2505.22617): entropy falls as the policy makes likely tokens of high
    advantage likelier still. Of the tokens with ``cov_low`` < c < ``cov_high``, as many as
    ``share`` of all tokens are drawn at random. The means are over the whole update and log π is
    that of the policy that sampled, so that micro-batches and ranks change nothing; verl takes
    the policy of the moment and the micro-batch.
    """

    share: Share = 2e-4
    cov_low: float = 1.0
    cov_high: float = 5.0

    def marks(self, logp: Tensor, advantages: Tensor, mask: Tensor, step: int) -> Tensor | None:
        """Draw tokens between the bounds, by a generator of the step."""
        cov = covariances(logp, advantages, mask)
        marked = torch.zeros_like(mask)
        places = torch.nonzero((cov > self.cov_low) & (cov < self.cov_high) & mask)
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(step))
        rows, columns = places[order[: max(1, int(self.share * int(mask.sum())))]].T
        marked[rows, columns] = True
        return marked

    def loss(self, cells: Cells) -> Tensor:
        """Take the surrogate of all but the marked tokens."""
        return super().loss(cells) * ~cells.marked


@dataclass(frozen=True)
class KLCov(GRPO):
    r"""GRPO without a clip, in which the tokens of highest covariance pay for every move.

    .. math:: \ell_t = -\rho_t A_t
              + \beta\,|\log \pi_t - \log \pi_{old,t}|\,1[t \in \mathrm{top}_k(c)]

    Cui et al. 2025 (arXiv 2505.22617); c as in `ClipCov`, k a ``share`` of the tokens. In an
    exactly on-policy step the second term has no gradient: take several updates per rollout.
    """

    share: Share = 2e-4
    cov_kl: Weight = 1.0

    def marks(self, logp: Tensor, advantages: Tensor, mask: Tensor, step: int) -> Tensor | None:
        """Take the tokens of highest covariance."""
        marked = torch.zeros_like(mask)
        if not mask.any():
            return marked
        cov = covariances(logp, advantages, mask)[mask]
        top = torch.topk(cov, max(1, int(self.share * len(cov)))).indices
        chosen = torch.zeros(len(cov), dtype=torch.bool)
        chosen[top] = True
        marked[mask] = chosen
        return marked

    def loss(self, cells: Cells) -> Tensor:
        """Add the penalty where it is due."""
        ratio = cells.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        penalty = self.cov_kl * cells.log_ratio.abs() * cells.marked
        return (penalty - ratio * cells.advantages) * cells.mask


def covariances(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Each token's part in the covariance of advantage and log-prob, shape (B, T)."""
    centred = [x - (x * mask).sum() / mask.sum() for x in (advantages, logp)]
    return centred[0] * centred[1]


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
