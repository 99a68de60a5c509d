"""A first call of a verifier that a study brings, in a child: it may hang, or end it."""

from __future__ import annotations

import json
import pickle
import sys

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.plugin_check import answers, in_child
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Status


def refuse_what_raises(problem: Problem) -> None:
    """Refuse a verifier that cannot judge a problem's reference answer, or an empty response.

    What it says of them does not matter: a sample on which it raises is neither right nor wrong.
    """
    output, ending = in_child(__name__, data=pickle.dumps(problem))
    place = f"{_named(problem.verifier)}: {problem.id}"
    complaint = json.loads(output) if output else f"{place}: judging its reference answer {ending}"
    if complaint:
        raise UserError(complaint)


def _complaint(problem: Problem) -> str:
    """Say on which of the two it raises; empty where it judges both."""
    if not plugins.is_file(problem.verifier):
        return _raised(problem, problem.verifier)
    original = plugins.path_of(problem.verifier)
    with plugins.alone(original) as copy:
        return _raised(problem, problem.verifier.replace(str(original), str(copy), 1))


def _raised(problem: Problem, kind: str) -> str:
    for what, response in (("its reference answer", problem.gold), ("an empty response", "")):
        verdict = verify(kind, problem.gold, response, problem)
        if verdict.status is Status.ERROR:
            place = f"{_named(problem.verifier)}: {problem.id}"
            return f"{place}: judging {what}, it {verdict.rule}"
    return ""


def _named(kind: str) -> str:
    """A verifier in messages: its file, or the name that a package registered."""
    return str(plugins.path_of(kind)) if plugins.is_file(kind) else f"verifier {kind}"


if __name__ == "__main__":
    parent = answers()
    # From the parent alone.
    problem_of_parent = pickle.loads(sys.stdin.buffer.read())  # noqa: S301
    try:
        answer = _complaint(problem_of_parent)
    except UserError as error:
        answer = str(error)
    print(json.dumps(answer), file=parent, flush=True)
