"""Which verifier judges which kind of answer, and the one function that calls it.

A verifier is a module with two names::

    FINGERPRINT: str
    def verify(
        gold: str, response: str, problem: Problem | None = None, finish: str = ""
    ) -> Verdict: ...

``finish`` may be left out by a verifier that does not ask: how the response ended, ``"eos"``,
``"stop_string"``, ``"length"`` where it was cut at its limit, or ``""`` where nobody knows.
``FINGERPRINT`` names the grader and everything a verdict of it stands on (own version, versions of
libraries, sandbox tier). ``verify`` says what it thinks of one response; it need not fill in
``Verdict.grader`` and ``Verdict.seconds``, and it may raise: an exception is the verifier's own
fault and becomes :attr:`Status.ERROR`, which a sweep retries.

More is optional, and only :mod:`rlbhpc.verify.running.batch` uses it:

``distinct(response, finish) -> str``
    The part of a response that alone decides its verdict (the extracted answer, the program).
    Equal parts are judged once per problem. Without it the whole response is that part. It need
    not ask for ``finish`` either.
``extract(response, finish) -> Extracted | None``
``judge_extracted(gold, answer, problem) -> Verdict``
    ``verify`` in two steps, so that no answer is sought twice. The distinct part is its text and
    whether it was stated.
``CONCURRENT``
    Whether ``verify`` mostly waits for processes of its own, so that several threads gain by it.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.verdict import GIVEN, Status, Verdict

# The module of each verifier. It is imported when its kind is first asked for, so a heavy one costs
# others nothing.
KINDS: Final[dict[str, str]] = {
    "math": "rlbhpc.verify.kinds.math",
    "math-paper": "rlbhpc.verify.kinds.math_paper",
    "code": "rlbhpc.verify.kinds.code",
    "countdown": "rlbhpc.verify.kinds.countdown",
    "visual": "rlbhpc.verify.kinds.visual",
    "choice": "rlbhpc.verify.kinds.choice",
    "judge": "rlbhpc.verify.kinds.judge",
    "probe": "rlbhpc.verify.kinds.probe",
    "program-task": "rlbhpc.verify.kinds.program_task",
    "reasoning-gym": "rlbhpc.verify.kinds.reasoning_gym",
}


#: The distinct part of a response that commits to no answer; no answer is equal to it.
NO_ANSWER: Final = "\0"
_MAX_RULE_CHARS: Final = 300
# What reward functions elsewhere call the reference answer, which they take second or third.
_REFERENCE_PARAMETERS: Final = {
    "gold", "ground_truth", "gt", "gt_answer", "reference", "reference_answer", "target", "label",
    "correct_answer",
}  # fmt: skip


class Verifier(Protocol):
    """What a module in :data:`KINDS` offers."""

    FINGERPRINT: str

    @property
    def verify(self) -> Callable[..., Verdict]:
        """Judge one response."""
        ...


@lru_cache(maxsize=256)
def takes_finish(judge: Callable[..., Any]) -> bool:
    """Whether a function asks how a response ended, by a parameter of that name."""
    with suppress(ValueError, TypeError):  # what is built in may not tell its parameters
        return "finish" in inspect.signature(judge).parameters
    return False


def finish_argument(judge: Callable[..., Any], finish: str) -> dict[str, str]:
    """Return the keyword argument that tells a function how a response ended, if it asks for it."""
    return {"finish": finish} if finish and takes_finish(judge) else {}


class OwnVerifier:
    """A verifier that a study or a package brings: a function that gives a verdict or true, false.

    The bytes of a study's file are its fingerprint, so a change of it makes all its verdicts old.
    If its module has ``distinct``, equal parts are judged once by one object. That is no attribute
    of this class: it may hang, so :class:`BatchVerifier` must not call it.
    """

    def __init__(self, plugin: plugins.Plugin) -> None:
        self.FINGERPRINT = plugin.identity
        self._judge: Callable[..., Any] = plugin.value
        self._distinct: Callable[..., str] | None = getattr(plugin.module, "distinct", None)
        self._verdicts: dict[tuple[str, str, str, str], Verdict] = {}

    def verify(
        self, gold: str, response: str, problem: Problem | None = None, finish: str = ""
    ) -> Verdict:
        """Judge one response by the function that the study or package brings.

        ``gold``: the reference answer. ``finish``: how the response ended, empty if nobody knows.
        If the verifier has a function ``distinct``, that returns the part of a response that alone
        decides, and the verdict on an equal part of the same problem is used again.
        """
        if self._distinct is None:
            return self._judge_one(gold, response, problem, finish)
        problem_key = f"{problem.content_hash} {problem.id}" if problem else ""
        deciding_part = self._distinct(response, **finish_argument(self._distinct, finish))
        key = (gold, problem_key, deciding_part, finish)
        verdict = self._verdicts.get(key) or self._judge_one(gold, response, problem, finish)
        if verdict.status not in {Status.TIMEOUT, Status.ERROR}:  # those are to be tried again
            self._verdicts[key] = verdict
        return verdict

    def _judge_one(self, gold: str, response: str, problem: Problem | None, finish: str) -> Verdict:
        """Call the function and turn what it returns into a verdict.

        It may return a :class:`Verdict`, true or false; anything else raises ``TypeError``.
        ``gold``: the reference answer. ``finish``: how the response ended, which is passed on only
        if the function has a parameter of that name. ``GIVEN`` are the statuses that a verifier may
        give.
        """
        verdict = self._judge(gold, response, problem, **finish_argument(self._judge, finish))
        if isinstance(verdict, Verdict):
            texts = (verdict.answer, verdict.canonical, verdict.rule)
            if verdict.status in GIVEN and all(isinstance(text, str) for text in texts):
                return verdict
        # True of NumPy and SymPy is no bool, and scores are often 1.0 and 0.0.
        elif verdict in (True, False):
            return Verdict(Status.RIGHT if verdict else Status.WRONG, rule="own")
        raise TypeError(
            f"the verifier gave {verdict!r:.80}; allowed: True, False, or a Verdict of status "
            f"{', '.join(status.name for status in GIVEN)} whose other fields are texts"
        )


def verifier(kind: str) -> Verifier:
    """Return the verifier of one kind: a module of the package, or one that was brought.

    ``kind``: a key of ``KINDS``, or how a study names a verifier of its own.
    """
    module_name = KINDS.get(kind)
    if module_name is None:
        return _load_own_verifier(kind)
    plugins.reject_own_name("verifiers", kind)
    return cast(Verifier, importlib.import_module(module_name))


def _load_own_verifier(kind: str) -> OwnVerifier:
    """Load the verifier that a study or an installed package brings; refuse what is none.

    ``plugin.value`` is the object found, which must be a function that takes the reference answer
    first and the response second. Reward functions often take them the other way round, which the
    names of the parameters give away.
    """
    plugin = plugins.find("verifiers", kind)
    if plugin is None:
        kinds = ", ".join((*KINDS, *plugins.installed("verifiers")))
        raise UserError(
            f"verifier {kind!r}: no such kind; allowed: {kinds}, or a file such as ./mine.py"
        )
    if not callable(plugin.value):
        raise UserError(
            f"verifier {plugin.identity}: found {plugin.value!r}; allowed: a function "
            "verify(gold, response, problem=None)"
        )
    with suppress(ValueError):  # what is built in may not tell its parameters
        parameters = list(inspect.signature(plugin.value).parameters)
        if _REFERENCE_PARAMETERS & set(parameters[1:]):
            raise UserError(
                f"verifier {plugin.identity}: its parameters are {', '.join(parameters)}; it is "
                "called as verify(gold, response, problem)"
            )
    return OwnVerifier(plugin)


def verify(
    kind: str, gold: str, response: str, problem: Problem | None = None, finish: str = ""
) -> Verdict:
    """Judge one response with the verifier of ``kind``.

    ``kind``: a key of :data:`KINDS`, or a file of the study's own. ``gold``: the reference answer
    as the problem set states it (empty where tests decide). ``problem``: the problem itself, where
    the verdict needs more than the gold answer. ``finish``: how the response ended, if that is
    known: ``"length"`` says that it was cut. The verdict has the grader's fingerprint and the time
    taken.
    """
    module = verifier(kind)
    start = time.perf_counter()
    verdict = call_guarded(module, module.verify, gold, response, problem, finish=finish)
    return replace(verdict, seconds=time.perf_counter() - start)


def call_guarded(
    module: Verifier, judge: Callable[..., Verdict], *arguments: object, finish: str = ""
) -> Verdict:
    """Call a verifier, and turn what it raises into a verdict of status ERROR.

    Raising is the verifier's own fault, so the response is tried again later. ``judge``: the
    function of ``module`` to call. ``finish``: how the response ended, passed on only if the
    function asks for it. The *fingerprint* says which version of the verifier it was; the verdict
    gets it as its ``grader``.
    """
    try:
        verdict = judge(*arguments, **finish_argument(judge, finish))
    except (Exception, SystemExit) as error:
        message = f"raised {type(error).__name__}: {error}"
        one_line = " ".join(message.split())
        verdict = Verdict(Status.ERROR, rule=one_line[:_MAX_RULE_CHARS])
    if verdict.grader == module.FINGERPRINT:
        return verdict
    return replace(verdict, grader=module.FINGERPRINT)
