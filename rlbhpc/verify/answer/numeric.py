"""Values of expression trees in many digits, and whether two of them agree at a point.

Nothing is simplified and nothing is searched, so the time is bounded by the size of the trees; a
magnitude above the gates is refused (:class:`Undecided`) instead of computed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from mpmath.ctx_mp import MPContext

from rlbhpc.verify.answer.exact import Undecided
from rlbhpc.verify.answer.tree import Node, has_const

Point: TypeAlias = Mapping[str, Fraction]


def _context(digits: int) -> Any:
    context = MPContext()
    context.dps = digits
    return context


_LOW, _HIGH, _HIGHEST = _context(30), _context(100), _context(200)
_HUGE: Final = 1e6  # largest exponent and largest argument of an exponential or a factorial
_WIDE: Final = 1e30  # largest argument of a periodic function


class _Numeric:
    """Evaluation of trees at one point with one precision."""

    def __init__(self, context: Any, point: Point) -> None:
        self.mp = context
        self.point = point
        self.left_reals = False

    def value(self, node: Node) -> Any:
        mp = self.mp
        op = node.op
        if op == "num":
            assert isinstance(node.value, Fraction)
            return self.rational(node.value)
        if op == "sym":
            return self.rational(self.point[str(node.value)])
        if op == "const":
            return self.constant(str(node.value))
        args = [self.value(arg) for arg in node.args]
        if op == "pow" and mp.im(args[0]) == 0 and mp.re(args[0]) < 0:
            share = _ratio(node.args[1])
            if share is not None and share.denominator % 2 and share.denominator > 1:
                # A negative number has a real root of odd degree, however it is written.
                root = -self.power(-args[0], mp.mpf(1) / share.denominator)
                return self.power(root, mp.mpf(share.numerator))
        if op == "fn":
            return self.function(str(node.value), args)
        if op == "app":
            return self.unknown(str(node.value), args)
        if op not in _NUMERIC:
            raise Undecided(op)
        return _NUMERIC[op](self, *args)

    def rational(self, value: Fraction) -> Any:
        return self.mp.mpf(value.numerator) / value.denominator

    def constant(self, name: str) -> Any:
        if name in ("pi", "e"):
            return +getattr(self.mp, name)
        if name == "i":
            return self.mp.mpc(0, 1)
        raise Undecided("infinity")

    def bounded(self, value: Any, limit: float) -> Any:
        if abs(value) > limit:
            raise Undecided("argument too large")
        return value

    def divide(self, a: Any, b: Any) -> Any:
        if b == 0:
            raise Undecided("division by zero")
        return a / b

    def power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if not self.mp._is_real_type(exponent) or exponent <= 0:
                raise Undecided("power of zero")
            return self.mp.mpf(0)
        self.bounded(exponent * self.mp.log(abs(base)), _HUGE)
        self.bounded(exponent, _HUGE)
        return self.noted(self.mp.power(base, exponent), base, exponent)

    def noted(self, value: Any, *args: Any) -> Any:
        """Remember that reals made something complex: another branch would be as good."""
        if self.mp.im(value) != 0 and not any(self.mp.im(arg) for arg in args):
            self.left_reals = True
        return value

    def root(self, degree: Any, value: Any) -> Any:
        if value == 0:
            return self.mp.mpf(0)
        odd = degree == int(degree.real) and int(degree.real) % 2 == 1
        if odd and self.mp.im(value) == 0 and self.mp.re(value) < 0:
            return -self.mp.power(-self.mp.re(value), self.divide(self.mp.mpf(1), degree))
        return self.noted(self.mp.power(value, self.divide(self.mp.mpf(1), degree)), value)

    def real(self, value: Any) -> Any:
        if self.mp.im(value) != 0:
            raise Undecided("not real")
        return self.mp.re(value)

    def gamma(self, value: Any) -> Any:
        self.bounded(value, 1e4)
        if self.mp.isint(value) and self.mp.re(value) <= 0:
            raise Undecided("pole")
        return self.mp.gamma(value)

    def permutations(self, n: Any, k: Any) -> Any:
        return self.divide(self.gamma(n + 1), self.gamma(n - k + 1))

    def binomial(self, n: Any, k: Any) -> Any:
        return self.divide(self.permutations(n, k), self.gamma(k + 1))

    def unknown(self, name: str, args: list[Any]) -> Any:
        """Give an unknown function a value that depends on nothing but its name and arguments."""
        value = self.rational(pick(name, 0))
        for index, arg in enumerate(args, start=1):
            slope = self.rational(pick(name, 2 * index))
            bend = self.rational(pick(name, 2 * index + 1))
            value = value * slope + arg * bend + arg * arg
        return value

    def function(self, name: str, args: list[Any]) -> Any:
        mp, x = self.mp, args[0]
        if name in ("max", "min"):
            return (max if name == "max" else min)(self.real(arg) for arg in args)
        if name in ("ln", "log", "lg"):
            if x == 0:
                raise Undecided("log of zero")
            base = args[1] if len(args) == 2 else mp.mpf(10) if name == "lg" else None
            log = self.noted(mp.log(x), x)
            return log if base is None else self.divide(log, self.noted(mp.log(base), base))
        if name == "cis":
            return mp.expj(self.bounded(x, _WIDE))
        if name not in _FUNCTIONS or len(args) != 1:
            raise Undecided(name)
        limit = 1e5 if name.endswith("h") else _WIDE
        if mp.im(x) != 0:
            limit = 1e5
        try:
            return self.noted(getattr(mp, _FUNCTIONS[name])(self.bounded(x, limit)), x)
        except ValueError as error:
            raise Undecided(name) from error


def _ratio(node: Node) -> Fraction | None:
    """Return the value of a quotient of two numbers as it is written."""
    if node.op == "neg":
        share = _ratio(node.args[0])
        return None if share is None else -share
    if node.op != "div" or any(arg.op != "num" or not arg.value for arg in node.args):
        return None
    top, bottom = (arg.value for arg in node.args)
    return Fraction(top) / Fraction(bottom) if top is not None and bottom is not None else None


_NUMERIC: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda self, *args: self.mp.fsum(args),
    "mul": lambda _, a, b: a * b,
    "div": _Numeric.divide,
    "neg": lambda _, a: -a,
    "abs": lambda _, a: abs(a),
    "deg": lambda self, a: a * self.mp.pi / 180,
    "pow": _Numeric.power,
    "root": _Numeric.root,
    "floor": lambda self, a: self.mp.floor(self.real(self.bounded(a, _WIDE))),
    "ceil": lambda self, a: self.mp.ceil(self.real(self.bounded(a, _WIDE))),
    "fact": lambda self, n: self.gamma(n + 1),
    "binom": _Numeric.binomial,
    "perm": _Numeric.permutations,
}
_FUNCTIONS: Final = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "coth": "coth", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "sgn": "sign", "sign": "sign", "arg": "arg", "Re": "re", "Im": "im",
    "erf": "erf",
}  # fmt: skip


@lru_cache(maxsize=4096)
def pick(name: str, index: int) -> Fraction:
    """Return a fixed positive number in (1/3, 7/3) for each name and index, the same always."""
    return Fraction(zlib.crc32(f"{index}/{name}".encode()), 1 << 31) + Fraction(1, 3)


def numeric(node: Node, point: Point | None = None) -> complex:
    """Value of a tree as a complex float; raises :class:`Undecided` beyond the range of one."""
    try:
        return complex(_Numeric(_LOW, point or {}).value(node))
    except (OverflowError, ZeroDivisionError, KeyError) as error:
        raise Undecided(str(error)) from error


def constant(node: Node) -> Any:
    """100-digit value of a tree without symbols."""
    return _Numeric(_HIGH, {}).value(node)


# --- agreement -----------------------------------------------------------------------------------


def agree(a: Node, b: Node, point: Point) -> bool:
    """Whether two trees have one value at a point, judged at 30 digits, then at 100 and 200.

    Raises :class:`Undecided` where a side is undefined, or leaves the reals of its own.
    """
    real = not has_const(a, "i") and not has_const(b, "i")
    left, right = (_value(node, _LOW, point, real) for node in (a, b))
    size = max(abs(left), abs(right))
    if size > 1e-15 and abs(left - right) > size * 1e-3:
        return False
    left, right = (_value(node, _HIGH, point, real) for node in (a, b))
    gap, size = abs(left - right), max(abs(left), abs(right))
    if gap <= size * _HIGH.mpf(10) ** -80:
        return True
    if size > 1e-80 and gap > size * 1e-40:
        return False
    left, right = (_Numeric(_HIGHEST, point).value(node) for node in (a, b))
    finer = max(abs(left), abs(right))
    if finer and abs(left - right) <= finer * _HIGH.mpf(10) ** -80:
        return True  # terms that nearly cancel had left too few digits
    # Both are zero or tiny: what is zero shrinks with the precision, what is tiny stays.
    return bool(finer < size * _HIGH.mpf(10) ** -50)


def _value(node: Node, context: Any, point: Point, real: bool) -> Any:
    """Value at a point; where a variable stands, an expression of reals must stay real."""
    evaluation = _Numeric(context, point)
    value = evaluation.value(node)
    if real and point and evaluation.left_reals:
        raise Undecided("not real")
    return value


def real_values(a: Node, b: Node, point: Point) -> tuple[Any, Any] | None:
    """Values of two trees at a point in 30 digits; None where one of them is not real."""
    values = []
    for node in (a, b):
        evaluation = _Numeric(_LOW, point)
        value = evaluation.value(node)
        if evaluation.left_reals or _LOW.im(value) != 0:
            return None
        values.append(_LOW.re(value))
    return values[0], values[1]
