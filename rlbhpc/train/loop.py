"""The training loop: rollout, reward, advantage, loss, update, sync, checkpoint, log.

Every rank runs this same code. A rank samples its share of the prompts, all ranks exchange what
they sampled, and from there each holds the whole batch: advantages are computed on all of it, and
only the micro-batches of the update are shared out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist

from rlbhpc.engines.engine import Engine
from rlbhpc.engines.hf.sight import Sight
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.sweep.drain import Drain, Interrupted
from rlbhpc.train import checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Algorithm, Signals
from rlbhpc.train.algorithms.dapo import DAPO
from rlbhpc.train.algorithms.ppo import PPO
from rlbhpc.train.dynamics import Clock, Logs, describe
from rlbhpc.train.learner import Learner, Update, padded
from rlbhpc.train.losses import explained_variance
from rlbhpc.train.rollout import Draw, Judge, Prompt, Rollout, draw_order, roll_out
from rlbhpc.train.settings import Settings


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes
    ----------
    name
        The model of the study that comes out of it; enters the seeds of its rollouts.
    base
        Folder of the model that training starts from; the reference, too, if there is one.
    folder
        Where training state and dynamics are kept.
    exports
        Training step -> where the model at that step goes.
    """

    name: str
    base: Path
    folder: Path
    exports: dict[int, checkpoint.Export]
    settings: Settings
    algorithm: Algorithm
    prompts: Sequence[Prompt]
    judge: Judge
    sight: Sight | None = None

    def read(self, prompt: Prompt) -> tuple[int, ...]:
        """Tokens of a prompt as a policy reads them, those of its images included."""
        images = prompt.problem.pictures
        return self.sight.expand(prompt.ids, images) if self.sight and images else prompt.ids

    @property
    def identity(self) -> str:
        """Digest of what must stay the same for a run to go on."""
        parts = [
            self.name,
            self.settings.essence,
            repr(self.algorithm),
            *(f"{p.problem.content_hash} {p.ids}" for p in self.prompts),
            (self.base / "config.json").read_text(),
        ]
        if any(p.problem.images for p in self.prompts):  # how many tokens an image is
            parts.append((self.base / "preprocessor_config.json").read_text())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def train(
    run: Run,
    make_engine: Callable[[], Engine],
    drain: Drain,
    progress: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
) -> int:
    """Train to the last step, or until drained. Returns an exit code; again goes on from there."""
    ds.init_ranks()
    refuse_a_mixture(run)
    learner = Learner(run.base, run.settings, run.algorithm)
    if run.settings.kl_loss or run.algorithm.kl_beta:
        learner.load_reference(run.base)
    saved = checkpoint.load_state(learner, run.folder / "state", run.identity) or {}
    step, cursor = int(saved.get("step", 0)), int(saved.get("cursor", 0))
    if not step:
        _tell_untrained_tokens(run, learner)
    logs = Logs(run.folder, step) if dist.get_rank() == 0 else None
    engine = make_engine()
    try:
        if step:
            engine.load_weights(learner.named_weights())
        while step < run.settings.steps:
            clock = Clock()
            try:
                collected = _collect(run, engine, step + 1, cursor, drain)
            except Interrupted:  # nothing of the step was learnt: the weights are the last one's
                if step:
                    _save(learner, run, step, cursor)
                return TRY_AGAIN
            rollouts, cursor = collected.chosen, collected.cursor
            engine.rest()
            step += 1
            clock.lap("gen")
            metrics = collected.metrics | _learn(run, learner, rollouts, step)
            clock.lap("update")
            engine.load_weights(learner.named_weights())
            clock.lap("sync")
            if logs is not None:
                logs.results(step, metrics, rollouts)
            if step in run.exports:
                checkpoint.export_model(learner, run.base, run.exports[step])
            stopping = ds.any_rank(drain.requested)
            if step % run.settings.save_every == 0 or step == run.settings.steps or stopping:
                _save(learner, run, step, cursor)
            clock.lap("save")
            if logs is not None:
                logs.times(step, clock, collected.sampled)
            progress(step, metrics)
            if stopping and step < run.settings.steps:
                return TRY_AGAIN
    finally:
        engine.close()
        if logs is not None:
            logs.close()
    return DONE


def _save(learner: Learner, run: Run, step: int, cursor: int) -> None:
    state = {"identity": run.identity, "cursor": cursor}
    checkpoint.save_state(learner, run.folder / "state", step, state)


def refuse_a_mixture(run: Run) -> None:
    """Refuse what would make ranks wait for each other for ever."""
    shown = sum(1 for prompt in run.prompts if prompt.problem.images)
    if 0 < shown < len(run.prompts) and dist.get_world_size() > 1:
        raise UserError(
            f"model {run.name}: {shown} of {len(run.prompts)} problems have images; ranks that "
            "meet in the vision tower would wait for those that have no use for it. Train on one "
            "kind, or on one rank"
        )


def _tell_untrained_tokens(run: Run, learner: Learner) -> None:
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


@dataclass(frozen=True)
class Collected:
    """The rollout of one step: all that was sampled, and what is learnt from.

    ``cursor`` counts the prompts that were drawn up to here in the whole run.
    """

    sampled: list[Rollout]
    chosen: list[Rollout]
    cursor: int
    metrics: dict[str, float]


def _collect(run: Run, engine: Engine, step: int, cursor: int, drain: Drain) -> Collected:
    """Sample one step's rollout; DAPO refills groups without a signal, a bounded number of times.

    Every group that has a signal is used: a refill asks only for as many prompts as are missing.
    What describes the step is of all that was sampled and of its plain rewards, so that algorithms
    compare; what was chosen of it is described beside it.
    """
    s = run.settings
    sampled: list[Rollout] = []
    kept: list[Rollout] = []
    refills = getattr(run.algorithm, "max_refills", 0)
    missing, rounds, drawn = s.prompts_per_step, 0, 0
    while True:
        fresh = _sample(run, engine, step, cursor, missing, drain)
        cursor += missing
        drawn += missing
        sampled += fresh
        if not isinstance(run.algorithm, DAPO):
            return Collected(sampled, sampled, cursor, describe(sampled))
        kept += _with_signal(run.algorithm, fresh)
        missing = s.prompts_per_step - len({r.group for r in kept})
        if missing == 0 or rounds >= refills:
            break
        rounds += 1
    if not kept:
        raise UserError(
            f"training step {step}: {drawn} prompts were sampled {s.samples_per_prompt} times and "
            "none was solved sometimes but not always, so there is nothing to learn from; use "
            "problems nearer to the model's ability, or more samples_per_prompt"
        )
    penalty = run.algorithm.overlong_penalty(
        torch.tensor([len(r.response.token_ids) for r in kept]), s.max_tokens
    )
    shaped = [replace(r, reward=r.reward + float(p)) for r, p in zip(kept, penalty, strict=True)]
    metrics = describe(sampled) | {f"kept/{name}": x for name, x in describe(shaped).items()}
    metrics |= {"dapo/refills": float(rounds), "dapo/prompts": float(drawn)}
    return Collected(sampled, shaped, cursor, metrics)


def _with_signal(algorithm: DAPO, rollouts: list[Rollout]) -> list[Rollout]:
    correct = torch.tensor([float(r.correct) for r in rollouts])
    keep = algorithm.keep(correct, torch.tensor([r.group for r in rollouts]))
    return [r for r, k in zip(rollouts, keep.tolist(), strict=True) if k]


def _sample(
    run: Run, engine: Engine, step: int, cursor: int, count: int, drain: Drain
) -> list[Rollout]:
    """Sample prompts number ``cursor`` … on all ranks; every rank gets all rollouts, in order.

    A warning to any rank interrupts all of them.
    """
    s = run.settings
    order = draw_order(s.seed, len(run.prompts), cursor, count)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    share = -(-count // ranks)
    mine = order[rank * share : (rank + 1) * share]
    draw = Draw(
        engine=engine,
        prompts=[run.prompts[i] for i in mine],
        first_group=cursor + rank * share,
        run=(s.seed, run.name, step),
        max_tokens=s.max_tokens,
        judge=run.judge,
        sight=run.sight,
    )
    own: list[Rollout] | None = None
    with suppress(Interrupted), drain.interruptible():
        own = _own_rollouts(run, draw)
    if ds.any_rank(own is None):
        raise Interrupted
    everyone: list[list[Rollout]] = [[] for _ in range(ranks)]
    dist.all_gather_object(everyone, own)
    return [r for part in everyone for r in part]


def _own_rollouts(run: Run, draw: Draw) -> list[Rollout]:
    s = run.settings
    rollouts = roll_out(draw, s.samples_per_prompt, s.temperature)
    if not run.algorithm.NEEDS_GREEDY:
        return rollouts
    greedy = {r.group: r.reward for r in roll_out(draw, samples=1, temperature=0.0)}
    return [replace(r, greedy_reward=greedy[r.group]) for r in rollouts]


def _learn(run: Run, learner: Learner, rollouts: list[Rollout], step: int) -> dict[str, float]:
    """Advantages, then one optimiser step per mini-batch and epoch."""
    s, algorithm = run.settings, run.algorithm
    responses = [r.response for r in rollouts]
    size = min(s.responses_per_update, len(rollouts))
    on_policy = size == len(rollouts) and s.epochs == 1
    old = None if on_policy else learner.logprobs(learner.policy, responses)
    needs_reference = learner.reference is not None
    reference = learner.logprobs(learner.reference, responses) if needs_reference else None
    values = learner.values(responses) if learner.critic is not None else None
    kl = None
    if algorithm.kl_beta and reference is not None:
        now = old if old is not None else learner.logprobs(learner.policy, responses)
        kl = now - reference
    signals = Signals(
        rewards=torch.tensor([r.reward for r in rollouts], dtype=torch.float64),
        groups=torch.tensor([r.group for r in rollouts]),
        lengths=torch.tensor([len(r.token_ids) for r in responses]),
        greedy=torch.tensor([r.greedy_reward for r in rollouts], dtype=torch.float64),
        values=values,
        kl=kl,
    )
    whole = Update(
        responses=responses,
        advantages=algorithm.advantages(signals).float(),
        sampler=padded([r.sampler_logprobs for r in rollouts]),
        kept=torch.tensor([not (s.mask_truncated and r.truncated) for r in rollouts]),
        old=old,
        reference=reference if s.kl_loss else None,
        values=values,
        returns=algorithm.returns(signals).float() if isinstance(algorithm, PPO) else None,
    )
    updates = [
        learner.update(_slice(whole, start, start + size), step)
        for _ in range(s.epochs)
        for start in range(0, len(rollouts), size)
    ]
    return _means(updates) | _critic(whole, signals.mask)


def _critic(update: Update, mask: torch.Tensor) -> dict[str, float]:
    """How well the critic foresaw the rewards, before it learnt from them."""
    if update.values is None or update.returns is None:
        return {}
    share = explained_variance(update.values, update.returns, mask)
    return {} if math.isnan(share) else {"critic/vf_explained_var": share}


def _means(updates: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric over the updates that have it."""
    names = dict.fromkeys(name for one in updates for name in one)
    having = {name: [one[name] for one in updates if name in one] for name in names}
    return {name: sum(values) / len(values) for name, values in having.items()}


def _slice(update: Update, start: int, stop: int) -> Update:
    parts: dict[str, Any] = {
        name: value if value is None else value[start:stop] for name, value in vars(update).items()
    }
    return Update(**parts)
