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
MAX_VALUE_CHARS: Final = 400
MAX_PROGRAM_CHARS: Final = 4000
MAX_INPUTS: Final = 10
# Modules whose functions differ from run to run, or reach out of a run.
BANNED_MODULES: Final = (
    "random secrets uuid time datetime calendar multiprocessing threading subprocess logging "
    "hashlib hmac os sys pebble bcrypt asyncio socket importlib"
).split()
_FORBIDDEN_CODE: Final = re.compile(
    rf"\b(?:from|import)\b[^\n]*\b(?:{'|'.join(BANNED_MODULES)})\b|__import__|\bid\(|\bhash\("
)
# Both runs begin as copies of one process, in which an object lies in the same place.
_MEMORY_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]{6,}")
_INPUT_LINE: Final = re.compile(r"^input:(.*)$", re.MULTILINE)
_MESSAGE_LINE: Final = re.compile(r"^message:(.*)$", re.MULTILINE)


class _InvalidError(Exception):
    """Why a proposal or an answer is not valid; the message is the verdict's rule."""


def __getattr__(name: str) -> Any:
    """Work the fingerprint out on first use, since it names the tier that this node reaches."""
    if name == "FINGERPRINT":
        return f"program-task {VERSION} (sandbox {reached_tier().name})"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge an answer to a task, or a proposal of one.

    ``extras["role"]`` of the problem says which of the two was asked for. ``answer_part`` is the
    response without its thoughts. :class:`_InvalidError` says why a text is not valid.
    """
    if problem is None or problem.verifier != "program-task":
        raise ValueError("a task on a program is judged by its problem")
    text = programs.answer_part(response)
    try:
        if problem.extras["role"] == "propose":
            return _judge_proposal(problem.extras, text)
        return _judge_solution(problem.extras, text)
    except _InvalidError as reason:
        return Verdict(Status.WRONG, text.strip()[:MAX_VALUE_CHARS], rule=str(reason))


def _judge_solution(task: Any, text: str) -> Verdict:
    """Judge a program, an output or an input that solves a task.

    ``kind`` says what was asked for: *induction* a program that gives the outputs for the inputs,
    *deduction* the output of a program, else an input for which it gives the output. ``run``
    returns a program's outputs; inputs and outputs are compared as JSON in one form.
    """
    if task["kind"] == "induction":
        program = _find_program(text)
        if not program:
            return Verdict(Status.NO_ANSWER, rule="no program")
        outputs = run(program, task["inputs"])
        is_right = outputs == list(task["outputs"])
        return Verdict(_status_of(is_right), program, program, "hidden inputs")
    answer = _last_line(text)
    value = _normalize_json(answer)
    if value is None:
        return Verdict(Status.NO_ANSWER, answer, rule="no JSON")
    if task["kind"] == "deduction":
        is_right = value == task["outputs"][0]
        return Verdict(_status_of(is_right), answer, value, "output")
    is_right = run(task["program"], [value]) == [task["outputs"][0]]
    return Verdict(_status_of(is_right), answer, value, "input")


def _status_of(is_right: bool) -> Status:
    return Status.RIGHT if is_right else Status.WRONG


def _judge_proposal(task: Any, text: str) -> Verdict:
    """Judge a proposed program with its inputs: it must give the same outputs twice.

    For *induction* several inputs are asked for, and a message that describes the program; for
    other kinds one input. The task may state the program itself. ``run`` returns the outputs as
    JSON. What is valid becomes a new task: the triplet of program, inputs and outputs is the
    canonical answer.
    """
    inputs = [_normalize_json(line[1].strip()) for line in _INPUT_LINE.finditer(text)]
    text_before_inputs = _INPUT_LINE.split(text)[0]
    program = task.get("program") or _find_program(text_before_inputs)
    if not program or not inputs or None in inputs:
        return Verdict(Status.NO_ANSWER, rule="not of the form")
    message = ""
    if task["kind"] == "induction":
        message_line = _MESSAGE_LINE.search(text)
        message = message_line[1].strip() if message_line else ""
        inputs = list(dict.fromkeys(inputs))[:MAX_INPUTS]
        if not message or len(message) > MAX_VALUE_CHARS or len(inputs) < 2:
            return Verdict(Status.NO_ANSWER, rule="not of the form")
    else:
        inputs = inputs[:1]
    outputs = run(program, inputs)
    differs = run(program, inputs) != outputs
    if differs or any(_MEMORY_ADDRESS.search(output) for output in outputs):
        raise _InvalidError("not determined")
    triplet = {"program": program, "inputs": inputs, "outputs": outputs}
    if message:
        triplet["message"] = message
    return Verdict(Status.RIGHT, program, json.dumps(triplet), "valid")


def run(program: str, inputs: Sequence[str | None]) -> list[str]:
    """Return the outputs of ``f`` as JSON, by the sandbox; raise where a call gives none.

    ``program`` defines ``f``; each input is a JSON list of its arguments. ``read_call_results``
    gives a result for each call, up to the first without one: if there are too few, the run was
    ended.
    """
    if len(program) > MAX_PROGRAM_CHARS:
        raise _InvalidError("program too long")
    if _FORBIDDEN_CODE.search(program):
        raise _InvalidError("banned import")
    calls = [json.loads(text or "null") for text in inputs]
    if not all(isinstance(call, list) for call in calls):
        raise _InvalidError("an input is a list of arguments")
    with lent_sandbox() as sandbox:
        outcome = sandbox.run(Job(program, Mode.CALL, entry="f").with_calls(calls), limits=LIMITS)
    returned = read_call_results(outcome.result, [MAX_VALUE_CHARS] * len(calls))
    if len(returned) < len(calls):
        raise _InvalidError("time" if outcome.cause.is_time else f"ended by {outcome.cause}")
    outputs = []
    for result in returned:
        if result.raised:
            raise _InvalidError(f"raised {result.raised}")
        outputs.append(_write_json(result.value))
    return outputs


def _find_program(text: str) -> str:
    """Return the last block of code, or what follows the first ``def f(`` without a fence."""
    blocks = [block.text for block in programs.code_blocks(text) if "def f(" in block.text]
    if blocks:
        return blocks[-1].strip()
    start = text.find("def f(")
    return text[start:].strip() if start >= 0 and "```" not in text else ""


def _last_line(text: str) -> str:
    """Return the last line that says something, without its label."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip("` \t")]
    answer = lines[-1] if lines else ""
    return answer.removeprefix("output:").removeprefix("input:").strip("` ")


def _normalize_json(text: str) -> str | None:
    """Return JSON in its one form; None for what is no JSON, or is too long.

    In that form equal values are equal texts.
    """
    if not text or len(text) > MAX_VALUE_CHARS:
        return None
    try:
        return _write_json(json.loads(text))
    except (ValueError, RecursionError, _InvalidError):
        return None


def _write_json(value: Any) -> str:
    """Write a value as JSON, tuples as lists; what JSON has no word for is invalid.

    Keys are sorted, so that equal values are equal texts.
    """
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise _InvalidError("no JSON") from None
    if len(text) > MAX_VALUE_CHARS:
        raise _InvalidError("value too long")
    return text
