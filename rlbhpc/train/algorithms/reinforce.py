"""Reinforce with its baselines, on wrong answers alone, and with a teacher for every token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import Share, Weight
from rlbhpc.train.algorithms.algorithm import (
    Algorithm,
    Degrees,
    Signals,
    group_mean,
    group_size,
    spread,
    whiten,
)


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
        """Reward minus the mean reward of the group's other responses, on every token (B, T).

        A group is all n responses to one prompt. n/(n − 1) times the distance from the mean of all
        is the distance from the mean of the others. The penalty for leaving the reference is part
        of the reward before this baseline is taken off, or is added token by token after it.
        ``token_rewards`` has the reward of the outcome on the last token, less that penalty on
        every one.
        """
        has_penalty_before = self.kl_placement == "before"
        scores = signals.rewards
        if has_penalty_before:
            scores = self.token_rewards(signals).sum(-1)
        size = group_size(signals.groups)
        centred = scores - group_mean(scores, signals.groups)
        leave_one_out = size / (size - 1).clamp(min=1) * centred
        if has_penalty_before:
            return spread(leave_one_out, signals)
        return self.rewards_to_go(replace(signals, rewards=leave_one_out)) * signals.mask


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
        """Rewards less their group's mean, whitened over all response tokens (B, T)."""
        centred = signals.rewards - group_mean(signals.rewards, signals.groups)
        if self.kl_beta:
            return super().advantages(replace(signals, rewards=centred))
        tokens = spread(centred, signals)
        return whiten(tokens, signals.mask, self.ddof, self.eps, self.floor)


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


@dataclass(frozen=True)
class OnPolicyDistillation(Algorithm):
    r"""Each token's advantage is how much likelier the teacher finds it.

    .. math:: A_t = -\beta\,(\log \pi(y_t) - \log \pi_{teacher}(y_t))

    The reverse KL on the student's own samples (Agarwal et al. 2023, arXiv 2306.13649; Gu et al.
    2023, arXiv 2306.08543), each token for itself (discount 0). ``teacher`` is a model of the
    study with the same vocabulary. Rewards are for the curves alone.
    """

    teacher: str = ""
    kl_beta: Annotated[float, Field(gt=0)] = 1.0

    @property
    def reference_model(self) -> str:
        """The teacher, without whom there is no lesson."""
        if not self.teacher:
            raise UserError("teacher: found nothing; allowed: a model of the study")
        return self.teacher

    def advantages(self, signals: Signals) -> Tensor:
        """Teacher's log-prob less the student's."""
        assert signals.kl is not None
        return -self.kl_beta * signals.kl * signals.mask
