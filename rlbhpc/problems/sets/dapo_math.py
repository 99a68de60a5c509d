"""DAPO-Math-17k: what DAPO was trained on, problems whose answers are integers.

The file of its authors holds every problem a hundred times, inside its prompt; the source here is a
later edition with each problem once, in English. A file of the first shape is read, too, if it has
each problem once: the words around a problem are those of the template `dapo` and are taken off.
"""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.prompts import get_prompt
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """The reward's ground truth is the gold, its index the id."""
    messages = record.need("prompt")
    if not isinstance(messages, str):
        messages = messages[-1].get("content") if len(messages) else None
    if not isinstance(messages, str):
        raise UserError(f"{record.place}: `prompt` is neither a text nor a conversation")
    before, after = get_prompt("dapo").text.split("{question}")
    question = messages.removeprefix(before.rpartition("<|im_start|>user\n")[2])
    question = question.removesuffix(after.partition("<|im_end|>")[0])
    gold = (record.get("reward_model") or {}).get("ground_truth")
    gold = record.text("solution", "answer") if gold is None else str(gold)
    index = (record.get("extra_info") or {}).get("index")
    return make_problem(name, "" if index is None else str(index), question, gold, "math")


SET = FileSet(parse, Source("open-r1/DAPO-Math-17k-Processed", ("en/*.parquet",)))
