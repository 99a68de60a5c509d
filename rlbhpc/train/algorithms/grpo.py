"""Group Relative Policy Optimization, and Dr. GRPO without its two biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, zeros_like

from rlbhpc.study.complaints import Weight
from rlbhpc.train.algorithms.algorithm import (
    Algorithm,
    Degrees,
    Signals,
    group_mean,
    group_std,
    spread,
)


@dataclass(frozen=True)
class GRPO(Algorithm):
    r"""Reward standardised within the group of responses to one prompt.

    .. math:: A_i = \frac{r_i - \mu_{g(i)}}{s_{g(i)} + \epsilon}

    Shao et al. 2024 (arXiv 2402.03300). No two frameworks compute the same number: ``ddof`` 1 is
    the sample, 0 the population deviation, and ``eps`` is added to the deviation. ``scale`` takes
    the deviation over the whole batch instead of the group, or leaves it out.

    Edge cases: a group whose rewards are all equal has advantage exactly 0, and so has a group of
    one (some frameworks let its raw reward through, which rewards the mere lack of siblings).
    """

    ddof: Degrees = 1
    eps: Weight = 1e-6
    scale: Literal["group", "batch", "none"] = "group"

    PENALISES_REWARD: ClassVar[bool] = False
    PRESETS: ClassVar = {
        "verl": {"ddof": 1, "eps": 1e-6, "dual_clip": 3.0},
        "trl": {"ddof": 1, "eps": 1e-4},
        "oat": {"ddof": 1, "eps": 1e-8},
        "openrlhf": {"ddof": 1, "eps": 1e-9},
        "open-instruct": {"ddof": 0, "eps": 1e-8},
        "nano": {"ddof": 0, "eps": 1e-4},
        # The paper averages over the tokens of each response, then over responses.
        "paper": {"ddof": 0, "eps": 1e-8, "aggregation": "sequence"},
    }

    def advantages(self, signals: Signals) -> Tensor:
        """Standardised reward on every token."""
        rewards = signals.rewards
        deviation = group_std(rewards, signals.groups, self.ddof)
        centred = rewards - group_mean(rewards, signals.groups)
        if self.scale == "group":
            centred = centred / (deviation + self.eps)
        elif self.scale == "batch":
            overall = rewards.std(correction=self.ddof) if len(rewards) > 1 else 0.0
            centred = centred / (overall + self.eps)
        # The mean of equal floats may differ from them in the last bit; that is not a signal.
        return spread(centred.where(deviation > 1e-7, zeros_like(centred)), signals)


@dataclass(frozen=True)
class DrGRPO(GRPO):
    r"""Centred reward, and a loss divided by a constant instead of the response's length.

    .. math:: A_i = r_i - \mu_{g(i)}, \qquad
              L = \frac{1}{B\,L_{\max}} \sum_i \sum_t \ell_{it}

    Liu et al. 2025 (arXiv 2503.20783). Dividing by the deviation favours prompts that are nearly
    always or nearly never solved; dividing by the length favours long wrong responses. The
    constant is the generation limit, as in the authors' implementation; verl's mode of a similar
    name leaves out the batch size, so its gradient grows with the batch.
    """

    scale: Literal["group", "batch", "none"] = "none"
    aggregation: Literal["token", "sequence", "sequence-sum", "constant"] = "constant"
