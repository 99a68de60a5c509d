"""Proximal Policy Optimization with generalised advantage estimation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlbhpc.study.complaints import Share, Weight, Whole
from rlbhpc.train.algorithms.algorithm import Algorithm, Degrees, Signals, reward_to_go, whiten


@dataclass(frozen=True)
class PPO(Algorithm):
    r"""Critic-based advantages.

    .. math:: \delta_t = r_t + \gamma V_{t+1} - V_t, \qquad
              A_t = \delta_t + \gamma\lambda A_{t+1}, \qquad R_t = A_t + V_t

    Schulman et al. 2015, 2017 (arXiv 1506.02438, 1707.06347). V after the last token is 0: an
    answer that is cut off is over, too. The critic's targets R are taken before whitening.
    """

    gamma: Share = 1.0
    lam: Share = 1.0
    whiten_advantages: bool = True
    ddof: Degrees = 1
    eps: Weight = 1e-8
    value_clip: Weight = 0.5
    critic_warmup: Whole = 0

    PRESETS: ClassVar = {
        "verl": {"dual_clip": 3.0, "value_clip": 0.5},
        "openrlhf": {"ddof": 0, "value_clip": 0.5},
        "oat": {"whiten_advantages": False, "value_clip": 0.2},
        "trl": {"lam": 0.95, "value_clip": 0.2, "kl_beta": 0.05},
    }
    NEEDS_CRITIC: ClassVar[bool] = True

    def advantages(self, signals: Signals) -> Tensor:
        """Advantages, whitened over the batch's tokens unless switched off."""
        raw = self._generalised_advantages(signals)
        if not self.whiten_advantages:
            return raw
        return whiten(raw, signals.mask, self.ddof, self.eps)

    def returns(self, signals: Signals) -> Tensor:
        """Targets of the critic, A + V, zero where there is no token."""
        assert signals.values is not None
        return (self._generalised_advantages(signals) + signals.values) * signals.mask

    def critic_loss(self, values: Tensor, old: Tensor, returns: Tensor) -> Tensor:
        """½·max((V − R)², (clip(V) − R)²), V clipped to within ``value_clip`` of its old value."""
        clipped = old + (values - old).clamp(-self.value_clip, self.value_clip)
        return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)

    def holds_policy(self, step: int) -> bool:
        """Whether the critic still warms up."""
        return step <= self.critic_warmup

    def _generalised_advantages(self, signals: Signals) -> Tensor:
        """A_t = Σ_j (γλ)^j δ_{t+j} with δ_t = r_t + γ V_{t+1} − V_t (Schulman et al. 2016), (B, T).

        V are the critic's values before each token, with 0 after the last. ``reward_to_go`` gives
        the discounted sum of what follows each token. ``token_rewards`` has the outcome on the last
        token, less a penalty on every one.
        """
        assert signals.values is not None
        mask = signals.mask
        values = signals.values * mask
        rewards = self.token_rewards(signals)
        # The value before the next token.
        following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
        delta = (rewards + self.gamma * following - values) * mask
        return reward_to_go(delta, self.gamma * self.lam) * mask
