"""Letters that writers choose: constants of integration, and the unit vectors i, j, k."""

from __future__ import annotations

from collections.abc import Iterator, Set
from fractions import Fraction
from itertools import permutations
from typing import Final

from rlbhpc.verify.answer.identity import same
from rlbhpc.verify.answer.tree import Node, has, has_const, num, rename, symbols
from rlbhpc.verify.answer.value import Items, Matrix, Quantity, Value

_CONSTANTS: Final = frozenset(
    "A B C D K c k C_0 C_1 C_2 C_3 c_0 c_1 c_2 c_3 K_1 K_2 k_1 k_2 A_1 A_2".split()
)
_AXES: Final = ("i", "j", "k")


_INTEGRATED: Final = frozenset(("x", "t", "u", "y", "s", "\\theta"))
# Where the constants of two antiderivatives are compared: no zero or pole that an exercise has.
_SOMEWHERE: Final = num(Fraction(37, 53))
_INTEGERS: Final = frozenset("kmnlKN")


def other_letters(gold: Node, answer: Node) -> Iterator[Node]:
    r"""Yield the answer with its arbitrary letters named as those of the gold answer.

    Constants of integration are added (``x^2 + C``) or scale a function of the variable
    (``A e^x``). The integer of a family of angles stands beside π (``\pi/3 + 2k\pi``).
    """
    gold_names, answer_names = symbols(gold), symbols(answer)
    if not gold_names or not answer_names:
        return
    ours = {name for name in gold_names & _CONSTANTS if _is_arbitrary(gold, name)}
    theirs = answer_names & _CONSTANTS - (gold_names - ours)
    variables = gold_names - ours
    if variables and variables == answer_names - theirs and 0 < len(ours) == len(theirs) <= 3:
        yield from _renamed(answer, theirs, ours)
        if ours == {"C"} and len(variables) == 1 and variables <= _INTEGRATED:
            yield from _shifted(gold, answer, theirs, ours, next(iter(variables)))
    counted = gold_names | answer_names <= _INTEGERS and len(gold_names) == len(answer_names) == 1
    if counted and gold.op == "add" and has_const(gold, "pi"):
        yield from _renamed(answer, answer_names, gold_names)


def _shifted(
    gold: Node, answer: Node, theirs: Set[str], ours: Set[str], variable: str
) -> Iterator[Node]:
    """Yield the answer plus what its constant of integration may take up: a number."""
    added = Node("sym", (), next(iter(ours)))
    for renamed in _renamed(answer, theirs, ours):
        if all(_only_added(node, added) for node in (gold, renamed)):
            start, end = (rename(node, {variable: _SOMEWHERE}) for node in (renamed, gold))
            yield Node("add", (renamed, end, Node("neg", (start,))))


def _only_added(node: Node, letter: Node) -> bool:
    """Whether a letter is one term of a sum, and in no other term."""
    terms = node.args if node.op == "add" else ()
    return [letter.value in symbols(term) for term in terms].count(True) == terms.count(letter) == 1


def _renamed(node: Node, old: Set[str], new: Set[str]) -> Iterator[Node]:
    for names in permutations(sorted(new)):
        pairs = zip(sorted(old), names, strict=True)
        yield rename(node, {name: Node("sym", (), ours) for name, ours in pairs})


def _is_arbitrary(node: Node, name: str) -> bool:
    symbol = Node("sym", (), name)
    return (node.op == "add" and symbol in node.args) or _scales(node, symbol)


def _scales(node: Node, symbol: Node) -> bool:
    """Whether a letter scales one function of the variable: ``A e^x``, ``e^{-x} (A cos x + B)``."""
    name = str(symbol.value)
    terms = node.args if node.op == "add" else (node,)
    scaled = [_factors(term) for term in terms if name in symbols(term)]
    if len(scaled) != 1:
        return False
    if symbol in scaled[0]:
        return any(map(_grows, scaled[0]))
    holders = [factor for factor in scaled[0] if name in symbols(factor)]
    return len(holders) == 1 and holders[0].op == "add" and _scales(holders[0], symbol)


def _factors(node: Node) -> list[Node]:
    if node.op != "mul":
        return [node]
    return [factor for arg in node.args for factor in _factors(arg)]


def _grows(factor: Node) -> bool:
    """Whether a factor is an exponential or a function of the variable."""
    return factor.op == "fn" or (factor.op == "pow" and bool(symbols(factor.args[1])))


def with_axes(value: Value, other: Value) -> Value:
    """Read ``2i + 3j`` as coordinates beside a tuple or a vector."""
    if isinstance(other, Matrix):
        size = len(other.rows) * len(other.rows[0])
    elif isinstance(other, Items) and other.kind in ("tuple", "bracket", "angle"):
        size = len(other.items)
    else:
        return value
    if not isinstance(value, Quantity) or value.unit is not None:
        return value
    parts = _components(value.tree)
    if parts is None:
        return value
    zeros = (num(0),) * (size - len(parts))
    return Items("tuple", tuple(map(Quantity, parts + zeros)), point=True)


def _components(node: Node) -> tuple[Node, ...] | None:
    """Coordinates of ``2i + 3j``: None for what is no sum of scaled unit vectors."""
    node = _axes_as_symbols(node)
    names = symbols(node) & {"j", "k"}
    if "j" not in names or has(node, "pow", "abs", "fn", "app"):
        return None
    axes = _AXES if "k" in names else _AXES[:2]
    zero = {name: num(0) for name in axes}
    parts = tuple(rename(node, {**zero, name: num(1)}) for name in axes)
    pairs = zip(parts, axes, strict=True)
    whole = Node("add", tuple(Node("mul", (part, Node("sym", (), axis))) for part, axis in pairs))
    return parts if same(node, whole) else None


def _axes_as_symbols(node: Node) -> Node:
    """Write the constant i, and letters with a hat, as plain symbols."""
    if node.op == "const" and node.value == "i":
        return Node("sym", (), "i")
    if node.op == "sym" and str(node.value) in ("hat i", "hat j", "hat k"):
        return Node("sym", (), str(node.value)[-1])
    return node._replace(args=tuple(map(_axes_as_symbols, node.args))) if node.args else node
