"""Outputs of code for training by verifiable rewards: NeMo-Skills, limit-of-RLVR, verl."""

from __future__ import annotations

import hashlib
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
    same_length,
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
    """One record per problem in ``output.jsonl``, or in ``output-rs<seed>.jsonl`` for each seed.

    The seed in the file's name numbers the responses.
    A record without an ``id`` or a ``task_id`` is known by its place: files of other seeds have
    the same order. Outputs that NeMo-Skills has not evaluated yet carry no verdict.
    """

    name = "NeMo-Skills output (output-rs*.jsonl)"

    def fits(self, path: Path) -> bool:
        """Whether a file is of this format, by the fields of its first object.

        Scores alone are not enough: a user's own rows may have fields of the same names.
        """
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
        """Yield the one response of a record; ``metric`` names the score that decides.

        Scores are symbolic_correct, judgement and is_correct(-plus). A record without an id is
        known by its number, because files of other seeds have the same order. −1 stands for what is
        not known. ``sample`` is the number of the response, and ``place`` says where the record
        stands, for messages.
        """
        number, sample, fields = row  # as `records` gives them
        verdict = _verdict(fields, metric, place)
        answer = fields.get("predicted_answer", "")
        if answer is None and verdict is Status.WRONG:
            verdict = Status.NO_ANSWER
        n_tokens = fields.get("num_generated_tokens")
        problem = fields.get("id")
        if problem is None:
            problem = fields.get("task_id", number)
        yield Imported(
            str(number if problem is None else problem),
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
    """Return the verdict that a row carries, or the complaint that it carries none.

    A score is a truth value, a list of one, or the text of a judging model (``judgement``), in
    which `_judgement` finds the last yes or no. `choose_score` picks the one that decides, and
    `as_verdict` turns it into a status; ``place`` says where the record stands.
    """
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


class LimitOfRlvr(Form):
    """One record per problem: lists of responses (``code``), answers (``pred``) and scores.

    Runs with other seeds are other files; their responses are numbered on in the order of files.
    """

    name = "limit-of-RLVR or Qwen2.5-Math output (fields idx, code, pred, score)"
    fields = frozenset({"idx", "code", "pred", "score"})

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield every response to a problem.

        The record has parallel lists with an item for each response: ``code`` has their texts,
        ``pred`` the answers, and ``score`` whether they are right. An `Imported` is one response
        with its problem, verdict and number; ``place`` says where the record stands, for messages.
        """
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


class VerlRollouts(Form):
    """One record per response. A problem has no id there: it is named by a hash of its prompt.

    ``acc`` decides where the reward function gave it, else ``score``, of which 1 is right and 0
    and −1 are wrong. A shaped score is no verdict; ``--metric`` may name another field.
    """

    name = "verl rollouts (fields input, output, score)"
    fields = frozenset({"input", "output", "score"})

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield the response of a record.

        ``acc`` decides if it is there, else ``score``; ``metric`` may name another field. A problem
        has no id in this format, so it is named by a hash of its prompt. An `Imported` is one
        response with its problem, verdict and number; ``place`` says where the record stands, for
        messages.
        """
        name = metric or ("acc" if "acc" in row else "score")
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
