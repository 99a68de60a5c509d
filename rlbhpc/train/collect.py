"""One step's rollout: prompts to judged responses on all ranks, and what of them is learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rlbhpc.engines.engine import Engine
from rlbhpc.errors import UserError
from rlbhpc.sweep.drain import Drain, Interrupted
from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms.algorithm import Batch, Lesson, Rounds, Scorer, Store
from rlbhpc.train.dynamics import describe
from rlbhpc.train.learner import padded
from rlbhpc.train.rollout import Draw, Prompt, Rollout, draw_order, read_prompt, roll_out
from rlbhpc.verify.verdict import Status, Verdict

if TYPE_CHECKING:
    from rlbhpc.train.loop import Run


@dataclass(frozen=True)
class Collected:
    """The rollout of one step: all that was sampled, and what is learnt from.

    ``cursor`` counts the prompts that were drawn up to here in the whole run.
    """

    sampled: list[Rollout]
    chosen: list[Rollout]
    cursor: int
    metrics: dict[str, float]

    @property
    def rewarded(self) -> list[Rollout]:
        """All that was sampled, with the algorithm's rewards where it was chosen."""
        chosen = {id(rollout.response): rollout for rollout in self.chosen}
        return [chosen.get(id(rollout.response), rollout) for rollout in self.sampled]


def collect(
    run: Run, engine: Engine, scorer: Scorer, step: int, cursor: int, store: Store, drain: Drain
) -> Collected:
    """Sample one step's rollout; what the algorithm leaves out may be refilled a few times.

    Every group of which something was selected is used: a refill asks only for as many prompts as
    are missing. What describes the step is of all that was sampled and of its plain rewards, so
    that algorithms compare; what was chosen of it is described beside it.
    """
    s, algorithm = run.settings, run.algorithm
    sampled: list[Rollout] = []
    chosen: list[Rollout] = []
    rewards: list[Tensor] = []
    missing, rounds = s.prompts_per_step, 0
    own = algorithm.rounds(step, s.seed, s.prompts_per_step, store)
    while True:
        if own is None:
            drawn = [run.prompts[i] for i in draw_order(s.seed, len(run.prompts), cursor, missing)]
            fresh = _sample(run, engine, step, cursor, drawn, s.samples_per_prompt, drain)
            cursor += missing
        else:
            fresh, cursor = _played(run, engine, step, cursor, own, drain)
        batch = batch_of(fresh, s.max_tokens, scorer)
        rewards.append(algorithm.reward(batch, store))
        chosen += _selected(run, fresh, replace(batch, rewards=rewards[-1]), store)
        sampled += fresh
        missing = s.prompts_per_step - len({r.group for r in chosen})
        if missing == 0 or rounds >= algorithm.refills:
            break
        rounds += 1
    groups = len({r.group for r in sampled})
    if not chosen:
        raise UserError(
            f"training step {step}: {groups} prompts were sampled {s.samples_per_prompt} times and "
            f"gave not once {algorithm.LEARNS_FROM}, so there is nothing to learn from; use "
            "problems nearer to the model's ability, or more samples_per_prompt"
        )
    metrics = describe(sampled) | algorithm.measure(
        batch_of(sampled, s.max_tokens, scorer), torch.cat(rewards), store
    )
    if len(chosen) < len(sampled) or any(a is not b for a, b in zip(chosen, sampled, strict=True)):
        metrics |= {f"kept/{name}": value for name, value in describe(chosen).items()}
    if algorithm.refills:
        metrics |= {"rollout/refills": float(rounds), "rollout/prompts": float(groups)}
    return Collected(sampled, chosen, cursor, metrics)


def batch_of(rollouts: Sequence[Rollout], max_tokens: int, scorer: Scorer) -> Batch:
    """What an algorithm is shown of a rollout."""
    return Batch(
        rewards=torch.tensor([r.reward for r in rollouts], dtype=torch.float64),
        correct=torch.tensor([r.correct for r in rollouts]),
        answers=[r.verdict.canonical for r in rollouts],
        groups=torch.tensor([r.group for r in rollouts]),
        lengths=torch.tensor([len(r.response.token_ids) for r in rollouts]),
        max_tokens=max_tokens,
        problems=[r.problem for r in rollouts],
        golds=[r.gold for r in rollouts],
        texts=[r.text for r in rollouts],
        responses=[r.response for r in rollouts],
        sampler=padded([r.sampler_logprobs for r in rollouts]),
        scorer=scorer,
    )


def blank_of(run: Run, scorer: Scorer) -> Batch:
    """All prompts of a run, with nothing answered yet."""
    rollouts = [
        Rollout(
            prompt.problem.id, prompt.problem.gold, i, read_prompt(prompt, run.sight),
            np.zeros(0, np.float32), 0.0, False, "", Verdict(Status.MISSING), 0.0,
        )
        for i, prompt in enumerate(run.prompts)
    ]  # fmt: skip
    return batch_of(rollouts, run.settings.max_tokens, scorer)


def _selected(run: Run, rollouts: list[Rollout], batch: Batch, store: Store) -> list[Rollout]:
    """Responses to learn from, with the algorithm's rewards; what has no reward is left out."""
    selected = run.algorithm.select(batch, store) & ~batch.rewards.isnan()
    greedy = torch.tensor([r.greedy_reward for r in rollouts], dtype=torch.float64)
    selected &= ~greedy.isnan()
    chosen = []
    for rollout, reward, keep in zip(
        rollouts, batch.rewards.tolist(), selected.tolist(), strict=True
    ):
        if keep:
            chosen.append(rollout if rollout.reward == reward else replace(rollout, reward=reward))
    return chosen


def _played(
    run: Run, engine: Engine, step: int, cursor: int, rounds: Rounds, drain: Drain
) -> tuple[list[Rollout], int]:
    """Sample the rounds that an algorithm makes itself; its lessons, and the cursor after them."""
    if run.ask is None:
        raise ValueError("tasks of an algorithm's own making need a prompt")
    round_ = next(rounds)
    while True:
        prompts = [run.ask(problem) for problem in round_.problems]
        rollouts = _sample(run, engine, step, cursor, prompts, round_.samples, drain)
        cursor += len(prompts)
        unfit = [r for r in rollouts if r.verdict.status is Status.ERROR and not r.text]
        if rollouts and len(unfit) == len(rollouts):
            why = unfit[0].verdict.rule
            raise UserError(f"training step {step}: no task could be asked: {why}")
        try:
            round_ = rounds.send(rollouts)
        except StopIteration as ended:
            lessons: list[Lesson] = ended.value
            return [
                replace(x.rollout, reward=x.reward, part=x.part, problem=x.label) for x in lessons
            ], cursor


def _sample(
    run: Run,
    engine: Engine,
    step: int,
    cursor: int,
    prompts: Sequence[Prompt],
    samples: int,
    drain: Drain,
) -> list[Rollout]:
    """Sample prompts number ``cursor`` … on all ranks; every rank gets all rollouts, in order.

    A warning to any rank interrupts all of them.
    """
    s = run.settings
    ranks, rank = dist.get_world_size(), dist.get_rank()
    share = -(-len(prompts) // ranks)
    draw = Draw(
        engine=engine,
        prompts=prompts[rank * share : (rank + 1) * share],
        first_group=cursor + rank * share,
        run=(s.seed, run.name, step),
        max_tokens=s.max_tokens,
        judge=run.judge,
        sight=run.sight,
        tolerant=run.algorithm.MAKES_TASKS,
    )
    own: list[Rollout] | None = None
    with suppress(Interrupted), drain.interruptible():
        own = _own_rollouts(run, draw, samples)
    if ds.any_rank(own is None):
        raise Interrupted
    everyone: list[list[Rollout]] = [[] for _ in range(ranks)]
    dist.all_gather_object(everyone, own)
    return [r for part in everyone for r in part]


def _own_rollouts(run: Run, draw: Draw, samples: int) -> list[Rollout]:
    rollouts = roll_out(draw, samples, run.settings.temperature)
    if not run.algorithm.NEEDS_GREEDY:
        return rollouts
    greedy = {r.group: r.reward for r in roll_out(draw, samples=1, temperature=0.0)}
    return [replace(r, greedy_reward=greedy[r.group]) for r in rollouts]
