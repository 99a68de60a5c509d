"""Tasks on small programs: outputs compared as data, programs run in the sandbox alone.

A proposal is right if it is valid: it has the form that was asked for, imports nothing that changes
from run to run, ends in time, returns JSON of bounded size, and does so twice. Its canonical form
is the triplet as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import read_call_results
from rlbhpc.verify.kinds.code import lent_sandbox, reached_tier
from rlbhpc.verify.sandbox.job import Job, Limits, Mode
from rlbhpc.verify.verdict import Status, Verdict

CONCURRENT: Final = True
VERSION: Final = 1
LIMITS: Final = Limits(cpu=1.0, memory=512 << 20, result=1 << 16)
# Characters of a value and of a program; a longer one is refused, never cut and compared.
MOST_VALUE: Final = 400
MOST_PROGRAM: Final = 4000
MOST_INPUTS: Final = 10
# Modules whose functions differ from run to run, or reach out of a run.
BANNED: Final = (
    "random secrets uuid time datetime calendar multiprocessing threading subprocess logging "
    "hashlib hmac os sys pebble bcrypt asyncio socket importlib"
).split()
_IMPORT: Final = re.compile(
    rf"\b(?:from|import)\b[^\n]*\b(?:{'|'.join(BANNED)})\b|__import__|\bid\(|\bhash\("
)
# Both runs begin as copies of one process, in which an object lies in the same place.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]{6,}")
_INPUT: Final = re.compile(r"^input:(.*)$", re.MULTILINE)
_MESSAGE: Final = re.compile(r"^message:(.*)$", re.MULTILINE)


class _InvalidError(Exception):
    """Why a proposal or an answer is not valid; the message is the verdict's rule."""


def __getattr__(name: str) -> Any:
    """Work the fingerprint out on first use, since it names the tier that this node reaches."""
    if name == "FINGERPRINT":
        return f"program-task {VERSION} (sandbox {reached_tier().name})"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge an answer to a task, or a proposal of one."""
    if problem is None or problem.verifier != "program-task":
        raise ValueError("a task on a program is judged by its problem")
    text = programs.answer_part(response)
    try:
        if problem.extras["role"] == "propose":
            return _propose(problem.extras, text)
        return _solve(problem.extras, text)
    except _InvalidError as why:
        return Verdict(Status.WRONG, text.strip()[:MOST_VALUE], rule=str(why))


def _solve(task: Any, text: str) -> Verdict:
    if task["kind"] == "induction":
        program = _program(text)
        if not program:
            return Verdict(Status.NO_ANSWER, rule="no program")
        outputs = run(program, task["inputs"])
        right = outputs == list(task["outputs"])
        return Verdict(Status(right), program, program, "hidden inputs")
    answer = _value_text(text)
    value = _plain(answer)
    if value is None:
        return Verdict(Status.NO_ANSWER, answer, rule="no JSON")
    if task["kind"] == "deduction":
        return Verdict(Status(value == task["outputs"][0]), answer, value, "output")
    right = run(task["program"], [value]) == [task["outputs"][0]]
    return Verdict(Status(right), answer, value, "input")


def _propose(task: Any, text: str) -> Verdict:
    inputs = [_plain(match[1].strip()) for match in _INPUT.finditer(text)]
    program = task.get("program") or _program(_INPUT.split(text)[0])
    if not program or not inputs or None in inputs:
        return Verdict(Status.NO_ANSWER, rule="not of the form")
    message = ""
    if task["kind"] == "induction":
        said = _MESSAGE.search(text)
        message = said[1].strip() if said else ""
        inputs = list(dict.fromkeys(inputs))[:MOST_INPUTS]
        if not message or len(message) > MOST_VALUE or len(inputs) < 2:
            return Verdict(Status.NO_ANSWER, rule="not of the form")
    else:
        inputs = inputs[:1]
    outputs = run(program, inputs)
    if run(program, inputs) != outputs or any(map(_ADDRESS.search, outputs)):
        raise _InvalidError("not determined")
    triplet = {"program": program, "inputs": inputs, "outputs": outputs}
    if message:
        triplet["message"] = message
    return Verdict(Status.RIGHT, program, json.dumps(triplet), "valid")


def run(program: str, inputs: Sequence[str | None]) -> list[str]:
    """Outputs of ``f`` as JSON, by the sandbox; raises where a call gives none."""
    if len(program) > MOST_PROGRAM:
        raise _InvalidError("program too long")
    if _IMPORT.search(program):
        raise _InvalidError("banned import")
    calls = [json.loads(text or "null") for text in inputs]
    if not all(isinstance(call, list) for call in calls):
        raise _InvalidError("an input is a list of arguments")
    with lent_sandbox() as sandbox:
        outcome = sandbox.run(Job(program, Mode.CALL, entry="f").with_calls(calls), limits=LIMITS)
    returned = read_call_results(outcome.result, [MOST_VALUE] * len(calls))
    if len(returned) < len(calls):
        raise _InvalidError("time" if outcome.cause.is_time else f"ended by {outcome.cause}")
    outputs = []
    for result in returned:
        if result.raised:
            raise _InvalidError(f"raised {result.raised}")
        outputs.append(_dumps(result.value))
    return outputs


def _program(text: str) -> str:
    """The last block of code, or what follows the first ``def f(`` that stands without a fence."""
    blocks = [block.text for block in programs.code_blocks(text) if "def f(" in block.text]
    if blocks:
        return blocks[-1].strip()
    start = text.find("def f(")
    return text[start:].strip() if start >= 0 and "```" not in text else ""


def _value_text(text: str) -> str:
    """The last line that says something, without its label."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip("` \t")]
    answer = lines[-1] if lines else ""
    return answer.removeprefix("output:").removeprefix("input:").strip("` ")


def _plain(text: str) -> str | None:
    """JSON in its one form; nothing for what is none, or is too long."""
    if not text or len(text) > MOST_VALUE:
        return None
    try:
        return _dumps(json.loads(text))
    except (ValueError, RecursionError, _InvalidError):
        return None


def _dumps(value: Any) -> str:
    """Tuples are lists; what JSON has no word for is invalid."""
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise _InvalidError("no JSON") from None
    if len(text) > MOST_VALUE:
        raise _InvalidError("value too long")
    return text
