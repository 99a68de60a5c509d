"""The text of an answer to its value, and what could not be read to :class:`Opaque`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, parse
from rlbhpc.verify.answer.lexer import (
    MAX_CHARS,
    Token,
    Tokens,
    canonical,
    closes_at_end,
    cut,
    settle_commas,
    tokenize,
    trim,
)
from rlbhpc.verify.answer.numeric import Undecided, exact
from rlbhpc.verify.answer.read_relation import read_relation, read_residue
from rlbhpc.verify.answer.read_scalar import (
    add_up,
    plain_quantity,
    read_based,
    read_clock,
    read_compound,
    read_quantity,
    split_choice,
)
from rlbhpc.verify.answer.regions import (
    difference,
    integers_within,
    interval,
    is_empty,
    meet_all,
    union,
)
from rlbhpc.verify.answer.value import (
    Based,
    Choice,
    Interval,
    Items,
    Matrix,
    Named,
    Node,
    Opaque,
    Quantity,
    Ratio,
    Region,
    Value,
    Words,
    choose_signs,
    has,
    num,
    option_letter,
)
from rlbhpc.verify.answer.words import (
    HEDGES,
    after_label,
    after_prose,
    after_subject,
    in_digits,
    in_signs,
    read_date,
    read_explained,
    read_words,
    real_condition,
    without_domain,
    without_remark,
)

# --- matrices, systems, functions by pieces ------------------------------------------------------


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


# --- any answer ----------------------------------------------------------------------------------


MAX_TOKENS: Final = 800
MAX_ITEMS: Final = 100


@lru_cache(maxsize=1024)
def read(text: str, listed: bool = False) -> Value:
    """Read an answer.

    ``listed`` says that several values are expected, so that ``100,200`` is two numbers.
    """
    if len(text) > MAX_CHARS:
        return Opaque(canonical(text))
    if len(text) <= 18 and text.isdecimal() and text.isascii():
        return Quantity(num(int(text)), None, text)  # most answers
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is not None:
        return Based(hexadecimal[1].upper().lstrip("0") or "0", 16)
    tokens = tokenize(text)
    try:
        if len(tokens) > MAX_TOKENS:
            raise Unreadable("too long")
        return _Reader(listed).read(settle_commas(tokens, listed))
    except (Unreadable, Undecided, RecursionError, ValueError, OverflowError):
        return Opaque(canonical(text))


_HEXADECIMAL: Final = re.compile(r"(?:\\text(?:tt)?\{)?0x([0-9A-Fa-f]+)\}?")
_REALS: Final = Region((Interval(None, None),))
_OVER_INTEGERS: Final = (["in", "mathbb", "{", "Z", "}"], ["in", "mathbb", "Z"])
_BARS: Final = ([("o", "|")], [("r", "in")])
_COMMAS: Final[frozenset[Token]] = frozenset((("o", ","), ("o", ";"), ("o", "\\\\")))
_WORDS: Final[tuple[Token, ...]] = (("w", "and"), ("w", "or"), ("w", "And"), ("w", "Or"))


class _Reader:
    """Reads token lists into values; knows only whether a list is expected."""

    def __init__(self, listed: bool) -> None:
        self.listed = listed
        self.depth = 0

    def read(self, tokens: Tokens) -> Value:
        self.depth += 1
        if self.depth > 12:
            raise Unreadable("nested too deeply")
        value = self._read(trim(tokens))
        self.depth -= 1
        return value

    def _read(self, tokens: Tokens) -> Value:
        if not tokens:
            raise Unreadable("nothing")
        plain = plain_quantity(tokens) if _COMMAS.isdisjoint(tokens) else None
        if plain is not None:
            return _expand(plain)
        if tokens[0][0] == "b" and closes_at_end(tokens):
            return read_environment(tokens, self.read, self._several)
        words: Value | None = None
        tokens = without_remark(tokens)
        if any(kind == "w" for kind, _ in tokens):
            tokens = in_signs(after_subject(tokens))
            whole, exception = cut(tokens, ("w", "except"))
            if len(exception) == 1 and whole[0] and whole[1]:
                points = whole[1][whole[1][0][1] in ("for", "at") :]
                return difference(self.read(whole[0]), self.read(points))
            reals = real_condition(tokens)
            if reals is not None:
                return self._such_that(reals[:1], reals)
            explained = read_date(tokens) or read_explained(tokens)
            if explained is not None:
                return explained
            words = read_words(tokens)
            if isinstance(words, Words) and (counted := in_digits(tokens)):
                return self.read(counted)
            if words is not None and not isinstance(words, Words):
                return words
        tokens = without_domain(tokens)
        if tokens[1:2] in _BARS and any(kind == "r" for kind, _ in tokens[2:]):
            condition = self._by_condition(tokens)
            if condition is not None:
                return condition
        solutions = self._solutions(tokens)
        if solutions is not None:
            return solutions
        pieces, separators = cut(tokens, *_COMMAS, *_WORDS)
        pieces = [piece for piece in pieces if piece]
        if len(pieces) > 1:
            return self._several(pieces, separators)
        if words is not None:
            return words
        if (residue := read_residue(tokens)) is not None:
            return residue
        relations = tuple({token for token in tokens if token[0] == "r"})
        sides, ops = cut(tokens, *relations)
        if ops:
            if "n" in dict(sides[0]) and not HEDGES.isdisjoint(text for _, text in sides[0]):
                raise Unreadable("a bound")  # "under 2 + 3 = 5"
            return read_relation(list(sides), [text for _, text in ops], self.read)
        return self._single(tokens)

    # --- one value -------------------------------------------------------------------------------

    def _single(self, tokens: Tokens) -> Value:
        pieces, _ = cut(tokens, ("o", "cup"))
        if len(pieces) > 1:
            return union([self.read(piece) for piece in pieces])
        minus = ("o", "-") if tokens[0] == ("f", "mathbb") else ("o", "\\")
        pieces, _ = cut(tokens, ("o", "\\"), minus)
        if len(pieces) == 2:
            return difference(self.read(pieces[0]), self.read(pieces[1]))
        label = after_label(tokens) if ("o", ":") in tokens else None
        if label is not None:
            return self.read(label)
        lettered = split_choice(tokens)
        if lettered is not None:
            letter, rest = lettered
            return Choice(letter, self.read(rest) if rest else None)
        for special in (
            read_based, read_clock, self._set_of_numbers, self._named_point, self._bracketed,
        ):  # fmt: skip
            value = special(tokens)
            if value is not None:
                return value
        pieces, _ = cut(tokens, ("o", ":"), ("w", "to"))
        if len(pieces) > 1 and all(pieces):
            terms = tuple(map(parse, pieces))
            if not any(has(term, "pm") for term in terms):
                return Ratio(terms)
        matrix = read_scaled_matrix(tokens)
        if matrix is not None:
            return matrix
        return self._scalar(tokens)

    def _scalar(self, tokens: Tokens) -> Value:
        try:
            quantity = read_compound(tokens) or read_quantity(tokens)
        except Unreadable:
            rest = after_prose(tokens) or after_label(tokens)
            if rest is None:
                raise
            return self.read(rest)
        return _expand(quantity)

    @staticmethod
    def _set_of_numbers(tokens: Tokens) -> Value | None:
        r"""``\mathbb{R}`` and its like."""
        if tokens[0] != ("f", "mathbb"):
            return None
        name = "".join(text for _, text in tokens[1:] if text not in "{}")
        if name == "R":
            return _REALS
        if name in ("R_>=0", "R_>0", "R^+", "R_+"):
            return Interval(num(0), None, ">=" in name)
        return Words(f"mathbb {name}")

    def _bracketed(self, tokens: Tokens) -> Value | None:
        first, last = tokens[0][1], tokens[-1][1]
        if (first, last) in (("]", "["), ("[", "["), ("]", "]")):
            # Brackets that open outwards leave their end out.
            opening, closing = "[("[first == "]"], "])"[last == "["]
            tokens = [("o", opening), *tokens[1:-1], ("o", closing)]
            first, last = opening, closing
        power = self._transposed(tokens)
        if power is not None:
            return power
        if first not in ("(", "[", "\\{", "<(") or not closes_at_end(tokens):
            return None
        inner = tokens[1:-1]
        if first == "\\{":
            return self._set(inner)
        pieces, _ = cut(inner, *_COMMAS)
        if len(pieces) == 1:
            return self.read(inner) if first == "(" else None
        items = tuple(self.read(piece) for piece in pieces)
        if ("o", "+-") in inner and any(isinstance(item, Items) for item in items):
            return _both_points(items)
        if (first, last) in (("(", "]"), ("[", ")")) and len(items) == 2:
            return interval(items, first == "[", last == "]")
        if first == "[" and all(isinstance(item, Items) for item in items):
            matrix = matrix_of(items)
            if matrix is not None:
                return matrix
        if (first, last) in (("(", "]"), ("[", ")")):
            raise Unreadable("brackets of two kinds")
        return Items({"(": "tuple", "[": "bracket", "<(": "angle"}[first], items)

    def _named_point(self, tokens: Tokens) -> Value | None:
        """``A(3, -1)``: a point with its name; ``P(5, 2)`` is a number of permutations."""
        (kind, name), rest = tokens[0], tokens[1:]
        if kind != "s" or not name.isupper() or rest[:1] != [("o", "(")]:
            return None
        if not closes_at_end(rest):
            return None
        value = self.read(rest)
        if not isinstance(value, Items) or len(value.items) not in (2, 3):
            return None
        trees = [item.tree for item in value.items if isinstance(item, Quantity)]
        if name in "CP" and not any(tree.op == "neg" for tree in trees):
            return None
        return Named(Node("sym", (), name), value)

    def _transposed(self, tokens: Tokens) -> Value | None:
        """``(1, 2)^T`` and a row matrix that is transposed."""
        if tokens[-1][1] not in ("T", "}", "\\top"):
            return None
        texts = [text for _, text in tokens]
        for ending in (["^", "T"], ["^", "{", "T", "}"], ["^", "\\top"]):
            if texts[-len(ending) :] == ending and len(tokens) > len(ending) + 1:
                value = self.read(tokens[: -len(ending)])
                if isinstance(value, Matrix):
                    return Matrix(tuple(zip(*value.rows, strict=True)))
                return value if isinstance(value, Items) else None
        return None

    def _set(self, inner: Tokens) -> Value:
        if not inner:
            return Region(())
        condition = self._by_condition(inner)
        if condition is not None:
            return condition
        family, _ = cut(inner, ("o", "|"), ("o", ":"))
        if len(family) == 2 and [text for _, text in family[1]][1:] in _OVER_INTEGERS:
            return self.read(family[0])
        pieces, _ = cut(inner, *_COMMAS)
        items: list[Value] = []
        for piece in pieces:
            value = self.read(piece)
            if isinstance(value, Items) and value.kind == "set":
                value = Items("member", value.items)  # a set within a set is one of its members
            items.extend(
                value.items if isinstance(value, Items) and value.kind == "list" else [value]
            )
        return Items("set", tuple(items))

    def _by_condition(self, inner: Tokens) -> Value | None:
        """``x | x > 2`` and ``x ∈ ℝ : x > 2``, within braces or, as typed, without them."""
        for bar in (("o", "|"), ("o", ":")):
            place = inner.index(bar) if bar in inner else 0
            names_one = place == 1 or (place > 2 and inner[1] == ("r", "in"))
            if names_one and inner[0][0] == "s":
                return self._such_that(inner[:place], inner[place + 1 :])
        return None

    def _such_that(self, named: Tokens, condition: Tokens) -> Value:
        r"""Read ``\{x : x > 2\}`` as what the condition says of its one name."""
        value = self.read(condition)
        over, _ = cut(named, ("r", "in"))
        domain = _REALS if len(over) == 1 else self.read(over[1])
        if isinstance(value, Interval) and isinstance(domain, Words):
            return Items("set", integers_within(value, domain.text))
        members = value.items if isinstance(value, Items) else (value,)
        if isinstance(members[0], Named) and domain == _REALS:
            bare = (item.value if isinstance(item, Named) else item for item in members)
            return Items("set", tuple(bare))
        if not isinstance(value, Interval | Region) or domain != _REALS:
            raise Unreadable("set by a condition")
        return replace(value, name="")  # the name is bound: any other would do

    def _solutions(self, tokens: Tokens) -> Value | None:
        """``x=1, y=2 or x=2, y=1``: points whose coordinates are named."""
        if ("w", "or") not in tokens and ("o", ";") not in tokens:
            return None
        points, _ = cut(tokens, ("w", "or"), ("o", ";"))
        rows = [sorted(cut(point, ("o", ","), ("w", "and"))[0]) for point in points]
        names = [[chunk[:2] for chunk in row] for row in rows]
        equations = all(pair[1:] == [("r", "=")] for row in names for pair in row)
        if len(rows) < 2 or len(rows[0]) < 2 or not equations or len(set(map(str, names))) > 1:
            return None
        read = (tuple(self.read(chunk[2:]) for chunk in row) for row in rows)
        return Items("list", tuple(Items("tuple", row, point=True) for row in read))

    # --- several values --------------------------------------------------------------------------

    def _several(self, pieces: Sequence[Tokens], separators: Sequence[Token]) -> Value:
        if len(pieces) > MAX_ITEMS:
            raise Unreadable("too many items")
        values = [self.read(piece) for piece in pieces]
        mixed = self._mixed_number(values, separators)
        if mixed is not None:
            return mixed
        either = any(text.lower() == "or" for _, text in separators)
        if all(isinstance(value, Interval | Region) for value in values) and either:
            return union(values)
        letters = list(map(_lone_letter, values))
        if either and all(letters):
            return Words(" or ".join(sorted(letters)))
        joined = None if either else (meet_all(values) or add_up(values))
        met = any(text.lower() == "and" for _, text in separators)
        if isinstance(joined, Interval) and is_empty(joined) and not met:
            return union(values)  # "x < -2, x > 3": nobody means both at once
        if joined is not None:
            return joined
        items: list[Value] = []
        for value in values:
            content = value.value if isinstance(value, Named) else value
            members = content.items if isinstance(content, Items) else ()
            if not isinstance(content, Items) or content.kind != "list":
                items.append(value)
            elif isinstance(value, Named):  # x = 0 or x = ±3
                items.extend(Named(value.name, member) for member in members)
            else:
                items.extend(members)
        return Items("list", tuple(items))

    def _mixed_number(self, values: Sequence[Value], separators: Sequence[Token]) -> Value | None:
        """Read ``1 and 3/4`` as a number, where no list is expected."""
        if self.listed or list(separators) != [("w", "and")]:
            return None
        whole, part = (exact(v.tree) if isinstance(v, Quantity) else None for v in values)
        if whole is None or part is None or whole.denominator != 1 or not 0 < part < 1 <= whole:
            return None
        return Quantity(num(whole + part))


def _lone_letter(value: Value) -> str:
    """Return the letter of an option or of a statement, as of ``p or q``; else nothing."""
    if isinstance(value, Quantity) and value.tree.op == "sym" and value.unit is None:
        return str(value.tree.value)
    return option_letter(value)


def _both_points(items: Sequence[Value]) -> Items:
    """Read ``(±1, 2)`` as two points."""
    rows = [item.items if isinstance(item, Items) else (item, item) for item in items]
    if any(len(row) != 2 for row in rows):
        raise Unreadable("a list within a point")
    points = zip(*rows, strict=True)
    return Items("list", tuple(Items("tuple", point, point=True) for point in points))


def _expand(quantity: Quantity) -> Value:
    """Read a value with ``±`` as two values."""
    if not has(quantity.tree, "pm"):
        return quantity
    both = [choose_signs(quantity.tree, plus) for plus in (True, False)]
    return Items("list", tuple(Quantity(tree, quantity.unit) for tree in both))
