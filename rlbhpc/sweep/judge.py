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


class VerifiersByKind:
    """Verifiers of several kinds, each made at its first use.

    ``workers``: processes of each. ``seconds``: what one answer may take.
    """

    def __init__(self, workers: int, seconds: float) -> None:
        self._workers = workers
        self._seconds = seconds
        self._verifiers: dict[str, BatchVerifier] = {}

    def verify(self, kinds: Sequence[str | None], items: Sequence[Item]) -> list[Verdict | None]:
        """Judge responses, those of one kind together; None where there is no kind.

        An *item* is what a verifier is asked: reference answer, response, problem, and how it
        ended.
        """
        verdicts: list[Verdict | None] = [None] * len(items)
        for kind in dict.fromkeys(filter(None, kinds)):
            if kind not in self._verifiers:
                self._verifiers[kind] = BatchVerifier(kind, self._workers, self._seconds)
            indices = [index for index, other in enumerate(kinds) if other == kind]
            judged = self._verifiers[kind].verify_many([items[index] for index in indices])
            for index, verdict in zip(indices, judged, strict=True):
                verdicts[index] = verdict
        return verdicts

    def tallies(self) -> dict[str, str]:
        """Tell by kind what each verifier has done."""
        return {kind: str(used.tally) for kind, used in self._verifiers.items()}


class Judge:
    """Verifies completions of known problems, each distinct answer to a problem once.

    What is stored of a sample does not depend on what had been judged before.

    ``problems``: all problems that may be asked about, by id. ``verification``: how the study wants
    answers to be judged.
    """

    def __init__(self, problems: Mapping[str, Problem], verification: Verification) -> None:
        self._problems = problems
        self._verification = verification
        self._verifiers = VerifiersByKind(verifying_processes(), verification.timeout)
        if verification.unsafe:
            os.environ[UNSAFE] = "1"

    def samples(self, finished: Sequence[tuple[SampleRequest, Completion]]) -> list[Sample]:
        """Rows to store for a batch of completions, in their order.

        ``finished``: each request with what the engine completed. Those that ended in an error stay
        failed. If the study asks for it, the grader of the published study gives a second verdict,
        which is stored beside the first.
        """
        kinds: list[str | None] = []
        paper_kinds: list[str | None] = []
        items: list[Item] = []
        for request, completion in finished:
            problem = self._problems[request.key.problem]
            kind = None if completion.finish is Finish.ERROR else problem.verifier
            kinds.append(kind)
            paper_kinds.append(PAPER.get(kind or "") if self._verification.paper else None)
            items.append((problem.gold, completion.text, problem, finish_name(completion.finish)))
        verdicts = self._verifiers.verify(kinds, items)
        paper_verdicts = self._verifiers.verify(paper_kinds, items)
        rows = []
        for (request, completion), verdict, paper_verdict in zip(
            finished, verdicts, paper_verdicts, strict=True
        ):
            row = make_sample(
                request,
                completion,
                verdict or Verdict(Status.FAILED),
                self._verification.decides,
                paper_verdict or _NOT_JUDGED,
            )
            rows.append(row)
        return rows

    def close(self) -> dict[str, str]:
        """Tell by kind what each verifier has done."""
        return self._verifiers.tallies()


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
