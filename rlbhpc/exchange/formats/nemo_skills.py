"""Outputs of NeMo-Skills: ``output.jsonl``, or ``output-rs<seed>.jsonl`` for several seeds."""

from __future__ import annotations

import re
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
    row_of,
)
from rlbhpc.verify.verdict import Status

_SCORES: Final[tuple[str, ...]] = ("symbolic_correct", "judgement", "is_correct", "is_correct-plus")
_SEED: Final = re.compile(r"output-rs(\d+)")


class NemoSkills:
    """One record per problem; the seed in the file's name numbers the responses.

    A record without an ``id`` is known by its place: files of other seeds have the same order.
    """

    name = "NeMo-Skills output (output-rs*.jsonl)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first object."""
        row = first_object(path)
        generated = "generation" in row or "num_generated_tokens" in row
        return generated and any(name in row for name in _SCORES)

    def read(self, path: Path, metric: str | None) -> Iterator[Imported]:
        """Read the records; ``metric`` is symbolic_correct, judgement or is_correct(-plus)."""
        seed = _SEED.match(path.name)
        sample = int(seed[1]) if seed else 0
        for number, (place, row) in enumerate(json_lines(path)):
            with row_of(self.name, place):
                response = _response(row, number, sample, metric, place)
            yield response


def _response(
    row: dict[str, Any], number: int, sample: int, metric: str | None, place: str
) -> Imported:
    scores = {name: row[name] for name in _SCORES if name in row}
    score = choose_score(scores, metric, place)
    if scores.get("judgement") is score and isinstance(score, str):
        verdict: Status | str = _judgement(score, place)
    else:
        verdict = as_verdict(score, place)
    answer = row.get("predicted_answer", "")
    if answer is None and verdict is Status.WRONG:
        verdict = Status.NO_ANSWER
    gold = row.get("expected_answer")
    return Imported(
        str(row.get("id", number)),
        verdict,
        sample,
        text=str(row.get("generation") or ""),
        answer=str(answer or ""),
        n_tokens=int(row.get("num_generated_tokens", -1)),
        gold=None if gold is None else str(gold),
    )


def _judgement(text: str, place: str) -> Status:
    """The verdict of a judging model, which ends in ``Judgement: Yes`` or ``Judgement: No``."""
    words = re.findall(r"judge?ment\W+(yes|no)\b", text, re.IGNORECASE)
    if not words:
        raise UserError(f"{place}: the judgement {text[-60:]!r} says neither Yes nor No")
    return Status.RIGHT if words[-1].lower() == "yes" else Status.WRONG
