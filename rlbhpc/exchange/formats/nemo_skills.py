"""Outputs of NeMo-Skills: ``output.jsonl``, or ``output-rs<seed>.jsonl`` for several seeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats import plain_tables
from rlbhpc.exchange.formats.form import (
    FINISH,
    Form,
    Imported,
    as_verdict,
    choose_score,
    single_reference,
)
from rlbhpc.exchange.formats.rows import first_names, json_lines
from rlbhpc.verify.verdict import Status

_SCORES: Final[tuple[str, ...]] = (
    "symbolic_correct",
    "judgement",
    "is_correct",
    "is_correct-plus",
    "graded_list",
)
_SEED: Final = re.compile(r"output-rs(\d+)")


class NemoSkills(Form):
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
        if names.intersection(plain_tables.SCORES):  # somebody's own rows, with fields like these
            return False
        return "generation" in names and bool(names & {"expected_answer", "num_generated_tokens"})

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """Every record with its number and the sample number that the file's name tells."""
        seed = _SEED.match(path.name)
        sample = int(seed[1]) if seed else 0
        for number, (place, row) in enumerate(json_lines(path)):
            yield place, (number, sample, row)

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """The response; ``metric`` is symbolic_correct, judgement or is_correct(-plus)."""
        number, sample, fields = row
        verdict = _verdict(fields, metric, place)
        answer = fields.get("predicted_answer", "")
        if answer is None and verdict is Status.WRONG:
            verdict = Status.NO_ANSWER
        n_tokens = fields.get("num_generated_tokens")
        names = (fields[key] for key in ("id", "task_id") if fields.get(key) is not None)
        yield Imported(
            str(next(names, number)),
            verdict,
            sample,
            text=str(fields.get("generation") or ""),
            answer=str(answer or ""),
            finish=FINISH.get(str(fields.get("finish_reason")), -1),
            n_tokens=-1 if n_tokens is None else int(n_tokens),
            gold=single_reference(fields.get("expected_answer")),
            question=str(fields.get("problem") or fields.get("question") or ""),
        )


def _verdict(row: dict[str, Any], metric: str | None, place: str) -> Status | str:
    """The verdict that a row carries, or the complaint that it carries none."""
    scores = {name: row[name] for name in _SCORES if name in row}
    try:
        score = choose_score(scores, metric, place)
    except UserError as error:
        return str(error)
    if score is scores.get("judgement") and isinstance(score, str):
        return _judgement(score)
    if isinstance(score, list) and len(score) != 1:
        return f"{place}: graded_list has {len(score)} verdicts; allowed is one, for one program"
    return as_verdict(score[0] if isinstance(score, list) else score, place)


def _judgement(text: str) -> Status:
    """The verdict of a judging model: its last ``Judgement: Yes`` or ``No``, else an error."""
    words = re.findall(r"judge?ment\W+(yes|no)\b", text, re.IGNORECASE)
    if not words:
        return Status.ERROR
    return Status.RIGHT if words[-1].lower() == "yes" else Status.WRONG
