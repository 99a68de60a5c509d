"""Units of measure: dropped if the other side has none, converted, never contradicted.

A unit is a rational factor and a product of dimensions, so ``5 m`` equals ``500 cm`` exactly and
``30 mph`` differs from ``30 km/h``. Scale words (dozen, thousand) multiply: ``12 dozen`` is 144.
Names and symbols come from a table; besides them only what counts things is a unit, a plural such
as ``apples``, and it is a dimension of its own. A word that changes a number (``halves``,
``factorial``, ``point five``) or judges it (``is incorrect``) is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from rlbhpc.verify.answer.glyphs import Token, is_chinese_noun, lines


class Unit(NamedTuple):
    """A rational factor times a product of dimensions, as sorted (dimension, exponent) pairs.

    ``scale`` is the part of the size that scale words make: it belongs to the number and stays when
    the unit is dropped.
    """

    factor: Fraction
    dims: tuple[tuple[str, int], ...]
    scale: int = 1


PERCENT: Final = Unit(Fraction(1, 100), (("%", 1),))
DEGREE: Final = Unit(Fraction(1), (("degree", 1),))
RADIAN: Final = Unit(Fraction(1), (("radian", 1),))

_DERIVED: Final = {
    "N": {"kg": 1, "m": 1, "s": -2}, "J": {"kg": 1, "m": 2, "s": -2},
    "W": {"kg": 1, "m": 2, "s": -3}, "Pa": {"kg": 1, "m": -1, "s": -2}, "Hz": {"s": -1},
    "m2": {"m": 2}, "m3": {"m": 3}, "m/s": {"m": 1, "s": -1}, "coulomb": {"ampere": 1, "s": 1},
    "volt": {"kg": 1, "m": 2, "s": -3, "ampere": -1},
    "ohm": {"kg": 1, "m": 2, "s": -3, "ampere": -2},
    "farad": {"kg": -1, "m": -2, "s": 4, "ampere": 2},
    "tesla": {"kg": 1, "s": -2, "ampere": -1}, "weber": {"kg": 1, "m": 2, "s": -2, "ampere": -1},
    "henry": {"kg": 1, "m": 2, "s": -2, "ampere": -2},
    "siemens": {"kg": -1, "m": -2, "s": 3, "ampere": 2},
    "gray": {"m": 2, "s": -2}, "molar": {"mol": 1, "m": -3},
}  # fmt: skip

_PREFIXES: Final = {
    "f femto": "1e-15", "p pico": "1e-12", "n nano": "1e-9", "µ micro": "1e-6", "u micro": "1e-6",
    "m milli": "1/1000", "c centi": "1/100", "d deci": "1/10", "k kilo": "1000", "M mega": "1e6",
    "G giga": "1e9", "T tera": "1e12",
}  # fmt: skip

SCALES: Final = {
    "dozen": 12, "score": 20, "gross": 144, "hundred": 100, "thousand": 1000,
    "million": 10**6, "mil": 10**6, "billion": 10**9, "trillion": 10**12, "lakh": 10**5,
    "crore": 10**7, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8,
}  # fmt: skip


def _table() -> dict[str, Unit]:
    """Read ``units.txt``; the first line that names a prefixed symbol or a plural keeps it."""
    table: dict[str, Unit] = {}
    prefixed: list[tuple[str, list[str], Unit]] = []
    for line in lines("units.txt"):
        symbol, names, factor, dimension = (cell.strip() for cell in line.split("|"))
        unit = _unit(factor, dimension)
        if symbol == "-":
            for name in names.split():
                _enter(table, name, unit)
        else:
            prefixed.append((symbol, names.replace("-", "").split(), unit))
    for symbol, long_names, unit in prefixed:
        _enter_prefixed(table, symbol, long_names, unit)
    table["percent"] = table["pct"] = table["percentage"] = PERCENT
    return table


def _enter_prefixed(table: dict[str, Unit], symbol: str, names: list[str], unit: Unit) -> None:
    table[symbol] = unit
    for name in names:
        _enter(table, name, unit)
    for prefix, size in _PREFIXES.items():
        short, long = prefix.split()
        scaled = unit._replace(factor=unit.factor * Fraction(size))
        table.setdefault(short + symbol, scaled)
        for name in names:
            _enter(table, long + name, scaled)


def _unit(factor: str, dim: str) -> Unit:
    return Unit(Fraction(factor), tuple(sorted(_DERIVED.get(dim, {dim: 1}).items())))


def _enter(table: dict[str, Unit], name: str, unit: Unit) -> None:
    table[name] = unit
    if len(name) > 2:
        table.setdefault(name + "s", unit)
        table.setdefault(name + "es", unit)


_TABLE: Final = _table()


def unit_named(word: str) -> Unit | None:
    """Return the unit that a word names; a symbol of one or two letters only as it is written."""
    return _TABLE.get(word) or (_TABLE.get(word.lower()) if len(word) > 2 else None)


# --- read ----------------------------------------------------------------------------------------

# Words around a unit that say nothing of its size.
_FILLERS: Final = frozenset(
    "a an the each total exactly whole more long tall wide high deep old away apart in all "
    "altogether every".split()
)
_NEUTRAL: Final = frozenset(
    "unit units integer integers number numbers value values 个 只 人 名 种 次 张 本 件 条 辆 "
    "棵 支 颗 位 套 组 对 道 间 朵 個 块 页 개 명 通り".split()
)
_POWERS: Final = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISERS: Final = {"squared": 2, "cubed": 3}
# Plurals without an s; and words with one that count nothing.
_PLURALS: Final = frozenset(
    "people men women children mice geese fish sheep deer cattle dice teeth oxen vertices".split()
)
_NO_NOUNS: Final = frozenset(
    "halves thirds fourths quarters fifths sixths sevenths eighths ninths tenths elevenths "
    "twelfths twentieths hundredths thousandths millionths factorials roots powers times plus "
    "minus equals "
    "fails works holds exceeds remains makes gives means always perhaps unless less this does "
    "radicals squares cubes reciprocals negatives twos threes fours fives tens hundreds thousands "
    "millions billions guess is was has as us yes".split()
)
_ARTICLES: Final = frozenset("the a an this that these those his her their its our my".split())
# What is measured holds none of these: "of feed until noon".
_NO_THINGS: Final = frozenset(
    "until before after while each instead except unless only at first he she it they".split()
)
# "3 dozens" is 36; "3 scores" are results, and no sixty.
_SCALES_OF_MANY: Final = frozenset(
    "dozens hundreds thousands millions billions trillions lakhs crores".split()
)
# Anywhere before or after a noun they change what the number means.
NO_WORDS: Final = frozenset(
    "is are was be not no point pi half third quarter fourth fifth sixth seventh eighth ninth "
    "tenth hundredth thousandth factorial squared cubed root sqrt negative minus plus times over "
    "divided "
    "mod modulo choose power inverse infinity incorrect wrong correct zero one two three four five "
    "six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy eighty ninety "
    "but or if than equals fails percent".split()
)
_TEMPERATURES: Final = {
    "c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit",
}  # fmt: skip
MONEY: Final = frozenset("$€£¥₹")


def singular(noun: str) -> str:
    """Cut a plural ending off, roughly: only equality of two nouns depends on it."""
    noun = noun.lower()
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") and len(noun) > 3 else noun


def read_unit(tokens: Sequence[Token], counts_one: bool = False) -> Unit | None:
    """Read a product of units such as ``cm^2``, ``miles per hour`` or ``thousand dollars``.

    None for tokens that are no unit; no dimensions for words that say nothing ("square units").
    ``counts_one`` says that the number is 1, so that a noun may stand in the singular.
    """
    reading = _Reading(counts_one)
    position = 0
    if len(tokens) == 2 and tokens[0][1] in ("degree", "degrees"):
        name = _TEMPERATURES.get(tokens[1][1].lower())
        if name is not None:
            return unit_named(name)
    while position < len(tokens):
        position = reading.take(tokens, position)
        if position < 0:
            return None
    return reading.result()


class _Reading:
    """The unit that was read so far; of a run of nouns the last one counts."""

    def __init__(self, counts_one: bool) -> None:
        self.counts_one = counts_one
        self.factor = Fraction(1)
        self.scale = 1
        self.dims: dict[str, int] = {}
        self.sign, self.power, self.last = 1, 1, 0
        self.previous: Unit | None = None
        self.nouns: list[str] = []
        self.grouped = False

    def take(self, tokens: Sequence[Token], position: int) -> int:
        """Take what stands at ``at`` and return the next place; −1 for what is no unit."""
        kind, text = tokens[position]
        low = text.lower()
        if text in _RAISERS and self.previous is not None:
            self.multiply(self.previous, self.last * (_RAISERS[text] - 1))
            return position + 1
        if low in NO_WORDS and unit_named(text) is None:
            return -1
        if text in ("/", "per"):
            if not self.close():
                return -1
            self.sign, self.grouped = -1, False
        elif text in ("(", ")"):
            self.grouped = text == "("
            self.sign = self.sign if self.grouped else 1
        elif text in ("*", ".", "-", "{", "}"):
            pass
        elif text == "^":
            return self.exponent(tokens, position + 1)
        elif text in _POWERS:
            self.power = _POWERS[text]
        elif low in SCALES or low in _SCALES_OF_MANY:
            self.scale *= SCALES.get(low) or SCALES[low[:-1]]
        elif low in ("of", "for"):
            return self.rest(tokens, position + 1)
        elif low in _NEUTRAL:
            self.previous, self.power, self.last = Unit(Fraction(1), ()), 1, 1
            self.nouns.clear()
        elif low in _FILLERS and unit_named(text) is None:
            self.power = 1
        elif low == "in" and self.previous is not None:
            pass
        elif kind in ("w", "s", "c", "f"):
            unit = unit_named(text) or (_dimension(text) if text in MONEY else None)
            if unit is None:
                self.nouns.append(low)
            else:
                self.nouns.clear()
                self.previous, self.last = unit, self.sign * self.power
                self.multiply(unit, self.last)
                self.sign = self.sign if self.grouped else 1
                self.power = 1
        else:
            return -1
        return position + 1

    def exponent(self, tokens: Sequence[Token], position: int) -> int:
        texts = [text for _, text in tokens[position : position + 4] if text != "{"]
        skipped = sum(text == "{" for _, text in tokens[position : position + 2])
        negative = texts[:1] == ["-"]
        digits = texts[negative] if len(texts) > negative else ""
        if self.previous is None or not digits.isdigit():
            return -1
        extra = int(digits) * (-1 if negative else 1) - 1
        if abs(extra) > 8:
            return -1
        self.multiply(self.previous, self.last * extra)
        return position + skipped + negative + 1

    def rest(self, tokens: Sequence[Token], position: int) -> int:
        """``of sugar``: what is measured, which is no part of the unit."""
        words = [text.lower() for kind, text in tokens[position:] if kind in "wsf"]
        things = [word for word in words if word not in _ARTICLES]
        plain = len(words) == len(tokens) - position and (NO_WORDS | _NO_THINGS).isdisjoint(words)
        measured = plain and 0 < len(things) < 4  # more words say more
        return len(tokens) if measured and (self.nouns or self.previous is not None) else -1

    def close(self) -> bool:
        """Multiply by the noun of a run; False if it counts nothing."""
        if not self.nouns:
            return True
        noun = self.nouns[-1]
        self.nouns.clear()
        if self.sign > 0 and not (self.counts_one or _is_plural(noun) or is_chinese_noun(noun)):
            return False
        if noun in _NO_NOUNS or not noun.isalpha():
            return False
        self.previous, self.last = _dimension(f"#{singular(noun)}"), self.sign
        self.multiply(self.previous, self.sign)
        return True

    def multiply(self, unit: Unit, exponent: int) -> None:
        for dim, power in unit.dims:
            self.dims[dim] = self.dims.get(dim, 0) + power * exponent
        self.factor *= unit.factor**exponent

    def result(self) -> Unit | None:
        if not self.close():
            return None
        dims = tuple(sorted((dim, n) for dim, n in self.dims.items() if n))
        return Unit(self.factor, dims, self.scale)


def _is_plural(noun: str) -> bool:
    ending = len(noun) > 3 and noun.endswith("s") and not noun.endswith(("ss", "us", "is"))
    return (ending or noun in _PLURALS) and noun not in _NO_NOUNS


def _dimension(name: str) -> Unit:
    return Unit(Fraction(1), ((name, 1),))
