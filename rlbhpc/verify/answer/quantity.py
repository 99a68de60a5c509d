"""Scalars: numbers and expressions with units, and numbers in a base.

A word that changes a number (``halves``, ``million``) or judges it (``is incorrect``) is no unit.
Names and symbols come from a table; besides them only what counts things is a unit, a plural such
as ``apples``, and it is a dimension of its own.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, parse, parse_if_readable
from rlbhpc.verify.answer.lexer import (
    Kind,
    Token,
    Tokens,
    mark,
    texts_of,
)
from rlbhpc.verify.answer.value import (
    DEGREE,
    DIMENSIONLESS,
    PERCENT,
    Based,
    Quantity,
    Unit,
    number_node,
    single_dimension,
    unit_named,
)

_MAX_UNIT_WORDS: Final = 5
_MAX_EXPONENT_CHARS: Final = 2

# --- units ---------------------------------------------------------------------------------------

# Words around a unit that say nothing of its size.
_EMPTY_WORDS: Final = frozenset(
    "a an the each total exactly whole more long tall wide high deep old away apart in all "
    "altogether every integer integers number numbers value values".split()
)
_POWER_WORDS: Final = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
# Plurals without an s; and words with one that count nothing.
_IRREGULAR_PLURALS: Final = frozenset(
    "people men women children mice geese fish sheep deer cattle dice teeth oxen vertices".split()
)
_FALSE_PLURALS: Final = frozenset(
    "halves thirds fourths quarters fifths sixths sevenths eighths ninths tenths elevenths "
    "twelfths twentieths hundredths thousandths millionths factorials roots powers times plus "
    "minus equals "
    "fails works holds exceeds remains makes gives means always perhaps unless less this does "
    "radicals squares cubes reciprocals negatives twos threes fours fives tens dozens scores "
    "hundreds thousands millions billions trillions lakhs crores "
    "guess is was has as us yes".split()
)
# Anywhere before or after a noun they change what the number means.
NUMBER_CHANGING_WORDS: Final = frozenset(
    "is are was be not no point pi half third quarter fourth fifth sixth seventh eighth ninth "
    "tenth hundredth thousandth factorial squared cubed root sqrt negative minus plus times over "
    "divided mod modulo choose power inverse infinity incorrect wrong correct zero one two three "
    "four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy "
    "eighty ninety dozen score gross hundred thousand million mil billion trillion lakh crore "
    "but or if than equals fails percent".split()
)
_JOINING_MARKS: Final = frozenset(map(mark, ("*", ".", "-", "{", "}", "(", ")")))


class _NotAUnitError(Exception):
    """Tokens are no unit."""


def read_unit(tokens: Tokens, counts_one: bool = False) -> Unit | None:
    """Read a product of units such as ``cm^2``, ``miles per hour`` or ``red marbles``.

    None for tokens that are no unit; no dimensions for words that say nothing ("square units").
    ``counts_one`` says that the number is 1, so that a noun may stand in the singular.
    """
    reader = _UnitReader(counts_one)
    try:
        reader.read(tokens)
    except _NotAUnitError:
        return None
    factor = Fraction(1)
    exponents: Counter[str] = Counter()
    for unit, exponent in reader.powers:
        factor *= unit.factor**exponent
        for dimension, power in unit.dimensions:
            exponents[dimension] += power * exponent
    # A dimension whose exponent is 0 has cancelled out.
    dimensions = sorted((name, exponent) for name, exponent in exponents.items() if exponent)
    return Unit(factor, tuple(dimensions))


class _UnitReader:
    """Collects the powers of units whose product is read; of a run of nouns the last one counts."""

    def __init__(self, counts_one: bool) -> None:
        """Begin with no unit read.

        ``counts_one``: the number is 1, so that a noun may stand in the singular. ``powers``: each
        unit with its exponent. ``noun``: the last word for what is counted, as in ``red marbles``,
        until a unit or the end follows.
        """
        self.counts_one = counts_one
        self.powers: list[tuple[Unit, int]] = []
        self.direction = 1  # -1 below the fraction bar
        self.power = 1  # 2 behind "square"
        self.noun = ""

    def read(self, tokens: Tokens) -> None:
        """Read all tokens into ``powers``."""
        position = 0
        while position < len(tokens):
            token = tokens[position]
            position += 1
            if token.text == "^":
                position = self.read_exponent(tokens, position)
            else:
                self.read_token(token)
        self.add_noun()

    def read_token(self, token: Token) -> None:
        """Add the unit that a token names, or note what it says of the next one.

        ``direction`` is -1 behind ``/`` and ``per``, ``power`` is 2 behind ``square``. A word that
        is no unit is a noun, which counts things (``red marbles``). A word that changes the number
        (``half``, ``million``) is in no unit.
        """
        word = token.text.lower()
        unit = unit_named(token.text)
        if unit is not None:
            self.add(unit)
        elif word in NUMBER_CHANGING_WORDS:
            raise _NotAUnitError
        elif word in ("/", "per"):
            self.add_noun()
            self.direction = -1
        elif word in _POWER_WORDS:
            self.power = _POWER_WORDS[word]
        elif word in ("unit", "units"):
            self.add(DIMENSIONLESS)
        elif word in _EMPTY_WORDS:
            self.power = 1
        elif token.kind in (Kind.WORD, Kind.SYMBOL, Kind.FUNCTION):
            self.noun = word
        elif token not in _JOINING_MARKS:
            raise _NotAUnitError

    def read_exponent(self, tokens: Tokens, position: int) -> int:
        """Raise the last unit to ``2`` or ``{-2}`` at a position; return the position behind it."""
        digits = ""
        while position < len(tokens) and not digits.lstrip("-"):
            digits += tokens[position].text.lstrip("{")
            position += 1
        if not self.powers or not digits.lstrip("-").isdigit() or len(digits) > _MAX_EXPONENT_CHARS:
            raise _NotAUnitError
        unit, exponent = self.powers.pop()
        self.powers.append((unit, exponent * int(digits)))
        return position

    def add_noun(self) -> None:
        """Add the last noun of a run such as ``red marbles``, which must count something.

        A noun is a dimension of its own, ``#marble``. Above the fraction bar it is a plural, unless
        the number is 1; below it, ``per marble``, the singular is usual.
        """
        if not self.noun:
            return
        is_numerator = self.direction > 0
        if is_numerator and not self.counts_one and not _counts_things(self.noun):
            raise _NotAUnitError
        if self.noun in _FALSE_PLURALS:
            raise _NotAUnitError
        self.add(single_dimension(f"#{_singular(self.noun)}"))

    def add(self, unit: Unit) -> None:
        """Add a unit in the direction and the power that were read before it."""
        self.powers.append((unit, self.direction * self.power))
        self.direction, self.power = 1, 1
        self.noun = ""


def _counts_things(noun: str) -> bool:
    """Whether a noun is a plural; ``_FALSE_PLURALS`` such as ``halves`` count nothing."""
    has_plural_ending = (
        len(noun) > 3 and noun.endswith("s") and not noun.endswith(("ss", "us", "is"))
    )
    return noun in _IRREGULAR_PLURALS or has_plural_ending


def _singular(noun: str) -> str:
    """Cut a plural ending off, roughly: only equality of two nouns depends on it."""
    return noun[:-3] + "y" if noun.endswith("ies") else noun.removesuffix("s")


# --- expressions with a unit ---------------------------------------------------------------------

# Words that change what follows them: prose with one of them cannot be skipped.
HEDGES: Final = frozenset(
    "not no never neither nor least most than over under between except unless either maybe "
    "perhaps might could possibly probably unknown cannot if below above minus plus without".split()
)
_SCALAR_KINDS: Final = frozenset((Kind.NUMBER, Kind.SYMBOL, Kind.MARK, Kind.FUNCTION))
# What makes an expression more than numbers, letters and functions in braces; most hold none.
_SPECIAL_TEXTS: Final = frozenset("cup \\ : _ ( ) [ ] \\{ <( . ' % deg min mathbb m".split())
_DEGREE_ENDINGS: Final = (("^", "deg"), ("^", "{", "deg", "}"), ("deg",))
_TEMPERATURES: Final = {"C": "celsius", "F": "fahrenheit"}


def read_plain_quantity(tokens: Tokens) -> Quantity | None:
    """Read an expression that has no unit, if nothing but an expression can stand here."""
    for kind, text in tokens:
        if kind not in _SCALAR_KINDS or text in _SPECIAL_TEXTS:
            return None
    tree = parse_if_readable(tokens)  # if it is none, it may be prose, or a label and its value
    return None if tree is None else Quantity(tree, literal=_decimal_literal(tokens))


def read_quantity(tokens: Tokens) -> Quantity:
    """Read an expression and its unit; :class:`Unreadable` if some token has no place.

    ``_split_currency`` takes out a currency sign, ``_split_unit`` a unit at the end; each returns
    the tokens that are left, and the unit or None. A unit without dimensions (``units``) says
    nothing. ``_decimal_literal`` is the number as it was written.
    """
    number_tokens, unit = _split_currency(tokens)
    if unit is None:
        number_tokens, unit = _split_unit(tokens)
    if unit is not None and not unit.dimensions:
        unit = None
    return Quantity(parse(number_tokens), unit, _decimal_literal(number_tokens))


def _decimal_literal(tokens: Tokens) -> str:
    """Return the literal of ``1.6e-19`` or ``1.6 * 10 ^ -19``, sign included, else ``""``.

    Both give ``1.6e-19``: a decimal as text, from which its digits can be counted.
    """
    if any(token.kind not in (Kind.NUMBER, Kind.MARK) for token in tokens):
        return ""
    text = "".join(token.text for token in tokens if token.text not in "{}()").lstrip("+")
    sign = "-" if text.startswith("-") else ""
    literal = text.lstrip("+-").replace("*10^", "e").replace(",", "").lower()
    mantissa, _, exponent = literal.partition("e")
    is_mantissa = mantissa.replace(".", "", 1).isdigit()
    is_exponent = not exponent or exponent.lstrip("+-").isdigit()
    return sign + literal if is_mantissa and is_exponent else ""


def _split_currency(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    """Take the sign of a currency out of the first two or the last two tokens.

    Returns the other tokens, and the sign as a unit; all tokens and None if there is no such sign.
    """
    positions = [index for index, token in enumerate(tokens) if token.kind is Kind.CURRENCY]
    if len(positions) != 1 or 2 <= positions[0] < len(tokens) - 2:
        return tokens, None
    position = positions[0]
    unit = single_dimension(tokens[position].text)
    return [*tokens[:position], *tokens[position + 1 :]], unit


def _split_unit(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    """Cut a percent sign, a degree sign or unit words off the end.

    Returns the tokens that are left, and the unit or None. Behind a percent sign a whole may be
    named: ``20% of the students``. ``_DEGREE_ENDINGS`` are the spellings of a degree sign; a C or F
    behind it makes it a temperature. A sign that belongs to one part only (``30° + 60°``) stays in
    the expression.
    """
    texts = texts_of(tokens)
    if "%" in texts:
        position = texts.index("%")
        whole = tokens[position + 1 :]
        is_share = not whole or whole[0].text == "of"  # "20% of the students"
        words = [token.text for token in whole if token.kind is Kind.WORD]
        if is_share and len(words) == len(whole) and NUMBER_CHANGING_WORDS.isdisjoint(words):
            return tokens[:position], PERCENT
    for ending in _DEGREE_ENDINGS if "deg" in texts else ():
        is_temperature = texts[-1] in _TEMPERATURES and texts[:-1][-len(ending) :] == ending
        if is_temperature:
            return tokens[: -len(ending) - 1], unit_named(_TEMPERATURES[texts[-1]])
        if texts[-len(ending) :] == ending:
            number_tokens = tokens[: -len(ending)]
            return (tokens, None) if _is_angle_sum(number_tokens) else (number_tokens, DEGREE)
    return _split_unit_words(tokens)


def _is_angle_sum(tokens: Tokens) -> bool:
    """Whether a degree sign after these tokens belongs to a part: ``30° + 60°``, ``sin 60°``."""
    has_function = any(
        token.kind is Kind.FUNCTION and token.text not in ("frac", "sqrt", "bar")
        for token in tokens
    )
    return has_function or mark("deg") in tokens


def _split_unit_words(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    """Cut the words of a unit off the end; :class:`Unreadable` if they are none.

    Returns the tokens that are left, and the unit or None. The first word that is no subscript may
    begin a unit. Too many words, or a word that hedges (``least``), make it prose.
    """
    start = next((index for index in range(len(tokens)) if _may_begin_unit(tokens, index)), 0)
    if start == 0:
        return tokens, None
    number_tokens, unit_tokens = tokens[:start], tokens[start:]
    first = unit_tokens[0].text
    if first.isupper() and unit_named(first) is None:
        return tokens, None  # a segment such as AB
    words = [token.text.lower() for token in unit_tokens if token.kind is Kind.WORD]
    if len(words) > _MAX_UNIT_WORDS or not HEDGES.isdisjoint(words):
        raise Unreadable("prose")
    unit = read_unit(unit_tokens, counts_one=texts_of(number_tokens) == ("1",))
    if unit is None:
        raise Unreadable("odd unit")
    return number_tokens, unit


def _may_begin_unit(tokens: Tokens, position: int) -> bool:
    """Whether a unit may begin here: at a word that is no part of a subscript."""
    token = tokens[position]
    if token.kind is Kind.FUNCTION:
        return token.text in ("min", "deg")
    tokens_before = tokens[max(0, position - 2) : position]
    return token.kind is Kind.WORD and mark("_") not in tokens_before


# --- numbers in a base ---------------------------------------------------------------------------

_BASE_MARKS: Final = ("_", "base")
_BRACKETS: Final = frozenset("{}()")
_MAX_BASE: Final = 36


def read_based_number(tokens: Tokens) -> Based | Quantity | None:
    """Read ``204_5``, ``(1A)_{16}`` and ``204 base 5``; None for what is no number in a base.

    Digits above 9 are letters. A whole number in base 10 is an ordinary quantity.
    """
    texts = texts_of(tokens)
    position = next((index for index, text in enumerate(texts) if text in _BASE_MARKS), 0)
    digits = "".join(text for text in texts[:position] if text not in _BRACKETS).upper()
    base_digits = "".join(text for text in texts[position + 1 :] if text not in _BRACKETS)
    is_numeral = digits.replace(".", "", 1).isalnum() and any(map(str.isdigit, digits))
    if not is_numeral or not base_digits.isdecimal():
        return None
    # Three digits show already that a base is too large.
    base = int(base_digits[:3])
    if not 2 <= base <= _MAX_BASE:
        return None
    if any(int(digit, _MAX_BASE) >= base for digit in digits.replace(".", "")):
        return None
    if base == 10 and digits.isdecimal():
        return Quantity(number_node(int(digits)))
    return Based(digits.lstrip("0") or "0", base)
