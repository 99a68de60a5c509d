"""Outputs of code for training by verifiable rewards: limit-of-RLVR, Qwen2.5-Math and verl."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    FINISH,
    Form,
    Imported,
    as_verdict,
    same_length,
    single_reference,
)
from rlbhpc.verify.verdict import Status


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


# Fields that verl's own reward functions put beside the score, the plainest first.
_SCORES: Final = ("acc", "score")


class VerlRollouts(Form):
    """One record per response. A problem has no id there: it is named by a hash of its prompt.

    ``acc`` decides where the reward function gave it, else ``score``, of which 1 is right and 0
    and −1 are wrong. A shaped score is no verdict; ``--metric`` may name another field.
    """

    name = "verl rollouts (fields input, output, score)"
    fields = frozenset({"input", "output", "score"})

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """The response of a record."""
        name = metric or next((field for field in _SCORES if field in row), _SCORES[0])
        if name not in row:
            raise UserError(f"{place}: no score {name!r}; its fields are {', '.join(row)}")
        score = row[name]
        verdict = Status.WRONG if score == -1 else as_verdict(score, place)
        prompt = hashlib.sha256(row["input"].encode()).hexdigest()
        yield Imported(
            f"prompt-{prompt[:16]}",
            verdict,
            step=int(row.get("step", 0)),
            text=str(row["output"]),
            answer=str(row.get("pred") or ""),
            # What else a reward function takes, such as a table, is no reference answer.
            gold=single_reference(row.get("gts")),
            question=row["input"],
        )
