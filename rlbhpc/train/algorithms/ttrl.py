"""Test-time reinforcement learning: the majority's answer stands in for the gold one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import nan
from typing import ClassVar

import torch
from torch import Tensor

from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import Batch, Store
from rlbhpc.train.algorithms.grpo import GRPO


@dataclass(frozen=True)
class TTRL(GRPO):
    r"""GRPO on 1 for the answer that most responses to the prompt give, else 0.

    .. math:: r_i = 1[a_i = \mathrm{mode}(a_1, \ldots, a_n)]

    Zuo et al. 2025 (arXiv 2504.16084). All ``samples_per_prompt`` responses vote, the first
    ``learn_from`` of them are learnt from (the authors: 64 and 32). As in their code a response
    without an answer has no vote and gets 0, and of answers with as many votes the first one
    counts. A prompt without any answer has no reward and is left out, and so is a response whose
    verifier failed. Gold answers and the values of the recipe's ``rewards`` are for the curves
    alone.
    """

    learn_from: Count = 32

    LEARNS_FROM: ClassVar[str] = "an answer to vote on"

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Compare each answer with its group's majority."""
        majority = majorities(batch)
        rewards = [
            nan if majority[group] is None or not scored else float(answer == majority[group])
            for answer, group, scored in zip(
                batch.answers, batch.groups.tolist(), batch.scored.tolist(), strict=True
            )
        ]
        return torch.tensor(rewards, dtype=torch.float64)

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take the first responses of each group."""
        seen: Counter[int] = Counter()
        first = []
        for group in batch.groups.tolist():
            first.append(seen[group] < self.learn_from)
            seen[group] += 1
        return torch.tensor(first)

    def measure(self, batch: Batch, rewards: Tensor, store: Store) -> dict[str, float]:
        """Tell how far the votes are from the gold answers.

        ``label_accuracy`` is the share of prompts whose majority is right (maj@n),
        ``reward_accuracy`` that of responses whose vote and gold reward agree, ``majority_ratio``
        that of responses with the majority's answer.
        """
        majority = majorities(batch)
        right = {
            group
            for answer, group, correct in zip(
                batch.answers, batch.groups.tolist(), batch.correct.tolist(), strict=True
            )
            if correct and answer == majority[group]
        }
        scored = ~rewards.isnan()
        agree = (rewards == batch.correct.double())[scored]
        return {
            "ttrl/label_accuracy": len(right) / len(majority),
            "ttrl/reward_accuracy": float(agree.double().mean()) if len(agree) else 0.0,
            "ttrl/majority_ratio": float((rewards == 1).double().mean()),
        }


def majorities(batch: Batch) -> dict[int, str | None]:
    """The most frequent answer of each group, the first of several; None where nobody answers."""
    votes: dict[int, Counter[str]] = {group: Counter() for group in batch.groups.tolist()}
    for answer, group in zip(batch.answers, batch.groups.tolist(), strict=True):
        if answer:
            votes[group][answer] += 1
    return {g: count.most_common(1)[0][0] if count else None for g, count in votes.items()}
