"""RLPR-Train: about 77,000 questions without mathematics, with short reference answers."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, Source, make_problem
from rlbhpc.problems.record import Record


def parse(name: str, record: Record) -> Problem:
    """The user's turn is the question, the reward's ground truth the reference answer."""
    turns = record.need("prompt")
    turns = turns if isinstance(turns, list) else []
    spoken = [turn for turn in turns if isinstance(turn, dict) and turn.get("role") == "user"]
    user_turns = [turn.get("content") for turn in spoken]
    if len(user_turns) != 1 or not isinstance(user_turns[0], str):
        raise UserError(f"{record.place}: `prompt` is no conversation with one user's turn")
    judged_by = record.need("reward_model")
    gold = judged_by.get("ground_truth") if isinstance(judged_by, dict) else None
    if gold is None:
        raise UserError(f"{record.place}: `reward_model` has no `ground_truth`")
    extra = record.get("extra_info") or {}
    index = extra.get("index")
    return make_problem(name, "" if index is None else str(index), user_turns[0], str(gold), "math")


SET = FileSet(parse, Source("openbmb/RLPR-Train-Dataset", ("*.parquet",)), splits=("train",))
