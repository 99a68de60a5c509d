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
        """1 for a response that gives its group's most frequent answer, else 0; shape (B,).

        It is NaN for a response that could not be scored, or where no response of the group has an
        answer.
        """
        majority_of = majority_answers(batch)
        rewards = []
        for answer, group, is_scored in zip(
            batch.answers, batch.groups.tolist(), batch.scored.tolist(), strict=True
        ):
            majority = majority_of[group]
            has_reward = is_scored and majority is not None
            rewards.append(float(answer == majority) if has_reward else nan)
        return torch.tensor(rewards, dtype=torch.float64)

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take the first ``learn_from`` responses of each group, all responses to one prompt."""
        counts: Counter[int] = Counter()
        is_selected = []
        for group in batch.groups.tolist():
            is_selected.append(counts[group] < self.learn_from)
            counts[group] += 1
        return torch.tensor(is_selected)

    def measure(self, batch: Batch, rewards: Tensor, store: Store) -> dict[str, float]:
        """Tell how far the votes are from the gold answers.

        ``majority_of`` has the most frequent answer of each group, that is of the responses to one
        prompt. ``label_accuracy`` is the share of prompts whose majority is right (maj@n),
        ``reward_accuracy`` that of responses whose vote and gold reward agree, ``majority_ratio``
        that of responses with the majority's answer.
        """
        majority_of = majority_answers(batch)
        right_groups: set[int] = set()
        for answer, group, is_correct in zip(
            batch.answers, batch.groups.tolist(), batch.correct.tolist(), strict=True
        ):
            if is_correct and answer == majority_of[group]:
                right_groups.add(group)
        has_reward = ~rewards.isnan()
        agrees = (rewards == batch.correct.double())[has_reward]
        return {
            "ttrl/label_accuracy": len(right_groups) / len(majority_of),
            "ttrl/reward_accuracy": float(agrees.double().mean()) if len(agrees) else 0.0,
            "ttrl/majority_ratio": float((rewards == 1).double().mean()),
        }


def majority_answers(batch: Batch) -> dict[int, str | None]:
    """Most frequent answer of each group, the first of equals; None where no response has one.

    A group is all responses to one prompt.
    """
    votes: dict[int, Counter[str]] = {group: Counter() for group in batch.groups.tolist()}
    for answer, group in zip(batch.answers, batch.groups.tolist(), strict=True):
        if answer:
            votes[group][answer] += 1
    majority_of: dict[int, str | None] = {}
    for group, counts in votes.items():
        majority_of[group] = counts.most_common(1)[0][0] if counts else None
    return majority_of
