"""RLPR: how probable the reference answer is after the model's own reasoning."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.complaints import Share, Weight, Whole
from rlbhpc.study.fields import Count
from rlbhpc.train.algorithms.algorithm import Batch, Scorer, Store, group_std
from rlbhpc.train.algorithms.grpo import GRPO
from rlbhpc.train.batch import Response


@dataclass(frozen=True)
class RLPR(GRPO):
    r"""GRPO on the probability of the reference answer, which no verifier has to read.

    .. math:: r = (1 - w)\,\mathrm{clip}(p(y^* \mid x, z) - p(y^* \mid x), 0, 1) + w f

    Yu et al. 2025 (arXiv 2506.18254). z is what the model wrote before its answer, in whose place
    the reference y* is read; p is the mean of its tokens' probabilities (their product, or the
    root of it, with ``probability``). What the untrained model gives it without any reasoning is
    taken off. f is 1 where each tag stands once, in order, and the response begins with
    ``<think>``; ``think: false`` asks for the answer's tags alone. A response that begins no
    answer gets p = 0.

    A group is learnt from while its rewards' deviation is at least ``std_beta`` times what it has
    been on average: the mean of steps ``average_from`` … ``filter_from`` − 1 first, then a moving
    average (``ema``). ``std_beta`` is .5 for Qwen, .9 for Llama, 1 for Gemma.
    """

    clip_high: Weight = 0.27
    probability: Literal["mean", "product", "geometric"] = "mean"
    format_weight: Share = 0.1
    think: bool = True
    opening: str = "<answer>"
    closing: str = "</answer>"
    debias: bool = True
    std_beta: Weight = 0.5
    ema: Share = 0.99
    average_from: Count = 6
    filter_from: Count = 11
    max_refills: Whole = 10

    TAKES_TURNS: ClassVar[bool] = False
    LEARNS_FROM: ClassVar[str] = "a group whose rewards differ enough"

    def __post_init__(self) -> None:
        """Refuse an answer that begins nowhere."""
        super().__post_init__()
        if not self.opening:
            raise UserError("opening: found nothing; allowed: the text that begins an answer")

    def begin(self, problems: Sequence[Problem], blank: Callable[[], Batch], store: Store) -> None:
        """Score every reference answer without reasoning, by the untrained model.

        ``reward`` takes this score off, so that only what the reasoning adds counts. ``blank``
        gives one row per problem with an empty response. ``store`` is what the algorithm remembers
        from step to step.
        """
        empty_golds = [problem.id for problem in problems if not problem.gold.strip()]
        if empty_golds:
            raise UserError(
                f"{empty_golds[0]}: found no reference answer, as in {len(empty_golds)} of "
                f"{len(problems)} problems; rlpr scores it and needs one of each"
            )
        if not self.debias:
            return
        batch = blank()
        empty = "<think> </think> " if self.think else ""
        texts = [empty + self.opening] * len(batch.golds)
        scores = self._reference_probabilities(replace(batch, texts=texts))
        store["without"] = dict(zip(batch.problems, scores.tolist(), strict=True))

    def reward(self, batch: Batch, store: Store) -> Tensor:
        """Weigh what the reasoning adds to the reference answer's probability, and the format.

        ``store["without"]`` has the probability of each reference answer without reasoning.
        ``is_tidy`` tells whether the tags are in order.
        """
        without = store.get("without", {})
        base = torch.tensor([without.get(problem, 0.0) for problem in batch.problems])
        gain = (self._reference_probabilities(batch) - base.double()).clamp(0, 1)
        tidy = torch.tensor([float(self.is_tidy(text)) for text in batch.texts])
        return (1 - self.format_weight) * gain + self.format_weight * tidy.double()

    def select(self, batch: Batch, store: Store) -> Tensor:
        """Take groups whose rewards differ as much as is usual, once that is known; shape (B,)."""
        deviation = group_std(batch.rewards, batch.groups, self.ddof)
        store.setdefault("deviations", []).extend(deviation.tolist())
        return deviation >= self.std_beta * store.get("usual", 0.0)

    def after_step(self, step: int, batch: Batch, store: Store) -> None:
        """Update the usual deviation by that of all groups sampled in this step.

        The deviation is that of the rewards within a group. Steps ``average_from`` …
        ``filter_from`` − 1 are averaged first; from then on it is a moving average that keeps a
        share ``ema`` of the old value. Until then ``store`` has no usual deviation, and no group is
        left out.
        """
        drawn = store.pop("deviations")
        mean = sum(drawn) / len(drawn)
        if "usual" in store:
            store["usual"] = self.ema * store["usual"] + (1 - self.ema) * mean
        elif step >= self.average_from:
            store.setdefault("means", []).append(mean)
            if step + 1 >= self.filter_from:
                means = store.pop("means")
                store["usual"] = sum(means) / len(means)

    def measure(self, batch: Batch, rewards: Tensor, store: Store) -> dict[str, float]:
        """Tell the least deviation of rewards that a group must have to be learnt from."""
        return {"rlpr/threshold": self.std_beta * store.get("usual", 0.0)}

    def is_tidy(self, text: str) -> bool:
        """Whether each tag stands once, in order, and nothing before ``<think>``.

        ``opening`` and ``closing`` are the tags around the answer.
        """
        tags = ["<think>", "</think>"] if self.think else []
        tags.append(self.opening)
        if self.closing:
            tags.append(self.closing)
        if any(text.count(tag) != 1 for tag in tags):
            return False
        positions = [text.find(tag) for tag in tags]
        begins_well = positions[0] == 0 or not self.think
        return begins_well and positions == sorted(positions)

    def _reference_probabilities(self, batch: Batch) -> Tensor:
        """Probability of the reference in place of each response's own answer, shape (B,).

        Each response is cut where its last answer begins and goes on with the reference answer
        (``gold``). The policy's log-probs of the reference's tokens become one number by the
        setting ``probability``. It is 0 for a response that begins no answer.
        """
        scorer = batch.scorer
        assert scorer is not None
        probabilities = torch.zeros(len(batch.texts), dtype=torch.float64)
        rows: list[int] = []
        with_reference: list[Response] = []
        gold_lengths: list[int] = []
        for row, text in enumerate(batch.texts):
            answer_start = text.rfind(self.opening)
            if answer_start < 0:
                continue
            reasoning = text[: answer_start + len(self.opening)]
            response = batch.responses[row]
            reasoning_ids = _tokens_of_beginning(scorer, response.token_ids.tolist(), reasoning)
            gold = batch.golds[row]
            gold_ids = scorer.encode(f" {gold} " if self.closing else gold)
            token_ids = np.array([*reasoning_ids, *gold_ids], np.int32)
            rows.append(row)
            with_reference.append(replace(response, token_ids=token_ids))
            gold_lengths.append(len(gold_ids))
        if not rows:
            return probabilities
        logprobs = scorer.logprobs(with_reference).double()
        combine = COMBINED_PROBABILITIES[self.probability]
        for i, row in enumerate(rows):
            end = len(with_reference[i].token_ids)
            gold_logprobs = logprobs[i, end - gold_lengths[i] : end]
            probabilities[row] = combine(gold_logprobs)
        return probabilities


# From the log-probs of a text's tokens to one probability, by the setting ``probability``.
COMBINED_PROBABILITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda logprobs: logprobs.exp().mean(),
    "product": lambda logprobs: logprobs.sum().exp(),
    "geometric": lambda logprobs: logprobs.mean().exp(),
}


def _tokens_of_beginning(scorer: Scorer, response_ids: Sequence[int], text: str) -> list[int]:
    """Tokens of ``text``, which a response begins with.

    They are the response's own tokens as far as these spell the text. Where the text ends within a
    token, the rest of it is encoded anew.
    """

    def spells_beginning(n_dropped: int) -> bool:
        kept_ids = response_ids[: len(response_ids) - n_dropped]
        return text.startswith(scorer.decode(kept_ids))

    # The fewest tokens to drop from the end of the response.
    n_dropped = bisect_left(range(len(response_ids)), True, key=spells_beginning)
    kept_ids = response_ids[: len(response_ids) - n_dropped]
    unspelt = text[len(scorer.decode(kept_ids)) :]
    return [*kept_ids, *scorer.encode(unspelt)]
