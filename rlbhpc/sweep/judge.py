"""From a completion to a stored sample: verify it, then join request, response and verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rlbhpc.engines.completion import Completion, Finish, finish_name
from rlbhpc.problems.problem import Problem
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.schema import Verification
from rlbhpc.verify.answer.extract import RULES
from rlbhpc.verify.kinds.code import UNSAFE
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.verdict import Reading, Status, Verdict

#: Kinds of answers that the published study judged, and the emulation of its grader.
PAPER: Final = {"math": "math-paper"}

_NOT_JUDGED: Final = Verdict(Status.MISSING)


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
        """Rows to store for a batch of completions, in their order.

        ``finished``: each request with what the engine completed. Completions are verified together
        by kind of verifier; those that ended in an error stay failed. If the study asks for it, the
        grader of the published study gives a second verdict, which is stored beside the first.
        """
        verdicts = [Verdict(Status.FAILED)] * len(finished)
        paper_verdicts = [_NOT_JUDGED] * len(finished)
        indices_by_kind: dict[str, list[int]] = {}
        for index, (request, completion) in enumerate(finished):
            if completion.finish is not Finish.ERROR:
                problem = self._problems[request.key.problem]
                kind = problem.verifier
                indices_by_kind.setdefault(kind, []).append(index)
        for kind, indices in indices_by_kind.items():
            items = [self._verifier_item(*finished[index]) for index in indices]
            for index, verdict in zip(indices, self._verify(kind, items), strict=True):
                verdicts[index] = verdict
            if kind in PAPER and self._verification.paper:
                of_paper = self._verify(PAPER[kind], items)
                for index, verdict in zip(indices, of_paper, strict=True):
                    paper_verdicts[index] = verdict
        rows = []
        for (request, completion), verdict, paper_verdict in zip(
            finished, verdicts, paper_verdicts, strict=True
        ):
            decides = self._verification.decides
            rows.append(make_sample(request, completion, verdict, decides, paper_verdict))
        return rows

    def _verifier_item(self, request: SampleRequest, completion: Completion) -> Item:
        """What a verifier is asked about a completion."""
        problem = self._problems[request.key.problem]
        return problem.gold, completion.text, problem, finish_name(completion.finish)

    def close(self) -> dict[str, str]:
        """Tell by kind what each verifier has done."""
        return {kind: str(used.tally) for kind, used in self._verifiers.items()}

    def _verify(self, kind: str, items: Sequence[Item]) -> list[Verdict]:
        """Judge some responses with the verifier of a kind, which is made at its first use."""
        if kind not in self._verifiers:
            timeout_seconds = self._verification.timeout
            self._verifiers[kind] = BatchVerifier(kind, verifying_processes(), timeout_seconds)
        return self._verifiers[kind].verify_many(items)


def verifying_processes() -> int:
    """Half of the processors that this process may use, at least one: the engine needs some too."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def make_sample(
    request: SampleRequest,
    completion: Completion,
    verdict: Verdict,
    decides: Reading = "strict",
    paper_verdict: Verdict = _NOT_JUDGED,
) -> Sample:
    """Join a request, its completion and the verdicts on it into the row that is stored.

    ``decides``: the reading that gives the row's verdict: strict counts only an answer that the
    response states as such, lenient also its last value. ``paper_verdict``: that of the grader of
    the published study, if it was asked. Sums are taken in double precision; the values per token
    are stored in half.
    """
    return Sample(
        key=request.key,
        fingerprint=request.fingerprint,
        seed=request.seed,
        verdict=int(verdict.under(decides)),
        finish=int(completion.finish),
        n_tokens=int(completion.written_by_model.sum()),
        logprob_sum=float(completion.logprobs.sum(dtype=np.float64)),
        entropy_sum=float(completion.entropies.sum(dtype=np.float64)),
        answer=verdict.canonical,
        rule=rule_without_place(verdict.rule),
        grader=verdict.grader,
        text=completion.text,
        error=completion.error,
        paper=int(paper_verdict.status),
        strict=int(verdict.strict),
        lenient=int(verdict.status),
        token_ids=completion.token_ids,
        logprobs=completion.logprobs.astype(np.float16),
        entropies=completion.entropies.astype(np.float16),
        trace=completion.trace,
    )


def rule_without_place(rule: str) -> str:
    """Name of the rule that decided, without the place where the answer was found.

    Equal answers share one verdict, wherever they stood.
    """
    place, _, decision = rule.partition("/")
    return decision if place in RULES else rule
