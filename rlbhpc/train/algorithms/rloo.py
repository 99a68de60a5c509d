"""REINFORCE Leave-One-Out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from rlbhpc.train.algorithms.algorithm import Algorithm, Signals, group_mean, group_size, spread


@dataclass(frozen=True)
class RLOO(Algorithm):
    r"""Reward minus the mean reward of the *other* responses to the prompt.

    .. math:: A_i = r_i - \frac{1}{n-1} \sum_{j \ne i} r_j = \frac{n}{n-1} (r_i - \mu)

    Ahmadian et al. 2024 (arXiv 2402.14740). The reference penalty is summed over the response and
    taken off the reward before the baseline (``kl_placement="before"``: TRL, verl), or enters
    token by token after it (``"after"``: OpenRLHF). A group of one has no others: advantage 0.
    """

    kl_placement: Literal["before", "after"] = "before"

    PRESETS: ClassVar = {
        "verl": {"dual_clip": 3.0},
        "trl": {"ratio": "sequence", "aggregation": "sequence", "kl_beta": 0.05},
        "openrlhf": {"kl_placement": "after"},
    }

    def advantages(self, signals: Signals) -> Tensor:
        """Leave-one-out reward on every token."""
        before = self.kl_placement == "before"
        scores = self.token_rewards(signals).sum(-1) if before else signals.rewards
        size = group_size(signals.groups)
        centred = scores - group_mean(scores, signals.groups)
        baselined = size / (size - 1).clamp(min=1) * centred
        if before:
            return spread(baselined, signals)
        return self.rewards_to_go(replace(signals, rewards=baselined)) * signals.mask
