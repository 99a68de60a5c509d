"""HumanEval+ and MBPP+: functions that are called on hundreds of inputs.

Expected outputs are what ``prompt + canonical_solution`` returns, computed once per process in the
sandbox. A program is right when it passes the base and the plus inputs.

Every call has a process of its own; what the prompt defines is there; the program may fail below
the function, as example uses do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import CallResult, Judgement, read_call_results, read_tests
from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Job, Limits, Mode, Shape
from rlbhpc.verify.verdict import Status

# --- MBPP+ inputs as Python values: JSON has no tuples, sets or complex numbers ------------------

# evalplus publishes which tasks need what (``data/mbpp.py``, release v0.2.0) as lists of task
# numbers; here each list stands beside the conversion of a task's arguments.

Convert = Callable[[list[Any]], list[Any]]


def _items_to_tuples(values: list[Any]) -> list[Any]:
    return [tuple(value) for value in values]


def _nested_to_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_nested_to_tuples(item) for item in value)
    return value


def _convert_115(arguments: list[Any]) -> list[Any]:
    # evalplus writes {} for an empty set, which is an empty dictionary.
    items = [set(item) if isinstance(item, list) and item else {} for item in arguments[0]]
    return [items]


def _convert_278(arguments: list[Any]) -> list[Any]:
    items = [tuple(item) if isinstance(item, list) else item for item in arguments[0]]
    return [tuple(items)]


def _convert_722(arguments: list[Any]) -> list[Any]:
    records = {key: tuple(value) for key, value in arguments[0].items()}
    return [records, *arguments[1:]]


_CONVERSIONS: Final[list[tuple[tuple[int, ...], Convert]]] = [
    ((2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726,
      740, 744, 809), _items_to_tuples),
    ((63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
     lambda arguments: [_items_to_tuples(argument) for argument in arguments]),
    ((75, 413, 444, 753), lambda arguments: [_items_to_tuples(arguments[0]), arguments[1]]),
    ((106, 750), lambda arguments: [arguments[0], tuple(arguments[1])]),
    ((115,), _convert_115),
    ((124,), lambda arguments: [float(arguments[0]), complex(arguments[1])]),
    ((250, 307, 405, 446, 617, 720, 763, 808),
     lambda arguments: [tuple(arguments[0]), *arguments[1:]]),
    ((259, 401, 445),
     lambda arguments: [tuple(_items_to_tuples(argument)) for argument in arguments]),
    ((278,), _convert_278),
    ((722,), _convert_722),
    ((252,), lambda arguments: [complex(arguments[0])]),
    ((580, 615, 791), lambda arguments: list(_nested_to_tuples(arguments))),
]  # fmt: skip
_CONVERT_BY_TASK: Final = {task: convert for tasks, convert in _CONVERSIONS for task in tasks}


def python_inputs(task_id: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """Turn one task's argument lists into what its function expects.

    ``task_id`` is of the form ``Mbpp/NUMBER``; tasks that aren't listed take JSON as it is.
    """
    task_number = int(task_id.rpartition("/")[2])
    convert = _CONVERT_BY_TASK.get(task_number)
    if convert is None:
        return inputs
    return [convert(arguments) for arguments in inputs]


# --- when a returned value is right --------------------------------------------------------------

# Rules and names as in evalplus v0.3.1 (``eval/__init__.py``, ``eval/_special_oracle.py``). All of
# it runs in the trusted process on decoded data.

# The absolute tolerance of floats where the task states none, and NumPy's default relative one.
FLOAT_TOLERANCE: Final = 1e-6
RELATIVE_TOLERANCE: Final = 1e-7
# MBPP tasks whose order of results is open, and those where any object stands for "yes".
AS_SETS: Final = {
    "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
    "intersection_array", "find_dissimilar", "Diff",
}  # fmt: skip
AS_NOT_NONE: Final = {"check_str", "text_match_three", "text_starta_endb"}


def is_floats(value: Any) -> bool:
    """Return whether a value is a float or a list or tuple of floats (an empty one included)."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def is_right(
    dataset: str, entry: str, arguments: list[Any], expected: Any, value: Any, tolerance: float
) -> bool:
    """Return whether what one call of a program returned is right, by evalplus's rules.

    ``dataset``: ``humaneval`` or ``mbpp``; names of functions mean something within one only.
    ``entry``: the function that was called. ``arguments``: what it was called with. ``expected``:
    what the reference returned. ``value``: what the program returned: decoded, but hostile, so
    comparing it may raise. ``tolerance``: absolute tolerance; 0 for equality. The task
    ``find_zero`` asks for any zero of a polynomial, so the value is put into it.
    """
    try:
        if dataset == "humaneval" and entry == "find_zero":
            return abs(_evaluate_polynomial(arguments[0], value)) <= tolerance
        if dataset == "mbpp" and _passes_special_rule(entry, arguments, value, tolerance):
            return True
        if value == expected:
            return True
        return tolerance != 0 and _is_close(value, expected, tolerance)
    except (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError):
        return False


def _passes_special_rule(entry: str, arguments: list[Any], value: Any, tolerance: float) -> bool:
    """Judge by the second reading of an MBPP task, which four tasks have.

    Their texts are ambiguous, so evalplus takes another answer besides the reference's. ``entry``:
    the task's function. ``arguments``: what it was called with. ``value``: what it returned. False
    for all other tasks.
    """
    if entry == "are_equivalent":
        return True
    if entry == "sum_div":
        return bool(value == 0)
    if entry == "surface_Area":
        # Of a square pyramid, by its height; the reference takes the second number for the slant.
        edge, height = arguments
        slant = math.sqrt((edge / 2) ** 2 + height**2)
        area = round(edge**2 + 2 * edge * slant)
        return bool(abs(value - area) <= tolerance)
    if entry == "digit_distance_nums":
        first, second = (str(number) for number in arguments)
        width = max(len(first), len(second))
        digit_pairs = zip(first.zfill(width), second.zfill(width), strict=True)
        return bool(value == sum(abs(int(left) - int(right)) for left, right in digit_pairs))
    return False


def _evaluate_polynomial(coefficients: list[float], x: float) -> float:
    """Value at ``x`` of the polynomial whose coefficients begin with the constant one."""
    return sum(coefficient * math.pow(x, power) for power, coefficient in enumerate(coefficients))


def _is_close(value: Any, expected: Any, tolerance: float) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list | tuple) and len(value) != len(expected):
        return False
    return bool(np.allclose(value, expected, rtol=RELATIVE_TOLERANCE, atol=tolerance))


# --- programs and their tests --------------------------------------------------------------------

# A call may take so many seconds at least, or so many times what the reference takes.
MIN_CALL_SECONDS: Final = 4.0
REFERENCE_TIME_FACTOR: Final = 4.0
# A program may return this many times the bytes that are expected.
_RESULT_FACTOR: Final = 4
_REFERENCE_LIMITS: Final = Limits(cpu=300.0, result=512 << 20)


@dataclass(frozen=True)
class _Test:
    """One input and what the reference returned; ``size`` is the bytes of that when encoded."""

    arguments: list[Any]
    expected: Any
    size: int
    seconds: float


@dataclass(frozen=True)
class _Task:
    """A problem, ready to be judged; ``tests`` are the base inputs, then the plus inputs."""

    dataset: str
    prompt: str
    entry: str
    shape: Shape
    tolerance: float
    tests: list[_Test]


def extract(response: str, problem: Problem) -> str:
    """Return the program of a response: the last block that defines the function."""
    return programs.find_program(response, problem.extras["entry_point"])


def judge(program: str, problem: Problem, sandbox: Sandbox) -> Judgement:
    """Run a program on the base and the plus inputs, up to the first that fails.

    The base inputs are the benchmark's own, the plus inputs those that evalplus added. Each call is
    made in a process of its own. A returned value may be some times as long as the expected one.
    """
    task = _load_task(problem, sandbox)
    definition = rf"^[ \t]*(?:async )?def[ \t]+{re.escape(task.entry)}\b"
    if not re.search(definition, program, re.MULTILINE):
        # A completion: the body of the function whose head stands in the prompt.
        program = f"{task.prompt}\n{program}"
    job = Job(
        program, Mode.CALL, before=task.prompt, entry=task.entry, shape=task.shape, forgiving=True
    )
    for index, test in enumerate(task.tests):
        limits = Limits(cpu=test.seconds, result=max(Limits.result, _RESULT_FACTOR * test.size))
        outcome = sandbox.run(job.with_calls([test.arguments]), limits=limits)
        if not outcome.succeeded:
            return Judgement.of_failed_run(index, len(task.tests), outcome)
        results = read_call_results(outcome.result, [test.size])
        reason = _describe_fault(task, test, results)
        if reason:
            return Judgement.of_wrong_test(index, len(task.tests), reason)
    return Judgement(Status.RIGHT, f"{len(task.tests)} tests")


def _describe_fault(task: _Task, test: _Test, results: Sequence[CallResult]) -> str:
    """Say what is wrong with the result of a test's one call; ``""`` if it is right.

    ``results`` is empty if the call returned nothing that can be read.
    """
    if not results:
        return "nothing returned"
    value, raised = results[0].value, results[0].raised
    if raised:
        return f"raised {raised}"
    needs_tolerance = task.tolerance == 0 and is_floats(test.expected)
    tolerance = FLOAT_TOLERANCE if needs_tolerance else task.tolerance
    is_value_right = is_right(
        task.dataset, task.entry, test.arguments, test.expected, value, tolerance
    )
    return "" if is_value_right else "other value"


# --- the reference ---------------------------------------------------------------------------

# By content hash of the problem.
_tasks: dict[str, _Task] = {}


def _load_task(problem: Problem, sandbox: Sandbox) -> _Task:
    """Return a problem with its expected outputs, running the reference on first use."""
    task = _tasks.get(problem.content_hash)
    if task is None:
        task = _make_task(problem, sandbox)
        _tasks[problem.content_hash] = task
    return task


def _make_task(problem: Problem, sandbox: Sandbox) -> _Task:
    """Run the reference solution on all inputs, and return the problem with what it returned.

    ``shape``: how much of a returned value counts: all of it, its items as a set, or only that it
    is not None. A reference that fails on an input makes the problem impossible to judge and raises
    :class:`SandboxError`.
    """
    extras = problem.extras
    entry = extras["entry_point"]
    task_id = problem.id.partition("/")[2]
    dataset = "mbpp" if task_id.lower().startswith("mbpp") else "humaneval"
    shape = Shape.VALUE
    if dataset == "mbpp" and entry in AS_SETS:
        shape = Shape.SET
    elif dataset == "mbpp" and entry in AS_NOT_NONE:
        shape = Shape.NOT_NONE
    reference = Job(
        extras["prompt"] + extras["canonical_solution"], Mode.CALL, entry=entry, shape=shape
    )
    tests: list[_Test] = []
    for set_name, inputs in read_tests(problem).items():
        calls = python_inputs(task_id, inputs) if dataset == "mbpp" else inputs
        outcome = sandbox.run(reference.with_calls(calls), limits=_REFERENCE_LIMITS)
        results = read_call_results(outcome.result, [len(outcome.result)] * len(calls))
        if len(results) < len(calls) or any(result.raised for result in results):
            raise SandboxError(
                f"{problem.id}: the reference failed on input {len(results)} of {set_name} "
                f"({outcome.cause} {outcome.status}); the problem can't be judged"
            )
        tests += [_make_test(*pair) for pair in zip(calls, results, strict=True)]
    return _Task(dataset, extras["prompt"], entry, shape, float(extras["atol"]), tests)


def _make_test(arguments: list[Any], reference: CallResult) -> _Test:
    seconds = max(MIN_CALL_SECONDS, REFERENCE_TIME_FACTOR * reference.cpu)
    return _Test(arguments, reference.value, len(wire.dumps(reference.value)), seconds)
