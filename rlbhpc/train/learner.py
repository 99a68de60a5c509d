"""One optimiser step: advantages in, new weights out, the same on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlbhpc.engines.distribution import settle_vector_math
from rlbhpc.engines.hf_model import named_weights
from rlbhpc.engines.tokens import Tokens
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import (
    MAX_LOG_RATIO,
    Algorithm,
    Cells,
    log_ratios,
    off_policy_weights,
    reference_penalty,
    responses_in_band,
    row_weights,
)
from rlbhpc.train.batch import MicroBatch, Response, pack_responses, split_into_micro_batches
from rlbhpc.train.policy import (
    Critic,
    Policy,
    add_adapters,
    recompute_layers,
    weights_with_adapters,
)
from rlbhpc.train.settings import Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# What an update reports of its tokens, as sums over a micro-batch.
Sums = dict[str, Tensor]


@dataclass(frozen=True)
class Update:
    """What one optimiser step learns from: B responses and (B, T) arrays of their tokens.

    ``kept``, shape (B,), says which responses count in the loss. ``old_logprobs`` is None where
    the step is exactly on-policy: then those of this very forward pass are the old ones, and the
    ratio is 1 with the right gradient. ``marked`` are tokens that the algorithm chose to treat in
    another way.
    """

    responses: Sequence[Response]
    advantages: Tensor
    sampler_logprobs: Tensor
    kept: Tensor
    old_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    marked: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response, shape (B,)."""
        return torch.tensor([len(response.model_ids) for response in self.responses])

    @property
    def has_advantage(self) -> Tensor:
        """Which responses are kept and have a token with an advantage, shape (B,)."""
        return (self.advantages != 0).any(1) & self.kept

    def select(self, indices: Tensor | slice) -> Update:
        """The same update with some of the responses only."""
        numbers = torch.arange(len(self.responses))[indices]
        chosen: dict[str, Any] = {
            name: array[indices] for name, array in vars(self).items() if torch.is_tensor(array)
        }
        return Update([self.responses[i] for i in numbers.tolist()], **chosen)


class Learner:
    """Policy, critic and reference of one rank, with their optimisers."""

    def __init__(self, model: Path, settings: Settings, algorithm: Algorithm) -> None:
        """Join the other ranks and load the policy, and a critic if the algorithm needs one.

        ``model`` is the folder that training starts from. ``wrap`` hands a module to DeepSpeed,
        which keeps its optimiser. The reference is loaded apart, by ``load_reference``.
        ``settle_vector_math`` lets two runs on the same CPU agree bit for bit.
        """
        settle_vector_math()
        ds.init_ranks()
        self.settings = settings
        self.algorithm = algorithm
        with ds.divide_while_loading(settings):
            policy = Policy.load(model, DTYPES[settings.dtype])
        policy.entropy_gradient = settings.entropy_bonus != 0
        self.policy = self._wrap_for_training(policy, policy.model)
        self.critic: Any = None
        if algorithm.NEEDS_CRITIC:
            with ds.divide_while_loading(settings):
                critic = Critic.load(model, DTYPES[settings.dtype])
            self.critic = self._wrap_for_training(critic, critic.body)
        self.reference: Any = None
        self.reference_was_renewed = False
        self.device = next(self.policy.parameters()).device

    def _wrap_for_training(self, module: torch.nn.Module, transformer: Any) -> Any:
        """Give a module to DeepSpeed; its ``transformer`` is recomputed and adapted as set."""
        if self.settings.recompute:
            recompute_layers(transformer)
        if self.settings.lora_rank:
            add_adapters(transformer, self.settings.lora_rank, self.settings.seed)
        return ds.wrap(module, self.settings)

    def load_reference(self, model: Path) -> None:
        """Load the frozen policy that a penalty is measured against."""
        with ds.divide_while_loading(self.settings):
            reference = Policy.load(model, DTYPES[self.settings.dtype])
        # Moved first: a move puts other buffers in the place of saved ones.
        reference = reference.requires_grad_(False).eval().to(self.device)
        self._reference_weights = named_weights(reference)
        self.reference = ds.wrap_frozen(reference, self.settings)

    def named_reference_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights of the reference by name; every rank must iterate to the end."""
        for name, weight in self._reference_weights.items():
            with ds.gather_shards([weight]):
                yield name, weight.detach().clone()

    def set_reference(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the reference's weights; every rank must pass the same, in the same order.

        Names that repeat a weight, such as that of a tied output layer, are passed over.
        """
        for name, new_weight in weights:
            weight = self._reference_weights.get(name)
            if weight is not None:
                with ds.gather_shards([weight], writing_rank=0), torch.no_grad():
                    weight.copy_(new_weight)
        self.reference_was_renewed = True

    def renew_reference(self) -> None:
        """Copy the policy into the reference, and set the optimiser's moments to 0.

        The reference is the frozen policy that a penalty is measured against.
        """
        self.set_reference((f"model.{name}", weight) for name, weight in self.named_weights())
        for state in ds.optimizer_states(self.policy):
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    # ---- scoring without a gradient ------------------------------------------------------------

    def logprobs(self, policy: Any, responses: Sequence[Response]) -> Tensor:
        """Log-probs of all response tokens under a policy, (B, T), on every rank."""
        temperature = self.settings.temperature
        return self._score_tokens(lambda batch: policy(batch, temperature).logprobs, responses)

    def values(self, responses: Sequence[Response]) -> Tensor:
        """The critic's value before each response token, (B, T), on every rank."""
        return self._score_tokens(self.critic, responses)

    @torch.no_grad()
    def _score_tokens(
        self, forward: Callable[[MicroBatch], Tensor], responses: Sequence[Response]
    ) -> Tensor:
        """Compute one number for each response token; the result is (B, T), the same on every rank.

        ``forward`` gives the numbers of one micro-batch, flat. Each rank runs its own micro-batches
        and leaves the other responses at 0, so a sum over ranks completes the array.
        """
        longest = max(len(response.model_ids) for response in responses)
        scores = torch.zeros(len(responses), longest)
        for batch, is_real in self._micro_batches(responses):
            batch_scores = batch.pad_by_response(forward(batch).float()).cpu()
            indices = batch.response_indices.cpu()
            scores[indices, : batch_scores.shape[1]] += batch_scores * is_real
        # Every response was scored on one rank and is 0 on the others.
        return ds.all_sum(scores.to(self.device)).cpu()

    def _micro_batches(self, responses: Sequence[Response]) -> Iterator[tuple[MicroBatch, bool]]:
        """Micro-batches of this rank, and whether each is real.

        A micro-batch packs some responses into the one sequence of a forward pass. Ranks must run
        equally many, so a rank without responses left runs the first response instead; that one is
        not real and must weigh nothing.
        """
        ranks = dist.get_world_size()
        by_rank = split_into_micro_batches(responses, self.settings.micro_tokens, ranks)
        for indices in by_rank[dist.get_rank()]:
            is_real = len(indices) > 0
            with self.device:
                batch = pack_responses(responses, indices if is_real else np.zeros(1, np.int64))
            yield batch, is_real

    # ---- learning ------------------------------------------------------------------------------

    def update(self, update: Update, step: int) -> dict[str, float]:
        """Take one optimiser step on ``update`` and return its metrics over all ranks.

        ``update`` holds some responses with their advantages. Without a signal (no advantage,
        penalty or entropy bonus) the weights stay as they are, bit for bit: Adam would move them by
        its momentum even with a gradient of 0.
        """
        metrics = {} if update.values is None else self._update_critic(update, step)
        has_other_pull = self.settings.entropy_bonus or update.reference_logprobs is not None
        has_signal = update.kept.any() and (update.has_advantage.any() or has_other_pull)
        if self.algorithm.holds_policy(step) or not has_signal:
            return metrics | {"actor/skipped": 1.0}
        return metrics | self._update_policy(update, step) | {"actor/skipped": 0.0}

    def _update_policy(self, update: Update, step: int) -> dict[str, float]:
        """Take one optimiser step of the policy and return its metrics.

        Token metrics are means over the responses that were run. ``row_weights`` gives each
        response the weight of its tokens in the loss. ``update.kept`` says which responses count.
        ``update.marked`` are tokens that the algorithm treats in another way, such as leaving them
        out. ``_take_step`` returns sums over all micro-batches and ranks.
        """
        weights = update.kept * row_weights(
            update.lengths,
            self.algorithm.aggregation,
            total_tokens=int(update.lengths[update.kept].sum()),
            total_rows=len(update.lengths),
            max_length=self.settings.max_tokens,
        )
        update = replace(update, marked=self._mark_tokens(update, step))
        if update.reference_logprobs is None and not self.settings.entropy_bonus:
            # A response without an advantage or a mark adds exactly 0 to the loss and its gradient.
            # Its tokens count in the weights above; nothing is left to compute for it.
            has_loss = update.has_advantage
            if update.marked is not None:
                has_loss = has_loss | (update.marked.any(1) & update.kept)
            update = update.select(has_loss)
            weights = weights[has_loss]

        def loss_of(batch: MicroBatch, is_real: bool) -> tuple[Tensor, Sums]:
            batch_weights = weights[batch.response_indices.cpu()].to(self.device)
            return self._policy_loss(batch, update, batch_weights * is_real)

        sums = self._take_step(self.policy, update.responses, loss_of, step)
        loss = sums.pop("actor/pg_loss")
        n_tokens = max(sums.pop("tokens"), 1.0)
        means = {name: total / n_tokens for name, total in sums.items()}
        return {"actor/pg_loss": loss} | means | self._policy_metrics(step)

    def _mark_tokens(self, update: Update, step: int) -> Tensor | None:
        """Tokens that the algorithm treats in another way, (B, T); None if it has no such rule.

        They are chosen from the whole update, so that the choice does not depend on micro-batches.
        The log-probs are those of the policy that sampled.
        """
        logprobs = update.old_logprobs
        if logprobs is None:
            logprobs = update.sampler_logprobs
        width = logprobs.shape[1]
        is_token = torch.arange(width) < update.lengths[:, None]
        mask = is_token & update.kept[:, None]
        return self.algorithm.marks(logprobs, update.advantages[:, :width], mask, step)

    def _take_step(
        self,
        engine: Any,
        responses: Sequence[Response],
        loss_of: Callable[[MicroBatch, bool], tuple[Tensor, Sums]],
        step: int,
    ) -> dict[str, float]:
        """Take one optimiser step on the sum of all micro-batches' losses; return metric sums.

        The sums are over all ranks. ``engine`` is the DeepSpeed engine of the policy or the critic.
        ``loss_of`` gets a micro-batch and whether it is real (a stand-in weighs nothing), and
        returns its share of the loss and named sums for the metrics.
        """
        settings = self.settings
        is_policy = engine is self.policy
        peak = settings.learning_rate if is_policy else settings.critic_learning_rate
        for group in engine.optimizer.param_groups:
            group["lr"] = settings.learning_rate_at(step, peak)
        totals = torch.zeros((), dtype=torch.float64)
        for batch, is_real in self._micro_batches(responses):
            loss, sums = loss_of(batch, is_real)
            # The ranks' shares add up to the loss, and DeepSpeed averages gradients over ranks.
            engine.backward(loss * dist.get_world_size(), scale_wrt_gas=False)
            totals = totals + torch.stack([*sums.values()]).detach().double().cpu()
        engine.step()
        all_totals = ds.all_sum(totals.to(self.device)).tolist()
        return dict(zip(sums, all_totals, strict=True))

    def _policy_metrics(self, step: int) -> dict[str, float]:
        """Gradient norm and learning rate of the policy's last step."""
        rate = self.settings.learning_rate_at(step, self.settings.learning_rate)
        return {"actor/grad_norm": float(self.policy.get_global_grad_norm()), "actor/lr": rate}

    def _policy_loss(
        self, batch: MicroBatch, update: Update, weights: Tensor
    ) -> tuple[Tensor, Sums]:
        """Loss of one micro-batch with a weight for each response, and sums over its tokens.

        ``weights`` has one entry per response of the micro-batch. "Old" log-probs are those of the
        policy when it sampled; the sampler's may differ a little, because another engine computed
        them.
        """
        settings = self.settings
        scores = self.policy(batch, settings.temperature)
        logprobs = batch.pad_by_response(scores.logprobs)
        mask = batch.pad_by_response(torch.ones_like(scores.logprobs))
        indices = batch.response_indices.cpu()

        def of_batch(array: Tensor) -> Tensor:
            """The part of a (B, T) array of the whole update that belongs to this micro-batch."""
            return array[indices, : logprobs.shape[1]].to(self.device)

        old = reference = logprobs.detach()
        if update.old_logprobs is not None:
            old = of_batch(update.old_logprobs)
        if update.reference_logprobs is not None:
            reference = of_batch(update.reference_logprobs)
        marked = torch.zeros_like(mask, dtype=torch.bool)
        if update.marked is not None:
            marked = of_batch(update.marked)
        cells = Cells(
            logp=logprobs,
            log_ratio=log_ratios(logprobs, old, mask, self.algorithm.ratio),
            advantages=of_batch(update.advantages),
            mask=mask,
            marked=marked,
        )
        sampler = of_batch(update.sampler_logprobs)
        correction = self._sampler_correction(old, sampler, mask)
        policy_loss = self.algorithm.loss(cells) * correction
        penalty = reference_penalty(logprobs, reference, settings.kl_kind) * mask
        bonus = settings.entropy_bonus * batch.pad_by_response(scores.entropies)
        token_losses = policy_loss + settings.kl_loss * penalty - bonus
        with torch.no_grad():
            counted = mask * (weights > 0)[:, None]
            sums = {
                "tokens": counted.sum(),
                "actor/pg_loss": (policy_loss * weights[:, None]).sum(),
                **self._clipping_sums(cells, old, counted),
                "actor/kl_loss": (penalty * counted).sum(),
                **self._mismatch_sums(old, sampler, correction, counted),
            }
        return (token_losses * weights[:, None]).sum(), sums

    def _sampler_correction(self, old: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        """Weights that correct for a sampler whose odds differ from the trainer's, (B, T).

        ``old`` and ``sampler`` are log-probs of the same tokens under the same weights, by the
        trainer and by the engine that sampled. ``sequence_band`` are bounds on a response's mean
        ratio of the two: a response outside gets weight 0.
        """
        settings = self.settings
        mismatch = log_ratios(old, sampler, mask, self.algorithm.ratio)
        correction = off_policy_weights(mismatch, settings.sampler_cap, settings.sampler_band)
        if settings.sequence_band is None:
            return correction
        return correction * responses_in_band(old, sampler, mask, settings.sequence_band)

    def _clipping_sums(self, cells: Cells, old: Tensor, counted: Tensor) -> Sums:
        """How many tokens the clip holds, and how far the policy is from the old one.

        ``counted`` is 1 for tokens that count and 0 elsewhere, (B, T). The clip holds a token once
        its ratio of new to old probability leaves the bounds in the direction of its advantage.
        """
        ratio = cells.log_ratio.exp()
        is_above = (ratio > 1 + self.algorithm.clip_high) & (cells.advantages > 0)
        is_below = (ratio < 1 - self.algorithm.clip_low) & (cells.advantages < 0)
        return {
            "actor/pg_clipfrac": ((is_above | is_below) * counted).sum(),
            "actor/ppo_kl": ((old - cells.logp) * counted).sum(),
        }

    def _mismatch_sums(
        self, old: Tensor, sampler: Tensor, correction: Tensor, counted: Tensor
    ) -> Sums:
        """How far the sampler is from the trainer, and how many tokens the correction reaches.

        ``old`` are the trainer's and ``sampler`` the sampler's log-probs of the same tokens.
        ``correction`` are the weights that make up for the difference, and ``counted`` marks the
        tokens that count; all are (B, T).
        """
        settings = self.settings
        # log ρ, where ρ = π_old / π_sampler.
        log_ratio = ((old - sampler) * counted).clamp(max=MAX_LOG_RATIO)
        has_cap = settings.sampler_cap > 0 and settings.sampler_band is None
        is_capped = (correction == settings.sampler_cap) & has_cap
        return {
            # k3 of the sampler against the trainer: never negative, 0 if they agree.
            "rollout_corr/kl": ((torch.expm1(log_ratio) - log_ratio) * counted).sum(),
            "rollout_corr/capped_fraction": (is_capped * counted).sum(),
            "rollout_corr/masked_fraction": ((correction == 0) * counted).sum(),
        }

    def _update_critic(self, update: Update, step: int) -> dict[str, float]:
        """Take one optimiser step on the mean value loss of the response tokens.

        ``update.values`` are the critic's values when the update was prepared and
        ``update.returns`` its targets, both (B, T).
        """
        assert update.values is not None and update.returns is not None
        old_values, returns = update.values, update.returns
        n_tokens = int(update.lengths.sum())

        def loss_of(batch: MicroBatch, is_real: bool) -> tuple[Tensor, Sums]:
            """Give a micro-batch's share of the mean value loss; 0 for a stand-in."""
            values = batch.pad_by_response(self.critic(batch))
            mask = batch.pad_by_response(torch.ones(len(batch.targets), device=self.device))
            indices = batch.response_indices.cpu()
            width = values.shape[1]
            batch_old = old_values[indices, :width].to(self.device)
            batch_returns = returns[indices, :width].to(self.device)
            losses = self.algorithm.critic_loss(values, batch_old, batch_returns) * mask
            loss = losses.sum() * is_real / n_tokens
            return loss, {"critic/vf_loss": loss}

        metrics = self._take_step(self.critic, update.responses, loss_of, step)
        return metrics | {"critic/grad_norm": float(self.critic.get_global_grad_norm())}

    def imitate(self, responses: Sequence[Response], step: int) -> dict[str, float]:
        """Take one optimiser step on the mean negative log-likelihood of the response tokens.

        This is supervised training. ``loss_of`` gives a micro-batch's share of that mean;
        ``is_real`` is False for a stand-in that only keeps this rank in step with the others.
        """
        n_tokens = sum(len(response.model_ids) for response in responses)

        def loss_of(batch: MicroBatch, is_real: bool) -> tuple[Tensor, Sums]:
            loss = -self.policy(batch, 1.0).logprobs.sum() * is_real / n_tokens
            return loss, {"sft/loss": loss}

        metrics = self._take_step(self.policy, responses, loss_of, step)
        return metrics | {"sft/tokens": float(n_tokens)} | self._policy_metrics(step)

    # ---- weights out ---------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights under their transformers names; every rank must iterate to the end.

        ZeRO-3 keeps only a shard of each parameter on a rank; ``gather_shards`` makes it whole for
        a while. An adapter's product is added to the weight that it adapts.
        """
        for name, parameters, adapter in weights_with_adapters(self.policy.module):
            with ds.gather_shards(parameters), torch.no_grad():
                if adapter is not None:
                    weight = adapter.merged_weight(name)
                else:  # a copy: ZeRO-3 gathers into buffers that the next gather reuses
                    weight = parameters[0].detach().clone()
                yield name.removeprefix("model."), weight


@dataclass(frozen=True)
class PolicyScorer:
    """What an algorithm may ask of the learner's policy: see ``algorithm.Scorer``."""

    learner: Learner
    tokens: Tokens

    def logprobs(self, responses: Sequence[Response]) -> Tensor:
        """Log-probs of response tokens at the rollouts' temperature."""
        return self.learner.logprobs(self.learner.policy, responses)

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a piece of text, without special tokens."""
        return tuple(self.tokens.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens."""
        return self.tokens.decode(ids)


def pad_rows(rows: Sequence[NDArray[np.float32]]) -> Tensor:
    """Arrays of several lengths as one (B, T) tensor, 0 where there is no token."""
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
