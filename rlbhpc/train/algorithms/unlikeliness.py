"""Unlikeliness reward: of the right responses the least likely get most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlbhpc.study.complaints import Share
from rlbhpc.train.algorithms.algorithm import Batch, Store
from rlbhpc.train.algorithms.grpo import GRPO


@dataclass(frozen=True)
class Unlikeliness(GRPO):
    r"""GRPO on rewards that fall with the rank of a response's probability in its group.

    .. math:: r_i' = r_i \Bigl(1 - \beta\,\frac{n - \mathrm{rank}_i}{n}\Bigr)

    He et al. 2025 (arXiv 2506.02355). Rank 0 is the most probable response, by the sampler's
    log-probs of the whole of it; of equals the first. A group without a right response keeps its
    zeros; one that could not be scored has no rank.
    """

    rank_beta: Share = 0.25

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Take off by rank."""
        likelihood = batch.sampler.double().sum(1)
        rewards = batch.rewards.clone()
        for group in batch.groups.unique().tolist():
            members = torch.nonzero((batch.groups == group) & batch.scored)[:, 0]
            order = torch.argsort(likelihood[members], descending=True, stable=True)
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(order))
            rewards[members] *= 1 - self.rank_beta * (len(order) - rank) / len(order)
        return rewards
