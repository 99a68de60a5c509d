"""LiveCodeBench, code generation: programs that read standard input, and methods that are called.

Sound: each test runs alone in a fresh process, as a real main program on real pipes or as one call.
Output is compared as the benchmark does, by lines and exactly, with one addition: an expected
number that is written with a decimal point may be met to within 1e-6, absolute or relative, which
is what the contests themselves ask for.

Compat: stand-ins for the streams, all calls in one process, exact comparison (lcb_runner,
``evaluation/testing_util.py``).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import Judgement, Returned, Strictness, big_fields, parse
from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Cause, Job, Limits, Mode
from rlbhpc.verify.verdict import Status

# --- private tests: one string out of a pickle, and nothing else ---------------------------------

# LiveCodeBench publishes its private tests as pickled text. Unpickling is running a program; this
# reads the six opcodes that a pickled string consists of and refuses every other. Opcodes are
# those of ``pickletools``; numbers are little-endian.

_PROTOCOL, _FRAME, _MEMOIZE, _STOP = b"\x80", b"\x95", b"\x94", b"."
_MEMO_PUT: Final = {b"q": 1, b"r": 4}  # BINPUT, LONG_BINPUT
_TEXT: Final = {b"\x8c": 1, b"X": 4, b"\x8d": 8}  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
# The largest published set of tests unpacks to some hundred megabytes.
MOST_BYTES: Final = 4 << 30


def load_text(data: bytes) -> str:
    """Return the string that ``data`` is a pickle of.

    Raises :class:`ValueError` for a pickle of anything else.
    """
    position, text = 0, None

    def take(count: int) -> bytes:
        nonlocal position
        if count > len(data) - position:
            raise ValueError("the pickle ends early")
        position += count
        return data[position - count : position]

    while (opcode := take(1)) != _STOP:
        if opcode == _PROTOCOL:
            take(1)
        elif opcode == _FRAME:
            take(8)
        elif opcode in _MEMO_PUT:
            take(_MEMO_PUT[opcode])
        elif opcode in _TEXT and text is None:
            size = int.from_bytes(take(_TEXT[opcode]), "little")
            text = take(size).decode("utf-8", "surrogatepass")
        elif opcode != _MEMOIZE:
            raise ValueError(f"opcode {opcode!r} at byte {position - 1}: not a pickled string")
    if text is None or position != len(data):
        raise ValueError("not a pickle of one string")
    return text


def unpack(packed: str) -> str:
    """Undo base64, zlib and pickling of a string.

    Raises :class:`ValueError` if it is not that.
    """
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from None
    if not unzip.eof:
        raise ValueError(f"cut off, or more than {MOST_BYTES} bytes")
    return load_text(data)


# --- programs and their tests --------------------------------------------------------------------

SECONDS: Final = 6.0
TOLERANCE: Final = Decimal("1e-6")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
# Longer than any number that is compared by value; beyond it only equal text is equal.
_LONGEST_NUMBER: Final = 10_000
_SHORT_NUMBER: Final = 4000


class Test(NamedTuple):
    """Input and expected output of one test, as text."""

    input: str
    output: str


def extract(response: str, problem: Problem, strictness: Strictness) -> str:
    """Return the program of a response."""
    if strictness is Strictness.COMPAT:
        return programs.last_block(response)
    name = problem.extras.get("func_name") or ""
    starter = problem.extras.get("starter_code") or ""
    return programs.program(response, "Solution" if "class Solution" in starter else name)


def judge(program: str, problem: Problem, sandbox: Sandbox, strictness: Strictness) -> Judgement:
    """Run a program on the public and the private tests, up to the first that fails."""
    tests = tests_of(problem)
    name = problem.extras.get("func_name")
    if not name:
        return _judge_main(program, tests, sandbox, strictness)
    entry = f"Solution.{name}" if "class Solution" in program else name
    job = Job(program, Mode.CALL, entry=entry, contest=True)
    if strictness is Strictness.COMPAT:
        return _judge_calls_together(job, tests, sandbox)
    return _judge_calls(job, tests, sandbox)


def tests_of(problem: Problem) -> Sequence[Test]:
    """Unpack a problem's tests: the public ones, then the private ones."""
    packed = big_fields(problem)["private_test_cases"]
    return _unpacked(problem.extras["public_tests"], packed)


# Samples of one problem are judged one after another, and some problems' tests are large.
@lru_cache(maxsize=2)
def _unpacked(public: str, private: str) -> Sequence[Test]:
    if not private.lstrip().startswith(("[", "{")):
        private = unpack(private)
    return [
        Test(test["input"], test["output"])
        for text in (public, private)
        for test in json.loads(text)
    ]


# --- programs that read standard input ---------------------------------------------------------


def _judge_main(
    program: str, tests: Sequence[Test], sandbox: Sandbox, strictness: Strictness
) -> Judgement:
    compat = strictness is Strictness.COMPAT
    job = Job(program, Mode.SHIM if compat else Mode.MAIN)
    same = same_output_exactly if compat else same_output
    for number, test in enumerate(tests):
        most = max(Limits.output, 4 * len(test.output))
        limits = Limits(cpu=SECONDS, output=most, result=most)
        outcome = sandbox.run(job, test.input.encode(), limits)
        if outcome.cause is not Cause.EXIT or outcome.status != 0:
            return Judgement.of_failure(number, len(tests), outcome)
        output = outcome.result if compat else outcome.stdout
        if not same(output.decode("utf-8", "replace"), test.output):
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: other output")
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def _same_lines(output: str, expected: str, same: Callable[[str, str], bool]) -> bool:
    lines, wanted = (
        [line.strip() for line in text.strip().split("\n")] for text in (output, expected)
    )
    return len(lines) == len(wanted) and all(
        line == other or same(line, other) for line, other in zip(lines, wanted, strict=True)
    )


def same_output_exactly(output: str, expected: str) -> bool:
    """Compare as the harness does: lines equal as text, or as lists of exact decimals."""
    return _same_lines(output, expected, _same_decimals)


def _same_decimals(line: str, other: str) -> bool:
    if max(len(token) for token in [*line.split(), ""]) > _LONGEST_NUMBER:
        return False
    try:
        return [Decimal(t) for t in line.split()] == [Decimal(t) for t in other.split()]
    except InvalidOperation:
        return False


def same_output(output: str, expected: str) -> bool:
    """Compare lines as text, or token by token where all tokens of a line are numbers."""
    return _same_lines(output, expected, _same_numbers)


def _same_numbers(line: str, other: str) -> bool:
    tokens, wanted = line.split(), other.split()
    return len(tokens) == len(wanted) and all(
        _same_number(token, number) for token, number in zip(tokens, wanted, strict=True)
    )


def _same_number(token: str, wanted: str) -> bool:
    if max(len(token), len(wanted)) > _LONGEST_NUMBER:
        return False
    if not (_NUMBER.fullmatch(token) and _NUMBER.fullmatch(wanted)):
        return False
    value, target = Decimal(token), Decimal(wanted)
    if value == target:
        return True
    if wanted.lstrip("+-").isdigit():
        return False
    return abs(value - target) <= TOLERANCE * max(Decimal(1), abs(target))


# --- methods that are called ---------------------------------------------------------------------


def _json(text: str) -> Any:
    """Read a test's data, which is trusted: integers may have any length."""
    return json.loads(text, parse_int=_integer)


def _integer(text: str) -> int:
    # int() of text stops at 4,300 digits.
    return int(text) if len(text) < _SHORT_NUMBER else int(Decimal(text))


def _arguments(test: Test) -> list[Any]:
    return [_json(line) for line in test.input.split("\n")]


def _judge_calls(job: Job, tests: Sequence[Test], sandbox: Sandbox) -> Judgement:
    """Make each call in a process of its own."""
    for number, test in enumerate(tests):
        expected = _json(test.output)
        call = job.with_calls([_arguments(test)])
        limits = Limits(cpu=SECONDS, result=max(Limits.result, 4 * len(test.output)))
        outcome = sandbox.run(call, limits=limits)
        if outcome.cause is not Cause.EXIT or outcome.status != 0:
            return Judgement.of_failure(number, len(tests), outcome)
        returned = parse(outcome.result, [len(test.output)])
        if not returned or returned[0].raised or not same_value(returned[0].value, expected):
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: {_told(returned)}")
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def _judge_calls_together(job: Job, tests: Sequence[Test], sandbox: Sandbox) -> Judgement:
    """Make all calls on one object, as the harness does."""
    together = job.with_calls([_arguments(test) for test in tests], seconds=SECONDS)
    limits = Limits(cpu=(SECONDS + 1) * len(tests) + 5, result=64 << 20)
    outcome = sandbox.run(together, limits=limits)
    returned = parse(outcome.result, [len(test.output) for test in tests])
    for number, (test, result) in enumerate(zip(tests, returned, strict=False)):
        if result.raised == "TimeoutException":
            return Judgement(Status.TIMEOUT, f"test {number + 1} of {len(tests)}: cpu limit")
        value = list(result.value) if isinstance(result.value, tuple) else result.value
        if result.raised or not _equal(value, _json(test.output)):
            return Judgement(Status.WRONG, f"test {number + 1} of {len(tests)}: {_told([result])}")
    if len(returned) < len(tests):
        return Judgement.of_failure(len(returned), len(tests), outcome)
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def _told(returned: Sequence[Returned]) -> str:
    if not returned:
        return "nothing returned"
    return f"raised {returned[0].raised}" if returned[0].raised else "other value"


def _equal(value: Any, expected: Any) -> bool:
    try:
        return bool(value == expected)
    except (ValueError, TypeError, RecursionError):
        return False


def same_value(value: Any, expected: Any) -> bool:
    """Compare a returned value with JSON: any sequence is a list, floats within the tolerance."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(expected, list):
        return (
            isinstance(value, list | tuple | deque)
            and len(value) == len(expected)
            and all(same_value(item, other) for item, other in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(same_value(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, float) and isinstance(value, int | float):
        tolerance = float(TOLERANCE) * max(1.0, abs(expected))
        try:
            return value == expected or abs(value - expected) <= tolerance
        except OverflowError:
            return False
    if isinstance(value, wire.Opaque):
        return False
    return _equal(value, expected)
