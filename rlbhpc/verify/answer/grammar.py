"""Tokens to an expression tree, by a hand-written parser that is linear and cannot hang.

It reads what answers are made of and refuses the rest with :class:`Unreadable`, so that nothing is
ever read as something smaller than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.lexer import FUNCTIONS, Token
from rlbhpc.verify.answer.value import Node, has_const, num

# --- number literals -----------------------------------------------------------------------------


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


# --- expressions ---------------------------------------------------------------------------------


MAX_TOKENS: Final = 600
MAX_DEPTH: Final = 40


_CLOSERS: Final = {"(": ")", "[": "]", "{": "}", "|(": "|)", "|_": "_|", "|^": "^|", "<(": ">)"}
_TRIG: Final = frozenset("sin cos tan cot sec csc sinh cosh tanh coth".split())
_INVERSE: Final = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_MANY: Final = frozenset("max min gcd lcm".split())
_DECORATIONS: Final = frozenset("bar dot ddot hat tilde angle".split())
# Letters that name functions when a parenthesis follows; other letters multiply.
_FUNCTION_LETTERS: Final = frozenset("fghFGH")


def parse(tokens: Sequence[Token]) -> Node:
    """Parse all tokens as one expression, or raise :class:`Unreadable`."""
    if len(tokens) > MAX_TOKENS:
        raise Unreadable("too long")
    parser = _Parser(tokens)
    node = parser.sum()
    if parser.accept("choose"):
        node = Node("binom", (node, parser.sum()))
    if parser.peek() != END:
        raise Unreadable(f"unexpected {parser.peek()[1]!r}")
    return node


class _Parser(Cursor):
    """Recursive descent over one list of tokens."""

    # --- sums and products -----------------------------------------------------------------------

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        terms: list[Node] = []
        sign = self._sign()
        if sign in ("+-", "-+"):
            terms.append(num(0))
        while True:
            term = self.product()
            if sign in ("+-", "-+"):
                left = terms[0] if len(terms) == 1 else Node("add", tuple(terms))
                terms = [Node("pm", (left, term), sign)]
            else:
                terms.append(Node("neg", (term,)) if sign == "-" else term)
            if self.peek()[1] not in ("+", "-", "+-", "-+") or self.peek()[0] != "o":
                break
            sign = self._sign()
        self.depth -= 1
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _sign(self) -> str:
        sign = "+"
        while self.peek()[0] == "o" and self.peek()[1] in ("+", "-", "+-", "-+"):
            text = self.take()[1]
            if len(text) == 2:
                return text
            if text == "-":
                sign = "-" if sign == "+" else "+"
        return sign

    def product(self) -> Node:
        node = self.factor()
        while self.peek() is not END:
            kind, text = self.peek()
            if kind == "o" and text == "*":
                self.take()
                node = Node("mul", (node, self.signed_factor()))
            elif kind == "o" and text == "/":
                self.take()
                node = Node("div", (node, self.signed_factor()))
            elif self._starts_factor():
                node = Node("mul", (node, self.factor()))
            else:
                break
        return node

    def _starts_factor(self) -> bool:
        kind, text = self.peek()
        if kind in ("s", "f") or (kind == "w" and text.isupper()):
            return True
        if kind == "n":
            power = self.peek(-1)[0] == "s" and self.peek(1) == ("o", "^")  # n2^n
            if self.peek(-1) == ("o", "}"):
                return self.peek(1) == ("o", "!")
            return power or self.peek(-1) in (("o", ")"), ("o", "!"), ("s", "i"))
        return kind == "o" and (
            text in ("(", "[", "{", "|(", "|_", "|^") or (text == "|" and not self.bars)
        )

    def signed_factor(self) -> Node:
        return Node("neg", (self.factor(),)) if self._sign() == "-" else self.factor()

    # --- factors ---------------------------------------------------------------------------------

    def factor(self) -> Node:
        node = self.atom()
        while self.peek()[0] == "o":
            if self.accept("!"):
                if self.peek() == ("o", "!"):
                    raise Unreadable("a double factorial")
                node = Node("fact", (node,))
            elif self.accept("%"):
                node = Node("mul", (node, num(Fraction(1, 100))))
            elif self.accept("^") or self.peek() == ("o", "deg"):
                if self._degree_sign():
                    node = Node("deg", (node,))
                else:
                    node = Node("pow", (node, self.exponent()))
            else:
                break
        return node

    def _degree_sign(self) -> bool:
        if self.accept("deg"):
            return True
        if [self.peek(n)[1] for n in range(3)] == ["{", "deg", "}"]:
            self.at += 3
            return True
        return False

    def exponent(self) -> Node:
        """``^{…}``, ``^2``, ``^-1``, ``^(1/2)`` and the tower ``a^b^c``."""
        if self._sign() == "-":
            return Node("neg", (self.exponent(),))
        # A bare number ends with its digits: the fraction after ``_2`` or ``^2`` is a factor.
        node = num(number(self.take()[1])) if self.peek()[0] == "n" else self.atom()
        if self.accept("^"):
            node = Node("pow", (node, self.exponent()))
        return node

    def atom(self) -> Node:
        kind, text = self.take()
        if kind == "n":
            return read_number(self, text)
        if kind == "s":
            return self._symbol(text)
        if kind == "w" and text.isupper():
            return Node("sym", (), text + self._subscript())
        if kind == "f":
            return self._function(text)
        if kind != "o":
            raise Unreadable(f"{text!r} in an expression")
        if text == "." and self.peek() in (("f", "bar"), ("f", "dot")):
            self.at -= 1
            return read_number(self, "0")
        if text in ("^", "_") or (text == "{" and self.peek() == ("o", "}")):
            self.at -= 1
            return self._prescripted()
        if text in ("(", "[", "{"):
            node = self.sum()
            if text == "{" and self.accept("choose"):
                node = Node("binom", (node, self.sum()))
            self.expect(_CLOSERS[text])
            return node
        if text in ("|(", "|"):
            self.bars += 1
            node = self.sum()
            self.bars -= 1
            if not (self.accept("|)") or self.accept("|")):
                raise Unreadable("open absolute value")
            return Node("abs", (node,))
        if text in ("|_", "|^"):
            node = self.sum()
            self.expect(_CLOSERS[text])
            return Node("floor" if text == "|_" else "ceil", (node,))
        raise Unreadable(f"{text!r} in an expression")

    # --- symbols ---------------------------------------------------------------------------------

    def _symbol(self, text: str) -> Node:
        if text == "oo":
            return Node("const", (), "oo")
        if text in ("C", "P") and self.peek() == ("o", "("):
            pair = self._pair()
            if pair is not None:
                return Node("binom" if text == "C" else "perm", pair)
        if text in ("C", "P", "A") and self.peek()[1] in ("_", "^"):
            scripts = self._numeric_scripts("binom" if text == "C" else "perm")
            if scripts is not None:
                return scripts
        name = text + self._subscript() + self._primes()
        # f(0): a symbol is applied to a number, since nobody multiplies like that.
        at_a_number = self.peek(1)[0] == "n" and self.peek(2) == ("o", ")")
        if self.peek() == ("o", "(") and (name[0] in _FUNCTION_LETTERS or at_a_number):
            return Node("app", self._arguments(), name)
        if name == "\\pi":
            return Node("const", (), "pi")
        if name in ("e", "i"):
            return Node("const", (), name)
        return Node("sym", (), name)

    @staticmethod
    def _is_prime(first: Token, second: Token) -> bool:
        return first[1] == "'" or (first[1] == "{" and second[1] == "'")

    def _primes(self) -> str:
        r"""Read ``'`` and ``^{\prime\prime}`` as part of the name."""
        primes = ""
        while self.peek() == ("o", "'") or (
            self.peek()[1] == "^" and self._is_prime(self.peek(1), self.peek(2))
        ):
            braced = self.accept("^") and self.accept("{")
            while self.accept("'"):
                primes += "'"
            if braced:
                self.expect("}")
        return primes

    def _subscript(self) -> str:
        r"""Read ``_0``, ``_{\text{max}}`` and the like as part of the name."""
        if not self.accept("_"):
            return ""
        if not self.accept("{"):
            kind, text = self.take()
            if kind not in ("n", "s", "w", "u"):
                raise Unreadable("odd subscript")
            return "_" + text
        parts, depth = [], 1
        while depth:
            token = self.take()
            if token == END:
                raise Unreadable("open subscript")
            depth += {"{": 1, "}": -1}.get(token[1], 0)
            parts.append(token[1])
        return "_" + "".join(part for part in parts if part not in "{}")

    def _pair(self) -> tuple[Node, Node] | None:
        """Take ``(a, b)`` after a name, or nothing."""
        start = self.at
        try:
            arguments = self._arguments()
        except Unreadable:
            arguments = ()
        if len(arguments) == 2:
            return arguments[0], arguments[1]
        self.at = start
        return None

    def _arguments(self) -> tuple[Node, ...]:
        self.expect("(")
        arguments = [self.sum()]
        while self.accept(","):
            arguments.append(self.sum())
        self.expect(")")
        return tuple(arguments)

    def _numeric_scripts(self, op: str) -> Node | None:
        """``C_5^2``, ``P^2_5`` as a number of choices or permutations; else it is a symbol."""
        start = self.at
        scripts: dict[str, Fraction] = {}
        while self.peek()[1] in ("_", "^") and len(scripts) < 2:
            mark = self.take()[1]
            braced = self.accept("{")
            kind, text = self.take()
            if kind != "n" or not text.isdigit() or (braced and not self.accept("}")):
                break
            scripts[mark] = number(text)
        if len(scripts) == 2 and scripts["_"] >= scripts["^"] and scripts["_"] > 2:
            return Node(op, (num(scripts["_"]), num(scripts["^"])))
        self.at = start
        return None

    def _prescripted(self) -> Node:
        """``{}^5C_2``, ``_{5}C_{2}`` and the same with P."""
        if self.accept("{"):
            self.expect("}")
        if not (self.accept("^") or self.accept("_")):
            raise Unreadable("empty group")
        top = self.exponent()
        kind = self.take()
        if kind not in (("s", "C"), ("s", "P")) or not self.accept("_"):
            raise Unreadable("script without a base")
        return Node("binom" if kind[1] == "C" else "perm", (top, self.exponent()))

    # --- functions -------------------------------------------------------------------------------

    def _function(self, name: str) -> Node:
        if name == "frac":
            return _quotient(self.atom(), self.atom())
        if name == "binom":
            return Node("binom", (self.atom(), self.atom()))
        if name == "sqrt":
            degree = num(2)
            if self.accept("["):
                degree = self.sum()
                self.expect("]")
            return Node("root", (degree, self.atom()))
        if name == "cbrt":
            return Node("root", (num(3), self.atom()))
        if name in ("abs", "floor", "ceil"):
            return Node(name, (self.atom(),))
        if name in _DECORATIONS:
            return self._decorated(name)
        if name not in FUNCTIONS or name in ("deg", "det", "dim", "ker"):
            raise Unreadable(f"\\{name} is not evaluated")
        return self._application(_INVERSE.get(name, name))

    def _decorated(self, name: str) -> Node:
        r"""``\bar x``, ``\ddot{\theta}``, ``\angle ABC``: a symbol with a longer name."""
        letters = ""
        braced = self.accept("{")
        while self.peek()[0] == "s" or (self.peek()[0] == "w" and self.peek()[1].isupper()):
            letters += self.take()[1]
            if not braced and name != "angle":
                break
        letters += self._subscript()
        if not letters:
            raise Unreadable(f"{name} of nothing")
        if braced:
            self.expect("}")
        return Node("sym", (), f"{name} {letters}{self._subscript()}")

    def _application(self, name: str) -> Node:
        base: Node | None = None
        power: Node | None = None
        while self.peek()[1] in ("_", "^") and self.peek()[0] == "o":
            if self.take()[1] == "_":
                base = self.exponent()
            else:
                power = self.exponent()
        if name in _TRIG and power == Node("neg", (num(1),)):
            name, power = "arc" + name, None
        arguments = (
            self._arguments()
            if name in _MANY and self.peek() == ("o", "(")
            else (self._function_argument(),)
        )
        if name == "exp":
            node = Node("pow", (Node("const", (), "e"), arguments[0]))
        elif base is not None:
            if name != "log":
                raise Unreadable("subscript of a function")
            node = Node("fn", (*arguments, base), "log")
        else:
            node = Node("fn", arguments, name)
        return node if power is None else Node("pow", (node, power))

    def _function_argument(self) -> Node:
        """Take a group, or the factors that stand side by side up to the next sign or function."""
        if self.peek()[0] == "o" and self.peek()[1] in ("(", "{", "[", "|(", "|"):
            return self.atom()
        negative = self._sign() == "-"
        node = self.factor()
        while self.peek()[0] == "s" or self.peek() in (("f", "frac"), ("f", "sqrt"), ("o", "(")):
            node = Node("mul", (node, self.factor()))
        if has_const(node, "pi") and self.peek() == ("o", "/") and self.peek(1)[0] == "n":
            self.take()
            node = Node("div", (node, self.factor()))
        return Node("neg", (node,)) if negative else node


def _quotient(top: Node, bottom: Node) -> Node:
    """Return a fraction, or the symbol that a derivative such as ``dy/dx`` is."""
    if bottom.op == "mul" and _is_d(bottom.args[0]):
        if _is_d(top):
            raise Unreadable("a derivative to be taken")
        if top.op == "mul" and _is_d(top.args[0]):
            return Node("sym", (), f"d{top.args[1:]}/d{bottom.args[1:]}")
    return Node("div", (top, bottom))


def _is_d(node: Node) -> bool:
    base = node.args[0] if node.op == "pow" else node
    return base == Node("sym", (), "d")
