"""A verifier that a study brings, in a process that can be killed: it may hang, or end it."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.registry import KINDS, guarded, verifier, verify
from rlbhpc.verify.running.pool import RETRY_FACTOR, SECONDS, Pool, shared_pool, wall_clock
from rlbhpc.verify.verdict import Status, Verdict

# Responses in a row without a verdict, after which nothing more is expected of a verifier.
HOPELESS: Final = 3

_LOADED: Final = f"{__name__}:loaded"


class OwnProcess:
    """Calls one verifier in a process of its own, which is the same for all of one verifier.

    ``kind``: what stands in the study. ``grader``: fingerprint of the file as it was first read.
    ``seconds``: processor time of one response; see :class:`~rlbhpc.verify.running.pool.Pool`.
    """

    def __init__(self, kind: str, grader: str, seconds: float) -> None:
        self._grader = grader
        self._name = str(plugins.path_of(kind)) if plugins.is_file(kind) else kind
        self._pool: Pool = shared_pool(_LOADED, seconds=seconds, brought=kind)
        most = seconds * RETRY_FACTOR
        self._limit = (
            f"no verdict within {most:g} s of processor time or {wall_clock(most):g} s; a "
            "study's verification.timeout allows more"
        )
        self._in_a_row = 0

    def verdict(
        self, gold: str, response: str, problem: Problem | None, finish: str = ""
    ) -> Verdict:
        """Judge one response; without a verdict it is neither right nor wrong."""
        pickled = base64.b64encode(pickle.dumps(problem)).decode()
        (result,) = self._pool.run([[gold, response, pickled, finish]])
        if result.outcome == "done" and result.value[4] != self._grader:
            self._pool.close()  # it read the file before somebody edited it
            (result,) = self._pool.run([[gold, response, pickled, finish]])
        if result.outcome == "done":
            self._in_a_row = 0
            status, *texts = result.value
            verdict = Verdict(Status(status), *texts)
            if verdict.grader == self._grader:
                return verdict
            raise UserError(
                f"{self._name}: has changed since it was first read; start again to judge by it as "
                "it is now"
            )
        cause = self._limit if result.outcome == "timeout" else str(result.value)
        line = f"{self._name}: {problem.id if problem else repr(response[:80])}: {cause}"
        self._in_a_row += 1
        if self._in_a_row >= HOPELESS:
            raise UserError(f"{line} ({self._in_a_row} times in a row)")
        return Verdict(Status.ERROR, rule=line, grader=self._grader)


def verify_apart(
    problem: Problem, response: str, finish: str = "", seconds: float = SECONDS
) -> Verdict:
    """Judge one response to a problem; with a verifier that was brought, in its process."""
    if problem.verifier in KINDS:
        return verify(problem.verifier, problem.gold, response, problem, finish)
    return _process(problem.verifier, seconds).verdict(problem.gold, response, problem, finish)


@cache
def _process(kind: str, seconds: float) -> OwnProcess:
    return OwnProcess(kind, verifier(kind).FINGERPRINT, seconds)


def loaded(kind: str) -> Callable[[Any], Any]:
    """In the process: load a verifier, and give the function that calls it on JSON values."""
    module = verifier(kind)

    def judge(payload: Any) -> Any:
        gold, response, pickled, finish = payload
        # From the parent alone.
        problem = pickle.loads(base64.b64decode(pickled))  # noqa: S301
        verdict = guarded(module, module.verify, gold, response, problem, finish=finish)
        return [
            int(verdict.status), verdict.answer, verdict.canonical, verdict.rule, verdict.grader,
            0.0, verdict.witness, verdict.stated,
        ]  # fmt: skip

    return judge
