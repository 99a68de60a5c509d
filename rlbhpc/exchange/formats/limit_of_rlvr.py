"""Outputs of the large-k study (limit-of-RLVR) and of Qwen2.5-Math's evaluation, its ancestor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlbhpc.exchange.formats.form import (
    FINISH,
    Form,
    Imported,
    as_verdict,
    same_length,
    single_reference,
)


class LimitOfRlvr(Form):
    """One record per problem: lists of responses (``code``), answers (``pred``) and scores.

    Runs with other seeds are other files; their responses are numbered on in the order of files.
    """

    name = "limit-of-RLVR or Qwen2.5-Math output (fields idx, code, pred, score)"
    fields = frozenset({"idx", "code", "pred", "score"})

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Every response to a problem."""
        texts = row["code"]
        answers = row["pred"]
        scores = row["score"]
        reasons = row.get("finish_reason") or [None] * len(texts)
        count = same_length(place, code=texts, pred=answers, score=scores, finish_reason=reasons)
        for number in range(count):
            yield Imported(
                str(row["idx"]),
                as_verdict(scores[number], place),
                text=str(texts[number]),
                answer=str(answers[number]),
                finish=FINISH.get(reasons[number], -1),
                gold=single_reference(row.get("gt")),
                question=str(row.get("question") or ""),
            )
