"""Results of code benchmarks: EvalPlus and LiveCodeBench."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from rlbhpc.errors import UserError
from rlbhpc.exchange.formats.form import Form, Imported, Row, as_verdict, same_length
from rlbhpc.exchange.formats.rows import entries, first_value
from rlbhpc.verify.verdict import Status

_STATUS: Final = {
    "pass": Status.RIGHT, "fail": Status.WRONG, "timeout": Status.TIMEOUT,
    "success": Status.RIGHT, "failed": Status.WRONG, "timed out": Status.TIMEOUT,
}  # fmt: skip


class EvalPlusResults(Form):
    """Programs by task, each with a status on the base tests and on the added ones.

    A program is right if it passes both; ``--metric base`` asks for the base tests alone. Until
    February 2024 EvalPlus wrote two lists a task instead: what became of the programs on either.
    """

    name = "EvalPlus results (*_eval_results.json)"

    def fits(self, path: Path) -> bool:
        """By the ending and the first task's list of programs, or its two lists."""
        first = first_value(path, "eval")
        return isinstance(first, list) or (
            isinstance(first, dict) and {"base", "plus"} <= set(first)
        )

    def records(self, path: Path) -> Iterator[tuple[str, Any]]:
        """Yield every program with its task and its number within the task.

        Older files have two lists a task, of results on the base tests and on the added ones; they
        are joined into one list of programs.
        """
        for task, programs in entries(path, "eval"):
            if isinstance(programs, dict):
                both = zip_longest(programs["base"], programs["plus"], fillvalue=[None])
                programs = [{"base_status": base[0], "plus_status": plus[0]} for base, plus in both]
            for number, program in enumerate(programs):
                yield f"{path}: {task}, program {number}", (task, number, program)

    def read(self, path: Path, metric: str | None) -> Iterator[Row]:
        """Read every program."""
        if metric not in (None, "base", "plus"):
            raise UserError(f"{path}: no score {metric!r}; allowed are base and plus")
        return super().read(path, metric)

    def responses(self, row: Any, metric: str | None, place: str) -> Iterator[Imported]:
        """Yield the one response of a record: a program, whose solution is the text.

        It is right if it passes the base tests and the added ones; ``metric`` may ask for ``base``
        alone. ``row`` is a task, the number of the program in it, and its fields. An `Imported` is
        one response with its problem, verdict and number; ``place`` says where the record stands,
        for messages.
        """
        task, number, program = row
        base = _STATUS[program["base_status"]]
        added = program.get("plus_status")
        if metric == "plus" and added is None:
            raise ValueError("only the base tests were run; use --metric base")
        verdict = base
        if metric != "base" and added is not None and base is Status.RIGHT:
            verdict = _STATUS[added]
        yield Imported(task, verdict, number, text=str(program.get("solution") or ""))


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
        """Yield every response to a question: text, verdict, and the program or predicted output.

        The record has parallel lists with an item for each response. A wrong response without a
        program counts as one without an answer. An `Imported` is one response with its problem,
        verdict and number; ``place`` says where the record stands, for messages.
        """
        texts = row["output_list"]
        verdicts = row["graded_list"]
        predicts_output = "pred_list" in row
        answers_name = "pred_list" if predicts_output else "code_list"
        answers = row[answers_name]
        gold = row.get("output") if predicts_output else None
        problem = str(row["question_id"])
        # Predicting outputs and executing code have a row a test.
        test = row.get("test_id", row.get("id"))
        if test is not None:
            problem = f"{problem}/{test}"
        lists = {"output_list": texts, answers_name: answers, "graded_list": verdicts}
        for number in range(same_length(place, **lists)):
            verdict = as_verdict(verdicts[number], place)
            if verdict is Status.WRONG and not answers[number]:
                verdict = Status.NO_ANSWER
            yield Imported(
                problem,
                verdict,
                number,
                text=str(texts[number]),
                answer=str(answers[number]) if predicts_output else "",
                gold=gold if isinstance(gold, str) else None,
                question=str(row.get("question_content") or ""),
            )
