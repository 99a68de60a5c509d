"""From a completion to a stored sample: verify it, then join request, response and verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, finish_name
from rlbhpc.problems.problem import Problem
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.schema import Verification
from rlbhpc.verify.answer.extract import RULES
from rlbhpc.verify.kinds.code import UNSAFE
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.verdict import Reading, Status, Verdict

#: Kinds of answers that the published study judged, and the emulation of its grader.
PAPER: Final = {"math": "math-paper"}

_UNASKED: Final = Verdict(Status.MISSING)


class SampleRequest(NamedTuple):
    """One requested sample and everything that its row needs besides the response."""

    key: SampleKey
    seed: int
    fingerprint: int


class Judge:
    """Verifies completions of known problems, each distinct answer to a problem once.

    What is stored of a sample does not depend on what had been judged before.

    ``problems``: all problems that may be asked about, by id. ``verification``: how the study wants
    answers to be judged.
    """

    def __init__(self, problems: Mapping[str, Problem], verification: Verification) -> None:
        self._problems = problems
        self._verification = verification
        self._verifiers: dict[str, BatchVerifier] = {}
        if verification.unsafe:
            os.environ[UNSAFE] = "1"

    def samples(self, finished: Sequence[tuple[SampleRequest, Completion]]) -> list[Sample]:
        """Rows of a batch of completions, in their order."""
        verdicts = [Verdict(Status.FAILED)] * len(finished)
        papers = [_UNASKED] * len(finished)
        by_kind: dict[str, list[int]] = {}
        for index, (request, done) in enumerate(finished):
            if done.finish is not Finish.ERROR:
                kind = verifier_kind(self._problems[request.key.problem], self._verification)
                by_kind.setdefault(kind, []).append(index)
        for kind, places in by_kind.items():
            items: list[Item] = []
            for index in places:
                request, done = finished[index]
                problem = self._problems[request.key.problem]
                items.append((problem.gold, done.text, problem, finish_name(done.finish)))
            self._judge(kind, places, items, verdicts)
            if kind in PAPER and self._verification.paper:
                self._judge(PAPER[kind], places, items, papers)
        return [
            sample(*pair, verdict, self._verification.decides, paper)
            for pair, verdict, paper in zip(finished, verdicts, papers, strict=True)
        ]

    def _judge(
        self, kind: str, places: Sequence[int], items: Sequence[Item], into: list[Verdict]
    ) -> None:
        """Put the verdicts of one verifier into their places."""
        for place, verdict in zip(places, self._verifier(kind).verify_many(items), strict=True):
            into[place] = verdict

    def close(self) -> dict[str, str]:
        """Say what each verifier has done."""
        return {kind: str(used.tally) for kind, used in self._verifiers.items()}

    def _verifier(self, kind: str) -> BatchVerifier:
        if kind not in self._verifiers:
            seconds = self._verification.timeout
            self._verifiers[kind] = BatchVerifier(kind, verifying_processes(), seconds)
        return self._verifiers[kind]


def verifier_kind(problem: Problem, verification: Verification) -> str:
    """The verifier that judges a problem in a study."""
    compat = problem.verifier == "code" and verification.code == "compat"
    return "code-compat" if compat else problem.verifier


def verifying_processes() -> int:
    """Half of the processors that this process may use, at least one: the engine needs some too."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def sample(
    request: SampleRequest,
    done: Completion,
    verdict: Verdict,
    decides: Reading = "strict",
    paper: Verdict = _UNASKED,
) -> Sample:
    """Join a request, its completion and the verdicts on it into the row that is stored."""
    return Sample(
        key=request.key,
        fingerprint=request.fingerprint,
        seed=request.seed,
        verdict=int(verdict.under(decides)),
        finish=int(done.finish),
        n_tokens=len(done.token_ids),
        logprob_sum=float(done.logprobs.sum(dtype=np.float64)),
        entropy_sum=float(done.entropies.sum(dtype=np.float64)),
        answer=verdict.canonical,
        rule=rule_without_place(verdict.rule),
        grader=verdict.grader,
        text=done.text,
        error=done.error,
        paper=int(paper.status),
        strict=int(verdict.strict),
        lenient=int(verdict.status),
        token_ids=done.token_ids,
        logprobs=done.logprobs.astype(np.float16),
        entropies=done.entropies.astype(np.float16),
    )


def rule_without_place(rule: str) -> str:
    """Leave out where an answer was found: equal answers share one verdict, wherever they stood."""
    place, _, rest = rule.partition("/")
    return rest if place in RULES else rule
