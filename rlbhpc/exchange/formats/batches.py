"""Batch files of OpenAI's interface and of vLLM: requests, responses, and reference answers.

The two files of a batch are joined by ``custom_id``. Neither has a verdict or a reference answer.

References
----------
platform.openai.com/docs/guides/batch; ``vllm run-batch``, which writes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.exchange.formats.form import (
    FINISH,
    Form,
    Imported,
    ImportedQuestion,
    last_user_text,
    row_of,
    single_reference,
)
from rlbhpc.exchange.formats.rows import fields, json_lines, problem_id, rows
from rlbhpc.verify.verdict import Status

# By these a row is a response, and no reference answer alone.
_RESPONSE_FIELDS = frozenset(("text", "response", "correct", "score", "verdict", "c"))


class BatchRequests(Form):
    """The requests of a batch: what each ``custom_id`` was asked."""

    name = "requests of a batch (fields custom_id, body)"
    fields = frozenset({"custom_id", "body"})
    has_responses = False

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedQuestion]:
        """Yield the question of each request."""
        for place, row in json_lines(path):
            with row_of(self.name, place):
                question = last_user_text(row["body"]["messages"])
                yield ImportedQuestion(str(row["custom_id"]), question)


class BatchResponses(Form):
    """The responses of a batch, whose choices are the samples of a request.

    A request that expired or was refused is a sample that failed.
    """

    name = "responses of a batch (fields custom_id, response)"
    fields = frozenset({"custom_id", "response"})

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield each choice of a response; it has a complaint in place of a verdict."""
        problem = str(row["custom_id"])
        body = (row["response"] or {}).get("body") or {}
        choices = body.get("choices") or []
        if not choices:
            yield Imported(problem, Status.FAILED)
        for choice in choices:
            n_tokens = (body.get("usage") or {}).get("completion_tokens", -1)
            yield Imported(
                problem,
                f"{place}: a batch has no verdicts; judge it with --judge-again math, and give a "
                "file with the fields problem and gold (the reference answer) beside it",
                text=choice["message"]["content"] or "",
                finish=FINISH.get(choice["finish_reason"], -1),
                n_tokens=n_tokens if len(choices) == 1 else -1,
            )


class References(Form):
    """Reference answers of problems whose responses stand in other files."""

    name = "reference answers (a row a problem: problem, gold)"
    has_responses = False

    def fits(self, path: Path) -> bool:
        """By the fields of the first row."""
        names = set(fields(path))
        return {"problem", "gold"} <= names and not names & _RESPONSE_FIELDS

    def read(self, path: Path, metric: str | None) -> Iterator[ImportedQuestion]:
        """Yield the reference answer of each problem."""
        for place, row in rows(path):
            gold = single_reference(row.get("gold"))
            yield ImportedQuestion(problem_id(row, place), str(row.get("question", "")), gold)
