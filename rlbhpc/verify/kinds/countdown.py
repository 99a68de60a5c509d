"""Countdown, exactly: whole and rational numbers, every given number exactly once.

An answer is an arithmetic expression (``(11-5)*3+7``, with or without ``= 25`` or the chain
``= 18 + 7 = 25`` after it, in any of the signs and brackets that models write) or a
worked trace, one step a line (``11-5=6``, ``6*3=18``, ``18+7=25``), in which each step takes two of
the numbers that are left and puts its result in their place. Python parses what it is shown and
never evaluates it, work is linear in the length of the response, and hostile text (endless digits)
is refused before any arithmetic.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import content_of_braces
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "countdown-3"

# Longer than any answer from a dozen numbers; the rest of a response may be as long as it likes.
MAX_CHARS: Final = 400
_MAX_NUMBER_DIGITS: Final = 30

_Number: TypeAlias = int | Fraction


class Task(NamedTuple):
    """A gold answer taken apart: the numbers in ascending order, the target, the operations."""

    numbers: tuple[int, ...]
    target: int
    operations: str


class _WrongAnswerError(Exception):
    """Why an answer is wrong; the message is the verdict's rule."""


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge whether a response makes the target out of the given numbers.

    ``gold``: ``"3 5 7 11 -> 24 (+-*)"``: numbers, target and operations, as the problem set writes
    it. ``response``: what the model wrote. The last committed answer counts: the last ``<answer>``,
    else the last box, else what follows the last "answer is" or "answer:", else the last lines. A
    *step* is a line such as ``11-5=6``; an answer that is no list of steps is an expression.
    """
    task = _parse_task(gold)
    answer = distinct(response)
    if not _NUMBER.search(answer):
        return Verdict(Status.NO_ANSWER, answer, rule="no answer")
    canonical_answer = answer
    try:
        lines = _normalized_lines(answer)
        canonical_answer = ",".join(lines)
        steps = [_STEP.fullmatch(line) for line in lines]
        is_one_step = steps[0] is not None and len(task.numbers) == 2
        if len(steps) > 1 or is_one_step:
            rule, is_right = "steps", _steps_reach_target(steps, task)
        else:
            rule, is_right = "expression", _expression_reaches_target(lines[0], task)
    except _WrongAnswerError as reason:
        return Verdict(Status.WRONG, answer, canonical_answer, rule=str(reason))
    return Verdict(Status.RIGHT if is_right else Status.WRONG, answer, canonical_answer, rule)


_GOLD: Final = re.compile(r"([0-9]+(?: [0-9]+)+) -> (-?[0-9]+) \(([-+*/]+)\)")


@lru_cache(maxsize=65536)
def _parse_task(gold: str) -> Task:
    """Take a gold answer such as ``3 5 7 -> 24 (+-*/)`` apart: numbers, target, operations."""
    match = _GOLD.fullmatch(gold)
    if match is None:
        raise ValueError(f"gold answer {gold!r} is not of the form '3 5 7 -> 24 (+-*/)'")
    numbers, target, operations = match.groups()
    return Task(tuple(sorted(map(int, numbers.split()))), int(target), operations)


# --- extraction ----------------------------------------------------------------------------------

_ANSWER_CUE: Final = re.compile(r"(?i:answer|expression|solution)\**(?: is|:)[\s:*]*")
_BOX: Final = "\\boxed{"
_ANSWER_TAG: Final = "<answer>"
_THINK_END: Final = "</think>"


def distinct(response: str) -> str:
    """Return the answer in a response, cut to a length that no answer reaches; ``""`` if none.

    Thoughts (``<think>``) are no part of it. Within the last ``<answer>``, if there is one, the
    last box counts, else what follows the last *cue*, such as "answer:". Without any mark, the last
    lines count.
    """
    text = response.rpartition(_THINK_END)[2]
    if "<think>" in text:
        return ""
    is_tagged = _ANSWER_TAG in text
    if is_tagged:
        text = text.rpartition(_ANSWER_TAG)[2].partition("</answer>")[0]
    cues = list(_ANSWER_CUE.finditer(text))
    if _BOX in text:
        behind_brace = text.rpartition(_BOX)[2][: MAX_CHARS + 1]
        text = content_of_braces("{" + behind_brace, 0) or ""
    elif cues:
        text = text[cues[-1].end() :].strip().partition("\n")[0]
    elif not is_tagged:
        return _last_steps(text)
    return text.strip()[: MAX_CHARS + 1]


def _last_steps(text: str) -> str:
    """Return the steps at the end of an unmarked response, or its last line if that is no step."""
    lines = text.rstrip()[-MAX_CHARS - 1 :].split("\n")
    start = len(lines)
    while start and _STEP.fullmatch(lines[start - 1].replace(" ", "")):
        start -= 1
    return "\n".join(lines[start:] or lines[-1:]).strip()


# --- signs and brackets --------------------------------------------------------------------------

_NUMBER: Final = re.compile("[0-9]+")
_ONLY_TOKENS: Final = re.compile(r"[0-9+*/() -]*")
_STEP: Final = re.compile(r"(-?[0-9]+)([-+*/])(-?[0-9]+)=(-?[0-9]+)")
# The signs that models write, and what may stand around an answer without being part of it.
_ASCII_SIGNS: Final = str.maketrans(
    {"×": "*", "⋅": "*", "·": "*", "∗": "*", "✕": "*", "÷": "/", "／": "/", "−": "-", "–": "-",
     "（": "(", "）": ")", "＝": "=", "$": ""}
)  # fmt: skip
_PARENTHESES: Final = str.maketrans("[]{}", "()()")
_LATEX: Final = re.compile(r"\\(times|cdot|ast|div|left|right|big|Big|[,;:!() \[\]{}])")
_LATEX_SIGNS: Final = {"times": "*", "cdot": "*", "ast": "*", "div": "/", "{": "(", "}": ")"}
_LATEX_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_LETTER_X: Final = re.compile(r"(?<=[\d)\]}])(?<!\b0)\s*[xX]\s*(?=[\d(\[{])")
_IMPLIED_PRODUCT: Final = re.compile(r"(?<=[)\d])(?=\()")
_LINE_BREAK: Final = re.compile(r"[\n,;]")


def _normalized_lines(answer: str) -> list[str]:
    """Return the answer's lines without spaces, in ASCII signs.

    A comma or a semicolon ends a line, too. LaTeX becomes plain signs, and so do ``×``, an ``x``
    between numbers, and brackets of other kinds. An answer longer than any right one is refused.
    """
    if len(answer) > MAX_CHARS:
        raise _WrongAnswerError("too long")
    if not answer.isascii() or "$" in answer:
        answer = answer.translate(_ASCII_SIGNS)
    if "\\" in answer:
        answer = _without_latex_fractions(answer)
        answer = _LATEX.sub(lambda command: _LATEX_SIGNS.get(command[1], ""), answer)
    if not _ONLY_TOKENS.fullmatch(answer):
        answer = _LETTER_X.sub("*", answer).translate(_PARENTHESES)
    lines = [line.replace(" ", "").strip("\t\r`.*") for line in _LINE_BREAK.split(answer)]
    return [line for line in lines if line]


def _without_latex_fractions(text: str) -> str:
    r"""Write ``\frac{a}{b}`` as a quotient, from the inside out."""
    replaced = 1
    while replaced:
        text, replaced = _LATEX_FRACTION.subn(r"((\1)/(\2))", text)
    return text


# --- checking ------------------------------------------------------------------------------------


def _steps_reach_target(steps: Sequence[re.Match[str] | None], task: Task) -> bool:
    """Check each step and return whether the last result is the target.

    A step is a match of ``11-5=6``, or None for a line of another form. It takes two of the numbers
    that are left and puts its result in their place; in the end one is left. Numbers are compared
    as text first, since a model may write very long ones. What is wrong raises
    :class:`_WrongAnswerError`.
    """
    numbers_left = [str(number) for number in task.numbers]
    for step in steps:
        if step is None:
            raise _WrongAnswerError("not arithmetic")
        left, operation, right, stated_result = step.groups()
        for used_number in (left, right):
            if used_number not in numbers_left:
                raise _WrongAnswerError("numbers")
            numbers_left.remove(used_number)
        # The lengths are bounded by now: both numbers are given ones or results of such.
        result = _compute(operation, int(left), int(right), task.operations)
        if str(result) != stated_result:
            raise _WrongAnswerError("arithmetic")
        numbers_left.append(stated_result)
    if len(numbers_left) != 1:
        raise _WrongAnswerError("numbers")
    return numbers_left[0] == str(task.target)


def _expression_reaches_target(line: str, task: Task) -> bool:
    """Check ``expression``, ``expression = 25`` or a chain that works it out step by step.

    Returns whether its value is the target; all else that is wrong raises
    :class:`_WrongAnswerError`. Of the sides of the equals signs, one must use exactly the given
    numbers, and all others must have its value. ``_evaluate`` returns the value of a side.
    """
    sides = [_IMPLIED_PRODUCT.sub("*", side) for side in line.split("=")]
    if not _ONLY_TOKENS.fullmatch("".join(sides)):
        raise _WrongAnswerError("not arithmetic")
    given_numbers = sorted(map(str, task.numbers))
    # Compared as text first: int() of a very long number is slow, and it can't be one of these.
    numbers_of_sides = [sorted(_NUMBER.findall(side)) for side in sides]
    if given_numbers not in numbers_of_sides:
        raise _WrongAnswerError("numbers")
    if any(len(number) > _MAX_NUMBER_DIGITS for numbers in numbers_of_sides for number in numbers):
        raise _WrongAnswerError("arithmetic")
    value = _evaluate(sides[numbers_of_sides.index(given_numbers)], task.operations)
    operations_with_sign = task.operations + "-"  # a result may be negative
    for side in sides:
        if _evaluate(side, operations_with_sign) != value:
            raise _WrongAnswerError("arithmetic")
    return value == task.target


# --- arithmetic ----------------------------------------------------------------------------------

_SIGNS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
}  # fmt: skip


def _evaluate(expression: str, allowed_operations: str) -> _Number:
    """Return the exact value of an expression of digits, signs and parentheses.

    Python only parses it; ``_value_of`` computes.
    """
    try:
        tree = ast.parse(expression, mode="eval")
        return _value_of(tree.body, allowed_operations)
    except (SyntaxError, RecursionError, MemoryError):  # deep parentheses raise any of them
        raise _WrongAnswerError("not arithmetic") from None


def _value_of(node: ast.expr, allowed_operations: str) -> _Number:
    """Return the exact value of a parsed expression; a minus before it is an operation as well."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _compute("-", 0, _value_of(node.operand, allowed_operations), allowed_operations)
    sign = _SIGNS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if not isinstance(node, ast.BinOp) or sign is None:
        raise _WrongAnswerError("not arithmetic")
    left = _value_of(node.left, allowed_operations)
    right = _value_of(node.right, allowed_operations)
    return _compute(sign, left, right, allowed_operations)


def _compute(operation: str, left: _Number, right: _Number, allowed_operations: str) -> _Number:
    """Return the result of one operation, which must be allowed; a quotient stays exact."""
    if operation not in allowed_operations:
        raise _WrongAnswerError("operation")
    if operation == "+":
        return left + right
    if operation == "-":
        return left - right
    if operation == "*":
        return left * right
    if right == 0:
        raise _WrongAnswerError("division by zero")
    quotient = Fraction(left) / right
    return int(quotient) if quotient.denominator == 1 else quotient
