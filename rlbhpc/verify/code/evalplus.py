"""HumanEval+ and MBPP+: functions that are called on hundreds of inputs.

Expected outputs are what ``prompt + canonical_solution`` returns, computed once per process in the
sandbox. A program is right when it passes the base and the plus inputs.

Sound: every call in a process of its own; what the prompt defines is there; the program may fail
below the function, as example uses do. Compat: all calls of a set of inputs in one process, on the
program as evalplus's sanitizer leaves it, and a tolerance that once raised stays raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import Judgement, Returned, Strictness, big_fields, parse
from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Cause, Job, Limits, Mode, Shape
from rlbhpc.verify.verdict import Status

# --- MBPP+ inputs as Python values: JSON has no tuples, sets or complex numbers ------------------

# Which task wants what is published with evalplus (``data/mbpp.py``, release v0.2.0) as a list of
# task numbers; here each number is given the conversion of its arguments.

Convert = Callable[[list[Any]], list[Any]]


def _tuples(arguments: list[Any]) -> list[Any]:
    return [tuple(argument) for argument in arguments]


def _all_tuples(value: Any) -> Any:
    return tuple(_all_tuples(item) for item in value) if isinstance(value, list) else value


_TASKS: Final[list[tuple[tuple[int, ...], Convert]]] = [
    ((2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726,
      740, 744, 809), _tuples),
    ((63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
     lambda arguments: [_tuples(argument) for argument in arguments]),
    ((75, 413, 444, 753), lambda arguments: [_tuples(arguments[0]), arguments[1]]),
    ((106, 750), lambda arguments: [arguments[0], tuple(arguments[1])]),
    # An empty set is an empty dictionary there, so it is here.
    ((115,), lambda arguments: [[set(item) if isinstance(item, list) and item else {}
                                 for item in arguments[0]]]),
    ((124,), lambda arguments: [float(arguments[0]), complex(arguments[1])]),
    ((250, 307, 405, 446, 617, 720, 763, 808),
     lambda arguments: [tuple(arguments[0]), *arguments[1:]]),
    ((259, 401, 445), lambda arguments: [tuple(_tuples(argument)) for argument in arguments]),
    ((278,), lambda arguments: [tuple(tuple(item) if isinstance(item, list) else item
                                      for item in arguments[0])]),
    ((722,), lambda arguments: [{key: tuple(value) for key, value in arguments[0].items()},
                                *arguments[1:]]),
    ((252,), lambda arguments: [complex(arguments[0])]),
    ((580, 615, 791), lambda arguments: list(_all_tuples(arguments))),
]  # fmt: skip
_BY_TASK: Final = {task: convert for tasks, convert in _TASKS for task in tasks}


def python_inputs(task_id: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """Turn one task's argument lists into what its function expects.

    ``task_id`` is of the form ``Mbpp/NUMBER``; tasks that aren't listed take JSON as it is.
    """
    convert = _BY_TASK.get(int(task_id.rpartition("/")[2]))
    return [convert(arguments) for arguments in inputs] if convert else inputs


# --- when a returned value is right --------------------------------------------------------------

# Rules and names as in evalplus v0.3.1 (``eval/__init__.py``, ``eval/_special_oracle.py``). All of
# it runs in the trusted process on decoded data.

# A tolerance that floats get where the task states none, and NumPy's default relative one.
FLOAT_TOLERANCE: Final = 1e-6
RELATIVE_TOLERANCE: Final = 1e-7
# MBPP tasks whose order of results is open, and those where any object stands for "yes".
AS_SETS: Final = {
    "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
    "intersection_array", "find_dissimilar", "Diff",
}  # fmt: skip
AS_NOT_NONE: Final = {"check_str", "text_match_three", "text_starta_endb"}


def is_floats(value: Any) -> bool:
    """Whether a value is a float or a list or tuple of floats (an empty one included)."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def is_right(
    dataset: str, entry: str, arguments: list[Any], expected: Any, value: Any, tolerance: float
) -> bool:
    """Judge one returned value.

    ``dataset``: ``humaneval`` or ``mbpp``; names of functions mean something within one only.
    ``arguments``: what it was called with. ``expected``: what the reference returned. ``value``:
    what the program returned: decoded, but hostile. ``tolerance``: absolute tolerance; 0 for
    equality.
    """
    try:
        if dataset == "humaneval" and entry == "find_zero":
            return abs(_polynomial(arguments[0], value)) <= tolerance
        if dataset == "mbpp" and _special(entry, arguments, value, tolerance):
            return True
        return bool(value == expected) or (tolerance != 0 and _close(value, expected, tolerance))
    except (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError):
        return False


def _special(entry: str, arguments: list[Any], value: Any, tolerance: float) -> bool:
    """Judge by a second reading of the four tasks that have one."""
    if entry == "are_equivalent":
        return True
    if entry == "sum_div":
        return bool(value == 0)
    if entry == "surface_Area":
        edge, height = arguments
        slant = math.sqrt((edge / 2) ** 2 + height**2)
        return bool(abs(value - round(edge**2 + 2 * edge * slant)) <= tolerance)
    if entry == "digit_distance_nums":
        first, second = (str(number) for number in arguments)
        width = max(len(first), len(second))
        pairs = zip(first.zfill(width), second.zfill(width), strict=True)
        return bool(value == sum(abs(int(one) - int(other)) for one, other in pairs))
    return False


def _polynomial(coefficients: list[float], x: float) -> float:
    return sum(c * math.pow(x, power) for power, c in enumerate(coefficients))


def _close(value: Any, expected: Any, tolerance: float) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list | tuple) and len(value) != len(expected):
        return False
    return bool(np.allclose(value, expected, rtol=RELATIVE_TOLERANCE, atol=tolerance))


# --- programs and their tests --------------------------------------------------------------------

# Seconds of a call: at least so many, or so many times the reference's; and of a set of inputs.
LEAST_SECONDS, SECONDS_FACTOR, MOST_SECONDS = 4.0, 4.0, 60.0
_REFERENCE_LIMITS: Final = Limits(cpu=300.0, result=512 << 20)


@dataclass(frozen=True)
class _Test:
    """One input with what the reference made of it."""

    arguments: list[Any]
    expected: Any
    size: int
    seconds: float


@dataclass(frozen=True)
class _Task:
    """A problem, ready to be judged: the base inputs, then the plus inputs."""

    dataset: str
    prompt: str
    entry: str
    shape: Shape
    tolerance: float
    base: list[_Test]
    plus: list[_Test]


def extract(response: str, problem: Problem, strictness: Strictness) -> str:
    """Return the program of a response: the last block that defines the function."""
    return programs.program(response, problem.extras["entry_point"])


def judge(program: str, problem: Problem, sandbox: Sandbox, strictness: Strictness) -> Judgement:
    """Run a program on the base and the plus inputs, up to the first that fails."""
    task = _task(_Key(problem, sandbox))
    defines = re.search(rf"^[ \t]*(?:async )?def[ \t]+{re.escape(task.entry)}\b", program, re.M)
    if not defines:
        # A completion: the body of the function whose head stands in the prompt.
        program = f"{task.prompt}\n{program}"
    compat = strictness is Strictness.COMPAT
    job = Job(
        program,
        Mode.CALL,
        before="" if compat else task.prompt,
        entry=task.entry,
        shape=task.shape,
        forgiving=True,
        prune=compat,
    )
    if not compat:
        return _judge_apart(job, task, sandbox)
    first = _judge_together(job, task, task.base, sandbox)
    return (
        first
        if first.status is not Status.RIGHT
        else _judge_together(job, task, task.plus, sandbox)
    )


# --- the reference ---------------------------------------------------------------------------


class _Key:
    """A problem as a key of the cache: by content, whatever sandbox its reference ran in."""

    def __init__(self, problem: Problem, sandbox: Sandbox) -> None:
        self.problem = problem
        self.sandbox = sandbox

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.problem.content_hash == other.problem.content_hash

    def __hash__(self) -> int:
        return hash(self.problem.content_hash)


@lru_cache(maxsize=600)
def _task(key: _Key) -> _Task:
    """Run the reference on all inputs."""
    problem = key.problem
    extras = problem.extras
    local_id = problem.id.partition("/")[2]
    dataset = "mbpp" if local_id.lower().startswith("mbpp") else "humaneval"
    entry = extras["entry_point"]
    shape = Shape.VALUE
    if dataset == "mbpp":
        shape = Shape.SET if entry in AS_SETS else shape
        shape = Shape.NOT_NONE if entry in AS_NOT_NONE else shape
    program = extras["prompt"] + extras["canonical_solution"]
    sets = []
    for name, inputs in big_fields(problem).items():
        calls = python_inputs(local_id, inputs) if dataset == "mbpp" else inputs
        job = Job(program, Mode.CALL, entry=entry, shape=shape).with_calls(calls)
        outcome = key.sandbox.run(job, limits=_REFERENCE_LIMITS)
        returned = parse(outcome.result, [len(outcome.result)] * len(calls))
        if len(returned) < len(calls) or any(result.raised for result in returned):
            raise SandboxError(
                f"{problem.id}: the reference failed on input {len(returned)} of {name} "
                f"({outcome.cause} {outcome.status}); the problem can't be judged"
            )
        sets.append([_test(call, result) for call, result in zip(calls, returned, strict=True)])
    base, plus = sets
    return _Task(dataset, extras["prompt"], entry, shape, float(extras["atol"]), base, plus)


def _test(arguments: list[Any], returned: Returned) -> _Test:
    size = len(wire.dumps(returned.value))
    return _Test(arguments, returned.value, size, max(LEAST_SECONDS, SECONDS_FACTOR * returned.cpu))


# --- the two ways of judging -----------------------------------------------------------------


def _is_right(task: _Task, test: _Test, value: Any, tolerance: float) -> bool:
    return is_right(task.dataset, task.entry, test.arguments, test.expected, value, tolerance)


def _tolerance(before: float, expected: Any) -> float:
    return FLOAT_TOLERANCE if before == 0 and is_floats(expected) else before


def _judge_apart(job: Job, task: _Task, sandbox: Sandbox) -> Judgement:
    tests = task.base + task.plus
    for number, test in enumerate(tests):
        limits = Limits(cpu=test.seconds, result=max(Limits.result, 4 * test.size))
        outcome = sandbox.run(job.with_calls([test.arguments]), limits=limits)
        if outcome.cause is not Cause.EXIT or outcome.status != 0:
            return Judgement.of_failure(number, len(tests), outcome)
        returned = parse(outcome.result, [test.size])
        if not returned or returned[0].raised:
            reason = f"raised {returned[0].raised}" if returned else "nothing returned"
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: {reason}")
        tolerance = _tolerance(task.tolerance, test.expected)
        if not _is_right(task, test, returned[0].value, tolerance):
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: other value")
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def _judge_together(job: Job, task: _Task, tests: Sequence[_Test], sandbox: Sandbox) -> Judgement:
    seconds = max((test.seconds for test in tests), default=LEAST_SECONDS)
    total = min(MOST_SECONDS, sum(test.seconds for test in tests)) + 1
    size = sum(test.size for test in tests)
    outcome = sandbox.run(
        job.with_calls([test.arguments for test in tests], seconds),
        limits=Limits(cpu=total, result=max(Limits.result, 4 * size)),
    )
    returned = parse(outcome.result, [test.size for test in tests])
    tolerance = task.tolerance
    for number, (test, result) in enumerate(zip(tests, returned, strict=False)):
        tolerance = _tolerance(tolerance, test.expected)
        if result.raised == "TimeoutException":
            return Judgement(Status.TIMEOUT, f"test {number + 1} of {len(tests)}: cpu limit")
        if result.raised or not _is_right(task, test, result.value, tolerance):
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: other value")
    if len(returned) < len(tests):
        return Judgement.of_failure(len(returned), len(tests), outcome)
    return Judgement(Status.RIGHT, f"{len(tests)} tests")
