"""DAPO-Math-17k: what DAPO was trained on, problems whose answers are integers.

The file of its authors holds every problem a hundred times, inside its prompt; the source here is a
later edition with each problem once. Both shapes are read: the words around a problem are those of
the prompt template `dapo` and are taken off.
"""

from __future__ import annotations

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.prompts import get_prompt
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """The reward's ground truth is the gold, its index the id."""
    asked = record.need("prompt")
    question = asked if isinstance(asked, str) else asked[-1]["content"]
    before, after = get_prompt("dapo").text.split("{question}")
    question = question.removeprefix(before.rpartition("<|im_start|>user\n")[2])
    question = question.removesuffix(after.partition("<|im_end|>")[0])
    told = record.get("reward_model") or {}
    extra = record.get("extra_info") or {}
    gold = str(told.get("ground_truth") or record.text("solution", "answer"))
    return make_problem(name, str(extra.get("index", "")), question, gold, "math")


SET = FileSet(parse, Source("open-r1/DAPO-Math-17k-Processed", ("en/*.parquet",)))
