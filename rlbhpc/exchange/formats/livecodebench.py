"""Results of LiveCodeBench: ``*_eval_all.json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.exchange.formats.form import (
    Imported,
    as_verdict,
    ending,
    row_of,
    same_length,
)
from rlbhpc.exchange.formats.json_stream import entries, first_entry
from rlbhpc.verify.verdict import Status


class LiveCodeBenchResults:
    """One record per question: lists of responses, of the programs in them, and of verdicts.

    Scenarios that ask for an output instead of a program have a record per test, with
    ``pred_list`` in place of ``code_list``.
    """

    name = "LiveCodeBench results (*_eval_all.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first record."""
        if ending(path) != ".json":
            return False
        _, first = first_entry(path) or ("", None)
        return isinstance(first, dict) and {"question_id", "graded_list"} <= first.keys()

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read every response of every question."""
        for number, row in entries(path):
            place = f"{path}: record {number}"
            with row_of(self.name, place):
                responses = list(_responses(row, place))
            yield from responses


def _responses(row: dict[str, Any], place: str) -> Iterator[Imported]:
    texts = row["output_list"]
    verdicts = row["graded_list"]
    predicts = "pred_list" in row
    name = "pred_list" if predicts else "code_list"
    extracted = row[name]
    lists = {"output_list": texts, name: extracted, "graded_list": verdicts}
    gold = row.get("output") if predicts else None
    for number in range(same_length(place, **lists)):
        verdict = as_verdict(verdicts[number], place)
        if verdict is Status.WRONG and not extracted[number]:
            verdict = Status.NO_ANSWER
        yield Imported(
            _problem(row),
            verdict,
            number,
            text=str(texts[number]),
            answer=str(extracted[number]) if predicts else "",
            gold=gold if isinstance(gold, str) else None,
            question=str(row.get("question_content") or ""),
        )


def _problem(row: dict[str, Any]) -> str:
    """A question, or one test of it: predicting outputs and executing code have a row a test."""
    question = str(row["question_id"])
    test = row.get("test_id", row.get("id"))
    return question if test is None else f"{question}/{test}"
