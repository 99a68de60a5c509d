"""Outputs of the large-k study (limit-of-RLVR) and of Qwen2.5-Math's evaluation, its ancestor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.exchange.formats.form import (
    FINISH,
    Imported,
    as_verdict,
    json_lines,
    row_of,
    same_length,
    single_reference,
)
from rlbhpc.exchange.formats.json_stream import first_names


class LimitOfRlvr:
    """One record per problem: lists of responses (``code``), answers (``pred``) and scores.

    Runs with other seeds are other files; their responses are numbered on in the order of files.
    """

    name = "limit-of-RLVR or Qwen2.5-Math output (fields idx, code, pred, score)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first object."""
        return {"idx", "code", "pred", "score"} <= set(first_names(path))

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read every response of every problem."""
        for place, row in json_lines(path):
            with row_of(self.name, place):
                responses = list(_responses(row, place))
            yield from responses


def _responses(row: dict[str, Any], place: str) -> Iterator[Imported]:
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
