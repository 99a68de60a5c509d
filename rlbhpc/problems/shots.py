"""Worked examples before a question: which problems they are, and what they answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rlbhpc.errors import UserError
from rlbhpc.problems.countdown import solve, trace_text
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import PLACEHOLDER, same_question

Shot = tuple[str, str]
"""A question and its worked answer."""


def draw_shots(problems: Sequence[Problem], n: int, seed: int, source: str) -> list[Shot]:
    """``n + 1`` different examples of a set in a seeded order.

    A question is shown the first ``n``; one that is itself among them is shown the last in place of
    itself. So a problem never sees its own answer, and all others see the same examples.
    """
    order = list(problems)
    random.Random(f"shots/{seed}").shuffle(order)
    shots = list(_different(order, n + 1))
    if len(shots) <= n:
        raise UserError(
            f"{source} has {len(shots)} problems with a worked answer and no image; {n} shots need"
            f" {n + 1}, since a problem is never its own example"
        )
    return shots


def _different(problems: Sequence[Problem], count: int) -> Iterator[Shot]:
    questions: set[str] = set()
    for problem in problems:
        question, answer = problem.fields["question"], worked_answer(problem)
        is_usable = answer and not problem.images and PLACEHOLDER not in question + answer
        if len(questions) < count and is_usable and same_question(question) not in questions:
            questions.add(same_question(question))
            yield question, answer


def worked_answer(problem: Problem) -> str:
    r"""The answer that an example gives: the set's own solution, ending in what is judged.

    A solution in mathematics that has no box gets a last line with the gold answer in one. Empty
    where there is neither solution nor gold.
    """
    extras = problem.extras
    if problem.verifier == "countdown":
        numbers, target = tuple(extras["numbers"]), extras["target"]
        return trace_text(solve(numbers, target, extras["operations"]) or [])
    if problem.verifier != "math" or "\\boxed" in problem.solution:
        return problem.solution or problem.gold
    box = f"The answer is $\\boxed{{{problem.gold}}}$." if problem.gold else ""
    return "\n".join(filter(None, (problem.solution, box)))
