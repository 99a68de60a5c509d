"""Scalars: numbers and expressions with units, and numbers in a base.

A word that changes a number (``halves``, ``million``) or judges it (``is incorrect``) is no unit.
Names and symbols come from a table; besides them only what counts things is a unit, a plural such
as ``apples``, and it is a dimension of its own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, parse, parse_if_readable, parse_number
from rlbhpc.verify.answer.lexer import (
    CLOSE_PARENTHESIS,
    OPEN_BRACE,
    OPEN_PARENTHESIS,
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
_MAX_UNIT_EXPONENT: Final = 9
_MAX_THING_WORDS: Final = 3  # "of sugar": more words say more than what is measured

# --- units ---------------------------------------------------------------------------------------

# Words around a unit that say nothing of its size.
_EMPTY_WORDS: Final = frozenset(
    "a an the each total exactly whole more long tall wide high deep old away apart in all "
    "altogether every".split()
)
_NEUTRAL_UNITS: Final = frozenset("unit units integer integers number numbers value values".split())
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
_ARTICLES: Final = frozenset("the a an this that these those his her their its our my".split())
# What is measured holds none of these: "of feed until noon".
_CLAUSE_WORDS: Final = frozenset(
    "until before after while each instead except unless only at first he she it they".split()
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
# Signs that make another number of what stands before them, or deny it.
_NUMBER_CHANGING_SIGNS: Final = frozenset("百千万亿半多余或不非以上下倍成分打双")
_CURRENCY_SIGNS: Final = frozenset("$€£¥₹")
_JOINING_MARKS: Final = frozenset(map(mark, ("*", ".", "-", "{", "}")))


class _NotAUnitError(Exception):
    """Tokens are no unit."""


def read_unit(tokens: Tokens, counts_one: bool = False) -> Unit | None:
    """Read a product of units such as ``cm^2``, ``miles per hour`` or ``red marbles``.

    None for tokens that are no unit; no dimensions for words that say nothing ("square units").
    ``counts_one`` says that the number is 1, so that a noun may stand in the singular.
    """
    reader = _UnitReader(tokens, counts_one)
    try:
        return reader.read()
    except _NotAUnitError:
        return None


class _UnitReader:
    """The product of units that was read so far; of a run of nouns the last one counts."""

    def __init__(self, tokens: Tokens, counts_one: bool) -> None:
        """Begin with no unit read.

        ``counts_one``: the number is 1, so that a noun may stand in the singular. ``factor`` and
        ``exponents``: the unit so far, a number times powers of dimensions. ``is_grouped``: within
        parentheses. ``nouns``: a run of words for what is counted, as in ``red marbles``.
        ``last_unit`` and ``last_exponent``: what a ``^2`` that follows would raise.
        """
        self.tokens = tokens
        self.position = 0
        self.counts_one = counts_one
        self.factor = Fraction(1)
        self.exponents: dict[str, int] = {}
        self.direction = 1  # -1 below the fraction bar
        self.is_grouped = False
        self.power = 1  # 2 behind "square"
        self.nouns: list[str] = []
        self.last_unit: Unit | None = None
        self.last_exponent = 0

    def read(self) -> Unit:
        """Read all tokens and return their unit: a factor times powers of dimensions.

        A dimension whose power is 0 has cancelled out.
        """
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            self.position += 1
            self.read_token(token)
        self.multiply_by_noun()
        dimensions = sorted((name, power) for name, power in self.exponents.items() if power)
        return Unit(self.factor, tuple(dimensions))

    def read_token(self, token: Token) -> None:
        """Multiply by the unit that a token names, or note what it says of the next one.

        ``direction`` is -1 behind ``/`` and ``per``, ``power`` is 2 behind ``square``. A word that
        is no unit is a noun, which counts things (``red marbles``): it waits in ``nouns``, for the
        last of a run counts. A word that changes the number (``half``, ``million``) is in no unit.
        """
        word = token.text.lower()
        unit = unit_named(token.text)
        if unit is None and word in NUMBER_CHANGING_WORDS:
            raise _NotAUnitError
        if token.text in ("/", "per"):
            self.multiply_by_noun()
            self.direction, self.is_grouped = -1, False
        elif token in (OPEN_PARENTHESIS, CLOSE_PARENTHESIS):
            self.is_grouped = token == OPEN_PARENTHESIS
        elif token.text == "^":
            self.read_exponent()
        elif token.text in _POWER_WORDS:
            self.power = _POWER_WORDS[token.text]
        elif word in ("of", "for"):
            self.skip_measured_thing()
        elif word in _NEUTRAL_UNITS:
            self.multiply_by(DIMENSIONLESS)
        elif unit is None and word in _EMPTY_WORDS:
            self.power = 1
        elif unit is not None:
            self.multiply_by(unit)
        elif token.text in _CURRENCY_SIGNS:
            self.multiply_by(single_dimension(token.text))
        elif token.kind in (Kind.WORD, Kind.SYMBOL, Kind.FUNCTION):
            self.nouns.append(word)
        elif token not in _JOINING_MARKS:
            raise _NotAUnitError

    def read_exponent(self) -> None:
        """Read ``2`` or ``{-2}`` behind ``^`` and raise the last unit.

        The unit was already multiplied once, so that one less is to be added.
        """
        digits = ""
        while self.position < len(self.tokens) and not digits.lstrip("-"):
            token = self.tokens[self.position]
            self.position += 1
            digits += "" if token == OPEN_BRACE else token.text
        if self.last_unit is None or not digits.lstrip("-").isdigit():
            raise _NotAUnitError
        exponent = int(digits)
        if abs(exponent - 1) >= _MAX_UNIT_EXPONENT:
            raise _NotAUnitError
        self.multiply(self.last_unit, self.last_exponent * (exponent - 1))

    def skip_measured_thing(self) -> None:
        """Skip ``of sugar``: what is measured, which is no part of the unit.

        It stands last, behind a unit or a noun, in at most three words. None of them may begin a
        clause (``until``) or change the number (``half``); then these tokens are no unit.
        """
        tail = self.tokens[self.position :]
        kinds = (Kind.WORD, Kind.SYMBOL, Kind.FUNCTION)
        words = [token.text.lower() for token in tail if token.kind in kinds]
        things = [word for word in words if word not in _ARTICLES]
        is_plain = len(words) == len(tail) and _CLAUSE_WORDS.isdisjoint(words)
        is_measured = bool(self.nouns) or self.last_unit is not None
        if not is_plain or not NUMBER_CHANGING_WORDS.isdisjoint(words) or not is_measured:
            raise _NotAUnitError
        if not 0 < len(things) <= _MAX_THING_WORDS:
            raise _NotAUnitError
        self.position = len(self.tokens)

    def multiply_by_noun(self) -> None:
        """Multiply by the last noun of a run such as ``red marbles``, which must count something.

        A noun is a dimension of its own, ``#marble``. Above the fraction bar it is a plural, unless
        the number is 1; below it, ``per marble``, the singular is usual.
        """
        if not self.nouns:
            return
        noun = self.nouns[-1]
        is_numerator = self.direction > 0
        if is_numerator and not (self.counts_one or _counts_things(noun)):
            raise _NotAUnitError
        if noun in _FALSE_PLURALS or not noun.isalpha():
            raise _NotAUnitError
        self.multiply_by(single_dimension(f"#{_singular(noun)}"))

    def multiply_by(self, unit: Unit) -> None:
        """Multiply by a unit in the direction and the power that were read before it.

        ``direction`` is -1 behind a fraction bar, ``power`` is 2 behind ``square``. Both are for
        one unit, but within parentheses (``is_grouped``) the direction stays.
        """
        self.nouns.clear()
        self.last_unit, self.last_exponent = unit, self.direction * self.power
        self.multiply(unit, self.last_exponent)
        self.power = 1
        if not self.is_grouped:
            self.direction = 1

    def multiply(self, unit: Unit, exponent: int) -> None:
        self.factor *= unit.factor**exponent
        for dimension, power in unit.dimensions:
            self.exponents[dimension] = self.exponents.get(dimension, 0) + power * exponent


def _counts_things(noun: str) -> bool:
    """Whether a noun is a plural, or a word in Chinese that neither changes nor denies a number.

    ``_FALSE_PLURALS`` end in s and count nothing, such as ``halves``, ``times`` and ``equals``.
    """
    if "\u4e00" <= noun[0] <= "\u9fff":
        return _NUMBER_CHANGING_SIGNS.isdisjoint(noun)
    has_plural_ending = (
        len(noun) > 3 and noun.endswith("s") and not noun.endswith(("ss", "us", "is"))
    )
    return noun in _IRREGULAR_PLURALS or (has_plural_ending and noun not in _FALSE_PLURALS)


def _singular(noun: str) -> str:
    """Cut a plural ending off, roughly: only equality of two nouns depends on it."""
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    is_plural = noun.endswith("s") and not noun.endswith("ss") and len(noun) > 3
    return noun[:-1] if is_plural else noun


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

    ``_read_minutes_of_arc`` knows angles such as ``22° 30'``. ``_split_currency`` takes out a
    currency sign, ``_split_unit`` a unit at the end; each returns the tokens that are left, and the
    unit or None. A unit without dimensions (``units``) says nothing. ``_decimal_literal`` is the
    number as it was written.
    """
    angle = _read_minutes_of_arc(tokens)
    if angle is not None:
        return angle
    number_tokens, unit = _split_currency(tokens)
    if unit is None:
        number_tokens, unit = _split_unit(tokens)
    elif number_tokens and number_tokens[-1].kind is Kind.WORD:
        number_tokens, written_unit = _split_unit_words(number_tokens)
        if written_unit is not None and written_unit.dimensions not in ((), unit.dimensions):
            raise Unreadable("two units")
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


def _read_minutes_of_arc(tokens: Tokens) -> Quantity | None:
    r"""Read ``22^\circ 30'`` and ``22^\circ 30' 15''`` as degrees; None for all else.

    ``shape`` is the text of the tokens with an n for each number. A minute is a 60th of a degree, a
    second a 60th of that.
    """
    if mark("'") not in tokens:
        return None
    relevant = [token for token in tokens if token.text not in ("{", "}", "^")]
    shape = "".join("n" if kind is Kind.NUMBER else text for kind, text in relevant)
    if shape not in ("ndegn'", "ndegn'n''"):
        return None
    parts = [parse_number(token.text) for token in relevant if token.kind is Kind.NUMBER]
    degrees = sum((part / 60**index for index, part in enumerate(parts)), Fraction(0))
    return Quantity(number_node(degrees), DEGREE)


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
