"""Group Relative Policy Optimization, and algorithms that differ from it in a hook or a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, zeros_like

from rlbhpc.study.complaints import Share, Weight, Whole
from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import (
    MAX_LOG_RATIO,
    Algorithm,
    Batch,
    Cells,
    Degrees,
    DualClip,
    Signals,
    Store,
    group_mean,
    group_std,
    scored_where,
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
        """Each response's reward, standardised within its group, on every token (B, T).

        A group is all responses to one prompt. ``spread`` gives a response's number to each of its
        tokens.
        """
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


@dataclass(frozen=True)
class DAPO(GRPO):
    r"""GRPO's advantage with clip-higher, token-level loss, refills and overlong shaping.

    Yu et al. 2025 (arXiv 2503.14476). Groups that are all right or all wrong carry no gradient:
    they are replaced by new prompts, at most ``max_refills`` times, and no group that was kept is
    thrown away. ``overlong_buffer`` tokens before the limit the reward falls linearly:

    .. math:: r \mathrel{+}= -f \cdot \mathrm{clip}\Bigl(\frac{len - (L_{\max} - b)}{b}, 0, 1\Bigr)

    The factor f is in units of the reward. Its authors take 1 beside rewards of 1 and −1, so the
    default is half of what lies between the rewards of right and wrong here, 1 and 0. The penalty
    is added after correctness, so a truncated response that is right is still graded.
    Whether a group is kept is decided by correctness, not by the shaped reward.
    """

    clip_high: Weight = 0.28
    dual_clip: DualClip | None = 10.0
    max_refills: Whole = 10
    overlong_buffer: Whole = 4096
    overlong_factor: Weight = 0.5

    LEARNS_FROM: ClassVar[str] = "a group that is solved sometimes but not always"

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take the scored responses of groups that have both right and wrong ones, shape (B,)."""
        return scored_where(batch, lambda right, groups: group_std(right, groups, ddof=0) > 0)

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Take 0 … ``overlong_factor`` off the reward of responses that come near the length limit.

        The penalty begins ``overlong_buffer`` tokens before the limit and grows linearly up to it.
        """
        tokens_over = batch.lengths - (batch.max_tokens - self.overlong_buffer)
        # Without a buffer no length is over the limit.
        share = (tokens_over / max(self.overlong_buffer, 1)).clamp(0, 1)
        return batch.rewards - self.overlong_factor * share


@dataclass(frozen=True)
class ProRL(DAPO):
    r"""DAPO with a reference penalty; every ``renew_every`` steps the reference is the policy.

    .. math:: \pi_{ref} \leftarrow \pi_\theta \quad \text{after steps } m, 2m, \ldots

    Liu et al. 2025 (arXiv 2505.24864). The optimiser's moments begin anew with it, as there. Set
    the recipe's ``kl``: without a penalty there is no reference. The renewed reference is saved
    with the training state. Its authors renew when validation stalls; a fixed number of steps
    makes runs comparable.
    """

    clip_high: Weight = 0.4
    overlong_buffer: Whole = 0
    renew_every: Count = 200

    def renews_reference(self, step: int) -> bool:
        """Tell at multiples of ``renew_every``."""
        return step % self.renew_every == 0


@dataclass(frozen=True)
class GSPO(GRPO):
    r"""GRPO's advantage, clipped by the ratio of the response instead of the token.

    .. math:: s_i = \Bigl(\frac{\pi(y_i)}{\pi_{old}(y_i)}\Bigr)^{1/|y_i|}, \qquad
              L = -\frac{1}{B} \sum_i \min(s_i A_i, \mathrm{clip}(s_i) A_i)

    Zheng et al. 2025 (arXiv 2507.18071), with its bounds, a thousandth of a token ratio's.
    """

    clip_low: Weight = 3e-4
    clip_high: Weight = 4e-4
    ratio: Literal["token", "sequence", "geometric"] = "geometric"
    aggregation: Literal["token", "sequence", "sequence-sum", "constant"] = "sequence"


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


@dataclass(frozen=True)
class MaxRL(Algorithm):
    r"""Centred reward over the group's mean: rare successes weigh most.

    .. math:: A_i = (r_i - \mu_{g(i)}) / \mu_{g(i)}, \quad 0 \text{ where } \mu_{g(i)} \le 0

    With rewards in {0, 1} this is the gradient of log p instead of p for every prompt.
    """

    PENALISES_REWARD: ClassVar[bool] = False

    def advantages(self, signals: Signals) -> Tensor:
        """Mean-normalised reward on every token."""
        mean = group_mean(signals.rewards, signals.groups)
        ratio = (signals.rewards - mean) / mean
        return spread(ratio.where(mean > 0, zeros_like(ratio)), signals)


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
        """Reduce each reward by how likely the response is within its group; shape (B,).

        A group is all responses to one prompt. Rank 0 is the likeliest: it loses a share
        ``rank_beta`` of its reward, and each next one a little less.
        """
        likelihood = batch.sampler_logprobs.double().sum(1)
        rewards = batch.rewards.clone()
        for group in batch.groups.unique().tolist():
            members = torch.nonzero((batch.groups == group) & batch.scored)[:, 0]
            order = torch.argsort(likelihood[members], descending=True, stable=True)
            rank = torch.empty_like(order)
            # ``order`` lists the members by rank; this gives each member its rank.
            rank[order] = torch.arange(len(order))
            rewards[members] *= 1 - self.rank_beta * (len(order) - rank) / len(order)
        return rewards


@dataclass(frozen=True)
class SuccessGate(GRPO):
    r"""GRPO on problems that no earlier step has solved; all others get reward 0.

    .. math:: r_i' = r_i \, 1[\text{no right response to the problem before this step}]

    Yuan et al. 2026 (arXiv 2606.15455): a problem that was solved once in a few rollouts is nearly
    saturated at large k, and more updates on it only narrow the model. The step of a problem's
    first success still learns from it.
    """

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Take the reward off problems that were solved before, shape (B,).

        A group of equal rewards has advantage 0. What could not be scored stays NaN.
        """
        solved = set(store.get("solved", ()))
        is_open = torch.tensor([problem not in solved for problem in batch.problems])
        return batch.rewards * is_open

    def after_step(self, step: int, batch: Batch, store: Store) -> None:
        """Note the problems that this step has solved."""
        solved = set(store.get("solved", ()))
        for problem, is_right in zip(batch.problems, batch.correct.tolist(), strict=True):
            if is_right:
                solved.add(problem)
        store["solved"] = sorted(solved)
