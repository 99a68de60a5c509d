"""Results of LiveCodeBench: ``*_eval_all.json``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlbhpc.exchange.formats.form import Form, Imported, as_verdict, same_length
from rlbhpc.exchange.formats.json_stream import entries, first_value
from rlbhpc.verify.verdict import Status


class LiveCodeBenchResults(Form):
    """One record per question: lists of responses, of the programs in them, and of verdicts.

    Scenarios that ask for an output instead of a program have a record per test, with
    ``pred_list`` in place of ``code_list``.
    """

    name = "LiveCodeBench results (*_eval_all.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first record."""
        first = first_value(path)
        return isinstance(first, dict) and {"question_id", "graded_list"} <= first.keys()

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """Every question, or test of one."""
        for number, row in entries(path):
            yield f"{path}: record {number}", row

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Every response to a question."""
        texts = row["output_list"]
        verdicts = row["graded_list"]
        predicts = "pred_list" in row
        name = "pred_list" if predicts else "code_list"
        extracted = row[name]
        lists = {"output_list": texts, name: extracted, "graded_list": verdicts}
        gold = row.get("output") if predicts else None
        # Predicting outputs and executing code have a row a test.
        question = str(row["question_id"])
        test = row.get("test_id", row.get("id"))
        for number in range(same_length(place, **lists)):
            verdict = as_verdict(verdicts[number], place)
            if verdict is Status.WRONG and not extracted[number]:
                verdict = Status.NO_ANSWER
            yield Imported(
                question if test is None else f"{question}/{test}",
                verdict,
                number,
                text=str(texts[number]),
                answer=str(extracted[number]) if predicts else "",
                gold=gold if isinstance(gold, str) else None,
                question=str(row.get("question_content") or ""),
            )
