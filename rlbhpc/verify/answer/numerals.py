"""Number literals as exact fractions: e-notation, thousands marks, repeating decimals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.lexer import Token
from rlbhpc.verify.answer.tree import Node, num

MAX_DIGITS: Final = 2000
MAX_EXPONENT: Final = 5000
END: Final[Token] = ("end", "")
_ENDS: Final = (END,) * 8


class Unreadable(Exception):  # noqa: N818 - an outcome, not a fault
    """The tokens of an answer are nothing that can be read with certainty."""


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        # Ends behind and before: every token that a rule looks ahead or back at exists.
        self.tokens = [*tokens, *_ENDS]
        self.at = 0
        self.depth = 0
        self.bars = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the token ``ahead`` places on without taking it."""
        return self.tokens[self.at + ahead]

    def take(self) -> Token:
        """Take the next token."""
        token = self.tokens[self.at]
        self.at += token is not END
        return token

    def accept(self, text: str, kind: str = "o") -> bool:
        """Take the next token if it is this one."""
        token = self.tokens[self.at]
        if token[1] == text and token[0] == kind:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if not self.accept(text):
            raise Unreadable(f"{text!r} missing")


def number(text: str) -> Fraction:
    """Read a number token; ``6.02e23`` is exact."""
    text = text.replace(",", "")
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise Unreadable("number too long")
    return Fraction(text)


def repeating(head: str, period: str) -> Fraction:
    """Value of a decimal such as ``0.1`` followed by the digits ``period`` without end."""
    decimals = head.partition(".")[2]
    unit = 10 ** len(decimals)
    return Fraction(head.rstrip(".") or 0) + Fraction(int(period), unit * (10 ** len(period) - 1))


def ellipsis(text: str) -> Fraction:
    """Value of ``0.1666…``: the shortest period that the repeats digits repeat."""
    head, _, decimals = text.partition(".")
    for period in range(1, len(decimals) // 2 + 1):
        repeats = 3 if period == 1 and len(set(decimals)) > 1 else 2
        block = decimals[-period:]
        if decimals.endswith(block * repeats):
            start = len(decimals) - period * repeats
            while start >= 1 and decimals[start - 1] == decimals[start - 1 + period]:
                start -= 1
            lead = decimals[:start]
            block = decimals[start : start + period]
            return repeating(f"{head}.{lead}", block)
    raise Unreadable("decimals that do not repeat")


def read_number(cursor: Cursor, text: str) -> Node:
    """Read what begins with a number token: a mixed number, a repeating decimal, ``5C2``."""
    value = number(text)
    if cursor.peek() is END:
        return num(value)
    if "e" not in text.lower():
        repeated = _repeating(cursor, text)
        if repeated is not None:
            return num(repeated)
    whole = text.isdigit()
    if whole and cursor.peek() == ("f", "frac"):
        part = _literal_fraction(cursor)
        if part is not None and 0 < part[0] < 1:
            cursor.at = part[1]
            return num(value + part[0])
    if whole and [cursor.peek(n)[0] for n in (0, 2)] == ["n", "n"] and cursor.peek(1)[1] == "/":
        top, bottom = cursor.peek(0)[1], cursor.peek(2)[1]
        if top.isdigit() and bottom.isdigit() and 0 < number(top) < number(bottom):
            cursor.at += 3
            return num(value + number(top) / number(bottom))
    if whole and cursor.peek() in (("s", "C"), ("s", "P")) and cursor.peek(1)[0] == "n":
        kind = "binom" if cursor.take()[1] == "C" else "perm"
        return Node(kind, (num(value), num(number(cursor.take()[1]))))
    return num(value)


def _literal_fraction(cursor: Cursor) -> tuple[Fraction, int] | None:
    r"""``\frac{a}{b}`` of two integers: its value and where it ends."""
    following = cursor.tokens[cursor.at + 1 : cursor.at + 7]
    shape = "".join("n" if kind == "n" else text for kind, text in following)
    if not shape.startswith(("{n}{n}", "{n}n")):
        return None
    top, bottom = [number(text) for kind, text in following if kind == "n"][:2]
    size = 7 if shape.startswith("{n}{n}") else 5
    return (top / bottom, cursor.at + size) if bottom else None


def _repeating(cursor: Cursor, text: str) -> Fraction | None:
    r"""``0.1\overline{6}``, ``0.\dot{3}``, ``0.\dot{1}4285\dot{7}``, ``0.(3)``, ``0.333…``."""
    start = cursor.at
    if "." in text and cursor.accept("..."):
        return ellipsis(text)
    if "." not in text and not cursor.accept("."):
        return None
    head, period = text if "." in text else text + ".", ""
    if cursor.accept("bar", "f"):
        period = _digits_in_braces(cursor)
    elif cursor.accept("(") and cursor.peek()[0] == "n" and cursor.peek(1) == ("o", ")"):
        period = cursor.take()[1]
        cursor.take()
    elif cursor.accept("dot", "f"):
        period = _digits_in_braces(cursor)
        if cursor.peek()[0] == "n" and cursor.peek(1) == ("f", "dot"):
            period += cursor.take()[1]
        if period and cursor.accept("dot", "f"):
            period += _digits_in_braces(cursor)
    if not period.isdigit() or len(period) > 200:
        cursor.at = start
        return None
    cursor.accept("...")
    return repeating(head, period)


def _digits_in_braces(cursor: Cursor) -> str:
    if cursor.accept("{") and cursor.peek()[0] == "n" and cursor.peek(1) == ("o", "}"):
        digits = cursor.take()[1]
        cursor.take()
        return digits
    # Without braces a mark stands over one digit: of ``0.\bar36`` over the 3 alone.
    if cursor.peek()[0] == "n" and len(cursor.peek()[1]) == 1:
        return cursor.take()[1]
    return ""
