"""Values of expression trees, exact or in many digits, and whether two trees are one expression.

Nothing is simplified and nothing is searched, so the time is bounded by the size of the trees; a
magnitude above the limits is refused (:class:`Undecided`) instead of computed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise, product
from typing import Any, Final, TypeAlias

from mpmath.ctx_mp import MPContext

from rlbhpc.verify.answer.value import I, Node, Op, contains_node, contains_op, free_names, walk


class Undecided(Exception):  # noqa: N818 - an outcome, not a fault
    """The value is too large, undefined at every point tried, or of an unknown operation."""


# --- exact rational values -----------------------------------------------------------------------

_MAX_BITS: Final = 400_000  # that one exact evaluation may produce in all
_MAX_ROOT_BITS: Final = 4000
_MAX_ROOT_DEGREE: Final = 64


def exact_value(node: Node) -> Fraction | None:
    """Return the exact value of a tree; None if it is not rational by sight.

    Raises :class:`Undecided` where the value is undefined or has too many digits.
    """
    return _ExactEvaluation().evaluate(node)


def rational_value(node: Node) -> Fraction | None:
    """Return the exact value of a tree; None also where it is undefined or too long."""
    try:
        return exact_value(node)
    except Undecided:
        return None


class _ExactEvaluation:
    """Exact evaluation of one tree under a budget of bits.

    Each method takes the exact values of the arguments and returns that of the operation, or None
    if it is not rational.
    """

    def __init__(self) -> None:
        self.bits_left = _MAX_BITS

    def evaluate(self, node: Node) -> Fraction | None:
        """Return the exact value of a tree; None if it is not rational by sight.

        A ``NUMBER`` node holds a fraction; any other is an operation on its ``args``. Operations
        that can stay rational are in ``_EXACT_OPERATIONS``. ``bits_left`` is a budget for the
        digits of all results together: beyond it, evaluation stops with :class:`Undecided`.
        """
        if node.op is Op.NUMBER:
            assert isinstance(node.value, Fraction)
            return node.value
        operation = _EXACT_OPERATIONS.get(node.op)
        if operation is None:
            return None
        args: list[Fraction] = []
        for arg in node.args:
            value = self.evaluate(arg)
            if value is None:
                return None
            args.append(value)
        result = operation(self, *args)
        if result is not None:
            self.bits_left -= result.numerator.bit_length() + result.denominator.bit_length()
        if self.bits_left < 0:
            raise Undecided("too many digits")
        return result

    def add(self, *terms: Fraction) -> Fraction:
        return sum(terms, Fraction(0))

    def divide(self, top: Fraction, bottom: Fraction) -> Fraction:
        if bottom == 0:
            raise Undecided("division by zero")
        return top / bottom

    def power(self, base: Fraction, exponent: Fraction) -> Fraction | None:
        """Return a power exactly; None if it is not rational.

        An exponent p/q takes the q-th root first. ``bits_left`` is how many bits may still be
        produced: a larger power is refused before it is computed.
        """
        if exponent.denominator != 1:
            root = self.root(Fraction(exponent.denominator), base)
            return None if root is None else self.power(root, Fraction(exponent.numerator))
        if base == 0 and exponent <= 0:
            raise Undecided("0 to a power that is not positive")
        base_bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * base_bits > self.bits_left:
            raise Undecided("power too large")
        return base ** int(exponent)

    def root(self, degree: Fraction, radicand: Fraction) -> Fraction | None:
        """Return the root of a number exactly; None if it is not rational.

        The *radicand* is what stands under the root; a negative one has a real root only if the
        degree is odd. ``_integer_root`` returns None where no integer has this power.
        """
        if degree.denominator != 1 or not 1 <= degree <= _MAX_ROOT_DEGREE:
            return None
        if radicand < 0:
            positive_root = self.root(degree, -radicand) if degree % 2 else None
            return None if positive_root is None else -positive_root
        top = _integer_root(radicand.numerator, int(degree))
        bottom = _integer_root(radicand.denominator, int(degree))
        return None if top is None or bottom is None else Fraction(top, bottom)

    def factorial(self, number: Fraction) -> Fraction | None:
        if number.denominator != 1 or number < 0:
            return None
        if number > 20 and number * number.numerator.bit_length() > self.bits_left:
            raise Undecided("factorial too large")
        return Fraction(math.factorial(int(number)))


_EXACT_OPERATIONS: Final[dict[Op, Callable[..., Fraction | None]]] = {
    Op.ADD: _ExactEvaluation.add,
    Op.MULTIPLY: lambda _, left, right: left * right,
    Op.DIVIDE: _ExactEvaluation.divide,
    Op.NEGATE: lambda _, number: -number,
    Op.ABSOLUTE: lambda _, number: abs(number),
    Op.FLOOR: lambda _, number: Fraction(math.floor(number)),
    Op.CEILING: lambda _, number: Fraction(math.ceil(number)),
    Op.POWER: _ExactEvaluation.power,
    Op.ROOT: _ExactEvaluation.root,
    Op.FACTORIAL: _ExactEvaluation.factorial,
}


def _integer_root(value: int, degree: int) -> int | None:
    """Return the integer whose power is ``value``, by bisection; None if there is none.

    A root of the given degree has about as many bits as the value has, divided by the degree.
    """
    if value in (0, 1) or degree == 1:
        return value
    if value.bit_length() > _MAX_ROOT_BITS:
        return None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < value:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == value else None


# --- values in many digits -----------------------------------------------------------------------

#: A value for each name in an expression.
Point: TypeAlias = Mapping[str, Fraction]


def _context(digits: int) -> Any:
    context = MPContext()
    context.dps = digits
    return context


_30_DIGITS, _100_DIGITS, _200_DIGITS = _context(30), _context(100), _context(200)
_MAX_EXPONENT: Final = 1e6  # of an exponential
_MAX_PERIODIC: Final = 1e30  # argument of a periodic function
_MAX_GROWING: Final = 1e5  # argument of a hyperbolic function, or of one of a complex number
_MAX_GAMMA: Final = 1e4


class _Evaluation:
    """Evaluation of trees at one point with one precision.

    ``left_reals`` says that reals made something complex: another branch would be as good.
    """

    def __init__(self, context: Any, point: Point) -> None:
        self.mp = context
        self.point = point
        self.left_reals = False

    def evaluate(self, node: Node) -> Any:
        """Return the value of a tree as a real or complex number of mpmath.

        ``self.point`` has the value of each variable. ``self.mp`` is the context of mpmath that
        sets the precision. ``_OPERATIONS`` maps operations to functions of the arguments' values;
        other operations have no value here, and raise :class:`Undecided`.
        """
        if node.op is Op.NUMBER:
            assert isinstance(node.value, Fraction)
            return self.to_float(node.value)
        if node.op is Op.SYMBOL:
            return self.to_float(self.point[str(node.value)])
        if node.op is Op.CONSTANT:
            return self.constant(str(node.value))
        args = [self.evaluate(arg) for arg in node.args]
        if node.op is Op.KNOWN_FUNCTION:
            return self.known_function(str(node.value), args)
        if node.op is Op.UNKNOWN_FUNCTION:
            return self.unknown_function(str(node.value), args)
        if node.op not in _OPERATIONS:
            raise Undecided(node.op)
        return _OPERATIONS[node.op](self, *args)

    def to_float(self, value: Fraction) -> Any:
        return self.mp.mpf(value.numerator) / value.denominator

    def constant(self, name: str) -> Any:
        if name == "infinity":
            raise Undecided("infinity")
        return self.mp.mpc(0, 1) if name == "i" else +getattr(self.mp, name)

    def check_size(self, value: Any, limit: float) -> Any:
        if abs(value) > limit:
            raise Undecided("argument too large")
        return value

    def note_complex(self, value: Any, *args: Any) -> Any:
        """Return a value, and note if it is complex though its arguments are real."""
        if self.mp.im(value) != 0 and not any(self.mp.im(arg) for arg in args):
            self.left_reals = True
        return value

    def divide(self, top: Any, bottom: Any) -> Any:
        if bottom == 0:
            raise Undecided("division by zero")
        return top / bottom

    def power(self, base: Any, exponent: Any) -> Any:
        """Return a power, real or complex; :class:`Undecided` where it is undefined or too large.

        ``check_size`` refuses what is above a limit: first the logarithm of the result's size, then
        the exponent. ``note_complex`` passes a value on, and notes if real numbers made it
        complex.
        """
        if base == 0:
            if not self.mp._is_real_type(exponent) or exponent <= 0:
                raise Undecided("power of zero")
            return self.mp.mpf(0)
        self.check_size(exponent * self.mp.log(abs(base)), _MAX_EXPONENT)
        self.check_size(exponent, _MAX_EXPONENT)
        return self.note_complex(self.mp.power(base, exponent), base, exponent)

    def root(self, degree: Any, radicand: Any) -> Any:
        if radicand == 0:
            return self.mp.mpf(0)
        exponent = self.divide(self.mp.mpf(1), degree)
        return self.note_complex(self.mp.power(radicand, exponent), radicand)

    def factorial(self, number: Any) -> Any:
        argument = self.check_size(number + 1, _MAX_GAMMA)
        if self.mp.isint(argument) and self.mp.re(argument) <= 0:
            raise Undecided("pole")
        return self.mp.gamma(argument)

    def choose(self, total: Any, chosen: Any) -> Any:
        bottom = self.factorial(chosen) * self.factorial(total - chosen)
        return self.divide(self.factorial(total), bottom)

    def unknown_function(self, name: str, args: list[Any]) -> Any:
        """Return a value that depends on nothing but the function's name and its arguments.

        An ``f`` without a definition has no value of its own. So it gets a polynomial whose
        coefficients are fixed by its name: expressions in ``f`` then agree only if they do so for
        any ``f``.
        """
        value = self.to_float(sample_value(name, 0))
        for index, arg in enumerate(args, start=1):
            slope = self.to_float(sample_value(name, 2 * index))
            bend = self.to_float(sample_value(name, 2 * index + 1))
            value = value * slope + arg * bend + arg * arg
        return value

    def known_function(self, name: str, args: list[Any]) -> Any:
        """Return the value of sin, log and the like; of log the second argument is the base.

        ``check_size`` refuses an argument above a limit, which is lower where the function grows
        as an exponential does. ``note_complex`` passes a value on, and notes if real numbers made
        it complex.
        """
        argument = args[0]
        if name in ("ln", "log", "lg"):
            logarithm = self.logarithm(argument)
            if len(args) == 2:
                return self.divide(logarithm, self.logarithm(args[1]))
            return self.divide(logarithm, self.mp.log(10)) if name == "lg" else logarithm
        # sinh and the like grow, and so does sin of a complex number.
        grows = name.endswith("h") or self.mp.im(argument) != 0
        self.check_size(argument, _MAX_GROWING if grows else _MAX_PERIODIC)
        mpmath_name = name.replace("arc", "a")
        try:
            return self.note_complex(getattr(self.mp, mpmath_name)(argument), argument)
        except (ValueError, ZeroDivisionError) as error:  # a pole
            raise Undecided(name) from error

    def logarithm(self, value: Any) -> Any:
        if value == 0:
            raise Undecided("log of zero")
        return self.note_complex(self.mp.log(value), value)


_OPERATIONS: Final[dict[Op, Callable[..., Any]]] = {
    Op.ADD: lambda evaluation, *terms: evaluation.mp.fsum(terms),
    Op.MULTIPLY: lambda _, left, right: left * right,
    Op.DIVIDE: _Evaluation.divide,
    Op.NEGATE: lambda _, value: -value,
    Op.ABSOLUTE: lambda _, value: abs(value),
    Op.DEGREES: lambda evaluation, degrees: degrees * evaluation.mp.pi / 180,
    Op.POWER: _Evaluation.power,
    Op.ROOT: _Evaluation.root,
    Op.FACTORIAL: _Evaluation.factorial,
    Op.CHOOSE: _Evaluation.choose,
}


@lru_cache(maxsize=4096)
def sample_value(name: str, index: int) -> Fraction:
    """Return a fixed positive number in (1/3, 7/3) for each name and index, the same always."""
    return Fraction(zlib.crc32(f"{index}/{name}".encode()), 1 << 31) + Fraction(1, 3)


def approximate(node: Node, point: Point | None = None) -> complex:
    """Return the value of a tree as a complex float; :class:`Undecided` beyond its range."""
    try:
        return complex(_Evaluation(_30_DIGITS, point or {}).evaluate(node))
    except (OverflowError, ZeroDivisionError, KeyError) as error:
        raise Undecided(str(error)) from error


def value_in_100_digits(node: Node) -> Any:
    """Return the value of a tree without symbols as a number of mpmath."""
    return _Evaluation(_100_DIGITS, {}).evaluate(node)


# --- agreement at a point ------------------------------------------------------------------------

_SAME_DIGITS: Final = _100_DIGITS.mpf(10) ** -80
# Size below which a value is compared again with more digits: it may be zero.
_TINY_IN_100_DIGITS: Final = 1e-80
_CLEAR_GAP_IN_100_DIGITS: Final = 1e-40
_SHRUNK_TO_ZERO: Final = _100_DIGITS.mpf(10) ** -50


def agree_at(left: Node, right: Node, point: Point) -> bool:
    """Whether two trees have one value at a point, judged at 100 digits, then at 200.

    A *point* gives each variable a value. ``_gap_and_size`` returns how far the two values are
    apart and the larger of their sizes. Equal means equal to 80 digits, for which terms that nearly
    cancel need 200. Raises :class:`Undecided` where a side is undefined, or leaves the reals of its
    own.
    """
    gap, size = _gap_and_size(left, right, _100_DIGITS, point)
    if gap <= size * _SAME_DIGITS:
        return True
    if size > _TINY_IN_100_DIGITS and gap > size * _CLEAR_GAP_IN_100_DIGITS:
        return False
    gap, finer_size = _gap_and_size(left, right, _200_DIGITS, point)
    if finer_size and gap <= finer_size * _SAME_DIGITS:
        return True  # terms that nearly cancel had left too few digits
    # Both are zero or tiny: what is zero shrinks with the precision, what is tiny stays.
    return bool(finer_size < size * _SHRUNK_TO_ZERO)


def _gap_and_size(left: Node, right: Node, context: Any, point: Point) -> tuple[Any, Any]:
    """Return how far the values of two trees are apart at a point, and the larger of their sizes.

    ``context`` is one of mpmath, which sets the precision. Where variables are real and the
    imaginary unit ``I`` does not occur, a complex value is one of several branches: it raises
    :class:`Undecided`. ``left_reals`` notes such a value.
    """
    must_stay_real = bool(point) and not contains_node(left, I) and not contains_node(right, I)
    values = []
    for node in (left, right):
        evaluation = _Evaluation(context, point)
        values.append(evaluation.evaluate(node))
        if must_stay_real and evaluation.left_reals:
            raise Undecided("not real")
    return abs(values[0] - values[1]), max(map(abs, values))


def _differ_in_reals(left: Node, right: Node, point: Point) -> bool:
    """Whether both trees have a real value at a point and the two values differ.

    A point where a side is undefined or complex says nothing, so it is no difference;
    ``left_reals`` notes that real numbers made something complex. Values have 30 digits, of which
    12 must agree.
    """
    values = []
    for node in (left, right):
        evaluation = _Evaluation(_30_DIGITS, point)
        try:
            value = evaluation.evaluate(node)
        except Undecided:
            return False
        if evaluation.left_reals or _30_DIGITS.im(value) != 0:
            return False
        values.append(_30_DIGITS.re(value))
    return bool(abs(values[0] - values[1]) > 1e-12 * max(map(abs, values)))


# --- identity ------------------------------------------------------------------------------------
# Analytic expressions that agree to 80 digits at a few such points are equal, in the spirit of
# Schwartz (1980) and Zippel (1979). Absolute values, roots and logarithms have branches, which
# agree on one side and differ on the other. Trees that hold any are also compared on both sides of
# zero in every mix of signs, from a thousandth to ten million, beside and between their own
# constants. A point where a side leaves the reals says nothing.

_BRANCHING_FUNCTIONS: Final = frozenset("ln log lg arcsin arccos arctan arccot".split())
_COUNTING_LETTERS: Final = frozenset("nmkNMKpqjl")
_COUNTS: Final = range(3, 40)
# Small enough for probabilities and for arguments of an arcsine, and large enough for x > 100.
_SCALES: Final = tuple(map(Fraction, ("1/3", "1/10", "1/50", "7", "40", "300")))
_MAGNITUDES: Final = tuple(Fraction(13, 11) * Fraction(10) ** power for power in range(-3, 8))
_BESIDE_A_LANDMARK: Final = tuple(map(Fraction, ("0", "-1/3", "2/7", "-1", "1")))
_MAX_EVALUATIONS: Final = 20_000  # of single nodes, in all
_FEWEST_POINTS: Final = 20
_FEWEST_AGREEMENTS: Final = 2


def are_identical(left: Node, right: Node) -> bool:
    """Whether two expressions are equal, at every point where both are real and defined.

    Without variables their exact values decide, or their values in many digits. With variables they
    are compared at chosen points: ``_agree_somewhere`` has general ones, ``_agree_on_branches``
    those where an absolute value, a root or a logarithm changes its course.

    Raises :class:`Undecided` if neither equality nor inequality could be established.
    """
    if left == right:
        return True
    names = sorted(free_names(left) | free_names(right))
    if not names:
        values = exact_value(left), exact_value(right)
        return values[0] == values[1] if None not in values else agree_at(left, right, {})
    for node in (left, right):
        if "z" in names and contains_op(node, Op.ABSOLUTE):
            raise Undecided("the size of a variable that may be complex")
    return _agree_somewhere(left, right, names) and _agree_on_branches(left, right, names)


def _agree_somewhere(left: Node, right: Node, names: list[str]) -> bool:
    """Whether two trees agree at all defined points of a set that has enough of them.

    A *point* gives each variable a value. The sets are tried in turn: integers first if all names
    are letters for such, then general points, then points of all sizes. ``_count_agreements``
    returns None if the trees differ at a point, and skips those where a side is undefined.
    """
    point_sets = [_general_points(names), _points_of_all_sizes(names)]
    if _COUNTING_LETTERS.issuperset(names):
        point_sets.insert(0, _counting_points(names))
    for points in point_sets:
        agreements = _count_agreements(left, right, points)
        if agreements is None:
            return False
        if agreements >= _FEWEST_AGREEMENTS:
            return True
    raise Undecided("no point where both are defined")


def _count_agreements(left: Node, right: Node, points: Iterable[Point]) -> int | None:
    """Count the points at which both trees agree to 80 digits; None if they differ at one.

    A point where a side is undefined is skipped.
    """
    agreements = 0
    for point in points:
        try:
            if not agree_at(left, right, point):
                return None
            agreements += 1
        except Undecided:
            continue
    return agreements


def _general_points(names: list[str]) -> list[Point]:
    """Return points of no special kind, all of them positive."""
    return [{name: sample_value(name, index) for name in names} for index in range(3)]


def _counting_points(names: list[str]) -> list[Point]:
    """Return points of integers that are all different and all move."""
    points: list[Point] = []
    for count in _COUNTS:
        step = 7 * (1 + count % 3)
        points.append({name: Fraction(count + step * k) for k, name in enumerate(names)})
    return points


def _points_of_all_sizes(names: list[str]) -> list[Point]:
    """Return points for expressions that are real in a bounded domain: all names scaled, or one.

    A *point* gives each name a value. An arcsine, say, is real only for small values.
    ``sample_value`` is a fixed positive number for each name and index, ``_SCALES`` are factors
    from 1/50 to 300.
    """
    points: list[Point] = []
    for scale in _SCALES:
        scaled_point = {name: sample_value(name, 0) * scale for name in names}
        points.append(scaled_point)
        for scaled_name in names if len(names) > 1 else ():
            point = {name: sample_value(name, 1) for name in names}
            points.append({**point, scaled_name: scaled_point[scaled_name]})
    return points


def _agree_on_branches(left: Node, right: Node, names: list[str]) -> bool:
    """Whether two trees agree where a branch may change; complex numbers have no such place.

    Absolute values, roots and logarithms have *branches*: trees with one may agree on one side of a
    number and differ on the other. So they are compared in every mix of signs, and beside their
    *landmarks*, the numbers where a branch may begin. Large trees get fewer points, to bound the
    time.
    """
    if contains_node(left, I) or contains_node(right, I):
        return True
    points = _signed_points(names)
    if _has_branches(left) or _has_branches(right):
        points += _points_beside(_landmarks(left, right), names)
    node_count = sum(1 for node in (left, right) for _ in walk(node))
    point_count = max(_FEWEST_POINTS, _MAX_EVALUATIONS // node_count)
    return not any(_differ_in_reals(left, right, point) for point in islice(points, point_count))


def _has_branches(node: Node) -> bool:
    """Whether an expression holds an operation with branches: ``|x|``, ``√x``, ``ln x``, ``x^a``.

    Expressions with a branch may agree on one side of a number and differ on the other.
    """
    for part in walk(node):
        if part.op in (Op.ABSOLUTE, Op.ROOT) or part.value in _BRANCHING_FUNCTIONS:
            return True
        if part.op is Op.POWER and not _is_integer(part.args[1]):
            return True
    return False


def _is_integer(node: Node) -> bool:
    return isinstance(node.value, Fraction) and node.value.denominator == 1


def _signed_points(names: list[str]) -> list[Point]:
    """Return points in every mix of signs of up to three names; the signs of more names repeat.

    A *point* gives each name a value. All-positive values are left out: other points have them.
    """
    mixes_of_signs = list(product((1, -1), repeat=min(len(names), 3)))[1:]
    points: list[Point] = []
    for index, signs in enumerate(mixes_of_signs, start=3):
        # Indices below 3 are those of the general points.
        values = {name: sample_value(name, index) for name in names}
        points.append({name: values[name] * signs[k % 3] for k, name in enumerate(names)})
    return points


def _landmarks(left: Node, right: Node) -> list[Fraction]:
    """Return the numbers beside which a branch may begin: constants and the middles between two."""
    parts = [*walk(left), *walk(right)]
    numbers = {abs(part.value) for part in parts if isinstance(part.value, Fraction)}
    constants = sorted(number for number in numbers if 0 < number <= 10**9)
    return [*constants, *((low + high) / 2 for low, high in pairwise(constants))]


def _points_beside(landmarks: list[Fraction], names: list[str]) -> Iterator[Point]:
    """Yield points at which one name is beside a landmark or of another size, the others not.

    A *point* gives each name a value. A *landmark* is a number where a branch of a root, a
    logarithm or an absolute value may begin. Every value is tried with both signs. Beside a whole
    number the other names are whole as well.
    """
    values = [Fraction(0)]
    for landmark in landmarks:
        values += [landmark + offset for offset in _BESIDE_A_LANDMARK]
    values += _MAGNITUDES
    signed_values = [sign * value for value in values for sign in (1, -1)]
    for index, value in enumerate(dict.fromkeys(signed_values)):
        for position, name in enumerate(names):
            point = {other: sample_value(other, index) for other in names}
            if value.denominator == 1:
                point = dict.fromkeys(names, Fraction(2 + index % 5 + position))
            yield {**point, name: value}
