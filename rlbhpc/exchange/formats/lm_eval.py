"""Sample logs of lm-evaluation-harness: ``samples_<task>_<time>.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import (
    Imported,
    as_verdict,
    choose_score,
    first_object,
    json_lines,
    reference_answer,
    row_of,
)

# What stands beside the scores in a record.
_NOT_SCORES: Final = {
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash",
}  # fmt: skip


class LmEvalSamples:
    """One record per document and filter; its score is that of the filtered response.

    A document that was answered several times (``repeats``) has one score for all of its answers,
    which says nothing about each: these come in without a verdict and must be judged again.
    """

    name = "lm-eval sample log (--log_samples)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first object."""
        return {"doc_id", "filtered_resps"} <= first_object(path).keys()

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read the responses; ``metric`` may be ``<score>`` or ``<score>,<filter>``."""
        score_name, _, filter_name = (metric or "").partition(",")
        filters: set[str] = set()
        for place, row in json_lines(path):
            used = str(row.get("filter", "none"))
            if filter_name and used != filter_name:
                continue
            filters.add(used)
            if len(filters) > 1:
                raise UserError(
                    f"{place}: this log has the filters {', '.join(sorted(filters))}; choose one "
                    "with --metric SCORE,FILTER"
                )
            with row_of(self.name, place):
                responses = _responses(row, score_name or None, place)
            yield from responses
        if not filters:
            raise UserError(f"{path}: no record with the filter {filter_name!r}")


def _responses(row: dict[str, Any], score_name: str | None, place: str) -> list[Imported]:
    problem = str(row["doc_id"])
    gold = reference_answer(str(row["target"])) if "target" in row else None
    texts = _flat(row["resps"])
    if len(texts) != 1:
        return [Imported(problem, None, text=text, gold=gold) for text in texts]
    scores = {
        name: value
        for name, value in row.items()
        if name not in _NOT_SCORES and isinstance(value, bool | int | float)
    }
    verdict = as_verdict(choose_score(scores, score_name, place), place)
    filtered = _flat(row.get("filtered_resps", []))
    answer = filtered[0] if filtered else ""
    return [Imported(problem, verdict, text=texts[0], answer=answer, gold=gold)]


def _flat(value: Any) -> list[str]:
    """Strings in nested lists, in order."""
    if isinstance(value, list):
        return [text for part in value for text in _flat(part)]
    return [str(value)]
