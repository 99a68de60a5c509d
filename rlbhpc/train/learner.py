"""One optimiser step: advantages in, new weights out, the same on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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
from rlbhpc.engines.tokens import Tokens
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import (
    MAX_K3,
    MAX_LOG_RATIO,
    Algorithm,
    Cells,
    log_ratios,
    off_policy_weights,
    reference_penalty,
    responses_in_band,
    row_weights,
)
from rlbhpc.train.batch import MicroBatch, Response, assemble, split
from rlbhpc.train.policy import Critic, Policy, adapt, recompute_layers, whole_weights
from rlbhpc.train.settings import Settings

# Share of the median length of an embedding below which a token counts as never trained.
FAINT = 0.1
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# What an update reports, as sums over a micro-batch.
Sums = dict[str, Tensor]


@dataclass(frozen=True)
class Update:
    """What one optimiser step learns from; arrays are (B, T) over the step's responses.

    ``old`` is None where the step is exactly on-policy: then the policy's own log-probs of this
    very forward pass are the old ones, and the ratio is 1 with the right gradient.
    """

    responses: Sequence[Response]
    advantages: Tensor
    sampler: Tensor
    kept: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None
    marked: Tensor | None = None

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response, shape (B,)."""
        return torch.tensor([len(r.token_ids) for r in self.responses])

    @property
    def bearing(self) -> Tensor:
        """Which responses have a kept token with an advantage, shape (B,)."""
        return (self.advantages != 0).any(1) & self.kept

    def rows(self, chosen: Tensor | slice) -> Update:
        """Only some of the responses."""
        arrays = {name: x for name, x in vars(self).items() if torch.is_tensor(x)}
        index = torch.arange(len(self.responses))[chosen].tolist()
        responses = [self.responses[i] for i in index]
        return Update(responses, **{name: x[chosen] for name, x in arrays.items()})


class Learner:
    """Policy, critic and reference of one rank, with their optimisers."""

    def __init__(self, model: Path, settings: Settings, algorithm: Algorithm) -> None:
        settle_vector_math()
        ds.init_ranks()
        self.settings = settings
        self.algorithm = algorithm
        policy = Policy.load(model, DTYPES[settings.dtype])
        policy.entropy_gradient = settings.entropy_bonus != 0
        self.policy = self._wrap_for_training(policy, policy.model)
        self.critic: Any = None
        if algorithm.NEEDS_CRITIC:
            critic = Critic.load(model, DTYPES[settings.dtype])
            self.critic = self._wrap_for_training(critic, critic.body)
        self.reference: Policy | None = None
        self.renewed = False
        self.device = next(self.policy.parameters()).device

    def _wrap_for_training(self, module: torch.nn.Module, body: Any) -> Any:
        """Give a module to DeepSpeed; of its transformer layers are recomputed and adapted."""
        if self.settings.recompute:
            recompute_layers(body)
        if self.settings.lora_rank:
            adapt(body, self.settings.lora_rank, self.settings.seed)
        return ds.wrap(module, self.settings)

    def load_reference(self, model: Path) -> None:
        """Load the frozen policy that a penalty is measured against."""
        reference = Policy.load(model, DTYPES[self.settings.dtype]).to(self.device)
        self.reference = reference.eval()

    def renew_reference(self) -> None:
        """Make the reference what the policy is now, and let the optimiser's moments begin anew."""
        assert self.reference is not None
        current = self.reference.model.state_dict()
        for name, weight in self.named_weights():
            current[name].copy_(weight)
        self.renewed = True
        optimizer = self.policy.optimizer
        for state in getattr(optimizer, "optimizer", optimizer).state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    def faint_tokens(self, ids: Collection[int]) -> list[int]:
        """Those tokens whose embedding is far shorter than is usual: nothing has trained them.

        Weight decay alone has moved such a row; a prompt that holds it makes nonsense (the
        `<think>` of some base models). Every rank must ask.
        """
        table = self.policy.module.model.get_input_embeddings().weight
        with ds.gather_shards(self.policy, [table]), torch.no_grad():
            length = torch.linalg.vector_norm(table, dim=1, dtype=torch.float32)
        faint = (length < FAINT * length.median()).tolist()
        return [i for i in sorted(ids) if faint[i]]

    # ---- scoring without a gradient ------------------------------------------------------------

    def logprobs(self, module: Any, responses: Sequence[Response]) -> Tensor:
        """Log-probs of all responses under a policy, (B, T), on every rank."""
        temperature = self.settings.temperature
        return self._run_without_gradient(lambda b: module(b, temperature).logprobs, responses)

    def values(self, responses: Sequence[Response]) -> Tensor:
        """Values before all response tokens, (B, T), on every rank."""
        return self._run_without_gradient(self.critic, responses)

    @torch.no_grad()
    def _run_without_gradient(
        self, forward: Callable[[MicroBatch], Tensor], responses: Sequence[Response]
    ) -> Tensor:
        """One number for each response token, (B, T), from the micro-batches of all ranks."""
        width = max(len(r.token_ids) for r in responses)
        out = torch.zeros(len(responses), width)
        for batch, live in self._micro_batches(responses):
            flat = forward(batch).float()
            rows = batch.by_response(flat).cpu() * live
            out[batch.index.cpu(), : rows.shape[1]] += rows
        # Every response was scored on one rank and is 0 on the others.
        return ds.all_sum(out.to(self.device)).cpu()

    def _micro_batches(self, responses: Sequence[Response]) -> Iterator[tuple[MicroBatch, bool]]:
        """Micro-batches of this rank. Where there are too few, the first response stands in.

        The stand-in keeps the ranks together in collective operations; it is marked as not live
        and must weigh nothing.
        """
        parts = split(responses, self.settings.micro_tokens, dist.get_world_size())
        for index in parts[dist.get_rank()]:
            live = len(index) > 0
            chosen = index if live else np.zeros(1, np.int64)
            with self.device:
                batch = assemble(responses, chosen)
            yield batch, live

    # ---- learning ------------------------------------------------------------------------------

    def update(self, update: Update, step: int) -> dict[str, float]:
        """Take one optimiser step and return what happened, summed over all ranks.

        A batch without a signal leaves the weights as they are, bit for bit: Adam would move them
        by its momentum even with a gradient of 0.
        """
        metrics = {} if update.values is None else self._update_critic(update, step)
        pulled = self.settings.entropy_bonus or update.reference is not None
        idle = not update.kept.any() or not (update.bearing.any() or pulled)
        if self.algorithm.holds_policy(step) or idle:
            return metrics | {"actor/skipped": 1.0}
        return metrics | self._update_policy(update, step) | {"actor/skipped": 0.0}

    def _update_policy(self, update: Update, step: int) -> dict[str, float]:
        """Update the policy; what is reported of tokens is over the responses that were run."""
        weights = update.kept * row_weights(
            update.lengths,
            self.algorithm.aggregation,
            total_tokens=int(update.lengths[update.kept].sum()),
            total_rows=len(update.lengths),
            max_length=self.settings.max_tokens,
        )
        update = replace(update, marked=self._mark_tokens(update, step))
        if update.reference is None and not self.settings.entropy_bonus:
            # A response without an advantage or a mark adds exactly 0 to the loss and its gradient.
            # Its tokens count in the weights above; nothing is left to compute for it.
            bearing = update.bearing
            if update.marked is not None:
                bearing |= update.marked.any(1) & update.kept
            update, weights = update.rows(bearing), weights[bearing]

        def loss_of(batch: MicroBatch, live: bool) -> tuple[Tensor, Sums]:
            w = weights[batch.index.cpu()].to(self.device) * live
            return self._policy_loss(batch, update, w)

        sums = self._take_step(self.policy, update.responses, loss_of, step)
        loss, tokens = sums.pop("actor/pg_loss"), max(sums.pop("tokens"), 1.0)
        means = {name: total / tokens for name, total in sums.items()}
        return {"actor/pg_loss": loss} | means | self._policy_metrics(step)

    def _take_step(
        self,
        engine: Any,
        responses: Sequence[Response],
        loss_of: Callable[[MicroBatch, bool], tuple[Tensor, Sums]],
        step: int,
    ) -> dict[str, float]:
        """Take one optimiser step on the sum of all micro-batches' losses; sums of all ranks."""
        s = self.settings
        peak = s.learning_rate if engine is self.policy else s.critic_learning_rate
        for group in engine.optimizer.param_groups:
            group["lr"] = s.learning_rate_at(step, peak)
        total = torch.zeros((), dtype=torch.float64)
        for batch, live in self._micro_batches(responses):
            loss, sums = loss_of(batch, live)
            # The ranks' shares add up to the loss, and DeepSpeed averages gradients over ranks.
            engine.backward(loss * dist.get_world_size(), scale_wrt_gas=False)
            total = total + torch.stack([*sums.values()]).detach().double().cpu()
        engine.step()
        return dict(zip(sums, ds.all_sum(total.to(self.device)).tolist(), strict=True))

    def _policy_metrics(self, step: int) -> dict[str, float]:
        rate = self.settings.learning_rate_at(step, self.settings.learning_rate)
        return {"actor/grad_norm": float(self.policy.get_global_grad_norm()), "actor/lr": rate}

    def _policy_loss(
        self, batch: MicroBatch, update: Update, weights: Tensor
    ) -> tuple[Tensor, Sums]:
        """Loss of one micro-batch, and what is reported of its tokens."""
        settings = self.settings
        scored = self.policy(batch, settings.temperature)
        logp = batch.by_response(scored.logprobs)
        mask = batch.by_response(torch.ones_like(scored.logprobs))

        def rows_of(x: Tensor) -> Tensor:
            """The cells of an array of the whole step that belong to this micro-batch."""
            return x[batch.index.cpu(), : logp.shape[1]].to(self.device)

        old = logp.detach() if update.old is None else rows_of(update.old)
        cells = Cells(
            logp=logp,
            log_ratio=log_ratios(logp, old, mask, self.algorithm.ratio),
            advantages=rows_of(update.advantages),
            mask=mask,
            marked=(
                torch.zeros_like(mask).bool() if update.marked is None else rows_of(update.marked)
            ),
        )
        sampler = rows_of(update.sampler)
        correction = self._sampler_correction(old, sampler, mask)
        policy_loss = self.algorithm.loss(cells) * correction
        reference = logp.detach() if update.reference is None else rows_of(update.reference)
        penalty = reference_penalty(logp, reference, settings.kl_kind) * mask
        bonus = settings.entropy_bonus * batch.by_response(scored.entropies)
        total = policy_loss + settings.kl_loss * penalty - bonus
        with torch.no_grad():
            tokens = mask * (weights > 0)[:, None]
            sums = {
                "tokens": tokens.sum(),
                "actor/pg_loss": (policy_loss * weights[:, None]).sum(),
                **self._clipping_sums(cells, old, tokens),
                **self._penalty_sums(penalty, tokens),
                **self._mismatch_sums(old, sampler, correction, tokens),
            }
        return (total * weights[:, None]).sum(), sums

    def _clipping_sums(self, cells: Cells, old: Tensor, tokens: Tensor) -> Sums:
        """How many tokens the clip holds, and how far the policy is from the old one."""
        ratio = cells.log_ratio.exp()
        is_above = (ratio > 1 + self.algorithm.clip_high) & (cells.advantages > 0)
        is_below = (ratio < 1 - self.algorithm.clip_low) & (cells.advantages < 0)
        return {
            "actor/pg_clipfrac": ((is_above | is_below) * tokens).sum(),
            "actor/ppo_kl": ((old - cells.logp) * tokens).sum(),
        }

    def _penalty_sums(self, penalty: Tensor, tokens: Tensor) -> Sums:
        """The reference penalty, and how many tokens stand at its bound."""
        is_clamped = (penalty >= MAX_K3) & (self.settings.kl_kind == "k3")
        return {
            "actor/kl_loss": (penalty * tokens).sum(),
            "actor/kl_clamped": (is_clamped * tokens).sum(),
        }

    def _mismatch_sums(
        self, old: Tensor, sampler: Tensor, correction: Tensor, tokens: Tensor
    ) -> Sums:
        """How far the sampler is from the trainer, and how many tokens the correction reaches."""
        settings = self.settings
        gap = ((old - sampler) * tokens).clamp(max=MAX_LOG_RATIO)
        has_cap = settings.sampler_cap > 0 and settings.sampler_band is None
        is_capped = (correction == settings.sampler_cap) & has_cap
        return {
            # k3 of the sampler against the trainer: never negative, 0 if they agree.
            "rollout_corr/kl": ((torch.expm1(gap) - gap) * tokens).sum(),
            # E[ρ²] − 1: what the mismatch adds to the variance of importance weights.
            "rollout_corr/chi2_token": (torch.expm1(2 * gap) * tokens).sum(),
            "rollout_corr/capped_fraction": (is_capped * tokens).sum(),
            "rollout_corr/masked_fraction": ((correction == 0) * tokens).sum(),
        }

    def _sampler_correction(self, old: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        """Weights for tokens that the sampler drew with other odds than the trainer, (B, T)."""
        s = self.settings
        mismatch = log_ratios(old, sampler, mask, self.algorithm.ratio)
        correction = off_policy_weights(mismatch, s.sampler_cap, s.sampler_band)
        if s.sequence_band is not None:
            correction = correction * responses_in_band(old, sampler, mask, s.sequence_band)
        return correction

    def _mark_tokens(self, update: Update, step: int) -> Tensor | None:
        logp = update.sampler if update.old is None else update.old
        mask = (torch.arange(logp.shape[1]) < update.lengths[:, None]) & update.kept[:, None]
        return self.algorithm.marks(logp, update.advantages[:, : logp.shape[1]], mask, step)

    def _update_critic(self, update: Update, step: int) -> dict[str, float]:
        """Take one optimiser step on the mean value loss of the response tokens."""
        tokens = int(update.lengths.sum())

        def loss_of(batch: MicroBatch, live: bool) -> tuple[Tensor, Sums]:
            assert update.values is not None and update.returns is not None
            values = batch.by_response(self.critic(batch))
            mask = batch.by_response(torch.ones(len(batch.targets), device=self.device))
            rows = batch.index.cpu()
            old = update.values[rows, : values.shape[1]].to(self.device)
            returns = update.returns[rows, : values.shape[1]].to(self.device)
            losses = self.algorithm.critic_loss(values, old, returns) * mask
            loss = losses.sum() * live / tokens
            return loss, {"critic/vf_loss": loss}

        metrics = self._take_step(self.critic, update.responses, loss_of, step)
        return metrics | {"critic/grad_norm": float(self.critic.get_global_grad_norm())}

    def imitate(self, responses: Sequence[Response], step: int) -> dict[str, float]:
        """Take one optimiser step on the mean negative log-likelihood of the response tokens."""
        tokens = sum(len(r.token_ids) for r in responses)

        def loss_of(batch: MicroBatch, live: bool) -> tuple[Tensor, Sums]:
            loss = -self.policy(batch, 1.0).logprobs.sum() * live / tokens
            return loss, {"sft/loss": loss}

        metrics = self._take_step(self.policy, responses, loss_of, step)
        return metrics | {"sft/tokens": float(tokens)} | self._policy_metrics(step)

    # ---- weights out ---------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Whole weights under their transformers names; every rank must run through it."""
        for name, parts, adapter in whole_weights(self.policy.module):
            with ds.gather_shards(self.policy, parts), torch.no_grad():
                # A copy: ZeRO-3 gathers into buffers that the next gather reuses.
                weight = parts[0].detach().clone() if adapter is None else adapter.merged(name)
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
