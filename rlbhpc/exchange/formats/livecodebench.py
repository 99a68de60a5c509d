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
    whole_json,
)
from rlbhpc.verify.verdict import Status


class LiveCodeBenchResults:
    """One record per question: lists of responses, of the programs in them, and of verdicts."""

    name = "LiveCodeBench results (*_eval_all.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the fields of the first record."""
        if ending(path) != ".json":
            return False
        top = whole_json(path)
        return (
            isinstance(top, list)
            and bool(top)
            and isinstance(top[0], dict)
            and {"question_id", "graded_list"} <= top[0].keys()
        )

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read every response of every question."""
        for number, row in enumerate(whole_json(path)):
            place = f"{path}: record {number}"
            with row_of(self.name, place):
                responses = list(_responses(row, place))
            yield from responses


def _responses(row: dict[str, Any], place: str) -> Iterator[Imported]:
    texts = row["output_list"]
    programs = row["code_list"]
    verdicts = row["graded_list"]
    count = same_length(place, output_list=texts, code_list=programs, graded_list=verdicts)
    for number in range(count):
        verdict = as_verdict(verdicts[number], place)
        if verdict is Status.WRONG and not programs[number]:
            verdict = Status.NO_ANSWER
        yield Imported(str(row["question_id"]), verdict, number, text=str(texts[number]))
