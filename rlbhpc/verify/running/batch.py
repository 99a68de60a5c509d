"""Many responses at once: each distinct answer to a problem is judged once.

At large k wrong answers repeat and right ones nearly always do, so a million responses hold some
ten thousand distinct pairs of problem and answer. Only those are judged; the others take the
verdict of the equal one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.registry import (
    NO_ANSWER,
    OwnVerifier,
    Verifier,
    call_guarded,
    takes_finish,
    verifier,
)
from rlbhpc.verify.running.pool import SECONDS, OwnProcess
from rlbhpc.verify.verdict import Status, Verdict

# Gold answer, response, problem and, where it is known, how the response ended.
Item = tuple[str, str, Problem | None] | tuple[str, str, Problem | None, str]

# These verdicts say something about the machine, not about the answer, so they aren't remembered.
_RETRIED: Final = frozenset((Status.TIMEOUT, Status.ERROR))


@dataclass
class Tally:
    """Counts of what a batch verifier has done so far."""

    responses: int = 0
    judged: int = 0
    timeouts: int = 0
    errors: int = 0
    last_error: str = ""

    @property
    def factor(self) -> float:
        """Mean number of responses that one judgement served."""
        return self.responses / max(1, self.judged)

    def add(self, verdict: Verdict) -> None:
        """Count one judgement, and whether it ended without saying anything about the answer.

        ``rule`` of such a verdict is the error's message; the last one is kept.
        """
        self.judged += 1
        if verdict.status is Status.TIMEOUT:
            self.timeouts += 1
        elif verdict.status is Status.ERROR:
            self.errors += 1
            self.last_error = verdict.rule

    def __str__(self) -> str:
        return (
            f"{self.responses} responses, {self.judged} judged ({self.factor:.1f} responses each), "
            f"{self.timeouts} timeouts, {self.errors} errors"
        )


class _AnswerKey(NamedTuple):
    """What decides a verdict: equal keys have equal verdicts.

    ``answer``: the part of the response that matters to the verifier, such as the extracted answer.
    ``stated``: whether the response stated that answer, or it was only the last value in it.
    """

    gold: str
    problem_content: str
    problem_id: str
    answer: str
    stated: bool


class _Response(NamedTuple):
    """A response to judge; ``extracted`` is its answer where the verifier judges in two steps."""

    key: _AnswerKey
    gold: str
    text: str
    problem: Problem | None
    finish: str
    extracted: object


class BatchVerifier:
    """Judges many responses of one kind and remembers what it has judged.

    Parameters
    ----------
    kind
        A verifier of the registry.
    workers
        Number of threads, for a verifier that mostly waits for processes of its own.
    seconds
        Processor time for one response, for a verifier that the study brings. It is called in
        another process.
    """

    def __init__(self, kind: str, workers: int = 1, seconds: float = SECONDS) -> None:
        """Look up the verifier of ``kind``, and what it offers besides ``verify``.

        A verifier is a module that judges responses. It may offer ``extract`` and
        ``judge_extracted``, which find the answer and judge it in two steps, and ``distinct``,
        which returns the part of a response that alone decides. One that the study brings may hang,
        so it is called in a process of its own. ``seconds``: processor time that it has for one
        response.
        """
        self.kind = kind
        self.workers = workers
        self.tally = Tally()
        self.module: Verifier = verifier(kind)
        # Working out the fingerprint may test the sandbox. Done here, no thread waits for it.
        fingerprint = self.module.FINGERPRINT
        self._own_process: OwnProcess | None = None
        if isinstance(self.module, OwnVerifier):
            self._own_process = OwnProcess(kind, fingerprint, seconds)
        self._extract = getattr(self.module, "extract", None)
        self._judge_extracted = getattr(self.module, "judge_extracted", None)
        self._distinct = getattr(self.module, "distinct", None)
        self._verdicts: dict[_AnswerKey, Verdict] = {}

    def verify_many(self, items: Sequence[Item]) -> list[Verdict]:
        """Judge all items and return their verdicts in order.

        An item is a reference answer, a response, its problem and perhaps how the response ended.
        Items with the same *key* (problem, reference answer and the deciding part of the response)
        have the same verdict, so only one of them is judged, and later calls remember it: equal
        answers share one :class:`Verdict` object. Timeouts and errors say nothing about the answer
        and are forgotten again.
        """
        responses = [self._find_answer(*item) for item in items]
        unjudged: dict[_AnswerKey, _Response] = {}
        for response in responses:
            if response.key not in self._verdicts:
                unjudged.setdefault(response.key, response)
        new_verdicts = dict(zip(unjudged, self._judge_all(list(unjudged.values())), strict=True))
        self._verdicts.update(new_verdicts)
        verdicts = [self._verdicts[response.key] for response in responses]
        for key, verdict in new_verdicts.items():
            self.tally.add(verdict)
            if verdict.status in _RETRIED:
                del self._verdicts[key]
        self.tally.responses += len(items)
        return verdicts

    def _find_answer(
        self, gold: str, text: str, problem: Problem | None, finish: str = ""
    ) -> _Response:
        """Find the part of a response that decides its verdict, and the key to remember that by.

        ``gold``: the reference answer. ``finish``: how the response ended, which some verifiers
        take into account. The part is the extracted answer, or else what the verifier's
        ``distinct`` returns, or else the whole text. ``stated``: whether the response stated that
        answer, or it was only the last value in it.
        """
        extracted = None
        stated = True
        if self._extract is not None and self._judge_extracted is not None:
            extracted = self._extract(text, finish)
            answer = NO_ANSWER
            if extracted is not None:
                answer = extracted.text
                stated = extracted.stated
        elif self._distinct is None:
            answer = f"{text}\0{finish}" if takes_finish(self.module.verify) else text
        elif takes_finish(self._distinct):
            answer = self._distinct(text, finish)
        else:
            answer = self._distinct(text)
        # Imported problems may not hold their question: the id tells them apart.
        key = _AnswerKey(
            gold=gold,
            problem_content=problem.content_hash if problem else "",
            problem_id=problem.id if problem else "",
            answer=answer,
            stated=stated,
        )
        return _Response(key, gold, text, problem, finish, extracted)

    def _judge_all(self, responses: Sequence[_Response]) -> list[Verdict]:
        """Judge responses one by one, or in threads where the verifier only waits in them."""
        if self.workers == 1 or not getattr(self.module, "CONCURRENT", False):
            return [self._judge(response) for response in responses]
        with ThreadPoolExecutor(self.workers) as threads:
            return list(threads.map(self._judge, responses))

    def _judge(self, response: _Response) -> Verdict:
        """Judge one response: in another process, by its extracted answer, or as a text.

        The other process is for verifiers that a study brings. ``call_guarded`` calls a verifier
        and turns what it raises into a verdict of status ERROR.
        """
        gold, problem, finish = response.gold, response.problem, response.finish
        if self._own_process is not None:
            return self._own_process.verdict(gold, response.text, problem, finish)
        if self._judge_extracted is not None:
            return call_guarded(
                self.module, self._judge_extracted, gold, response.extracted, problem
            )
        return call_guarded(
            self.module, self.module.verify, gold, response.text, problem, finish=finish
        )


def verify_many(kind: str, items: Sequence[Item], workers: int = 1) -> list[Verdict]:
    """Judge many (gold, response, problem) at once with the verifier of ``kind``."""
    return BatchVerifier(kind, workers=workers).verify_many(items)
