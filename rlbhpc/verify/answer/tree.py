"""The expression tree: small immutable nodes, and what can be asked of them without computing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple


class Node(NamedTuple):
    """One node of an expression.

    ``op`` is one of ``num sym const add mul div pow neg root abs floor ceil fact binom perm fn app
    deg pm``; ``value`` holds the number of ``num``, the name of ``sym``, ``const``, ``fn``, ``app``
    and the sign of ``pm``.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Fraction | str | int | None = None


_NO_NAMES: Final[frozenset[str]] = frozenset()


def num(value: Fraction | int) -> Node:
    """Return a number."""
    return Node("num", (), Fraction(value) if isinstance(value, int) else value)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.args)


def symbols(node: Node) -> frozenset[str]:
    """Names of the free symbols and of the unknown functions."""
    if node.op == "num":
        return _NO_NAMES
    names = set()
    stack = [node]
    while stack:
        top = stack.pop()
        stack += top.args
        if top.op == "sym" or top.op == "app":
            names.add(str(top.value))
    return frozenset(names)


def has(node: Node, *ops: str) -> bool:
    """Whether any of these operations occurs."""
    if not node.args:
        return node.op in ops
    return any(n.op in ops for n in walk(node))


def has_const(node: Node, name: str) -> bool:
    """Whether a constant such as ``pi`` occurs."""
    return any(n.op == "const" and n.value == name for n in walk(node))


def rename(node: Node, names: Mapping[str, Node]) -> Node:
    """Replace symbols by nodes."""
    if node.op == "sym" and node.value in names:
        return names[str(node.value)]
    if not node.args:
        return node
    return node._replace(args=tuple(rename(arg, names) for arg in node.args))


def choose_signs(node: Node, plus: bool) -> Node:
    """Settle every ``±`` on one side (``∓`` on the other)."""
    if node.op == "pm":
        left, right = (choose_signs(arg, plus) for arg in node.args)
        if (node.value == "+-") != plus:
            right = Node("neg", (right,))
        return Node("add", (left, right))
    if not node.args:
        return node
    return node._replace(args=tuple(choose_signs(arg, plus) for arg in node.args))


def is_name(node: Node) -> bool:
    """Whether an expression only names what is asked for: ``x``, ``f(x)``, ``AB``, ``m_max``."""
    if node.op in ("sym", "app"):
        return True
    if node.op in ("mul", "abs", "deg"):
        return all(is_name(arg) for arg in node.args)
    return node.op == "const" and node.value in ("e", "i")


def is_label(node: Node) -> bool:
    """Whether an expression only says what was asked for: ``m + n``, ``⌊x⌋``, ``100a + b``.

    An expression of one variable beside a number (``x + 3``, ``2x``) is half of an equation, and
    so is one of coordinates (``x + y``).
    """
    names = symbols(node)
    whole = node.op in ("floor", "ceil", "abs", "root", "fn")
    if not whole and (len(names) < 2 or not names.isdisjoint("xyz")):
        return False
    sums = (part.args for part in walk(node) if part.op == "add")
    return bool(names) and all(symbols(term) for terms in sums for term in terms)
