"""The training loop: rollout, reward, advantage, loss, update, sync, checkpoint, log.

Every rank runs this same code. A rank samples its share of the prompts, all ranks exchange what
they sampled, and from there each holds the whole batch: advantages are computed on all of it, and
only the micro-batches of the update are shared out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import click
import torch
import torch.distributed as dist
from torch import Tensor

from rlbhpc.engines.engine import Engine
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.sweep.process import Drain, Interrupted
from rlbhpc.train import checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Batch, Store, explained_variance
from rlbhpc.train.dynamics import Logs, Progress
from rlbhpc.train.learner import Learner, PolicyScorer, Update
from rlbhpc.train.rollout import Run, batch_of, blank_of, collect


def train(run: Run, make_engine: Callable[[], Engine], drain: Drain, progress: Progress) -> int:
    """Train to the last step, or until drained. Returns an exit code; again goes on from there."""
    ds.init_ranks()
    refuse_a_mixture(run)
    learner = Learner(run.base, run.settings, run.algorithm)
    if run.settings.kl_loss or run.algorithm.kl_beta:
        learner.load_reference(run.reference or run.base)
    saved = checkpoint.load_state(learner, run.folder / "state", run.identity) or {}
    step, cursor = int(saved.get("step", 0)), int(saved.get("cursor", 0))
    store: Store = saved.get("store", {})
    scorer = PolicyScorer(learner, Tokens(run.base))
    if not step:
        _tell_untrained_tokens(run, learner)
        problems = [prompt.problem for prompt in run.prompts]
        run.algorithm.begin(problems, lambda: blank_of(run, scorer), store)
    logs = Logs(run.folder, step) if dist.get_rank() == 0 else None
    engine = make_engine()
    try:
        if step:
            engine.load_weights(learner.named_weights())
            checkpoint.export_model(learner, run.base, run.exports.get(step))
        while step < run.settings.steps:
            ends = {"begin": time.monotonic()}
            draft = deepcopy(store)
            try:
                collected = collect(run, engine, scorer, step + 1, cursor, draft, drain)
            except Interrupted:  # nothing of the step was learnt: the weights are the last one's
                if step:
                    _save_step(learner, run, logs, step, cursor, store)
                return TRY_AGAIN
            rollouts, cursor, store = collected.chosen, collected.cursor, draft
            engine.rest()
            step += 1
            ends["gen"] = time.monotonic()
            batch = batch_of(rollouts, run.settings.max_tokens, scorer)
            truncated = torch.tensor([r.truncated for r in rollouts])
            learnt, advantages = _learn_from(run, learner, batch, truncated, step)
            metrics = collected.metrics | learnt
            run.algorithm.after_step(step, batch, store)
            if learner.reference is not None and run.algorithm.renews_reference(step):
                learner.renew_reference()
            ends["update"] = time.monotonic()
            engine.load_weights(learner.named_weights())
            ends["sync"] = time.monotonic()
            if logs is not None:
                logs.results(step, metrics, rollouts)
                logs.sampled(step, collected.sampled, rollouts, advantages)
            stopping = ds.any_rank(drain.requested)
            if step % run.settings.save_every == 0 or step == run.settings.steps or stopping:
                _save_step(learner, run, logs, step, cursor, store)
            checkpoint.export_model(learner, run.base, run.exports.get(step))
            ends["save"] = time.monotonic()
            if logs is not None:
                logs.times(step, ends, collected.sampled)
            progress(step, metrics)
            if stopping and step < run.settings.steps:
                return TRY_AGAIN
    finally:
        engine.close()
    return DONE


def _save_step(
    learner: Learner, run: Run, logs: Logs | None, step: int, cursor: int, store: Store
) -> None:
    """Save the state of a step; the rows of its rollouts first, which a state says are there."""
    if logs is not None:
        logs.flush()
    state = {"identity": run.identity, "cursor": cursor, "store": store}
    checkpoint.save_state(learner, run.folder / "state", step, state)
    if logs is not None:
        logs.settle(step)


def refuse_a_mixture(run: Run) -> None:
    """Refuse what would make ranks wait for each other for ever."""
    with_images = sum(1 for prompt in run.prompts if prompt.problem.images)
    if 0 < with_images < len(run.prompts) and dist.get_world_size() > 1:
        raise UserError(
            f"model {run.name}: {with_images} of {len(run.prompts)} problems have images; ranks "
            "that meet in the vision tower would wait for those that have no use for it. Train "
            "on one kind, or on one rank"
        )


def _tell_untrained_tokens(run: Run, learner: Learner) -> None:
    """Warn of prompts with tokens that the start model has hardly an embedding for."""
    read = {i for prompt in run.prompts for i in prompt.ids}
    # In the place of what marks an image stands what is seen of it.
    faint = learner.faint_tokens(read - ({run.sight.mark} if run.sight else set()))
    if faint and dist.get_rank() == 0:
        ids = ", ".join(map(str, faint[:8]))
        click.echo(
            f"the prompts hold tokens that {run.base} seems never to have been trained on (ids "
            f"{ids}): their embeddings are next to 0, and what it answers may be noise",
            err=True,
        )


def _learn_from(
    run: Run, learner: Learner, batch: Batch, truncated: Tensor, step: int
) -> tuple[dict[str, float], list[float]]:
    """Advantages, then one optimiser step per mini-batch and epoch.

    Gives the step's metrics, and the mean advantage of each response.
    """
    s, algorithm, responses = run.settings, run.algorithm, batch.responses
    size = min(s.responses_per_update, len(responses))
    on_policy = size == len(responses) and s.epochs == 1
    old = None if on_policy else learner.logprobs(learner.policy, responses)
    reference = None
    if learner.reference is not None:
        reference = learner.logprobs(learner.reference, responses)
    values = learner.values(responses) if learner.critic is not None else None
    kl = None
    if algorithm.kl_beta and reference is not None:
        now = old if old is not None else learner.logprobs(learner.policy, responses)
        kl = now - reference
    signals = replace(batch, values=values, kl=kl)
    returns = algorithm.returns(signals)
    whole = Update(
        responses=responses,
        advantages=algorithm.advantages(signals).float(),
        sampler=batch.sampler,
        kept=~truncated if s.mask_truncated else torch.ones_like(truncated),
        old=old,
        reference=reference if s.kl_loss else None,
        values=values,
        returns=None if returns is None else returns.float(),
    )
    metrics: dict[str, list[float]] = {}
    for _ in range(s.epochs):
        for start in range(0, len(responses), size):
            for name, value in learner.update(whole.rows(slice(start, start + size)), step).items():
                metrics.setdefault(name, []).append(value)
    if whole.values is not None and whole.returns is not None:
        # How well the critic foresaw the rewards, before it learnt from them.
        share = explained_variance(whole.values, whole.returns, signals.mask)
        if not math.isnan(share):
            metrics["critic/vf_explained_var"] = [share]
    means = (whole.advantages.double().sum(1) / signals.lengths.clamp(min=1)).tolist()
    return {name: sum(values) / len(values) for name, values in metrics.items()}, means
