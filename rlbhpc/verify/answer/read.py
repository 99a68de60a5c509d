"""The text of an answer to its value, and what could not be read to :class:`Unread`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, parse
from rlbhpc.verify.answer.lexer import (
    AND,
    CLOSE_PARENTHESIS,
    COLON,
    COMMA,
    MAX_CHARS,
    OPEN_PARENTHESIS,
    OR,
    Kind,
    Token,
    Tokens,
    canonical,
    closes_at_end,
    mark,
    settle_commas,
    split_at,
    texts_of,
    tokenize,
    trim,
)
from rlbhpc.verify.answer.numeric import Undecided
from rlbhpc.verify.answer.quantity import (
    HEDGES,
    read_based_number,
    read_plain_quantity,
    read_quantity,
)
from rlbhpc.verify.answer.relations import (
    Chain,
    interval_between,
    read_chain,
    union_of,
)
from rlbhpc.verify.answer.value import (
    OPTION_LETTERS,
    Choice,
    Grouping,
    Interval,
    Items,
    Matrix,
    Op,
    Quantity,
    Ratio,
    Region,
    Unread,
    Value,
    Words,
    choose_signs,
    contains_op,
    multiply,
    number_node,
)
from rlbhpc.verify.answer.words import read_words, without_domain, without_prose

_MAX_TOKENS: Final = 800
_MAX_ITEMS: Final = 100
_MAX_DEPTH: Final = 12
_SHORT_NUMBER_CHARS: Final = 18

_SEMICOLON: Final = mark(";")
_NEXT_ROW: Final = mark("\\\\")
_NEXT_CELL: Final = mark("&")
_BAR: Final = mark("|")
_ELEMENT_OF: Final = Token(Kind.RELATION, "in")
_TO: Final = Token(Kind.WORD, "to")
_ITEM_SEPARATORS: Final = (COMMA, _SEMICOLON, _NEXT_ROW)
_ITEM_WORDS: Final = (AND, OR, Token(Kind.WORD, "And"), Token(Kind.WORD, "Or"))
_REAL_NUMBERS: Final = (("mathbb", "{", "R", "}"), ("mathbb", "R"))
_ALL_REALS: Final = Region((Interval(None, None),))
_GROUPINGS: Final = {
    "(": Grouping.TUPLE, "[": Grouping.BRACKET, "<(": Grouping.ANGLE, "\\{": Grouping.SET,
}  # fmt: skip
_HALF_OPEN_BRACKETS: Final = (("(", "]"), ("[", ")"))
_MATRIX_ENVIRONMENTS: Final = frozenset("matrix pmatrix bmatrix Bmatrix array smallmatrix".split())


@lru_cache(maxsize=1024)
def read(text: str, is_list_expected: bool = False) -> Value:
    """Return the value that the text of an answer states; :class:`Unread` if it cannot be read.

    A *value* is a number or expression, several items, an interval, a matrix, words and so on.
    ``is_list_expected`` says that ``100,200`` is two numbers. ``canonical`` is the text in a form
    that can still be compared.
    """
    if len(text) > MAX_CHARS:
        return Unread(canonical(text))
    if len(text) <= _SHORT_NUMBER_CHARS and text.isdecimal() and text.isascii():
        return Quantity(number_node(int(text)), literal=text)  # most answers
    tokens = tokenize(text)
    if len(tokens) > _MAX_TOKENS:
        return Unread(canonical(text))
    try:
        return _Reader().read(settle_commas(tokens, is_list_expected))
    except (Unreadable, Undecided, RecursionError, ValueError, OverflowError):
        return Unread(canonical(text))


class _Reader:
    """Reads tokens into values; knows only how deep it is."""

    def __init__(self) -> None:
        self.depth = 0

    def read(self, tokens: Tokens) -> Value:
        """Return the value of tokens, whatever punctuation stands around them.

        Values within a value are read by this method, too; ``depth`` bounds how deep they nest.
        """
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unreadable("nested too deeply")
        trimmed = trim(tokens)
        if not trimmed:
            raise Unreadable("nothing")
        value = self.read_trimmed(trimmed)
        self.depth -= 1
        return value

    def read_trimmed(self, tokens: Tokens) -> Value:
        """Read tokens that no punctuation surrounds, the most frequent forms first.

        In turn: a plain expression, a matrix, words of a known meaning ("no solution"), several
        values, one value. ``without_domain`` cuts ``, k ∈ ℤ`` off. ``Words`` are text without such
        a meaning.
        """
        if not any(separator in tokens for separator in _ITEM_SEPARATORS):
            plain_quantity = read_plain_quantity(tokens)
            if plain_quantity is not None:
                return _with_both_signs(plain_quantity)
        if tokens[0].kind is Kind.BEGIN and closes_at_end(tokens):
            return _read_matrix(tokens)
        words = read_words(tokens)
        if words is not None and not isinstance(words, Words):
            return words
        tokens = without_domain(tokens)
        pieces, separators = split_at(tokens, *_ITEM_SEPARATORS, *_ITEM_WORDS)
        filled_pieces = [piece for piece in pieces if piece]
        if len(filled_pieces) > 1:
            return self.read_several(filled_pieces, separators)
        return words or self.read_chain_or_single(tokens)

    def read_chain_or_single(self, tokens: Tokens) -> Value:
        """Read a chain of relations, or one value where none stands outside of brackets.

        ``split_at`` splits at the relation signs and returns the sides and the signs. A hedge such
        as "not" beside a number makes a side a bound, and no value.
        """
        relations = {token for token in tokens if token.kind is Kind.RELATION}
        sides, signs = split_at(tokens, *relations)
        if not signs:
            return self.read_single(tokens)
        has_number = any(token.kind is Kind.NUMBER for token in sides[0])
        if has_number and not HEDGES.isdisjoint(texts_of(sides[0])):
            raise Unreadable("a bound")  # "not 2 + 3 = 5"
        return read_chain(Chain(sides, list(texts_of(signs))), self.read)

    # --- one value -------------------------------------------------------------------------------

    def read_single(self, tokens: Tokens) -> Value:
        """Read one value: the first reader that knows its form decides.

        In turn: a union of sets, the real numbers, a lettered option, a number in a base, a
        bracket, a ratio, a matrix with a factor, an expression with its unit. Each returns None for
        what it does not know. If nothing fits, the value may stand behind prose, as in "the area is
        5".
        """
        pieces, _ = split_at(tokens, mark("cup"))
        if len(pieces) > 1:
            return union_of([self.read(piece) for piece in pieces])
        if texts_of(tokens) in _REAL_NUMBERS:
            return _ALL_REALS
        value = (
            self.read_lettered(tokens)
            or read_based_number(tokens)
            or self.read_bracketed(tokens)
            or _read_ratio(tokens)
            or _read_scaled_matrix(tokens)
        )
        if value is not None:
            return value
        try:
            return _with_both_signs(read_quantity(tokens))
        except Unreadable:
            value_tokens = without_prose(tokens)
            if not value_tokens:
                raise
            return self.read(value_tokens)

    def read_lettered(self, tokens: Tokens) -> Choice | None:
        """Read ``(B)``, ``(B) 12``, ``B. 12``: the letter of an option and what stands beside it.

        None for tokens of another form.
        """
        if len(tokens) < 3:
            return None
        if tokens[0] == OPEN_PARENTHESIS and tokens[2] == CLOSE_PARENTHESIS:
            letter, content = tokens[1].text, tokens[3:]
        elif tokens[1] in (mark("."), COLON, CLOSE_PARENTHESIS):
            letter, content = tokens[0].text, tokens[2:]
        else:
            return None
        if len(letter) != 1 or letter not in OPTION_LETTERS:
            return None
        return Choice(letter, self.read(content) if content else None)

    # --- brackets --------------------------------------------------------------------------------

    def read_bracketed(self, tokens: Tokens) -> Value | None:
        """Read what one pair of brackets encloses: a point, an interval, a set; None for all else.

        Parentheses around one value say nothing. Brackets of two kinds make a half-open interval.
        Whether ``(1, 2)`` is a point or an open interval only a comparison can tell, so it stays
        ``Items``: the values and the kind of bracket.
        """
        first, last = tokens[0].text, tokens[-1].text
        if first not in _GROUPINGS or not closes_at_end(tokens):
            return None
        inner = tokens[1:-1]
        if first == "\\{":
            return self.read_set(inner)
        pieces, _ = split_at(inner, *_ITEM_SEPARATORS)
        if len(pieces) == 1:
            return self.read(inner) if first == "(" else None
        items = tuple(self.read(piece) for piece in pieces)
        if (first, last) in _HALF_OPEN_BRACKETS:
            if len(items) != 2:
                raise Unreadable("brackets of two kinds")
            return interval_between(items, first == "[", last == "]")
        return Items(_GROUPINGS[first], items)

    def read_set(self, inner: Tokens) -> Value:
        """Read what stands between the braces of a set: nothing, a condition, or members.

        A region without parts is the empty set. A condition is ``x | x > 2``. A member that is a
        list, as ``±3`` is, gives each of its values.
        """
        if not inner:
            return Region(())
        condition = self.read_condition(inner)
        if condition is not None:
            return condition
        pieces, _ = split_at(inner, *_ITEM_SEPARATORS)
        members = [self.read(piece) for piece in pieces]
        if any(isinstance(member, Items) and member.grouping is Grouping.SET for member in members):
            raise Unreadable("a set of sets")
        return Items(Grouping.SET, tuple(_flatten(members)))

    def read_condition(self, tokens: Tokens) -> Value | None:
        """Read ``x | x > 2`` and ``x ∈ ℝ : x > 2``, the inside of a set, as the interval it is.

        None for tokens of another form: a variable, a bar or a colon, and a condition with a
        relation sign.
        """
        bars = [index for index, token in enumerate(tokens) if token in (_BAR, COLON)]
        if not bars or tokens[0].kind is not Kind.SYMBOL:
            return None
        variable, condition = tokens[: bars[0]], tokens[bars[0] + 1 :]
        # Either "x" or "x ∈ ℝ".
        is_variable = len(variable) == 1 or texts_of(variable[2:]) in _REAL_NUMBERS
        has_relation = any(token.kind is Kind.RELATION for token in condition)
        if not is_variable or not has_relation or variable[1:2] not in ([], [_ELEMENT_OF]):
            return None
        value = self.read(condition)
        if not isinstance(value, Interval | Region):
            raise Unreadable("set by a condition")
        return replace(value, name="")  # the name is bound: any other would do

    # --- several values --------------------------------------------------------------------------

    def read_several(self, pieces: Sequence[Tokens], separators: Sequence[Token]) -> Value:
        """Read values that commas and words separate, as one value.

        ``separators`` are the tokens between the pieces. With "or", intervals form a union. All
        others are a list.
        """
        if len(pieces) > _MAX_ITEMS:
            raise Unreadable("too many items")
        values = [self.read(piece) for piece in pieces]
        words = {separator.text.lower() for separator in separators}
        if "or" in words and all(isinstance(value, Interval | Region) for value in values):
            return union_of(values)
        return Items(Grouping.LIST, tuple(_flatten(values)))


def _flatten(values: Sequence[Value]) -> list[Value]:
    """Return the values with each list among them, such as ``±3``, replaced by its members."""
    members: list[Value] = []
    for value in values:
        if isinstance(value, Items) and value.grouping is Grouping.LIST:
            members += value.items
        else:
            members.append(value)
    return members


def _with_both_signs(quantity: Quantity) -> Value:
    """Read a value with ``±`` as two values."""
    if not contains_op(quantity.tree, Op.PLUS_MINUS):
        return quantity
    upper, lower = (choose_signs(quantity.tree, is_upper) for is_upper in (True, False))
    return Items(Grouping.LIST, (Quantity(upper, quantity.unit), Quantity(lower, quantity.unit)))


def _read_ratio(tokens: Tokens) -> Ratio | None:
    """Read ``3:4`` and ``3 to 4``; None for all else, such as the time ``9:05``."""
    pieces, _ = split_at(tokens, COLON, _TO)
    if len(pieces) < 2 or not all(pieces):
        return None
    if any(len(piece[0].text) > 1 and piece[0].text.startswith("0") for piece in pieces):
        return None
    if any(token.kind is Kind.WORD for piece in pieces for token in piece):
        return None
    return Ratio(tuple(map(parse, pieces)))


def _read_matrix(tokens: Tokens) -> Matrix:
    r"""Read an environment of cells from its beginning to its end.

    ``_NEXT_ROW``, the token of ``\\``, separates rows, and ``_NEXT_CELL``, that of ``&``, their
    cells. Rows of different lengths are refused.
    """
    if tokens[0].text not in _MATRIX_ENVIRONMENTS:
        raise Unreadable(f"environment {tokens[0].text}")
    rows = [
        tuple(parse(trim(cell)) for cell in split_at(row, _NEXT_CELL)[0])
        for row in split_at(tokens[1:-1], _NEXT_ROW)[0]
        if row
    ]
    if not rows or len({len(row) for row in rows}) != 1:
        raise Unreadable("ragged matrix")
    return Matrix(tuple(rows))


def _read_scaled_matrix(tokens: Tokens) -> Matrix | None:
    r"""Read ``\frac13 \begin{pmatrix}…``, and a matrix in brackets of its own; None for all else.

    The factor, if there is one, multiplies every cell; a mere minus sign is a factor of -1.
    """
    kinds = [token.kind for token in tokens]
    if Kind.BEGIN not in kinds or Kind.END not in kinds:
        return None
    start, end = kinds.index(Kind.BEGIN), kinds.index(Kind.END) + 1
    factor_tokens, behind = list(tokens[:start]), tokens[end:]
    if (
        factor_tokens
        and factor_tokens[-1].text in ("[", "(")
        and texts_of(behind) in (("]",), (")",))
    ):
        factor_tokens, behind = factor_tokens[:-1], []
    if behind:
        raise Unreadable("more than a matrix")
    matrix = _read_matrix(tokens[start:end])
    if not factor_tokens:
        return matrix
    if factor_tokens[-1].text in ("+", "-"):
        factor_tokens.append(Token(Kind.NUMBER, "1"))
    factor = parse([token for token in factor_tokens if token != mark("*")])
    return Matrix(tuple(tuple(multiply(factor, cell) for cell in row) for row in matrix.rows))
