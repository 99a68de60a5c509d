r"""What a RIGHT rests on: the compared values and points, in a form that a stranger can replay.

A witness is a line of claims, separated by ``;``::

    (div $x 2) = (mul 1/2 $x) @ $x=3/7 | $x=-5/9
    4.51 ~ 4.5 +- 1/20
    "204 in base 5" = "204 in base 5"
    "east"

Expressions stand in prefix form: ``(op argument …)`` with the operations of
:class:`~rlbhpc.verify.answer.value.Node`, numbers as exact fractions, variables with a ``$``,
unknown functions as ``(app:f …)``, and the constants ``pi``, ``e``, ``i`` and ``oo``. Both sides of
``=`` have one value at each point after ``@``; both of ``~`` differ by at most what follows ``+-``.
Of a list every item has a claim. Texts stand in quotes: digits, letters of choices, brackets of
intervals and signs of relations, of the gold answer on the left and of the answer on the right. An
answer that is spelled like the gold answer has their common form alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.numeric import (
    Point,
    about_integers,
    general_points,
    integer_points,
    only_counts,
    signed_points,
)
from rlbhpc.verify.answer.value import Node, symbols

_MAX_CHARS: Final = 2000
_claims: ContextVar[list[str] | None] = ContextVar("claims", default=None)


def with_claims(compare: Callable[..., str], *sides: object) -> tuple[str, list[str]]:
    """Return the rule that a comparison gives, and the claims that it makes."""
    claims: list[str] = []
    token = _claims.set(claims)
    try:
        return compare(*sides), claims
    finally:
        _claims.reset(token)


def claim_equal(a: Node, b: Node) -> None:
    """Note that two expressions were found equal."""
    claims = _claims.get()
    if claims is None:
        return
    names = sorted(symbols(a) | symbols(b))
    points = [*general_points(names)[:2], *signed_points(names)[:3]]
    if about_integers(a, b):
        points = integer_points(names)[:5]
    elif names and only_counts(names):
        points += integer_points(names)[:2]  # (-1)^n is real there and nowhere else
    places = " | ".join(map(_point, points)) if names else ""
    claims.append(f"{_written(a)} = {_written(b)}" + (f" @ {places}" if places else ""))


def claim_near(a: Node, b: Node, margin: Fraction) -> None:
    """Note that two numbers are within a margin of each other."""
    _note(f"{_written(a)} ~ {_written(b)} +- {margin}")


def claim_alike(a: str, b: str) -> None:
    """Note that what was read of both sides is spelled alike."""
    _note(f"{quoted(a)} = {quoted(b)}")


def _note(claim: str) -> None:
    claims = _claims.get()
    if claims is not None:
        claims.append(claim)


def quoted(text: str) -> str:
    """Return a text as a claim writes it."""
    return '"' + text.replace('"', "'") + '"'


def joined(claims: list[str]) -> str:
    """Return the witness that claims make; nothing if it would not be small."""
    text = "; ".join(dict.fromkeys(claims))
    return text if len(text) <= _MAX_CHARS else ""


def _point(point: Point) -> str:
    return ",".join(f"${_name(name)}={value}" for name, value in point.items())


def _written(node: Node) -> str:
    if node.op == "num":
        return str(node.value)
    if node.op in ("sym", "const"):
        return "$" * (node.op == "sym") + _name(str(node.value))
    head = {"fn": str(node.value), "app": f"app:{_name(str(node.value))}"}.get(node.op, node.op)
    return f"({head} {' '.join(map(_written, node.args))})"


def _name(name: str) -> str:
    return name.replace(" ", "-")
