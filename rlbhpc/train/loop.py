"""The training loop: rollout, reward, advantage, loss, update, sync, checkpoint, log.

Every rank runs this same code. A rank samples its share of the prompts, all ranks exchange what
they sampled, and from there each holds the whole batch: advantages are computed on all of it, and
only the micro-batches of the update are shared out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
import torch.distributed as dist

from rlbhpc.engines.engine import Engine
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import DONE, TRY_AGAIN, UserError
from rlbhpc.sweep.process import Drain, Interrupted
from rlbhpc.train import checkpoint
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Batch, Store
from rlbhpc.train.batch import Rollout
from rlbhpc.train.dynamics import Logs, Progress
from rlbhpc.train.learner import Learner, PolicyScorer, Update
from rlbhpc.train.rollout import Run, collect, make_batch, unanswered_batch


def train(run: Run, make_engine: Callable[[], Engine], drain: Drain, progress: Progress) -> int:
    """Train to the last step, or until drained; return an exit code.

    ``run`` describes the training. ``drain`` tells whether the job was asked to stop;
    ``Interrupted`` is raised if that happens during sampling. ``progress`` is called with each
    finished step and its metrics. A call for a run that was stopped goes on from its last saved
    state.
    """
    ds.init_ranks()
    reject_mixed_modalities(run)
    trainer = Trainer(run)
    engine = make_engine()
    try:
        if trainer.step:
            engine.load_weights(trainer.learner.named_weights())
            trainer.export_model()
        while trainer.step < run.settings.steps:
            try:
                metrics, is_stopping = trainer.take_step(engine, drain)
            except Interrupted:
                # Nothing of the step was learnt: the weights are still those of the last one.
                if trainer.step:
                    trainer.save()
                return TRY_AGAIN
            progress(trainer.step, metrics)
            if is_stopping and trainer.step < run.settings.steps:
                return TRY_AGAIN
    finally:
        engine.close()
    return DONE


class Trainer:
    """A training run on this rank: what learns, and how far it is.

    ``cursor`` counts the prompts that were drawn so far. ``store`` is what the algorithm remembers
    from step to step. Rank 0 alone has ``logs``.
    """

    def __init__(self, run: Run) -> None:
        """Load the models, and the last saved state if the run was stopped before.

        ``store`` is what the algorithm remembers from step to step; on a new run the algorithm
        fills it in ``begin``. ``cursor`` counts the prompts drawn so far. Rank 0 alone keeps logs.
        """
        self.run = run
        self.learner = Learner(run.base, run.settings, run.algorithm)
        if run.settings.kl_loss or run.algorithm.kl_beta:
            self.learner.load_reference(run.reference or run.base)
        saved = checkpoint.load_state(self.learner, run.folder / "state", run.identity) or {}
        self.step = int(saved.get("step", 0))
        self.cursor = int(saved.get("cursor", 0))
        self.store: Store = saved.get("store", {})
        self.scorer = PolicyScorer(self.learner, Tokens(run.base))
        if not self.step:
            problems = [prompt.problem for prompt in run.prompts]
            run.algorithm.begin(problems, lambda: unanswered_batch(run, self.scorer), self.store)
        self.logs = Logs(run.folder, self.step) if dist.get_rank() == 0 else None

    def take_step(self, engine: Engine, drain: Drain) -> tuple[dict[str, float], bool]:
        """Sample, learn, hand the weights to the sampling engine, and save what is due.

        Returns the step's metrics, and whether a rank was asked to stop. Raises ``Interrupted``,
        with nothing changed, if that happens during the rollout: so the rollout works on a copy of
        the store, the algorithm's memory between steps. ``collected.sampled`` are all responses of
        the step and ``collected.lessons`` those that the algorithm selected to learn from.
        """
        run, learner, algorithm = self.run, self.learner, self.run.algorithm
        # When the step began and each of its parts ended.
        moments = {"begin": time.monotonic()}
        store = deepcopy(self.store)
        collected = collect(run, engine, self.scorer, self.step + 1, self.cursor, store, drain)
        engine.rest()
        self.step += 1
        self.cursor = collected.cursor
        self.store = store
        moments["gen"] = time.monotonic()

        lessons = collected.lessons
        batch = make_batch(lessons, run.settings.max_tokens, self.scorer)
        update = self._prepare_update(batch, lessons)
        metrics = collected.metrics | self._learn_from(update)
        algorithm.after_step(self.step, batch, store)
        if learner.reference is not None and algorithm.renews_reference(self.step):
            learner.renew_reference()
        moments["update"] = time.monotonic()

        engine.load_weights(learner.named_weights())
        moments["sync"] = time.monotonic()
        if self.logs is not None:
            token_sums = update.advantages.double().sum(1)
            mean_advantages = (token_sums / batch.lengths.clamp(min=1)).tolist()
            self.logs.add_metrics(self.step, metrics, lessons)
            self.logs.hold_rollouts(self.step, collected.sampled, lessons, mean_advantages)
        is_stopping = ds.any_rank(drain.requested)
        is_last = self.step == run.settings.steps
        if is_last or is_stopping or self.step % run.settings.save_every == 0:
            self.save()
        self.export_model()
        moments["save"] = time.monotonic()
        if self.logs is not None:
            self.logs.add_timings(self.step, moments, collected.sampled)
        return metrics, is_stopping

    def save(self) -> None:
        """Save the training state, after the rows of the rollouts that it says are there.

        ``flush`` writes the rows held in memory; ``settle`` then removes files that the saved state
        makes needless.
        """
        if self.logs is not None:
            self.logs.flush()
        progress = {"identity": self.run.identity, "cursor": self.cursor, "store": self.store}
        checkpoint.save_state(self.learner, self.run.folder / "state", self.step, progress)
        if self.logs is not None:
            self.logs.settle(self.step)

    def export_model(self) -> None:
        """Write the model of this step if the run keeps it."""
        checkpoint.export_model(self.learner, self.run.base, self.run.exports.get(self.step))

    def _prepare_update(self, batch: Batch, lessons: Sequence[Rollout]) -> Update:
        """Score the selected responses by policy, critic and reference; compute their advantages.

        ``batch`` has rewards and groups of ``lessons`` as arrays. "Old" log-probs are those of the
        policy before any optimiser step on this batch. They are left out where the only step uses
        the whole batch (exactly on-policy), because its own forward pass gives them. ``kl`` is log
        π − log π_ref per token, for a penalty inside the reward.
        """
        learner, algorithm, settings = self.learner, self.run.algorithm, self.run.settings
        responses = batch.responses
        is_on_policy = settings.epochs == 1 and settings.responses_per_update >= len(responses)
        old_logprobs = None
        if not is_on_policy:
            old_logprobs = learner.logprobs(learner.policy, responses)
        reference_logprobs = None
        if learner.reference is not None:
            reference_logprobs = learner.logprobs(learner.reference, responses)
        values = learner.values(responses) if learner.critic is not None else None
        kl = None
        if algorithm.kl_beta and reference_logprobs is not None:
            policy_logprobs = old_logprobs
            if policy_logprobs is None:
                policy_logprobs = learner.logprobs(learner.policy, responses)
            kl = policy_logprobs - reference_logprobs
        signals = replace(batch, values=values, kl=kl)
        returns = algorithm.returns(signals)
        is_kept = [not (settings.mask_truncated and rollout.truncated) for rollout in lessons]
        return Update(
            responses=responses,
            advantages=algorithm.advantages(signals).float(),
            sampler_logprobs=batch.sampler_logprobs,
            kept=torch.tensor(is_kept),
            old_logprobs=old_logprobs,
            reference_logprobs=reference_logprobs if settings.kl_loss else None,
            values=values,
            returns=None if returns is None else returns.float(),
        )

    def _learn_from(self, update: Update) -> dict[str, float]:
        """Take one optimiser step per mini-batch and epoch; return the mean of their metrics.

        ``update`` has all responses of the step with their advantages.
        """
        size = self.run.settings.responses_per_update
        metrics: dict[str, list[float]] = {}
        for _ in range(self.run.settings.epochs):
            for start in range(0, len(update.responses), size):
                mini_batch = update.select(slice(start, start + size))
                for name, value in self.learner.update(mini_batch, self.step).items():
                    metrics.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in metrics.items()}


def reject_mixed_modalities(run: Run) -> None:
    """Refuse prompts with and without images on several ranks: the ranks would wait for ever.

    Ranks exchange data inside the vision tower, and one whose prompts have no image never enters
    it.
    """
    with_images = sum(1 for prompt in run.prompts if prompt.problem.images)
    if 0 < with_images < len(run.prompts) and dist.get_world_size() > 1:
        raise UserError(
            f"model {run.name}: {with_images} of {len(run.prompts)} problems have images; ranks "
            "that meet in the vision tower would wait for those that have no use for it. Train "
            "on one kind, or on one rank"
        )
