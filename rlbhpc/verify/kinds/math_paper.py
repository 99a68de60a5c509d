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
from rlbhpc.verify.answer.lexer import MAX_CHARS, canonical, tokenize
from rlbhpc.verify.answer.numeric import Undecided, numeric, same
from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import (
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
    symbols,
)
from rlbhpc.verify.verdict import Status, Verdict

FINGERPRINT: Final = "math-paper-1"

_CLOSE: Final = 1e-4
_NUMBER: Final = re.compile(r"-?\d*\.?\d+")
_PHRASES: Final = ("he answer is", "final answer is", "答案是")


def verify(gold: str, response: str, problem: Problem | None = None) -> Verdict:
    """Judge a response as the study's grader does; ``problem`` says nothing that it would heed."""
    del problem
    answer, place = _extract(response)
    if not answer:
        return Verdict(Status.NO_ANSWER, rule="no answer")
    form = canonical(answer)[:MAX_CHARS]
    rule = _equal(gold, answer)
    status = Status.RIGHT if rule else Status.WRONG
    return Verdict(status, answer[:MAX_CHARS], form, f"{place}/{rule or 'different'}")


def distinct(response: str) -> str:
    """Return the text that this grader takes for the answer."""
    return _extract(response)[0]


# --- extraction ----------------------------------------------------------------------------------


def _extract(response: str) -> tuple[str, str]:
    """Find the answer as the original does: box, phrase, else the last number anywhere."""
    if "boxed" in response:
        after = response.rpartition("boxed")[2]
        text = _braced(after) if after.startswith("{") else after.split("$")[0]
        place = "box"
    else:
        phrase = next((p for p in _PHRASES if p in response), None)
        if phrase is not None:
            text, place = response.rpartition(phrase)[2], "phrase"
        else:
            numbers = _NUMBER.findall(response.replace(",", ""))
            text, place = (numbers[-1] if numbers else ""), "last number"
    first = text.strip().split("\n")[0]
    return first.lstrip(":").rstrip(".").rstrip("/").strip(), place


def _braced(text: str) -> str:
    """Return what the first brace holds; all of it where the brace never closes."""
    depth = 0
    for position, char in enumerate(text):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return text[1:position]
    return text[1:]


# --- equality ------------------------------------------------------------------------------------


def _equal(gold: str, answer: str) -> str:
    """Return the rule by which the original calls two answers equal, or ``""``."""
    ours, theirs = _plain(gold), _plain(answer)
    if ours == theirs:
        return "text"
    numbers = (_number(ours), _number(theirs))
    if None not in numbers:
        return _near_any(numbers[0] or 0.0, numbers[1] or 0.0)
    if _bare(ours) == _bare(theirs):
        return "text without brackets"
    return "value" if _same_value(read(gold), read(answer)) else ""


def _plain(text: str) -> str:
    """Normalise as the original does: units and styling go, case goes, so do blanks."""
    tokens = [t for kind, t in tokenize(text[:MAX_CHARS]) if kind != "c" and t not in ("deg", "%")]
    kept = [t for t in tokens if t not in ("{", "}", "^")] if "deg" in text else tokens
    joined = "".join(t for t in kept if t not in ("{", "}"))
    return joined.lower().removeprefix("x=").rstrip(".")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except (ValueError, OverflowError):
        return None


def _near_any(gold: float, answer: float) -> str:
    for factor, rule in ((1.0, "number"), (0.01, "gold / 100"), (100.0, "gold · 100")):
        if _near(gold * factor, answer):
            return rule
    return ""


def _near(a: float | complex, b: float | complex) -> bool:
    return a == b or abs(a - b) <= _CLOSE * max(abs(a), abs(b))


def _bare(text: str) -> str:
    for bracket in ("\\{", "\\}", "(", ")", "[", "]"):
        text = text.replace(bracket, "")
    return text


def _same_value(gold: Value, answer: Value) -> bool:
    """Compare item by item, brackets and the names of variables aside."""
    ours, theirs = _strip(gold), _strip(answer)
    if isinstance(ours, Quantity) and isinstance(theirs, Quantity):
        return _same_tree(ours.tree, theirs.tree)
    left, right = _parts(ours), _parts(theirs)
    if left and right and len(left) == len(right):
        return all(_same_tree(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(ours, Relation) and isinstance(theirs, Relation):
        return _same_tree(_difference(ours), _difference(theirs)) or _same_tree(
            _difference(ours), Node("neg", (_difference(theirs),))
        )
    return ours == theirs


def _strip(value: Value) -> Value:
    while isinstance(value, Named) or (isinstance(value, Choice) and value.rest is not None):
        value = value.value if isinstance(value, Named) else value.rest or value
    return value


def _parts(value: Value) -> Sequence[Node]:
    """List the expressions of a tuple, an interval, a union or a matrix in their order."""
    if isinstance(value, Items):
        items = [_strip(item) for item in value.items]
        trees = [item.tree for item in items if isinstance(item, Quantity)]
        nested = [tree for item in items for tree in _parts(item)]
        return trees if len(trees) == len(items) else nested
    if isinstance(value, Interval):
        infinite = Node("const", (), "oo")
        return [value.low or Node("neg", (infinite,)), value.high or infinite]
    if isinstance(value, Region):
        return [tree for part in value.parts for tree in _parts(part)]
    if isinstance(value, Matrix):
        return [cell for row in value.rows for cell in row]
    return [value.tree] if isinstance(value, Quantity) else []


def _difference(relation: Relation) -> Node:
    return Node("add", (relation.sides[0], Node("neg", (relation.sides[-1],))))


def _same_tree(a: Node, b: Node) -> bool:
    if a == b:
        return True
    try:
        if symbols(a) or symbols(b):
            return same(a, b)
        return _near(numeric(a), numeric(b))
    except (Undecided, OverflowError):
        return False
