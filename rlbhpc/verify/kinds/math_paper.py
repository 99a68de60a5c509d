"""The ``math-paper`` verifier: what the study's own lenient grader would have said.

The published curves of "does RL incentivise reasoning beyond the base model" were drawn with a
grader of the Qwen2.5-Math line. It takes the last number where no answer is marked, drops units and
brackets, accepts a number that is within one part in ten thousand of the gold answer, of a
hundredth of it or of a hundred times it, and evaluates what the model wrote as Python. This module
gives its verdicts by its rules and evaluates nothing, so that a study can show both curves; the
``math`` verifier is the one to believe. Where the original hangs or crashes, this one says wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import content_of_braces
from rlbhpc.verify.answer.extract import Extracted
from rlbhpc.verify.answer.lexer import MAX_CHARS, Kind, canonical, tokenize
from rlbhpc.verify.answer.numeric import Undecided, approximate, are_identical
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import (
    INFINITY,
    Choice,
    Interval,
    Items,
    Matrix,
    Named,
    Node,
    Quantity,
    Region,
    Relation,
    Value,
    free_names,
    negate,
    subtract,
)
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "math-paper-3"

_RELATIVE_TOLERANCE: Final = 1e-4
_NUMBER: Final = re.compile(r"-?\d*\.?\d+")
_ANSWER_PHRASES: Final = ("he answer is", "final answer is", "答案是")
_BRACKETS: Final = ("\\{", "\\}", "(", ")", "[", "]")
# Factors of the gold answer that are accepted, and the rule that accepts them.
_ACCEPTED_FACTORS: Final = ((1.0, "number"), (0.01, "gold / 100"), (100.0, "gold · 100"))


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge a response as the study's grader does; ``problem`` says nothing that it would heed.

    ``_equality_rule`` returns the rule by which that grader calls two texts equal, or ``""``.
    """
    del problem
    answer = _extract(response)
    if not answer.text:
        return Verdict(Status.NO_ANSWER, rule="no answer")
    rule = _equality_rule(gold, answer.text)
    return Verdict(
        Status.RIGHT if rule else Status.WRONG,
        answer=answer.text[:MAX_CHARS],
        canonical=canonical(answer.text)[:MAX_CHARS],
        rule=f"{answer.rule}/{rule or 'different'}",
    )


def distinct(response: str) -> str:
    """Return the text that this grader takes for the answer."""
    return _extract(response).text


# --- extraction ----------------------------------------------------------------------------------


def _extract(response: str) -> Extracted:
    """Return the answer and the rule that found it, as the original does.

    The last box counts, else what follows the last "final answer is" and the like, else the last
    number anywhere. Only the first line of it is kept.
    """
    phrase = next((phrase for phrase in _ANSWER_PHRASES if phrase in response), None)
    if "boxed" in response:
        behind_box = response.rpartition("boxed")[2]
        is_braced = behind_box.startswith("{")
        if is_braced:
            # All of it where the brace never closes.
            content = content_of_braces(behind_box, 0)
            text = behind_box[1:] if content is None else content
        else:
            text = behind_box.split("$")[0]
        rule = "box"
    elif phrase is not None:
        text, rule = response.rpartition(phrase)[2], "phrase"
    else:
        numbers = _NUMBER.findall(response.replace(",", ""))
        text, rule = numbers[-1] if numbers else "", "last number"
    first_line = text.strip().split("\n")[0]
    return Extracted(first_line.lstrip(":").rstrip(".").rstrip("/").strip(), rule)


# --- equality ------------------------------------------------------------------------------------


def _equality_rule(gold: str, answer: str) -> str:
    """Return the rule by which the original calls two answers equal, or ``""``.

    Texts are compared without their styling. Two numbers are then compared by size; all else is
    compared without brackets, and at last as values. Of numbers a hundredth and a hundred times the
    gold are accepted as well: ``_ACCEPTED_FACTORS``.
    """
    plain_gold, plain_answer = _without_styling(gold), _without_styling(answer)
    if plain_gold == plain_answer:
        return "text"
    gold_number, number = _parse_float(plain_gold), _parse_float(plain_answer)
    if gold_number is not None and number is not None:
        for factor, rule in _ACCEPTED_FACTORS:
            if _is_near(gold_number * factor, number):
                return rule
        return ""
    if _without_brackets(plain_gold) == _without_brackets(plain_answer):
        return "text without brackets"
    return "value" if _have_same_value(read(gold), read(answer)) else ""


def _without_styling(text: str) -> str:
    """Normalise as the original does: units, styling, case and blanks go.

    ``tokenize`` cuts LaTeX into tokens, each a kind and a text, and leaves out what only styles.
    ``deg`` is a degree sign, which may be raised by a ``^``.
    """
    dropped_texts = {"deg", "%", "{", "}"}
    if "deg" in text:
        dropped_texts.add("^")
    tokens = tokenize(text[:MAX_CHARS])
    kept_texts = [
        token.text
        for token in tokens
        if token.kind is not Kind.CURRENCY and token.text not in dropped_texts
    ]
    return "".join(kept_texts).lower().removeprefix("x=").rstrip(".")


def _parse_float(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except (ValueError, OverflowError):
        return None


def _is_near(gold: float | complex, answer: float | complex) -> bool:
    return gold == answer or abs(gold - answer) <= _RELATIVE_TOLERANCE * max(abs(gold), abs(answer))


def _without_brackets(text: str) -> str:
    for bracket in _BRACKETS:
        text = text.replace(bracket, "")
    return text


def _have_same_value(gold: Value, answer: Value) -> bool:
    """Compare item by item, brackets and the names of variables aside.

    A ``Quantity`` is one expression, a ``Relation`` an equation or an inequality: it is compared as
    the difference of its sides, up to the sign. ``_list_expressions`` lists the expressions in a
    tuple, an interval or a matrix.
    """
    gold, answer = _without_names(gold), _without_names(answer)
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return _are_same_trees(gold.tree, answer.tree)
    gold_trees, trees = _list_expressions(gold), _list_expressions(answer)
    if gold_trees and trees and len(gold_trees) == len(trees):
        return all(map(_are_same_trees, gold_trees, trees))
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        gold_difference = subtract(gold.sides[0], gold.sides[-1])
        difference = subtract(answer.sides[0], answer.sides[-1])
        return _are_same_trees(gold_difference, difference) or _are_same_trees(
            gold_difference, negate(difference)
        )
    return gold == answer


def _without_names(value: Value) -> Value:
    """Drop the names and the letters of options around a value."""
    if isinstance(value, Named):
        return _without_names(value.value)
    if isinstance(value, Choice) and value.content is not None:
        return _without_names(value.content)
    return value


def _list_expressions(value: Value) -> Sequence[Node]:
    """List the expressions of a tuple, an interval, a union or a matrix in their order.

    A missing end of an interval is infinite. Values of other kinds hold none.
    """
    if isinstance(value, Items):
        items = [_without_names(item) for item in value.items]
        return [tree for item in items for tree in _list_expressions(item)]
    if isinstance(value, Interval):
        return [value.low or negate(INFINITY), value.high or INFINITY]
    if isinstance(value, Region):
        return [tree for part in value.parts for tree in _list_expressions(part)]
    if isinstance(value, Matrix):
        return [cell for row in value.rows for cell in row]
    return [value.tree] if isinstance(value, Quantity) else []


def _are_same_trees(gold: Node, answer: Node) -> bool:
    """Whether two expressions are equal, numbers up to the tolerance of the original.

    Expressions with variables must be equal wherever they are defined; what cannot be decided
    differs.
    """
    if gold == answer:
        return True
    try:
        if free_names(gold) or free_names(answer):
            return are_identical(gold, answer)
        return _is_near(approximate(gold), approximate(answer))
    except (Undecided, OverflowError):
        return False
