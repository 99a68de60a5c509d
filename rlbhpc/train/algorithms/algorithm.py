"""The noun *Algorithm*, what it is given, the operations that algorithms share, and their losses.

An algorithm is its hooks: rewards of a group, which responses to learn from, advantages, loss, and
what happens between steps. The loop calls them in this order and knows no algorithm by name;
nothing here knows of models, ranks or micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.complaints import Weight, check_values
from rlbhpc.train.batch import Response, Rollout
from rlbhpc.train.settings import Settings

# Beyond this a log-ratio says only "far away"; exp() would overflow long before it mattered.
MAX_LOG_RATIO = 20.0
# The largest k3 of a token: verl's `kl_penalty` clamps it there.
MAX_K3 = 10.0

Ratio = Literal["token", "sequence", "geometric"]

DualClip = Annotated[float, Field(ge=1)]
Degrees = Literal[0, 1]
"""What a deviation over n values divides by less than n."""

Store = dict[str, Any]
"""What an algorithm remembers from step to step: JSON values, saved with the training state.

``draws`` in it is the loop's own: see :mod:`rlbhpc.train.mixture`.
"""


class Scorer(Protocol):
    """The policy as it is now, and its tokeniser. All ranks ask together, for the same."""

    def logprobs(self, responses: Sequence[Response]) -> Tensor:
        """Log-probs of response tokens at the rollouts' temperature."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a piece of text, without special tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens."""
        ...


@dataclass(frozen=True)
class Signals:
    """Everything about one batch of B responses that an advantage may depend on.

    ``rewards`` of the outcomes, ``groups`` (responses to one prompt share an index), ``lengths`` in
    tokens with end-of-text, ``greedy`` (reward of the greedy response to the same prompt; ReMax)
    and ``parts`` of the batch have shape (B,). ``values`` (the critic's, before each token; PPO)
    and ``kl`` have shape (B, T). kl is log π − log π_ref of each sampled token, the k1 estimate,
    and is there only where the reference penalty is part of the reward.
    """

    rewards: Tensor
    groups: Tensor
    lengths: Tensor
    greedy: Tensor | None = None
    values: Tensor | None = None
    kl: Tensor | None = None
    parts: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """Which cells of a (B, T) array are response tokens, T being the longest length.

        Made from lengths alone: a mask made by comparing token ids with the pad token would drop
        the end-of-text token wherever the two share an id.
        """
        return torch.arange(int(self.lengths.max())) < self.lengths[:, None]


@dataclass(frozen=True, kw_only=True)
class Batch(Signals):
    """What was sampled and judged, before anything of it is learnt: B responses, group by group.

    ``rewards`` are the recipe's, NaN where a response could not be scored; ``correct`` is the
    verifier's word by the gold answer, shape (B,); ``answers`` are canonical, empty where there is
    none. ``responses`` have the tokens, and ``sampler_logprobs`` the sampler's log-probs of them,
    shape (B, T). ``scorer`` is the policy, to be asked for log-probs of anything.
    """

    correct: Tensor
    answers: Sequence[str]
    max_tokens: int
    problems: Sequence[str] = ()
    golds: Sequence[str] = ()
    texts: Sequence[str] = ()
    responses: Sequence[Response] = ()
    sampler_logprobs: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    scorer: Scorer | None = None

    @property
    def scored(self) -> Tensor:
        """Which responses could be scored, shape (B,)."""
        return ~self.rewards.isnan()

    def logprobs(self) -> Tensor:
        """The policy's log-probs of the response tokens, shape (B, T): one forward pass."""
        assert self.scorer is not None
        return self.scorer.logprobs(self.responses)


@dataclass(frozen=True)
class Round:
    """Tasks to sample, each so many times."""

    problems: Sequence[Problem]
    samples: int = 1


Rounds = Generator[Round, "list[Rollout]", "list[Rollout]"]


@dataclass(frozen=True)
class Cells:
    """Response tokens under the policy that learns: arrays (B, T), 0 where there is no token.

    ``logp`` is log π, ``log_ratio`` log π − log π_old at the algorithm's `ratio`; ``marked`` are
    those that `marks` chose, if any.
    """

    logp: Tensor
    log_ratio: Tensor
    advantages: Tensor
    mask: Tensor
    marked: Tensor


@dataclass(frozen=True)
class Algorithm:
    """What makes one RL algorithm differ from another, everything else being equal.

    The ratio is held in [1 − clip_low, 1 + clip_high]. ``dual_clip`` bounds the loss of negative
    advantages at ratios above it. ``ratio`` is one of a ``token``, of a ``sequence`` (their
    product) or ``geometric`` (its length-normalised form). ``aggregation`` says how per-token
    losses become one number, see :func:`row_weights`. ``kl_beta`` weighs the
    reference penalty in the reward; at 0 no reference is loaded.
    """

    clip_low: Weight = 0.2
    clip_high: Weight = 0.2
    dual_clip: DualClip | None = None
    ratio: Literal["token", "sequence", "geometric"] = "token"
    aggregation: Literal["token", "sequence", "sequence-sum", "constant"] = "token"
    kl_beta: Weight = 0.0

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    NEEDS_CRITIC: ClassVar[bool] = False
    NEEDS_GREEDY: ClassVar[bool] = False
    MAKES_TASKS: ClassVar[bool] = False
    # Whether a response may be an episode of several turns.
    TAKES_TURNS: ClassVar[bool] = True
    # Whether the `advantages` of this very class take `kl_beta` off the reward.
    PENALISES_REWARD: ClassVar[bool] = True
    LEARNS_FROM: ClassVar[str] = "a response that could be scored"

    def __post_init__(self) -> None:
        """Refuse a setting of another type or out of range, or one that would do nothing.

        ``kl_beta`` weighs a penalty in the reward. It does something only if the class whose
        ``advantages`` are used takes it off (``PENALISES_REWARD``).
        """
        check_values(self)
        # The class that defines the advantages says whether they have the penalty in them.
        defining_class = next(cls for cls in type(self).__mro__ if "advantages" in vars(cls))
        if self.kl_beta and not vars(defining_class).get("PENALISES_REWARD", True):
            raise UserError(
                f"kl_beta: found {self.kl_beta}; this algorithm's rewards have no penalty; use the "
                "recipe's `kl`, which is in the loss"
            )

    def check_settings(self, settings: Settings) -> None:
        """Refuse settings of the loop that it cannot run with."""
        if settings.turns is not None and not self.TAKES_TURNS:
            raise UserError(
                "options.turns: this algorithm reads responses of one turn; leave it out"
            )
        if self.MAKES_TASKS and (settings.success_rate or settings.hints or settings.replays):
            raise UserError(
                "options: this algorithm makes its own tasks; leave out `success_rate`, `hints` "
                "and `replays`, which are for problems that come again"
            )

    def responses_per_step(self, settings: Settings) -> int:
        """How many responses a step samples, refills left out."""
        greedy = settings.prompts_per_step if self.NEEDS_GREEDY else 0
        n_fresh = settings.samples_per_prompt - settings.replays
        return settings.prompts_per_step * n_fresh + greedy

    @property
    def reference_model(self) -> str:
        """Model of the study that the reference is; empty for the one that training starts from."""
        return ""

    @property
    def refills(self) -> int:
        """How often new prompts may take the place of groups of which nothing was selected."""
        return getattr(self, "max_refills", 0)

    def begin(self, problems: Sequence[Problem], blank: Callable[[], Batch], store: Store) -> None:
        """Before the first step: ``blank`` gives one row per problem with nothing answered yet."""

    def rounds(self, step: int, seed: int, count: int, store: Store) -> Rounds | None:
        """Rounds of tasks of its own making in place of ``count`` drawn problems; None for those.

        A generator: it is sent what became of each round, and returns what to learn from, with
        the rewards and parts of that.
        """
        return None

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Rewards to learn from, shape (B,); NaN for what cannot be scored and is left out."""
        return batch.rewards

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Which responses to learn from, shape (B,); ``batch.rewards`` are those of `reward`."""
        return torch.ones(len(batch.rewards), dtype=torch.bool)

    def measure(self, batch: Batch, rewards: Tensor, store: Store) -> dict[str, float]:
        """Metrics of its own, of all that was sampled; ``rewards`` are those of `reward`."""
        return {}

    def token_rewards(self, signals: Signals) -> Tensor:
        """Outcome reward on each response's last token, minus β·k1 on every token (B, T).

        ``signals.kl`` is k1, log π − log π_ref of each sampled token; β is ``kl_beta``.
        """
        mask = signals.mask
        rewards = torch.zeros(mask.shape, dtype=signals.rewards.dtype)
        if self.kl_beta:
            assert signals.kl is not None
            rewards = rewards - self.kl_beta * signals.kl * mask
        rows = torch.arange(len(rewards))
        # The last token of each response.
        rewards[rows, signals.lengths - 1] += signals.rewards
        return rewards

    def rewards_to_go(self, signals: Signals, gamma: float = 1.0) -> Tensor:
        """What is still to come of `token_rewards` from each token on, discounted (B, T)."""
        return reward_to_go(self.token_rewards(signals), gamma)

    def advantages(self, signals: Signals) -> Tensor:
        """Per-token advantages, shape (B, T), zero where there is no token."""
        raise TypeError(f"{type(self).__name__} defines no advantages")

    def marks(self, logp: Tensor, advantages: Tensor, mask: Tensor, step: int) -> Tensor | None:
        """Choose tokens of one whole update that `loss` treats in another way, shape (B, T).

        ``logp`` is of the policy that sampled: the choice must not depend on micro-batches.
        """
        return None

    def loss(self, cells: Cells) -> Tensor:
        """Per-token policy loss, shape (B, T); 0 without an advantage and a mark."""
        return surrogate(
            cells.log_ratio, cells.advantages, cells.mask,
            self.clip_low, self.clip_high, self.dual_clip,
        )  # fmt: skip

    def returns(self, signals: Signals) -> Tensor | None:
        """Targets of the critic, shape (B, T)."""
        return None

    def critic_loss(self, values: Tensor, old: Tensor, returns: Tensor) -> Tensor:
        """Per-token loss of the critic, shape (B, T)."""
        raise TypeError(f"{type(self).__name__} has no critic")

    def holds_policy(self, step: int) -> bool:
        """Whether the policy stands still in a step, as while a critic warms up."""
        return False

    def renews_reference(self, step: int) -> bool:
        """Whether after this step the reference becomes the policy as it is then."""
        return False

    def after_step(self, step: int, batch: Batch, store: Store) -> None:
        """Take note of a finished step; ``batch`` is what was learnt from, with its rewards."""


def group_mean(x: Tensor, groups: Tensor) -> Tensor:
    """Mean of each element's group, in the shape of ``x``; ``groups`` numbers the groups."""
    index, counts = _group_index(groups)
    sums = torch.zeros(len(counts), dtype=x.dtype).index_add_(0, index, x)
    return (sums / counts)[index]


def group_std(x: Tensor, groups: Tensor, ddof: int) -> Tensor:
    """Standard deviation of each element's group; 0 where a group is too small to have one.

    It divides by the group's size less ``ddof``.
    """
    index, counts = _group_index(groups)
    square = (x - group_mean(x, groups)) ** 2
    sums = torch.zeros(len(counts), dtype=x.dtype).index_add_(0, index, square)
    return (sums / (counts - ddof).clamp(min=1)).sqrt()[index]


def group_size(groups: Tensor) -> Tensor:
    """Size of each element's group."""
    index, counts = _group_index(groups)
    return counts[index]


def scored_where(batch: Batch, chooses: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Which responses have a score and are chosen by a rule, shape (B,).

    The rule gets 1 or 0 for right or wrong, and the number of the group, of the scored ones alone.
    """
    chosen = torch.zeros(len(batch.rewards), dtype=torch.bool)
    scored = batch.scored
    chosen[scored] = chooses(batch.correct[scored].double(), batch.groups[scored])
    return chosen


def reward_to_go(rewards: Tensor, gamma: float = 1.0) -> Tensor:
    """Discounted sum of the rewards from each token on: R_t = Σ_{j ≥ t} γ^{j−t} r_j, last axis.

    Places without a token hold 0.
    """
    if gamma == 1.0:
        return rewards.flip(-1).cumsum(-1).flip(-1)
    out = torch.zeros_like(rewards)
    running = rewards.new_zeros(rewards.shape[:-1])
    for t in reversed(range(rewards.shape[-1])):
        running = rewards[..., t] + gamma * running
        out[..., t] = running
    return out


def whiten(x: Tensor, mask: Tensor, ddof: int, eps: float, floor: bool = False) -> Tensor:
    """Scale ``x`` to zero mean and unit variance over all masked tokens of the batch; 0 elsewhere.

    ``x`` and ``mask`` are (B, T). The variance over n values divides by n − ``ddof``. ``x`` is
    divided by √(var + eps), or by √max(var, eps) with ``floor``. A batch without variance has no
    signal and becomes exactly 0, so that it cannot move a weight by rounding noise.
    """
    values = x[mask]
    if len(values.unique()) < 2:
        return torch.zeros_like(x)
    variance = values.var(correction=ddof)
    scale = variance.clamp(min=eps) if floor else variance + eps
    return (x - values.mean()) * scale.rsqrt() * mask


def spread(per_response: Tensor, signals: Signals) -> Tensor:
    """One number a response, given to each of its tokens."""
    return per_response[:, None] * signals.mask


def _group_index(groups: Tensor) -> tuple[Tensor, Tensor]:
    _, index, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    return index, counts


# ---- losses --------------------------------------------------------------------------------------
# Pure functions of (B, T) tensors. One optimiser step is one masked sum over one global constant:
# :func:`row_weights` puts that constant into a weight per response, so the sum of the parts is the
# whole however the batch is cut into micro-batches and ranks.


def row_weights(
    lengths: Tensor,
    mode: Literal["token", "sequence", "sequence-sum", "constant"],
    total_tokens: int,
    total_rows: int,
    max_length: int,
) -> Tensor:
    r"""Weight w_i of every token of response i, so that the loss is Σ_i w_i Σ_t ℓ_it.

    ========================  ==================================================
    ``token``                 1 / (tokens of the global batch)
    ``sequence``              1 / (length_i · responses of the global batch)
    ``sequence-sum``          1 / (responses of the global batch)
    ``constant``              1 / (max_length · responses), Dr. GRPO
    ========================  ==================================================

    ℓ_it is the loss of token t of response i. The totals count the whole optimiser step over all
    ranks, never a micro-batch.
    """
    divisors: dict[str, Tensor | int] = {
        "token": total_tokens,
        "sequence": lengths * total_rows,
        "sequence-sum": total_rows,
        "constant": max_length * total_rows,
    }
    return torch.ones(lengths.shape, dtype=torch.float32, device=lengths.device) / divisors[mode]


def log_ratios(logp: Tensor, other: Tensor, mask: Tensor, level: Ratio) -> Tensor:
    """Log π − log π_other at a level, on every token of a response, 0 where there is none.

    ``logp`` and ``other`` are log-probs of the same tokens, (B, T), and ``mask`` is 1 where there
    is a token. At level ``token`` each token has its own ratio. ``sequence`` is the sum over the
    response (the logarithm of the product of ratios), ``geometric`` its mean over the response's
    tokens; both stand on every token.
    """
    token_ratios = (logp - other) * mask
    if level == "token":
        return token_ratios
    response_ratio = token_ratios.sum(-1, keepdim=True)
    if level == "geometric":
        response_ratio = response_ratio / mask.sum(-1, keepdim=True)
    return response_ratio * mask


def surrogate(
    log_ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """Per-token clipped policy loss −min(ρA, clip(ρ)A), with ρ = exp(log π − log π_old).

    A are the ``advantages``; the clip holds ρ within 1 − ``clip_low`` and 1 + ``clip_high``, so
    that one step cannot move the policy far. With ``dual_clip`` c, the loss of a negative advantage
    is at most −cA (Ye et al. 2020). A ratio of whole responses (:func:`log_ratios`) stands on every
    token of its response, so that ``sequence`` weights give the mean over responses (GSPO, TRL's
    RLOO).
    """
    rho = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped = rho.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(-advantages * rho, -advantages * clipped)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return loss * mask


def reference_penalty(logp: Tensor, ref_logp: Tensor, kind: Literal["k2", "k3"]) -> Tensor:
    r"""Per-token estimate of KL(π ‖ π_ref) from sampled tokens, Δ = log π − log π_ref.

    k2 = Δ²/2, k3 = e^{−Δ} − 1 + Δ. As a term of the loss only k2 has the gradient of the reverse KL
    on on-policy samples; k3's is that of the forward KL, and that of k1 = Δ, which belongs into the
    reward, is 0. k3 is computed from Δ within ±20 and is at most 10, both as verl does: in float32
    it is infinite from −89 on. A token at either bound has no gradient.
    """
    delta = logp - ref_logp
    if kind == "k2":
        return delta**2 / 2
    delta = delta.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (torch.expm1(-delta) + delta).clamp(max=MAX_K3)


def off_policy_weights(
    log_ratio: Tensor, cap: float, band: Sequence[float] | None = None
) -> Tensor:
    r"""Detached importance weights ρ = π_old / π_sampler of the loss, truncated or in a band.

    .. math:: w = \min(\rho, \mathrm{cap}) \quad\text{or}\quad
              w = \rho\,1[\mathrm{low} \le \rho \le \mathrm{high}]

    Truncated importance sampling (Yao et al. 2025), and IcePop (Ling Team 2025, arXiv 2510.18855),
    which replaces the cap. A cap of 0 without a band weighs nothing.

    ``log_ratio`` is log ρ, where π_sampler is the policy as the sampling engine computes it and
    π_old the same as the trainer does. The weights multiply the loss and do not replace the old
    log-probs: one corrects the numbers of another engine, the other the steps since the rollout.
    They have the level of the loss's own ratio.
    """
    ratio = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if band is not None:
        low, high = band
        return ratio.where((ratio >= low) & (ratio <= high), torch.zeros_like(ratio))
    if cap:
        return ratio.clamp(max=cap)
    return torch.ones_like(ratio)


def responses_in_band(old: Tensor, sampler: Tensor, mask: Tensor, band: Sequence[float]) -> Tensor:
    r"""Which responses the sampler drew about as the trainer would, shape (B, 1).

    .. math:: \mathrm{low} \le \Bigl(\prod_t \frac{\pi_{old}(y_t)}{\pi_{sampler}(y_t)}
              \Bigr)^{1/|y|} \le \mathrm{high}

    The geometric mean, unlike the product, does not drop a response for its length (Liu et al.
    2025, "When Speed Kills Stability"; verl's rejection by geometric mean).
    """
    log_mean = ((old.detach() - sampler) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    ratio = log_mean.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    low, high = band
    return (ratio >= low) & (ratio <= high)
