"""Countdown, exactly: own parser, whole and rational numbers, every given number exactly once.

An answer is an arithmetic expression (``(11-5)*3+7``, with or without ``= 25`` or the chain
``= 18 + 7 = 25`` after it, in any of the signs and brackets that models write) or a
worked trace, one step a line (``11-5=6``, ``6*3=18``, ``18+7=25``), in which each step takes two of
the numbers that are left and puts its result in their place. Nothing is evaluated by Python, work
is linear in the length of the response, and hostile text (deep parentheses, endless digits) is
refused before any arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "countdown-3"

# Longer than any answer from a dozen numbers; the rest of a response may be as long as it likes.
MAX_CHARS: Final = 400

_GOLD: Final = re.compile(r"([0-9]+(?: [0-9]+)+) -> (-?[0-9]+) \(([-+*/]+)\)")
_TOKEN: Final = re.compile(r"[0-9]+|[-+*/()]")
_ONLY_TOKENS: Final = re.compile(r"[0-9+*/() -]*")
_STEP: Final = re.compile(r"(-?[0-9]+)([-+*/])(-?[0-9]+)=(-?[0-9]+)")
# The signs that models write, and what may stand around an answer without being part of it.
_SIGNS: Final = str.maketrans(
    {"×": "*", "⋅": "*", "·": "*", "∗": "*", "✕": "*", "÷": "/", "／": "/", "−": "-", "–": "-",
     "（": "(", "）": ")", "＝": "=", "$": ""}
)  # fmt: skip
_BRACKETS: Final = str.maketrans("[]{}", "()()")
_LATEX: Final = re.compile(r"\\(times|cdot|ast|div|left|right|big|Big|[,;:!() \[\]{}])")
_LATEX_SIGNS: Final = {"times": "*", "cdot": "*", "ast": "*", "div": "/", "{": "(", "}": ")"}
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_TIMES: Final = re.compile(r"(?<=[\d)\]}])(?<!\b0)\s*[xX]\s*(?=[\d(\[{])")
_SIDE_BY_SIDE: Final = re.compile(r"(?<=[)\d])(?=\()")
_CUE: Final = re.compile(r"(?i:answer|expression|solution)\**(?: is|:)[\s:*]*")
_MAX_DIGITS: Final = 30
_PRECEDENCE: Final = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "neg": 3}


class Task(NamedTuple):
    """A gold answer taken apart: the numbers in ascending order, the target, the operations."""

    numbers: tuple[int, ...]
    target: int
    operations: str


class _AnswerError(Exception):
    """Why an answer is wrong; the message is the verdict's rule."""


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge one response.

    ``gold``: ``"3 5 7 11 -> 24 (+-*)"``: numbers, target and operations, as the problem set writes
    it. ``response``: what the model wrote. The last committed answer counts: the last ``<answer>``,
    else the last box, else what follows the last "answer is" or "answer:", else the last lines.
    """
    task = _task(gold)
    answer = distinct(response)
    if not any(char in answer for char in "0123456789"):
        return Verdict(Status.NO_ANSWER, answer, rule="no answer")
    canonical = answer
    try:
        lines = _lines(answer)
        canonical = ",".join(lines)
        steps = [_STEP.fullmatch(line) for line in lines]
        if len(steps) > 1 or (steps[0] and len(task.numbers) == 2):
            rule, right = "steps", _check_steps(steps, task)
        else:
            rule, right = "expression", _check_expression(lines[0], task)
    except _AnswerError as why:
        return Verdict(Status.WRONG, answer, canonical, rule=str(why))
    return Verdict(Status.RIGHT if right else Status.WRONG, answer, canonical, rule)


def distinct(response: str) -> str:
    """The answer in a response, cut to a length that no answer reaches; empty if there is none."""
    text = response
    if (end := text.rfind("</think>")) >= 0:
        text = text[end + len("</think>") :]
    if "<think>" in text:
        return ""
    marked = (start := text.rfind("<answer>")) >= 0
    if marked:
        text = text[start + len("<answer>") :].partition("</answer>")[0]
    if (start := text.rfind("\\boxed{")) >= 0:
        text = _balanced(text[start + len("\\boxed{") :][: MAX_CHARS + 1])
    elif cues := list(_CUE.finditer(text)):
        text = text[cues[-1].end() :].strip().partition("\n")[0]
    elif not marked:
        return _last_lines(text)
    return text.strip()[: MAX_CHARS + 1]


def _balanced(text: str) -> str:
    """What stands before the brace that closes a box; nothing if it is never closed."""
    depth = 1
    for i, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[:i]
    return ""


def _last_lines(text: str) -> str:
    """The steps at the end of an unmarked response, or its last line if that is no step."""
    tail = text.rstrip()[-MAX_CHARS - 1 :]
    lines = tail.split("\n")
    first = len(lines)
    while first and _STEP.fullmatch(lines[first - 1].replace(" ", "")):
        first -= 1
    return "\n".join(lines[first:] or lines[-1:]).strip()


@lru_cache(maxsize=65536)
def _task(gold: str) -> Task:
    match = _GOLD.fullmatch(gold)
    if match is None:
        raise ValueError(f"gold answer {gold!r} is not of the form '3 5 7 -> 24 (+-*/)'")
    return Task(tuple(sorted(map(int, match[1].split()))), int(match[2]), match[3])


def _lines(answer: str) -> list[str]:
    """The answer's lines without spaces, in ASCII signs."""
    if len(answer) > MAX_CHARS:
        raise _AnswerError("too long")
    if not answer.isascii() or "$" in answer:
        answer = answer.translate(_SIGNS)
    if "\\" in answer:
        answer = _without_fractions(answer)
        answer = _LATEX.sub(lambda match: _LATEX_SIGNS.get(match[1], ""), answer)
    if not _ONLY_TOKENS.fullmatch(answer):
        answer = _TIMES.sub("*", answer).translate(_BRACKETS)
    pieces = re.split(r"[\n,;]", answer) if len(answer) > 4 else [answer]
    return [line for piece in pieces if (line := piece.replace(" ", "").strip("\t\r`.*"))]


def _without_fractions(text: str) -> str:
    r"""Write ``\frac{a}{b}`` as a quotient, from the inside out."""
    for _ in range(text.count("frac")):
        text, count = _FRACTION.subn(r"((\1)/(\2))", text)
        if not count:
            break
    return text


def _check_steps(steps: Sequence[re.Match[str] | None], task: Task) -> bool:
    numbers_left = [str(number) for number in task.numbers]
    for step in steps:
        if step is None:
            raise _AnswerError("not arithmetic")
        for used in (step[1], step[3]):
            if used not in numbers_left:
                raise _AnswerError("numbers")
            numbers_left.remove(used)
        # The lengths are bounded by now: both numbers are given ones or results of such.
        result = _apply(step[2], int(step[1]), int(step[3]), task.operations)
        if str(result) != step[4]:
            raise _AnswerError("arithmetic")
        numbers_left.append(step[4])
    if len(numbers_left) != 1:
        raise _AnswerError("numbers")
    return numbers_left[0] == str(task.target)


def _check_expression(line: str, task: Task) -> bool:
    """Check ``expression``, ``expression = 25`` or a chain that works it out step by step."""
    parts = [_SIDE_BY_SIDE.sub("*", part) for part in line.split("=")]
    if not _ONLY_TOKENS.fullmatch("".join(parts)):
        raise _AnswerError("not arithmetic")
    chain: list[list[str]] = [_TOKEN.findall(part) for part in parts]
    given = sorted(map(str, task.numbers))
    # Compared as text first: int() of a very long number is slow, and it can't be one of these.
    uses = [sorted(token for token in tokens if token[0] in "0123456789") for tokens in chain]
    if given not in uses:
        raise _AnswerError("numbers")
    if any(len(token) > _MAX_DIGITS for tokens in chain for token in tokens):
        raise _AnswerError("arithmetic")
    value = _evaluate(chain[uses.index(given)], task.operations)
    if any(_evaluate(tokens, task.operations + "-") != value for tokens in chain):
        raise _AnswerError("arithmetic")
    return value == task.target


def _evaluate(tokens: Sequence[str], operations: str) -> int | Fraction:
    """Value of an expression, by two stacks: no recursion, so no depth is too deep."""
    values: list[int | Fraction] = []
    waiting: list[str] = []
    operand_next = True

    def reduce(floor: int) -> None:
        while waiting and _PRECEDENCE[waiting[-1]] >= floor:
            operation = waiting.pop()
            b = values.pop()
            values.append(
                -b if operation == "neg" else _apply(operation, values.pop(), b, operations)
            )

    for token in tokens:
        if operand_next:
            if token == "(":
                waiting.append(token)
            elif token == "-" and "-" in operations:
                waiting.append("neg")
            elif token[0] in "0123456789":
                values.append(int(token))
                operand_next = False
            else:
                raise _AnswerError("not arithmetic")
        elif token == ")":
            reduce(1)
            if not waiting:
                raise _AnswerError("not arithmetic")
            waiting.pop()
        elif token in _PRECEDENCE and token != "(":
            reduce(_PRECEDENCE[token])
            waiting.append(token)
            operand_next = True
        else:
            raise _AnswerError("not arithmetic")
    if operand_next or "(" in waiting:
        raise _AnswerError("not arithmetic")
    reduce(1)
    return values[0]


def _apply(operation: str, a: int | Fraction, b: int | Fraction, allowed: str) -> int | Fraction:
    if operation not in allowed:
        raise _AnswerError("operation")
    if operation == "+":
        return a + b
    if operation == "-":
        return a - b
    if operation == "*":
        return a * b
    if b == 0:
        raise _AnswerError("division by zero")
    value = Fraction(a) / b
    return int(value) if value.denominator == 1 else value
