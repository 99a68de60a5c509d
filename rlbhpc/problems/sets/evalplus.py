"""HumanEval+ v0.1.10 (164 problems) and MBPP+ v0.2.0 (378), as evalplus releases them."""

from __future__ import annotations

from typing import Final

from rlbhpc.problems.deferred import Deferred
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record

BIG: Final = ("base_input", "plus_input")


def parse(name: str, record: Record) -> Problem:
    """The task is the question; tests decide, so gold is empty.

    Expected outputs follow from running ``prompt + canonical_solution``. ``tests`` holds the lists
    of argument lists ``base_input`` and ``plus_input`` as JSON has them; MBPP+ needs them turned
    into tuples, sets and so on per task, which is the verifier's part.
    """
    prompt = record.text("prompt")
    return make_problem(
        name,
        record.text("task_id"),
        # evalplus strips the task before it puts it into a code fence.
        prompt.strip(),
        "",
        "code",
        {
            "format": "evalplus",
            "prompt": prompt,
            "entry_point": record.text("entry_point"),
            "canonical_solution": record.text("canonical_solution"),
            "contract": record.optional_text("contract"),
            "atol": record.get("atol") or 0,
            "tests": Deferred.of(record, *BIG),
        },
    )


def _released(path: str) -> FileSet:
    return FileSet(parse, Source(urls=(f"https://github.com/evalplus/{path}",)), big=BIG)


HUMANEVAL = _released("humanevalplus_release/releases/download/v0.1.10/HumanEvalPlus.jsonl.gz")
MBPP = _released("mbppplus_release/releases/download/v0.2.0/MbppPlus.jsonl.gz")
