"""The ``reasoning-gym`` verifier: a task's own scorer, run in the sandbox.

Many scorers read the answer as an expression, which is to run it. So they stand in a sandbox that
has loaded the package before it closed, and get an answer as data. Right is a score of 1; a lower
score of a partly right answer is told in the verdict's rule.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
from functools import lru_cache
from typing import Any, Final

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import ends_in_box, last_balanced
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import read_call_results
from rlbhpc.verify.kinds.code import lent_sandbox, reached_tier
from rlbhpc.verify.sandbox.job import Job, Limits, Mode
from rlbhpc.verify.verdict import Status, Verdict

CONCURRENT: Final = True
VERSION: Final = 2
SCORER_MODULE: Final = "rlbhpc.verify.code.gym_scores"
LIMITS: Final = Limits(cpu=5.0, result=1 << 10)
# Characters of an answer; the longest that a task asks for has a tenth.
MAX_ANSWER_CHARS: Final = 20_000
_JOB: Final = Job(f"from {SCORER_MODULE} import score", Mode.CALL, entry="score")
# Tasks whose scorer evaluates the answer, in the process that tells the score: as a list, or as an
# expression of sympy. What calls nothing can grade nothing.
_LIST_TASKS: Final = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
_EXPRESSION_TASKS: Final = (
    "countdown", "intermediate_integration", "polynomial_multiplication", "simple_integration",
)  # fmt: skip
_HARMLESS_FUNCTIONS: Final = frozenset(
    "sqrt exp log ln sin cos tan asin acos atan sinh cosh tanh Abs abs".split()
)
# What stands before an opening bracket, so that it is called.
_CALLED_NAME: Final = re.compile(r"([^\W\d]\w*|[\d)\]}'\"])\s*\(")
_CODE: Final = re.compile(r"['\"\[\]{}]|\b(?:or|and|not|if|else|for|in|is|lambda)\b")


def __getattr__(name: str) -> Any:
    """Work the fingerprint out on first use, since it names the tier that this node reaches."""
    if name == "FINGERPRINT":
        version = importlib.metadata.version("reasoning-gym")
        return f"reasoning-gym {VERSION} ({version}, sandbox {reached_tier().name})"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def distinct(response: str, finish: str = "") -> str:
    """Return what the last answer tag holds, or without a tag the last box.

    A response that was cut within a box has none.
    """
    text = programs.answer_part(response)
    if "<answer>" not in response:
        was_cut = finish == "length" and ends_in_box(text)
        text = "" if was_cut else last_balanced(text[-MAX_ANSWER_CHARS:])
    return text.strip()


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge a response by the scorer of the problem's task.

    The scorer is a function of the package, which runs in the sandbox: it gets the answer and the
    *entry*, the package's own record of the problem. A score of 1 is right; a lower one is only
    told in the rule. ``_could_run_code`` refuses an answer that is a program.
    """
    if problem is None or problem.verifier != "reasoning-gym":
        raise ValueError("a task of reasoning-gym is judged by its problem")
    answer = distinct(response, finish)
    if not answer:
        return Verdict(Status.NO_ANSWER, rule="no answer tag and no box")
    if len(answer) > MAX_ANSWER_CHARS or _could_run_code(problem.extras["task"], answer):
        return Verdict(Status.WRONG, answer[:MAX_ANSWER_CHARS], rule="no answer but code")
    call = [problem.extras["task"], answer, _parse_entry(problem.extras["entry"])]
    with lent_sandbox(SCORER_MODULE) as sandbox:
        outcome = sandbox.run(_JOB.with_calls([call]), limits=LIMITS)
    if outcome.cause.is_time:
        return Verdict(Status.TIMEOUT, answer, rule="time")
    results = read_call_results(outcome.result, [1])
    if not results or results[0].raised or not isinstance(results[0].value, float | int):
        return Verdict(Status.WRONG, answer, rule="not an answer of this task")
    score = float(results[0].value)
    status = Status.RIGHT if score >= 1 else Status.WRONG
    return Verdict(status, answer, answer, f"score {score:.3g}")


def _could_run_code(task: str, answer: str) -> bool:
    """Whether evaluating an answer could do more than give a value.

    Some scorers evaluate the answer as Python. Those of ``_LIST_TASKS`` expect a list, in which
    nothing needs to be called; those of ``_EXPRESSION_TASKS`` a formula, which calls
    ``_HARMLESS_FUNCTIONS`` alone. All others only read it.
    """
    if task in _LIST_TASKS:
        return "(" in answer
    if task not in _EXPRESSION_TASKS:
        return False
    called_names = set(_CALLED_NAME.findall(answer))
    return not called_names <= _HARMLESS_FUNCTIONS or _CODE.search(answer) is not None


@lru_cache(maxsize=64)
def _parse_entry(text: str) -> Any:
    """Read a task's entry, which is written as a Python literal."""
    return ast.literal_eval(text)
