"""LiveCodeBench, code generation: programs that read standard input, and methods that are called.

Each test runs alone in a fresh process, as a real main program on real pipes or as one call.
Output is compared as the benchmark does, by lines and exactly, with one addition: an expected
number that is written with a decimal point may be met to within 1e-6, absolute or relative, which
is what the contests themselves ask for.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import programs
from rlbhpc.verify.code.programs import Judgement, read_call_results, read_tests
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Job, Limits, Mode
from rlbhpc.verify.verdict import Status

# --- private tests: one string out of a pickle, and nothing else ---------------------------------

# LiveCodeBench publishes its private tests as pickled text. Unpickling is running a program;
# ``pickletools`` only takes it apart, and every opcode but those of a pickled string is refused.

_TEXT_OPCODES: Final = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"))
_HARMLESS_OPCODES: Final = frozenset(("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"))
# The largest published set of tests unpacks to some hundred megabytes.
MAX_UNPACKED_BYTES: Final = 4 << 30


def load_text(data: bytes) -> str:
    """Return the string that ``data`` is a pickle of, without unpickling it.

    Raises :class:`ValueError` for a pickle of anything else.
    """
    texts = []
    end = 0
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name in _TEXT_OPCODES:
            texts.append(str(argument))
        elif opcode.name not in _HARMLESS_OPCODES:
            raise ValueError(f"opcode {opcode.name} at byte {position}: not a pickled string")
        end = (position or 0) + 1
    if len(texts) != 1 or end != len(data):
        raise ValueError("not a pickle of one string")
    return texts[0]


def unpack(packed: str) -> str:
    """Return the text of a string that was pickled, compressed by zlib, and written in base64.

    That is how LiveCodeBench publishes its private tests. Raises :class:`ValueError` if ``packed``
    is not that, or is larger than any published set of tests.
    """
    decompressor = zlib.decompressobj()
    try:
        compressed = base64.b64decode(packed, validate=True)
        data = decompressor.decompress(compressed, MAX_UNPACKED_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from None
    if not decompressor.eof:
        raise ValueError(f"cut off, or more than {MAX_UNPACKED_BYTES} bytes")
    return load_text(data)


# --- programs and their tests --------------------------------------------------------------------

SECONDS: Final = 6.0
# A program may print, or return, this many times the bytes that are expected.
_OUTPUT_FACTOR: Final = 4
TOLERANCE: Final = Decimal("1e-6")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
# Numbers with more characters aren't compared by value: only equal text is equal.
_MAX_NUMBER_CHARACTERS: Final = 10_000
# int() refuses a text of more than 4,300 digits.
_MAX_INT_DIGITS: Final = 4000


class Test(NamedTuple):
    """Input and expected output of one test, as text."""

    input: str
    output: str


def extract(response: str, problem: Problem) -> str:
    """Return the program of a response; empty if there is none.

    A problem with ``starter_code`` asks for a method of a class, one with ``func_name`` for a
    function; the program is then the block that defines it.
    """
    starter_code = problem.extras.get("starter_code") or ""
    if "class Solution" in starter_code:
        return programs.find_program(response, "Solution")
    return programs.find_program(response, problem.extras.get("func_name") or "")


def judge(program: str, problem: Problem, sandbox: Sandbox) -> Judgement:
    """Run a program on the public and the private tests, up to the first that fails.

    A problem without a function's name asks for a program that reads standard input and prints.
    ``entry``: the function to call, or ``Class.method``. ``contest``: whether the program begins
    with the names that contest sites import for it. Each test has a process of its own.
    """
    tests = load_tests(problem)
    function = problem.extras.get("func_name")
    if not function:
        return _judge_main(program, tests, sandbox)
    entry = f"Solution.{function}" if "class Solution" in program else function
    job = Job(program, Mode.CALL, entry=entry, contest=True)
    return _judge_each_call(job, tests, sandbox)


def load_tests(problem: Problem) -> Sequence[Test]:
    """Unpack a problem's tests: the public ones, then the private ones."""
    return _unpack_tests(problem.extras["public_tests"], read_tests(problem)["private_test_cases"])


# Samples of one problem are judged one after another, and some problems' tests are large.
@lru_cache(maxsize=2)
def _unpack_tests(public: str, private: str) -> Sequence[Test]:
    """Parse both lists of tests; the private one may be packed."""
    if not private.lstrip().startswith(("[", "{")):
        private = unpack(private)
    records = json.loads(public) + json.loads(private)
    return [Test(record["input"], record["output"]) for record in records]


# --- programs that read standard input ---------------------------------------------------------


def _judge_main(program: str, tests: Sequence[Test], sandbox: Sandbox) -> Judgement:
    """Run a program on the input of each test and compare what it prints, up to the first failure.

    A program may print more than is expected, but within limits.
    """
    job = Job(program, Mode.MAIN)
    for index, test in enumerate(tests):
        max_output = max(Limits.output, _OUTPUT_FACTOR * len(test.output))
        limits = Limits(cpu=SECONDS, output=max_output)
        outcome = sandbox.run(job, test.input.encode(), limits)
        if not outcome.succeeded:
            return Judgement.of_failed_run(index, len(tests), outcome)
        if not same_output(outcome.stdout.decode("utf-8", "replace"), test.output):
            return Judgement.of_wrong_test(index, len(tests), "other output")
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def same_output(output: str, expected: str) -> bool:
    """Return whether both texts have the same lines, but for space at their ends.

    Two lines are the same as text, or token by token where all tokens of both are numbers.
    """
    lines = [line.strip() for line in output.strip().split("\n")]
    expected_lines = [line.strip() for line in expected.strip().split("\n")]
    if len(lines) != len(expected_lines):
        return False
    return all(
        line == expected_line or _same_numbers(line, expected_line)
        for line, expected_line in zip(lines, expected_lines, strict=True)
    )


def _same_numbers(line: str, expected_line: str) -> bool:
    """Return whether both lines hold equal numbers, of which some may differ by the tolerance."""
    tokens, expected_tokens = line.split(), expected_line.split()
    if len(tokens) != len(expected_tokens):
        return False
    return all(map(_same_number, tokens, expected_tokens))


def _same_number(token: str, expected_token: str) -> bool:
    """Return whether two numbers, given as text, are equal or close enough.

    Closeness counts only if the expected number is written with a decimal point or an exponent. It
    may then be off by the tolerance, absolute or relative to the expected number.
    """
    if max(len(token), len(expected_token)) > _MAX_NUMBER_CHARACTERS:
        return False
    if not (_NUMBER.fullmatch(token) and _NUMBER.fullmatch(expected_token)):
        return False
    value, expected = Decimal(token), Decimal(expected_token)
    if value == expected:
        return True
    # Whole numbers must be met exactly.
    if expected_token.lstrip("+-").isdigit():
        return False
    return abs(value - expected) <= TOLERANCE * max(Decimal(1), abs(expected))


# --- methods that are called ---------------------------------------------------------------------


def _parse_json(text: str) -> Any:
    """Read a test's data, which is trusted: integers may have any length."""
    return json.loads(text, parse_int=_parse_integer)


def _parse_integer(text: str) -> int:
    return int(text) if len(text) < _MAX_INT_DIGITS else int(Decimal(text))


def _arguments(test: Test) -> list[Any]:
    return [_parse_json(line) for line in test.input.split("\n")]


def _judge_each_call(job: Job, tests: Sequence[Test], sandbox: Sandbox) -> Judgement:
    """Judge a program by calling its function once per test, each time in a process of its own.

    ``job``: the program and the function to call. A test holds its arguments and the expected value
    as JSON text. Ends at the first test that fails. A returned value may be some times as long as
    the expected one.
    """
    for index, test in enumerate(tests):
        expected = _parse_json(test.output)
        limits = Limits(cpu=SECONDS, result=max(Limits.result, _OUTPUT_FACTOR * len(test.output)))
        outcome = sandbox.run(job.with_calls([_arguments(test)]), limits=limits)
        if not outcome.succeeded:
            return Judgement.of_failed_run(index, len(tests), outcome)
        results = read_call_results(outcome.result, [len(test.output)])
        if not results:
            return Judgement.of_wrong_test(index, len(tests), "nothing returned")
        (result,) = results
        if result.raised:
            return Judgement.of_wrong_test(index, len(tests), f"raised {result.raised}")
        if not same_value(result.value, expected):
            return Judgement.of_wrong_test(index, len(tests), "other value")
    return Judgement(Status.RIGHT, f"{len(tests)} tests")


def same_value(value: Any, expected: Any) -> bool:
    """Return whether a returned value equals the expected one, which is JSON data.

    JSON has lists only, so any sequence may stand for one. Floats may differ by the tolerance,
    absolute or relative. An *opaque* value is one that could not be sent out of the sandbox.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(expected, list):
        if not isinstance(value, list | tuple | deque) or len(value) != len(expected):
            return False
        return all(map(same_value, value, expected))
    if isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            return False
        return all(same_value(value[key], expected[key]) for key in expected)
    if isinstance(expected, float) and isinstance(value, int | float):
        tolerance = float(TOLERANCE) * max(1.0, abs(expected))
        try:
            return value == expected or abs(value - expected) <= tolerance
        except OverflowError:
            return False
    # An opaque value equals nothing.
    return bool(value == expected)
