"""Values of expression trees, exact or in many digits, and whether two trees are one expression."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise, product
from typing import Any, Final, TypeAlias

from mpmath.ctx_mp import MPContext

from rlbhpc.verify.answer.value import Node, has, has_const, num, rename, symbols, walk

# --- exact rational values -----------------------------------------------------------------------


class Undecided(Exception):  # noqa: N818 - an outcome, not a fault
    """The value is too large, undefined at every point tried, or of an unknown operation."""


_BUDGET: Final = 400_000  # bits that one exact evaluation may produce in all


class _Exact:
    """Exact evaluation of one tree under a budget of bits."""

    def __init__(self) -> None:
        self.left = _BUDGET

    def value(self, node: Node) -> Fraction | None:
        if node.op == "num":
            assert isinstance(node.value, Fraction)
            return node.value
        if node.op not in _EXACT and node.op != "fn":
            return None
        args = []
        for arg in node.args:
            value = self.value(arg)
            if value is None:
                return None
            args.append(value)
        if node.op == "fn":
            result = self.function(str(node.value), args)
        else:
            result = _EXACT[node.op](self, args)
        if result is not None:
            self.spend(result.numerator.bit_length() + result.denominator.bit_length())
        return result

    def spend(self, bits: float) -> None:
        self.left -= int(bits)
        if self.left < 0:
            raise Undecided("too many digits")

    def power(self, args: list[Fraction]) -> Fraction | None:
        base, exponent = args
        if exponent.denominator != 1:
            root = self.root([Fraction(exponent.denominator), base])
            return None if root is None else self.power([root, Fraction(exponent.numerator)])
        if base == 0 and exponent <= 0:
            raise Undecided("0 to a power that is not positive")
        if base in (0, 1):
            return base
        if base == -1:
            return Fraction(-1 if exponent % 2 else 1)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * bits > self.left:
            raise Undecided("power too large")
        return base ** int(exponent)

    def root(self, args: list[Fraction]) -> Fraction | None:
        degree, value = args
        if degree.denominator != 1 or not 1 <= degree <= 64:
            return None
        n = int(degree)
        if value < 0:
            inner = self.root([degree, -value]) if n % 2 else None
            return None if inner is None else -inner
        top, bottom = _integer_root(value.numerator, n), _integer_root(value.denominator, n)
        return None if top is None or bottom is None else Fraction(top, bottom)

    def factorial(self, args: list[Fraction]) -> Fraction | None:
        n = args[0]
        if n.denominator != 1 or n < 0:
            return None
        if n > 20 and n * n.numerator.bit_length() > self.left:
            raise Undecided("factorial too large")
        return Fraction(math.factorial(int(n)))

    def function(self, name: str, args: list[Fraction]) -> Fraction | None:
        if name in ("max", "min"):
            return max(args) if name == "max" else min(args)
        if name not in ("gcd", "lcm") or any(arg.denominator != 1 for arg in args):
            return None
        return Fraction((math.gcd if name == "gcd" else math.lcm)(*map(int, args)))

    def choose(self, args: list[Fraction], ordered: bool) -> Fraction | None:
        n, k = args
        if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
            return None
        few = k if ordered else min(k, n - k)
        if few * n.numerator.bit_length() > self.left:
            raise Undecided("binomial too large")
        return Fraction((math.perm if ordered else math.comb)(int(n), int(k)))


def _integer_root(value: int, n: int) -> int | None:
    if value in (0, 1) or n == 1:
        return value
    if n == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > 4000:
        return None
    low, high = 1, 1 << (value.bit_length() // n + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**n < value:
            low = middle + 1
        else:
            high = middle
    return low if low**n == value else None


def _divide(_: _Exact, args: list[Fraction]) -> Fraction | None:
    if args[1] == 0:
        raise Undecided("division by zero")
    return args[0] / args[1]


_EXACT: Final[dict[str, Callable[[_Exact, list[Fraction]], Fraction | None]]] = {
    "add": lambda _, args: sum(args, Fraction(0)),
    "mul": lambda _, args: args[0] * args[1],
    "div": _divide,
    "neg": lambda _, args: -args[0],
    "abs": lambda _, args: abs(args[0]),
    "floor": lambda _, args: Fraction(math.floor(args[0])),
    "ceil": lambda _, args: Fraction(math.ceil(args[0])),
    "pow": _Exact.power,
    "root": _Exact.root,
    "fact": _Exact.factorial,
    "binom": lambda self, args: self.choose(args, ordered=False),
    "perm": lambda self, args: self.choose(args, ordered=True),
}


def exact(node: Node) -> Fraction | None:
    """Exact value of a tree, None if it is not rational by sight.

    Raises :class:`Undecided` where the value is undefined or has too many digits.
    """
    return _Exact().value(node)


def rational(node: Node) -> Fraction | None:
    """Exact value of a tree, None also where it is undefined or too long."""
    try:
        return exact(node)
    except Undecided:
        return None


# --- values in many digits -----------------------------------------------------------------------
# Nothing is simplified and nothing is searched, so the time is bounded by the size of the trees; a
# magnitude above the gates is refused (:class:`Undecided`) instead of computed.


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


# --- identity ------------------------------------------------------------------------------------
# Analytic expressions that agree to 80 digits at a few such points are equal, in the spirit of
# Schwartz (1980) and Zippel (1979). Absolute values, steps, roots and logarithms have branches,
# which agree on one side and differ on the other. Trees that hold any are also compared on both
# sides of zero in every mix of signs, from a thousandth to ten million, beside and between their
# own constants, and at integers if they hold steps. A point where a side leaves the reals says
# nothing.


_STEPS: Final = ("floor", "ceil")
_BRANCHES: Final = (*_STEPS, "abs", "root")
_BRANCHING: Final = frozenset("max min ln log lg sgn sign arcsin arccos arctan arccot arg".split())
_INTEGER_LETTERS: Final = frozenset("nmkNMKpqjl")
_INTEGERS: Final = range(3, 40)
_SIZES: Final = tuple(Fraction(10) ** power for power in range(-3, 8))
_LARGE: Final = (97, 211, 1009, 2500, 10007, 65537, 123456, 999983, 10**6)
_BESIDE: Final = Fraction(1, 10**6)  # how near to the fall of a step it is looked at
_PERIODIC: Final = frozenset("sin cos tan cot sec csc".split())
_TURNS: Final = tuple(Fraction(11 * step, 13) for step in range(1, 9))  # all around a circle
_MOST_CONSTANTS: Final = 12
_EVALUATIONS: Final = 20_000  # of single nodes, in all
_FEWEST_POINTS: Final = 20
_FEWEST_AGREEMENTS: Final = 2


def same(a: Node, b: Node) -> bool:
    """Whether two expressions are equal, at every point where both are real and defined.

    Raises :class:`Undecided` if neither equality nor inequality could be established.
    """
    if a == b:
        return True
    names = sorted(symbols(a) | symbols(b))
    if not names:
        left, right = exact(a), exact(b)
        if left is not None and right is not None:
            return left == right
        return agree(a, b, {})
    counts = only_counts(names)
    point_sets = [integer_points(names)] if counts else []
    if not about_integers(a, b):
        point_sets = [general_points(names), *point_sets, _points_of_all_sizes(names)]
    for points in point_sets:
        agreements = _agreements(a, b, points)
        if agreements is None:
            return False
        if agreements >= _FEWEST_AGREEMENTS:
            break
    else:
        raise Undecided("no point where both are defined")
    only_integers = counts and points == integer_points(names)
    return _same_on_branches(a, b, names, only_integers) and _same_if_complex(a, b)


def _same_if_complex(a: Node, b: Node) -> bool:
    """Whether ``|z|`` and what it is compared to agree at a point off the real line, too."""
    if symbols(a) | symbols(b) != {"z"} or not (_heeds_imaginary(a) or _heeds_imaginary(b)):
        return True
    point = Node("add", (num(2), Node("mul", (num(3), Node("const", (), "i")))))
    try:
        return agree(rename(a, {"z": point}), rename(b, {"z": point}), {})
    except Undecided:
        return True


def _heeds_imaginary(tree: Node) -> bool:
    """Whether a part of the tree is one thing for a real number and another for a complex one."""
    return any(node.op == "abs" or node.value in ("Re", "Im", "arg") for node in walk(tree))


def about_integers(a: Node, b: Node) -> bool:
    """Whether a comparison is about integers alone: steps, and only letters that count."""
    steps = has(a, *_STEPS) or has(b, *_STEPS)
    return steps and only_counts(symbols(a) | symbols(b))


def only_counts(names: Iterable[str]) -> bool:
    """Whether all names are letters that count."""
    return _INTEGER_LETTERS.issuperset(names)


def general_points(names: list[str]) -> list[Point]:
    """Points of no special kind, all of them positive."""
    return [{name: pick(name, index) for name in names} for index in range(3)]


# Small enough for probabilities and for arguments of an arcsine, and large enough for x > 100.
_SCALES: Final = tuple(map(Fraction, ("1/3", "1/10", "1/50", "7", "40", "300")))


def _points_of_all_sizes(names: list[str]) -> list[Point]:
    """Points for expressions that are real in a bounded domain: all names scaled, or one."""
    points: list[Point] = []
    for scale in _SCALES:
        point = {name: pick(name, 0) * scale for name in names}
        points.append(point)
        for scaled_name in names if len(names) > 1 else ():
            others = {name: pick(name, 1) for name in names}
            points.append({**others, scaled_name: point[scaled_name]})
    return points


def integer_points(names: list[str]) -> list[Point]:
    """Integers, all different and all moving: what steps and parities are about."""
    return [
        {name: Fraction(n + 7 * place * (1 + n % 3)) for place, name in enumerate(names)}
        for n in _INTEGERS
    ]


def _agreements(a: Node, b: Node, points: Iterable[Point]) -> int | None:
    """Count the points at which both agree to 80 digits; None if they differ at one."""
    decided = 0
    for point in points:
        try:
            if not agree(a, b, point):
                return None
            decided += 1
        except Undecided:
            continue
    return decided


def _same_on_branches(a: Node, b: Node, names: list[str], only_integers: bool) -> bool:
    """Compare where a branch may change; complex numbers have none of these."""
    steps = has(a, *_STEPS) or has(b, *_STEPS)
    if any(has_const(node, "i") for node in (a, b)):
        return True
    points = signed_points(names)
    if _has_branches(a) or _has_branches(b):
        points += _values_at(names, _landmarks(a, b), steps)
    if only_integers and steps:
        points = [point for point in points if all(v > 0 == v % 1 for v in point.values())]
    size = sum(1 for node in (a, b) for _ in walk(node))
    for point in islice(points, max(_FEWEST_POINTS, _EVALUATIONS // size)):
        try:
            values = real_values(a, b, point)
        except Undecided:
            continue
        if values is not None and abs(values[0] - values[1]) > 1e-12 * max(map(abs, values)):
            return False
    return True


def _has_branches(node: Node) -> bool:
    return any(
        part.op in _BRANCHES
        or (part.op == "fn" and part.value in _BRANCHING)
        or (part.op == "pow" and not _is_whole(part.args[1]))
        for part in walk(node)
    )


def _is_whole(node: Node) -> bool:
    return isinstance(node.value, Fraction) and node.value.denominator == 1


def signed_points(names: list[str]) -> list[Point]:
    """Points in every mix of signs of up to three names; of more, signs that move."""
    signs = list(product((1, -1), repeat=min(len(names), 3)))[1:]
    return [
        {name: pick(name, index) * sign[place % 3] for place, name in enumerate(names)}
        for index, sign in enumerate(signs, start=3)
    ]


def _landmarks(a: Node, b: Node) -> list[Fraction]:
    """Return the numbers beside which a branch may begin: constants, their quotients, sizes."""
    constants = {
        abs(part.value)
        for node in (a, b)
        for part in walk(node)
        if isinstance(part.value, Fraction) and 0 < abs(part.value) <= 10**9
    }
    first = sorted(constants)[:_MOST_CONSTANTS]
    quotients = {x / y for x, y in product(first, repeat=2)} | {
        x * y for x, y in product(first, first)
    }
    marks = sorted(constants | quotients)
    between = [(x + y) / 2 for x, y in pairwise(sorted(constants))]
    turns = _TURNS if any(part.value in _PERIODIC for node in (a, b) for part in walk(node)) else ()
    return [*sorted(constants), *between, *turns, *marks[: 3 * _MOST_CONSTANTS]]


def _values_at(names: list[str], marks: list[Fraction], steps: bool) -> list[Point]:
    """Points at which one name is beside a landmark or of another size, and the others are not."""
    values: list[Fraction] = [Fraction(0)]
    for mark in marks:
        values += [mark, mark - Fraction(1, 3), mark + Fraction(2, 7), mark - 1, mark + 1]
    values += [size * Fraction(13, 11) for size in _SIZES]
    if steps:
        values += [Fraction(n) for n in (1, 2, 3, *_LARGE)] + [Fraction(1, 2), Fraction(5, 2)]
        falls = {Fraction(0), *(mark % 1 for mark in marks), *(-mark % 1 for mark in marks)}
        values += [2 + fall + side for fall in falls for side in (_BESIDE, -_BESIDE)]
    every = list(dict.fromkeys(sign * value for value in values for sign in (1, -1)))
    return list(_spread(names, every))


def _spread(names: list[str], values: list[Fraction]) -> Iterator[Point]:
    for index, value in enumerate(values):
        for place, name in enumerate(names):
            others = {other: pick(other, index) for other in names if other != name}
            if value % 1 == 0:
                others = {other: Fraction(2 + index % 5 + place) for other in others}
            yield {name: value, **others}
