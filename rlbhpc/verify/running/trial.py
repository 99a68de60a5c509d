"""A first call of a verifier that a study brings."""

from __future__ import annotations

from functools import partial

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.study.plugin_check import first_call
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Status


def refuse_what_raises(problem: Problem) -> None:
    """Refuse a verifier that cannot judge a problem's reference answer, or an empty response.

    What it says of them does not matter: a sample on which it raises is neither right nor wrong.
    """
    kind = problem.verifier
    named = str(plugins.path_of(kind)) if plugins.is_file(kind) else f"verifier {kind}"
    place = f"{named}: {problem.id}: judging"
    first_call(partial(_judge, problem, place), f"{place} its reference answer")


def _judge(problem: Problem, place: str) -> None:
    with plugins.copied_alone(problem.verifier) as kind:
        for what, response in (("its reference answer", problem.gold), ("an empty response", "")):
            verdict = verify(kind, problem.gold, response, problem)
            if verdict.status is Status.ERROR:
                raise UserError(f"{place} {what}, it {verdict.rule}")
