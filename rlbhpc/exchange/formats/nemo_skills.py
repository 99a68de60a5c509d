"""Outputs of NeMo-Skills: ``output.jsonl``, or ``output-rs<seed>.jsonl`` for several seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats import scored
from rlbhpc.exchange.formats.form import (
    FINISH,
    Imported,
    as_verdict,
    choose_score,
    json_lines,
    row_of,
    single_reference,
)
from rlbhpc.exchange.formats.json_stream import first_names
from rlbhpc.verify.verdict import Status

_SCORES: Final[tuple[str, ...]] = (
    "symbolic_correct",
    "judgement",
    "is_correct",
    "is_correct-plus",
    "graded_list",
)
_SEED: Final = re.compile(r"output-rs(\d+)")


class NemoSkills:
    """One record per problem; the seed in the file's name numbers the responses.

    A record without an ``id`` or a ``task_id`` is known by its place: files of other seeds have
    the same order. Outputs that NeMo-Skills has not evaluated yet carry no verdict.
    """

    name = "NeMo-Skills output (output-rs*.jsonl)"

    def fits(self, path: Path) -> bool:
        """By the fields of the first object."""
        names = set(first_names(path))
        if names.intersection(_SCORES):
            return bool(names & {"generation", "num_generated_tokens"})
        if names.intersection(scored.SCORES):  # somebody's own rows, with fields like these
            return False
        return "generation" in names and bool(names & {"expected_answer", "num_generated_tokens"})

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
    verdict = _verdict(row, metric, place)
    answer = row.get("predicted_answer", "")
    if answer is None and verdict is Status.WRONG:
        verdict = Status.NO_ANSWER
    reason = row.get("finish_reason")
    n_tokens = row.get("num_generated_tokens")
    names = (row[key] for key in ("id", "task_id") if row.get(key) is not None)
    return Imported(
        str(next(names, number)),
        verdict,
        sample,
        text=str(row.get("generation") or ""),
        answer=str(answer or ""),
        finish=FINISH.get(reason, -1) if isinstance(reason, str) else -1,
        n_tokens=-1 if n_tokens is None else int(n_tokens),
        gold=single_reference(row.get("expected_answer")),
        question=str(row.get("problem") or row.get("question") or ""),
    )


def _verdict(row: dict[str, Any], metric: str | None, place: str) -> Status | str:
    """The verdict that a row carries, or the complaint that it carries none."""
    scores = {name: row[name] for name in _SCORES if name in row}
    if not scores:
        return (
            f"{place}: carries no verdict ({', '.join(_SCORES)}); evaluate it in NeMo-Skills, or "
            "judge its text with --judge-again math"
        )
    try:
        score = choose_score(scores, metric, place)
        if score is scores.get("judgement") and isinstance(score, str):
            return _judgement(score, place)
    except UserError as error:
        return str(error)
    if isinstance(score, list):
        if len(score) != 1:
            return (
                f"{place}: graded_list has {len(score)} verdicts; allowed is one, for one program"
            )
        return as_verdict(score[0], place)
    return as_verdict(score, place)


def _judgement(text: str, place: str) -> Status:
    """The verdict of a judging model, which ends in ``Judgement: Yes`` or ``Judgement: No``."""
    words = re.findall(r"judge?ment\W+(yes|no)\b", text, re.IGNORECASE)
    if not words:
        raise UserError(f"{place}: the judgement {text[-60:]!r} says neither Yes nor No")
    return Status.RIGHT if words[-1].lower() == "yes" else Status.WRONG
