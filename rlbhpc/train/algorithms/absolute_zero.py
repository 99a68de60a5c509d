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
    (induction), shown ``references`` of what is in the buffer, or as many as the model can hold
    beside a response; ``rollout/shortened`` counts proposals that were shown fewer. The mean reward
    of ``tries`` solutions is how hard it is. Without its form a response gets −1; a proposal that
    is not valid and a wrong solution get −.5. A valid task that always or never is solved gets
    ``trivial``: 0 as the paper says, −.5 in its code.

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
    LEARNS_FROM: ClassVar[str] = "a task that could be judged"

    def begin(self, problems: Sequence[Problem], blank: Callable[[], Batch], store: Store) -> None:
        """Fill the buffers with the recipe's problems."""
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
        """Refuse what would leave a type or a role out, or more than one response a prompt."""
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
        """Propose, try what was proposed, solve."""
        share = count // (2 * len(KINDS))
        rng = np.random.Generator(np.random.Philox(key=[seed, step]))
        wordings = [
            self._ask_for_triplet(kind, rng, store, number)
            for kind in KINDS
            for number in range(share)
        ]
        proposals = yield Round(
            [longest for longest, *_ in wordings], shorter=[shorter for _, *shorter in wordings]
        )
        valid: dict[int, Triplet] = {
            i: json.loads(rollout.verdict.canonical)
            for i, rollout in enumerate(proposals)
            if rollout.correct
        }
        kinds = [kind for kind in KINDS for _ in range(share)]
        tasks = [
            make_solving_task(PROGRAM_TASKS, kinds[i], triplet) for i, triplet in valid.items()
        ]
        tries = (yield Round(tasks, self.tries)) if tasks else []
        scores = np.array([rollout.reward for rollout in tries]).reshape(-1, self.tries)
        means = dict(zip(valid, _mean_scores(scores), strict=True))
        lessons = [
            _make_lesson(
                rollout, self._proposal_reward(rollout, means.get(i, nan)), "propose", kinds[i]
            )
            for i, rollout in enumerate(proposals)
        ]
        news: dict[Kind, list[Triplet]] = {
            kind: [t for i, t in valid.items() if kinds[i] == kind and not isnan(means[i])]
            for kind in KINDS
        }
        solved = yield Round([
            make_solving_task(PROGRAM_TASKS, kind, triplet)
            for kind in KINDS
            for triplet in _newest_first(news[kind], store[kind], share, rng)
        ])  # fmt: skip
        lessons += [
            _make_lesson(rollout, _solver_reward(rollout), "solve", kind)
            for rollout, kind in zip(solved, kinds, strict=True)
        ]
        for kind in KINDS:
            known_keys = {_triplet_key(triplet) for triplet in store[kind]}
            store[kind] += [t for t in news[kind] if _triplet_key(t) not in known_keys]
            del store[kind][: -self.buffer]
        store["metrics"] = _step_metrics(lessons, news, list(means.values()), store)
        return lessons

    def advantages(self, signals: Signals) -> Tensor:
        """Whitened reward-to-go of each part."""
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
    ) -> list[Problem]:
        """Ask for a triplet, with ever fewer references; for induction, about one program."""
        if kind == "induction":
            pool = store["deduction"] + store["abduction"]
            return [
                make_proposing_task(
                    PROGRAM_TASKS, kind, [pool[int(rng.integers(len(pool)))]], number
                )
            ]
        size = min(self.references, len(store[kind]))
        chosen = rng.choice(len(store[kind]), size, replace=False).tolist()
        references = [store[kind][i] for i in chosen]
        return [
            make_proposing_task(PROGRAM_TASKS, kind, references[:count], number)
            for count in range(size, -1, -1)
        ]

    def _proposal_reward(self, rollout: Rollout, mean: float) -> float:
        """Reward of a proposal; ``mean`` is that of its tries, NaN where it has none."""
        if rollout.verdict.status is not Status.RIGHT:
            return _error_penalty(rollout.verdict.status)
        return 1 - mean if 0 < mean < 1 else self.trivial + 0 * mean


def _make_lesson(rollout: Rollout, reward: float, role: str, kind: Kind) -> Rollout:
    """A rollout to learn from, called by its type: tasks come once, and their number is endless."""
    part = KINDS.index(kind) + (len(KINDS) if role == "solve" else 0)
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


def _newest_first(
    news: Sequence[Triplet], buffer: Sequence[Triplet], count: int, rng: np.random.Generator
) -> list[Triplet]:
    chosen = list(news[:count])
    fill = rng.integers(0, len(buffer), count - len(chosen)).tolist()
    return chosen + [buffer[i] for i in fill]


def _step_metrics(
    lessons: Sequence[Rollout], news: dict[Kind, list[Triplet]], means: list[float], store: Store
) -> dict[str, float]:
    """Shares by kind of task: valid proposals, solved tasks; and how hard the proposals were."""
    out: dict[str, float] = {}
    for part, kind in enumerate(KINDS):
        solved = [lesson.correct for lesson in lessons if lesson.part == len(KINDS) + part]
        out[f"azr/valid/{kind}"] = len(news[kind]) / len(solved)
        out[f"azr/solved/{kind}"] = sum(solved) / len(solved)
        out[f"azr/buffer/{kind}"] = float(len(store[kind]))
    finite = [mean for mean in means if not isnan(mean)]
    if finite:
        out["azr/solve_rate"] = sum(finite) / len(finite)
        out["azr/learnable"] = sum(0 < mean < 1 for mean in finite) / len(finite)
    return out
