"""The ``probe`` verifier: whether a response goes on as the question does, and then answers it.

Right is a response that begins with the rest of the question, word for word; how much white space
stands between the words does not matter. Whether the question's own verifier finds the right answer
in the response is told beside it, as the canonical answer: one of
:data:`rlbhpc.problems.problem.OUTCOMES`.
"""

from __future__ import annotations

from typing import Final

from rlbhpc.problems.problem import ANSWERED, COMPLETED, OUTCOMES, Problem, whole_problem
from rlbhpc.verify import registry
from rlbhpc.verify.kinds import math
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = f"probe-1/{math.FINGERPRINT}"


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge whether a response to the beginning of a question goes on as the question does.

    ``gold`` is the rest of the question, with which a right response begins. What follows in it is
    judged by the verifier of the whole problem. Both outcomes together, completed and answered, are
    stored as the answer; a timeout or an error of that verifier is passed on.
    """
    assert problem is not None
    expected_words, words = gold.split(), response.split()
    is_completed = words[: len(expected_words)] == expected_words
    whole = whole_problem(problem)
    solution = _without_first_words(response, len(expected_words))
    answer = registry.verify(whole.verifier, whole.gold, solution, whole, finish)
    if answer.status in (Status.TIMEOUT, Status.ERROR):
        return answer
    outcomes = []
    if is_completed:
        outcomes.append(COMPLETED)
    if answer.right:
        outcomes.append(ANSWERED)
    outcome = ", ".join(outcomes) or OUTCOMES[-1]
    status = Status.RIGHT if is_completed else Status.WRONG
    return Verdict(status, outcome, outcome, COMPLETED if is_completed else "other")


def _without_first_words(response: str, word_count: int) -> str:
    """Return what follows the first words, or all of it if nothing does."""
    pieces = response.split(maxsplit=word_count)
    return pieces[word_count] if len(pieces) > word_count else response
