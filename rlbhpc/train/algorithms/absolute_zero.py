"""Absolute Zero: one policy proposes tasks on programs and solves them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.sets.generated import (
    KINDS,
    VERIFIER,
    Kind,
    Triplet,
    make_proposing_task,
    make_solving_task,
)
from rlbhpc.study.complaints import Weight, Whole
from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import Batch, Round, Rounds, Signals, Store, whiten
from rlbhpc.train.algorithms.reinforce import ReinforcePP
from rlbhpc.train.batch import Rollout
from rlbhpc.train.settings import Settings
from rlbhpc.verify.verdict import Status

PROGRAM_TASKS = "absolute-zero"


@dataclass(frozen=True)
class AbsoluteZero(ReinforcePP):
    r"""TRR++: REINFORCE++ whitened apart for each task type and role.

    .. math:: r_{propose} = \begin{cases} 1 - \bar r & 0 < \bar r < 1 \\ 0 & \text{else}
              \end{cases}, \qquad r_{solve} = 1[\text{right}]

    Zhao et al. 2025 (arXiv 2505.03335). A step has as many proposals as solutions of each of
    three types, a sixth of ``prompts_per_step`` each, one response a prompt. A proposal is a
    program with an input (deduction, abduction), or inputs with a message for a known program
    (induction), shown ``references`` of what is in the buffer. A prompt that the model cannot hold
    teaches nothing. The mean reward of ``tries`` solutions is how hard a task is. Without its form
    a response gets −1; a proposal that is not valid and a wrong solution get −.5. A valid task that
    always or never is solved gets ``trivial``: 0 as the paper says, −.5 in its code.

    Buffers begin with the recipe's problems. Valid triplets enter, whatever they are worth, if a
    try of them could be judged, up to ``buffer``; solvers get the newest first and fill up at
    random. The recipe's ``rewards`` judge solutions, so ``{random: 1}`` makes a control.
    """

    clip_high: Weight = 0.28
    tries: Count = 8
    references: Whole = 6
    trivial: float = 0.0
    buffer: Count = 16_384

    MAKES_TASKS: ClassVar[bool] = True
    TAKES_TURNS: ClassVar[bool] = False
    LEARNS_FROM: ClassVar[str] = "a task that could be judged"

    def begin(self, problems: Sequence[Problem], blank: Callable[[], Batch], store: Store) -> None:
        """Fill the buffers with the recipe's problems.

        ``store`` is what the algorithm remembers from step to step. It keeps a list of triplets,
        its buffer, for each kind of task (deduction, abduction, induction). A triplet is a program
        with its inputs and outputs; only the ``program-tasks`` sets have such problems. ``blank``,
        which gives every problem with an empty response, is not needed here.
        """
        for kind in KINDS:
            store[kind] = []
        for problem in problems:
            if problem.verifier != VERIFIER:
                raise UserError(f"{problem.id}: no task on a program, such as of program-tasks")
            extras = problem.extras
            keys = ("program", "inputs", "outputs", "message")
            store[extras["kind"]].append({key: extras[key] for key in keys if key in extras})
        empty = [kind for kind in KINDS if not store[kind]]
        if empty:
            raise UserError(f"the problems have no task of {empty[0]} to begin with")

    def check_settings(self, settings: Settings) -> None:
        """Refuse what would leave a type or a role out, or more than one response a prompt.

        A step has three kinds of task and two roles (propose, solve), with equally many prompts
        each.
        """
        super().check_settings(settings)
        if settings.prompts_per_step % (2 * len(KINDS)):
            raise UserError(
                f"prompts_per_step: found {settings.prompts_per_step}; allowed: a multiple of 6"
            )
        if settings.samples_per_prompt != 1:
            raise UserError(f"samples_per_prompt: found {settings.samples_per_prompt}; allowed: 1")

    def responses_per_step(self, settings: Settings) -> int:
        """Proposals, their tries and solutions."""
        proposals = settings.prompts_per_step // 2
        return settings.prompts_per_step + proposals * self.tries

    def rounds(self, step: int, seed: int, count: int, store: Store) -> Rounds:
        """Propose tasks, try the valid ones, then solve tasks; proposals and solutions teach.

        A generator: it yields a round of tasks to sample, is sent the judged responses, and returns
        the lessons, which are the responses to learn from with their rewards. ``count`` is the
        number of prompts of the step: a sixth for each kind of task and role. A triplet is a
        program with its inputs and outputs; ``store[kind]`` is the buffer of those seen so far. A
        valid proposal is tried ``self.tries`` times, and the mean score of the tries says how hard
        it is.
        """
        rng = np.random.Generator(np.random.Philox(key=[seed, step]))
        tasks_per_kind = count // (2 * len(KINDS))
        kinds = [kind for kind in KINDS for _ in range(tasks_per_kind)]
        requests = []
        for kind in KINDS:
            requests += [
                self._ask_for_triplet(kind, rng, store, number) for number in range(tasks_per_kind)
            ]
        proposals = yield Round(requests)
        valid: dict[int, Triplet] = {}
        for number, proposal in enumerate(proposals):
            if proposal.correct:
                valid[number] = json.loads(proposal.verdict.canonical)

        # How hard each valid proposal is.
        tasks = [make_solving_task(PROGRAM_TASKS, kinds[number], t) for number, t in valid.items()]
        tries = (yield Round(tasks, self.tries)) if tasks else []
        # One row of tries for each valid proposal.
        scores = np.array([attempt.reward for attempt in tries]).reshape(-1, self.tries)
        mean_scores = dict(zip(valid, _mean_scores(scores), strict=True))
        lessons = []
        for number, proposal in enumerate(proposals):
            reward = self._proposal_reward(proposal, mean_scores.get(number, nan))
            lessons.append(_make_lesson(proposal, reward, "propose", kinds[number]))

        new_triplets: dict[Kind, list[Triplet]] = {kind: [] for kind in KINDS}
        for number, triplet in valid.items():
            if not isnan(mean_scores[number]):
                new_triplets[kinds[number]].append(triplet)
        tasks = []
        for kind in KINDS:
            chosen = _choose_triplets(new_triplets[kind], store[kind], tasks_per_kind, rng)
            tasks += [make_solving_task(PROGRAM_TASKS, kind, triplet) for triplet in chosen]
        solutions = yield Round(tasks)
        for solution, kind in zip(solutions, kinds, strict=True):
            lessons.append(_make_lesson(solution, _solver_reward(solution), "solve", kind))

        for kind in KINDS:
            self._add_to_buffer(store[kind], new_triplets[kind])
        store["metrics"] = _step_metrics(lessons, new_triplets, list(mean_scores.values()), store)
        return lessons

    def advantages(self, signals: Signals) -> Tensor:
        """Reward-to-go, whitened within each part of the batch, (B, T).

        A part is one role (propose or solve) of one kind of task. ``returns`` has, for each token,
        the discounted rewards still to come; ``whiten`` scales the masked ones to mean 0 and
        variance 1.
        """
        assert signals.parts is not None
        returns = self.rewards_to_go(signals, self.gamma)
        out = torch.zeros_like(returns)
        for part in signals.parts.unique().tolist():
            mask = signals.mask & (signals.parts == part)[:, None]
            out += whiten(returns, mask, self.ddof, self.eps, self.floor)
        return out

    def measure(self, batch: Batch, rewards: Tensor, store: Store) -> dict[str, float]:
        """Validity, difficulty and success by task type, and the buffers' sizes."""
        metrics: dict[str, float] = store.pop("metrics")
        return metrics

    def _ask_for_triplet(
        self, kind: Kind, rng: np.random.Generator, store: Store, number: int
    ) -> Problem:
        """Ask for a new task, with references drawn from the buffer ``store[kind]``.

        A reference is a triplet: a program with its inputs and outputs. Induction shows one known
        program and asks for inputs. ``number`` tells the tasks of a step apart.
        """
        if kind == "induction":
            pool = store["deduction"] + store["abduction"]
            shown = [pool[int(rng.integers(len(pool)))]]
        else:
            size = min(self.references, len(store[kind]))
            chosen = rng.choice(len(store[kind]), size, replace=False).tolist()
            shown = [store[kind][i] for i in chosen]
        return make_proposing_task(PROGRAM_TASKS, kind, shown, number)

    def _add_to_buffer(self, buffer: list[Triplet], new_triplets: Sequence[Triplet]) -> None:
        """Append the triplets that are not in a buffer yet, and drop the oldest above its size."""
        known_keys = {_triplet_key(triplet) for triplet in buffer}
        buffer += [triplet for triplet in new_triplets if _triplet_key(triplet) not in known_keys]
        del buffer[: -self.buffer]

    def _proposal_reward(self, rollout: Rollout, mean_score: float) -> float:
        """Reward of a proposal; ``mean_score`` is that of its tries, NaN where none has a score."""
        if rollout.verdict.status is not Status.RIGHT:
            return _error_penalty(rollout.verdict.status)
        if isnan(mean_score):
            return nan
        return 1 - mean_score if 0 < mean_score < 1 else self.trivial


def _make_lesson(rollout: Rollout, reward: float, role: str, kind: Kind) -> Rollout:
    """A rollout to learn from, under the name of its role and kind: each task occurs only once."""
    part = KINDS.index(kind)
    if role == "solve":
        part += len(KINDS)
    return replace(rollout, reward=reward, part=part, problem=f"{PROGRAM_TASKS}/{role}/{kind}")


def _error_penalty(status: Status) -> float:
    if status is Status.ERROR:
        return nan
    return -1.0 if status is Status.NO_ANSWER else -0.5


def _solver_reward(rollout: Rollout) -> float:
    if isnan(rollout.reward) or rollout.reward > 0:
        return rollout.reward
    return _error_penalty(rollout.verdict.status)


def _triplet_key(triplet: Triplet) -> str:
    """Tell a triplet whatever the order of its keys: a saved store comes back with another."""
    return json.dumps(triplet, sort_keys=True)


def _mean_scores(scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    """Mean of those tries that could be judged; NaN where none could."""
    rows = [row[~np.isnan(row)] for row in scores]
    return [float(row.mean()) if len(row) else nan for row in rows]


def _choose_triplets(
    new_triplets: Sequence[Triplet],
    buffer: Sequence[Triplet],
    count: int,
    rng: np.random.Generator,
) -> list[Triplet]:
    """``count`` triplets: new ones first, then random ones of the buffer, with repeats.

    A triplet is a program with its inputs and outputs, from which a task to solve is made.
    """
    chosen = list(new_triplets[:count])
    indices = rng.integers(0, len(buffer), count - len(chosen)).tolist()
    return chosen + [buffer[i] for i in indices]


def _step_metrics(
    lessons: Sequence[Rollout],
    new_triplets: dict[Kind, list[Triplet]],
    mean_scores: list[float],
    store: Store,
) -> dict[str, float]:
    """Shares by kind of task: valid proposals, solved tasks; and how hard the proposals were.

    ``lesson.part`` numbers the kinds of task, first for proposals and then for solutions. There are
    equally many of both, so the number of solutions stands for that of proposals as well.
    ``mean_scores`` are success rates of the tries of each valid proposal.
    """
    metrics: dict[str, float] = {}
    for number, kind in enumerate(KINDS):
        solving_part = len(KINDS) + number
        is_solved = [lesson.correct for lesson in lessons if lesson.part == solving_part]
        metrics[f"azr/valid/{kind}"] = len(new_triplets[kind]) / len(is_solved)
        metrics[f"azr/solved/{kind}"] = sum(is_solved) / len(is_solved)
        metrics[f"azr/buffer/{kind}"] = float(len(store[kind]))
    scored = [mean for mean in mean_scores if not isnan(mean)]
    if scored:
        metrics["azr/solve_rate"] = sum(scored) / len(scored)
        metrics["azr/learnable"] = sum(0 < mean < 1 for mean in scored) / len(scored)
    return metrics
