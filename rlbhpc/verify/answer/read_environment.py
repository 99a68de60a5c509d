r"""Matrices, systems and functions by pieces: what stands between ``\begin`` and ``\end``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rlbhpc.verify.answer.grammar import parse
from rlbhpc.verify.answer.lexer import Token
from rlbhpc.verify.answer.numerals import Unreadable
from rlbhpc.verify.answer.tokens import Tokens, cut, trim
from rlbhpc.verify.answer.tree import Node, num
from rlbhpc.verify.answer.value import Interval, Items, Matrix, Quantity, Region, Value

Read = Callable[[Tokens], Value]
Several = Callable[[Sequence[Tokens], Sequence[Token]], Value]

_MATRICES: Final = frozenset("matrix pmatrix bmatrix Bmatrix array smallmatrix".split())
_CASES: Final = frozenset("cases dcases aligned align gathered split rcases".split())
_CELL: Final[Token] = ("o", "&")
_ROW: Final[Token] = ("o", "\\\\")


def read_environment(tokens: Tokens, read: Read, several: Several) -> Value:
    """Read one environment from its beginning to its end."""
    if tokens[0][1] not in _CASES:
        return _matrix(tokens)
    rows = [row for row in cut(tokens[1:-1], _ROW)[0] if row]
    pieces = [_piece(row, read) for row in rows] if tokens[0][1] != "aligned" else []
    values = [piece for piece in pieces if piece is not None]
    if values and len(values) == len(rows):
        return _absolute(values) or Items("set", tuple(values))
    return several([[token for token in row if token != _CELL] for row in rows], [])


def _absolute(pieces: Sequence[Items]) -> Quantity | None:
    """Read ``x`` from 0 upwards and ``-x`` below as ``|x|``."""
    where = {piece.items[0]: piece.items[1] for piece in pieces}
    zero = num(0)
    for value, half in where.items() if len(where) == 2 else ():
        if not isinstance(value, Quantity) or not isinstance(half, Interval):
            continue
        other = where.get(Quantity(Node("neg", (value.tree,))))
        if not isinstance(other, Interval) or value.tree != Node("sym", (), half.name):
            continue
        if (half.low, half.high, other.low, other.high) == (zero, None, None, zero):
            return Quantity(Node("abs", (value.tree,)))
    return None


_CONDITIONS: Final = frozenset("if when for where".split())


def _piece(row: Tokens, read: Read) -> Items | None:
    r"""``x^2 & x \ge 0``: an expression and where it holds; None for a row that is no such."""
    cells, _ = cut(row, _CELL)
    if len(cells) != 2 or not cells[0] or not cells[1]:
        return None
    condition = cells[1]
    while condition and condition[0][1].lower() in _CONDITIONS:
        condition = condition[1:]
    where = read(condition) if any(kind == "r" for kind, _ in condition) else None
    if not isinstance(where, Interval | Region):
        return None
    return Items("tuple", (read(cells[0]), where), point=True)


def _matrix(tokens: Tokens) -> Matrix:
    kind = tokens[0][1]
    if kind not in _MATRICES:
        raise Unreadable(f"environment {kind}")
    rows = [row for row in cut(tokens[1:-1], _ROW)[0] if row]
    cells = [tuple(parse(trim(cell)) for cell in cut(row, _CELL)[0]) for row in rows]
    if not cells or len({len(row) for row in cells}) != 1:
        raise Unreadable("ragged matrix")
    return Matrix(tuple(cells))


def read_scaled_matrix(tokens: Tokens) -> Matrix | None:
    r"""``\frac13 \begin{pmatrix}…``, and a matrix in brackets of its own."""
    start = next((index for index, (kind, _) in enumerate(tokens) if kind == "b"), None)
    if start is None:
        return None
    end = next((index for index, (kind, _) in enumerate(tokens) if kind == "e"), -1) + 1
    before, after = list(tokens[:start]), tokens[end:]
    if [t for _, t in after] in (["]"], [")"]) and before and before[-1][1] in "([":
        before, after = before[:-1], []
    if after:
        raise Unreadable("more than a matrix")
    matrix = _matrix(tokens[start:end])
    if not before:
        return matrix
    signed = [("n", "1")] if before[-1][1] in ("+", "-") else []
    factor = parse([t for t in before if t != ("o", "*")] + signed)
    rows = (tuple(Node("mul", (factor, cell)) for cell in row) for row in matrix.rows)
    return Matrix(tuple(rows))


def matrix_of(items: Sequence[Value]) -> Matrix | None:
    """Read a list of lists of numbers as a matrix."""
    rows = [item.items for item in items if isinstance(item, Items)]
    cells = [[cell.tree for cell in row if isinstance(cell, Quantity)] for row in rows]
    if len({len(row) for row in rows}) != 1 or list(map(len, rows)) != list(map(len, cells)):
        return None
    return Matrix(tuple(tuple(row) for row in cells))
