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
        """Draw at random some tokens of high covariance, whose gradient is left out; (B, T).

        A token's covariance is (advantage − mean) · (log-prob − mean). A ``share`` of all tokens is
        drawn among those between ``cov_low`` and ``cov_high``, by a generator that depends on the
        step alone.
        """
        covariance = covariances(logp, advantages, mask)
        is_candidate = (covariance > self.cov_low) & (covariance < self.cov_high) & mask
        candidates = torch.nonzero(is_candidate)
        n_marked = max(1, int(self.share * int(mask.sum())))
        generator = torch.Generator().manual_seed(step)
        order = torch.randperm(len(candidates), generator=generator)
        rows, columns = candidates[order[:n_marked]].T
        marked = torch.zeros_like(mask)
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
        """Mark the tokens of highest covariance, a ``share`` of all; (B, T) booleans.

        A token's covariance is (advantage − mean) · (log-prob − mean). Marked tokens pay a penalty
        for every move of the policy.
        """
        marked = torch.zeros_like(mask)
        if not mask.any():
            return marked
        token_covariances = covariances(logp, advantages, mask)[mask]
        n_marked = max(1, int(self.share * len(token_covariances)))
        is_highest = torch.zeros(len(token_covariances), dtype=torch.bool)
        is_highest[torch.topk(token_covariances, n_marked).indices] = True
        marked[mask] = is_highest
        return marked

    def loss(self, cells: Cells) -> Tensor:
        """Add the penalty where it is due."""
        ratio = cells.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        penalty = self.cov_kl * cells.log_ratio.abs() * cells.marked
        return (penalty - ratio * cells.advantages) * cells.mask


def covariances(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Each token's part in the covariance of advantage and log-prob, shape (B, T)."""
    n_tokens = mask.sum()
    mean_advantage = (advantages * mask).sum() / n_tokens
    mean_logp = (logp * mask).sum() / n_tokens
    return (advantages - mean_advantage) * (logp - mean_logp)


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
        """Advantage of the right and the wrong responses of each group, on every token (B, T).

        A group is all n responses to one prompt. ``pass_at_k`` is the chance that at least one of k
        drawn of them is right; it is the mean reward of such a draw, and ``deviation`` its standard
        deviation.
        """
        is_right = signals.rewards > 0
        advantages = torch.zeros(len(is_right), dtype=torch.float64)
        for group in signals.groups.unique().tolist():
            is_member = signals.groups == group
            n = int(is_member.sum())
            n_wrong = int((is_member & ~is_right).sum())
            k = min(self.k, n)
            pass_at_k = 1 - comb(n_wrong, k) / comb(n, k)
            if not 0 < pass_at_k < 1:
                continue
            deviation = sqrt(pass_at_k * (1 - pass_at_k))
            advantages[is_member & is_right] = (1 - pass_at_k) / deviation
            # The chance that all k − 1 siblings of a wrong response are wrong, too.
            all_wrong = comb(n_wrong - 1, k - 1) / comb(n - 1, k - 1)
            advantages[is_member & ~is_right] = (1 - pass_at_k - all_wrong) / deviation
        return spread(advantages, signals)
