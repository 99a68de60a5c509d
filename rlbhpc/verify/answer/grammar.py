"""Tokens to an expression tree, by a hand-written parser that is linear and cannot hang.

It reads what answers are made of and refuses the rest with :class:`Unreadable`, so that nothing is
ever read as something smaller than it is.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.lexer import (
    CLOSE_BRACE,
    CLOSE_PARENTHESIS,
    FUNCTION_NAMES,
    OPEN_BRACE,
    OPEN_PARENTHESIS,
    Kind,
    Token,
    Tokens,
    mark,
)
from rlbhpc.verify.answer.value import (
    INFINITY,
    PI,
    ZERO,
    E,
    I,
    Node,
    Op,
    add,
    divide,
    multiply,
    negate,
    number_node,
    raise_to,
    symbol_node,
)

_MAX_DIGITS: Final = 2000
_MAX_EXPONENT: Final = 5000
_MAX_PERIOD: Final = 200
_MAX_TOKENS: Final = 600
_MAX_DEPTH: Final = 40
_NO_TOKEN: Final = Token(Kind.END, "")
# Every token that a rule looks ahead or back at exists.
_PADDING: Final = (_NO_TOKEN,) * 8

_FRAC: Final = Token(Kind.FUNCTION, "frac")
_SQRT: Final = Token(Kind.FUNCTION, "sqrt")
_BAR_ABOVE: Final = Token(Kind.FUNCTION, "bar")
_POWER_SIGN: Final = mark("^")
_SUBSCRIPT_SIGN: Final = mark("_")
_FACTORIAL_SIGN: Final = mark("!")
_DEGREE_SIGN: Final = mark("deg")
_DIVISION_SIGN: Final = mark("/")
_BAR: Final = mark("|")
_PRIME: Final = mark("'")

# The tokens of a fraction of two integers: \\frac{1}{2}, and 1/2 behind a blank.
_DIGITS: Final = "digits"
_FRACTION_SHAPES: Final = (
    ("frac", "{", _DIGITS, "}", "{", _DIGITS, "}"),
    (_DIGITS, "/", _DIGITS),
)

_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "|_": "_|", "|^": "^|"}
_SIGNS: Final = frozenset(map(mark, ("+", "-", "+-", "-+")))
_GROUP_OPENINGS: Final = frozenset(map(mark, ("(", "{", "[", "|")))
_TWO_SIGNS: Final = ("+-", "-+")
_TRIGONOMETRIC: Final = frozenset("sin cos tan cot sec csc sinh cosh tanh coth".split())
_INVERSE_NAMES: Final = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_EVALUATED_FUNCTIONS: Final = FUNCTION_NAMES - frozenset(
    "deg det dim ker max min gcd lcm arg Re Im".split()
)
_DECORATIONS: Final = frozenset("bar dot ddot hat tilde angle".split())
# Letters that name functions when a parenthesis follows; other letters multiply.
_FUNCTION_LETTERS: Final = frozenset("fghFGH")


class Unreadable(Exception):  # noqa: N818 - an outcome, not a fault
    """The tokens of an answer are nothing that can be read with certainty."""


def parse_number(text: str) -> Fraction:
    """Return the value of a number token; ``6.02e23`` is exact."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > _MAX_DIGITS or abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise Unreadable("number too long")
    return Fraction(text.replace(",", ""))


def parse(tokens: Tokens) -> Node:
    """Return the expression tree of all tokens, or raise :class:`Unreadable`."""
    if len(tokens) > _MAX_TOKENS:
        raise Unreadable("too long")
    parser = _Parser(tokens)
    node = parser.read_sum()
    if parser.peek() is not _NO_TOKEN:
        raise Unreadable(f"unexpected {parser.peek().text!r}")
    return node


def parse_if_readable(tokens: Tokens) -> Node | None:
    """Parse all tokens as one expression; None if they are none."""
    try:
        return parse(tokens)
    except Unreadable:
        return None


class _Parser:
    """Recursive descent over one list of tokens; each ``read_`` method takes what it reads."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = [*tokens, *_PADDING]
        self.position = 0
        self.depth = 0
        self.open_bars = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the token ``ahead`` places on without taking it."""
        return self.tokens[self.position + ahead]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        if token is not _NO_TOKEN:
            self.position += 1
        return token

    def accept(self, token: Token) -> bool:
        """Take the next token if it is this one."""
        if self.peek() != token:
            return False
        self.position += 1
        return True

    def expect(self, token: Token) -> None:
        """Take the next token, which must be this one."""
        if not self.accept(token):
            raise Unreadable(f"{token.text!r} missing")

    # --- sums and products -----------------------------------------------------------------------

    def read_sum(self) -> Node:
        """Read terms that plus and minus signs join, and return the tree of their sum.

        ``read_sign`` returns the sign before a term: ``+``, ``-``, ``+-`` (±) or ``-+`` (∓). A
        ``±`` makes one node of all terms before it and the next one. ``depth`` counts sums within
        sums, which are limited so that hostile text cannot exhaust the stack.
        """
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unreadable("nested too deeply")
        terms: list[Node] = []
        sign = self.read_sign()
        while True:
            term = self.read_product()
            if sign in _TWO_SIGNS:
                terms = [Node(Op.PLUS_MINUS, (_sum_of(terms), term), sign)]
            else:
                terms.append(negate(term) if sign == "-" else term)
            if self.peek() not in _SIGNS:
                break
            sign = self.read_sign()
        self.depth -= 1
        return _sum_of(terms)

    def read_sign(self) -> str:
        """Take all signs that follow and return the one that they make: ``--`` is ``+``.

        Without any sign it is ``+``. A ``±`` or ``∓`` ends the run and is returned as ``+-`` or
        ``-+``.
        """
        sign = "+"
        while self.peek() in _SIGNS:
            text = self.take().text
            if text in _TWO_SIGNS:
                return text
            if text == "-":
                sign = "-" if sign == "+" else "+"
        return sign

    def read_product(self) -> Node:
        """Read factors that ``*``, ``/`` or nothing joins, from left to right; return their tree.

        ``accept`` takes the next token if it is this one. ``factor_follows`` says whether the next
        token begins a factor without any sign, as in ``2x``.
        """
        node = self.read_factor()
        while True:
            if self.accept(mark("*")):
                node = multiply(node, self.read_signed_factor())
            elif self.accept(_DIVISION_SIGN):
                node = divide(node, self.read_signed_factor())
            elif self.factor_follows():
                node = multiply(node, self.read_factor())
            else:
                return node

    def factor_follows(self) -> bool:
        """Whether the next token begins a factor without any sign before it, as in ``2x``.

        The keys of ``_CLOSING`` are the opening brackets. A bar opens an absolute value only while
        none is open. A word in capitals is a segment such as ``AB``.
        """
        kind, text = self.peek()
        if kind is Kind.NUMBER:
            # Two numbers side by side are no product, but (n-2) 2^n is one.
            return self.peek(-1) == CLOSE_PARENTHESIS
        if kind is Kind.MARK:
            is_opening_bar = text == "|" and not self.open_bars
            return text in _CLOSING or is_opening_bar
        is_segment = kind is Kind.WORD and text.isupper()
        return is_segment or kind in (Kind.SYMBOL, Kind.FUNCTION)

    def read_signed_factor(self) -> Node:
        is_negative = self.read_sign() == "-"
        factor = self.read_factor()
        return negate(factor) if is_negative else factor

    # --- factors ---------------------------------------------------------------------------------

    def read_factor(self) -> Node:
        r"""Read an atom and the factorials, percent and degree signs and powers behind it.

        ``read_atom`` reads a number, a name, a function or a group in brackets; ``read_script``
        reads an exponent. A raised degree sign, ``30^\circ``, makes an angle and no power.
        """
        node = self.read_atom()
        while True:
            if self.accept(_FACTORIAL_SIGN):
                if self.peek() == _FACTORIAL_SIGN:
                    raise Unreadable("a double factorial")
                node = Node(Op.FACTORIAL, (node,))
            elif self.accept(mark("%")):
                node = multiply(node, number_node(Fraction(1, 100)))
            elif self.accept(_DEGREE_SIGN):
                node = Node(Op.DEGREES, (node,))
            elif self.accept(_POWER_SIGN):
                is_angle = self.accept_degree_sign()
                node = Node(Op.DEGREES, (node,)) if is_angle else raise_to(node, self.read_script())
            else:
                return node

    def accept_degree_sign(self) -> bool:
        r"""Take the rest of ``^\circ`` or ``^{\circ}``; return whether it stood there."""
        if self.accept(_DEGREE_SIGN):
            return True
        if [self.peek(), self.peek(1), self.peek(2)] != [OPEN_BRACE, _DEGREE_SIGN, CLOSE_BRACE]:
            return False
        self.position += 3
        return True

    def read_script(self) -> Node:
        """Read an exponent or a base: ``{…}``, ``2``, ``-1``, the tower ``b^c``.

        The ``^`` or ``_`` before it is taken already.
        """
        if self.read_sign() == "-":
            return negate(self.read_script())
        if self.peek().kind is Kind.NUMBER:
            # A bare number ends with its digits: the fraction after ^2 is a factor.
            node = number_node(parse_number(self.take().text))
        else:
            node = self.read_atom()
        return raise_to(node, self.read_script()) if self.accept(_POWER_SIGN) else node

    def read_atom(self) -> Node:
        """Read the smallest whole: a number, a name, a function, or what brackets enclose.

        ``take`` returns the next token, a kind and a text, and moves on. ``_CLOSING`` maps each
        opening bracket to its closing one; ``|_`` opens a floor, ``|^`` a ceiling, ``|`` an
        absolute value. A word in capitals is a segment such as ``AB`` and becomes one symbol.
        """
        kind, text = self.take()
        if kind is Kind.NUMBER:
            return self.read_number(text)
        if kind is Kind.SYMBOL:
            return self.read_symbol(text)
        if kind is Kind.FUNCTION:
            return self.read_function(text)
        if kind is Kind.WORD and text.isupper():
            return symbol_node(text + self.read_subscript())
        if kind is not Kind.MARK:
            raise Unreadable(f"{text!r} in an expression")
        if text == "|":
            return self.read_absolute_value()
        if text not in _CLOSING:
            raise Unreadable(f"{text!r} in an expression")
        node = self.read_sum()
        self.expect(mark(_CLOSING[text]))
        if text == "|_":
            return Node(Op.FLOOR, (node,))
        return Node(Op.CEILING, (node,)) if text == "|^" else node

    def read_absolute_value(self) -> Node:
        """Read what stands between the bar that was taken and the next one.

        While ``open_bars`` is not 0, a bar closes.
        """
        self.open_bars += 1
        node = self.read_sum()
        self.open_bars -= 1
        self.expect(_BAR)
        return Node(Op.ABSOLUTE, (node,))

    # --- numbers ---------------------------------------------------------------------------------

    def read_number(self, digits: str) -> Node:
        r"""Read what begins with a number: also ``3\frac12`` and ``3 1/2``.

        ``digits`` is the text of the number, which is taken already.
        """
        value = parse_number(digits)
        if digits.isdigit():
            value += self.read_proper_fraction()
        return number_node(value)

    def read_proper_fraction(self) -> Fraction:
        """Take the fraction of a mixed number such as ``3 1/2`` and return its value, or 0.

        ``_FRACTION_SHAPES`` lists the token texts that write a fraction, with ``_DIGITS`` in place
        of any integer. A fraction of 1 or more makes no mixed number.
        """
        for shape in _FRACTION_SHAPES:
            tokens = self.tokens[self.position : self.position + len(shape)]
            digits = [token.text for token in tokens if token.text.isdigit()]
            has_shape = all(
                token.text.isdigit() if expected == _DIGITS else token.text == expected
                for token, expected in zip(tokens, shape, strict=False)
            )
            if not has_shape:
                continue
            top, bottom = map(parse_number, digits)
            if 0 < top < bottom:
                self.position += len(shape)
                return top / bottom
        return Fraction(0)

    # --- symbols ---------------------------------------------------------------------------------

    def read_symbol(self, text: str) -> Node:
        """Read a name with its subscript and primes, or the value of an unknown function.

        ``text`` is the letter or macro, which is taken already; ``oo`` is infinity. A parenthesis
        behind a name holds arguments if the letter is one for functions (``f``, ``g``, ``h``) or a
        lone number stands in it. Otherwise it is a factor.
        """
        if text == "oo":
            return INFINITY
        name = text + self.read_subscript() + self.read_primes()
        if self.peek() == OPEN_PARENTHESIS:
            # Nobody multiplies a letter by a number behind it, so f(0) and a(0) apply it.
            at_a_number = self.peek(1).kind is Kind.NUMBER and self.peek(2) == CLOSE_PARENTHESIS
            if name[0] in _FUNCTION_LETTERS or at_a_number:
                return Node(Op.UNKNOWN_FUNCTION, self.read_arguments(), name)
        constants = {"\\pi": PI, "e": E, "i": I}
        return constants.get(name) or symbol_node(name)

    def read_primes(self) -> str:
        r"""Read ``'`` and ``^{\prime\prime}`` behind a name; return them as plain primes.

        ``primes_are_raised`` says whether a ``^`` with a prime follows.
        """
        primes = ""
        while self.peek() == _PRIME or self.primes_are_raised():
            is_braced = self.accept(_POWER_SIGN) and self.accept(OPEN_BRACE)
            while self.accept(_PRIME):
                primes += "'"
            if is_braced:
                self.expect(CLOSE_BRACE)
        return primes

    def primes_are_raised(self) -> bool:
        first, second = self.peek(1), self.peek(2)
        is_prime = first == _PRIME or (first == OPEN_BRACE and second == _PRIME)
        return self.peek() == _POWER_SIGN and is_prime

    def read_subscript(self) -> str:
        r"""Read ``_0``, ``_{\text{max}}`` and the like; return what a name gets: ``_max``.

        ``""`` if no subscript follows. ``_NO_TOKEN`` stands behind the last token.
        """
        if not self.accept(_SUBSCRIPT_SIGN):
            return ""
        if not self.accept(OPEN_BRACE):
            kind, text = self.take()
            if kind in (Kind.MARK, Kind.END):
                raise Unreadable("odd subscript")
            return "_" + text
        subscript = "_"
        open_braces = 1
        while open_braces:
            token = self.take()
            if token is _NO_TOKEN:
                raise Unreadable("open subscript")
            if token == OPEN_BRACE:
                open_braces += 1
            elif token == CLOSE_BRACE:
                open_braces -= 1
            else:
                subscript += token.text
        return subscript

    def read_arguments(self) -> tuple[Node, ...]:
        """Read ``(a, b)`` and return the trees of the arguments."""
        self.expect(OPEN_PARENTHESIS)
        arguments = [self.read_sum()]
        while self.accept(mark(",")):
            arguments.append(self.read_sum())
        self.expect(CLOSE_PARENTHESIS)
        return tuple(arguments)

    # --- functions -------------------------------------------------------------------------------

    def read_function(self, name: str) -> Node:
        r"""Read what follows the name of a function, and return the tree of its value.

        ``read_atom`` reads one group in braces, or one token. ``_DECORATIONS`` are accents such as
        ``\bar``: they and what is below them form one name. Functions that nothing here can
        evaluate are refused.
        """
        if name == "frac":
            return divide(self.read_atom(), self.read_atom())
        if name == "binom":
            return Node(Op.CHOOSE, (self.read_atom(), self.read_atom()))
        if name == "sqrt":
            degree = number_node(2)
            if self.accept(mark("[")):
                degree = self.read_sum()
                self.expect(mark("]"))
            return Node(Op.ROOT, (degree, self.read_atom()))
        if name in _DECORATIONS:
            return self.read_decorated_name(name)
        if name not in _EVALUATED_FUNCTIONS:
            raise Unreadable(f"\\{name} is not evaluated")
        return self.read_application(_INVERSE_NAMES.get(name, name))

    def read_decorated_name(self, decoration: str) -> Node:
        r"""Read ``\bar x``, ``\hat{\theta}``, ``\angle ABC`` as one symbol, such as ``bar x``.

        ``decoration`` is the macro's name, which is taken already. Without braces an accent covers
        one letter, an angle all letters that follow.
        """
        letters = ""
        is_braced = self.accept(OPEN_BRACE)
        while self.peek().kind is Kind.SYMBOL or self.peek().text.isupper():
            letters += self.take().text
            if not is_braced and decoration != "angle":
                break
        letters += self.read_subscript()
        if not letters:
            raise Unreadable(f"{decoration} of nothing")
        if is_braced:
            self.expect(CLOSE_BRACE)
        return symbol_node(f"{decoration} {letters}{self.read_subscript()}")

    def read_application(self, name: str) -> Node:
        r"""Read what follows a function's name: ``\log_2 x``, ``\sin^2 x``, ``\tan^{-1} x``.

        A subscript is the base of a logarithm. A power is one of the function's value, but
        ``^{-1}`` makes a trigonometric function its inverse.
        """
        base: Node | None = None
        power: Node | None = None
        while self.peek() in (_SUBSCRIPT_SIGN, _POWER_SIGN):
            if self.take() == _SUBSCRIPT_SIGN:
                base = self.read_script()
            else:
                power = self.read_script()
        if name in _TRIGONOMETRIC and power == negate(number_node(1)):
            name, power = "arc" + name, None
        argument = self.read_function_argument()
        if name == "exp":
            node = raise_to(E, argument)
        elif base is None:
            node = Node(Op.KNOWN_FUNCTION, (argument,), name)
        elif name == "log":
            node = Node(Op.KNOWN_FUNCTION, (argument, base), name)
        else:
            raise Unreadable("subscript of a function")
        return node if power is None else raise_to(node, power)

    def read_function_argument(self) -> Node:
        """Read a group, or the factors that stand side by side up to the next sign or function.

        So ``sin 2x + 1`` has the argument ``2x``. ``_GROUP_OPENINGS`` are the brackets that begin a
        group.
        """
        if self.peek() in _GROUP_OPENINGS:
            return self.read_atom()
        is_negative = self.read_sign() == "-"
        node = self.read_factor()
        while self.peek().kind is Kind.SYMBOL or self.peek() in (_FRAC, _SQRT, OPEN_PARENTHESIS):
            node = multiply(node, self.read_factor())
        return negate(node) if is_negative else node


def _sum_of(terms: list[Node]) -> Node:
    if not terms:
        return ZERO
    return terms[0] if len(terms) == 1 else add(*terms)
