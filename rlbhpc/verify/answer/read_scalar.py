"""Scalars: numbers and expressions with units, numbers in a base, times of day, ratios."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final

from rlbhpc.verify.answer.grammar import Unreadable, number, parse
from rlbhpc.verify.answer.lexer import Token, Tokens
from rlbhpc.verify.answer.units import DEGREE, NO_WORDS, PERCENT, Unit, read_unit, unit_named
from rlbhpc.verify.answer.value import Based, Clock, Node, Quantity, Value, num
from rlbhpc.verify.answer.words import HEDGES, spelled_base

_MAX_UNIT_WORDS: Final = 5


def read_quantity(tokens: Tokens) -> Quantity:
    """Read an expression and its unit; :class:`Unreadable` if some token has no place."""
    tokens = _merged_units(_flat_units(tokens))
    if ("o", "'") in tokens:
        angle = _angle_or_length(tokens)
        if angle is not None:
            return angle
    tokens, unit = _split_currency(tokens)
    if unit is None:
        tokens, unit = _split_suffix(tokens)
    elif tokens and tokens[-1][0] in ("w", "f"):
        tokens, extra = _split_words(tokens)
        if extra is not None and extra.dims and extra.dims != unit.dims:
            raise Unreadable("two units")
        unit = unit._replace(scale=extra.scale) if extra is not None else unit
    tree = parse(tokens)
    if unit is not None:
        if unit.scale != 1:
            tree = Node("mul", (tree, num(unit.scale)))
        unit = unit._replace(scale=1) if unit.dims else None
    return Quantity(tree, unit, _digits(tokens))


# What makes an expression more than numbers, letters and functions in braces; most hold none.
_MARKS: Final = frozenset(
    "cup \\ : _ ( ) [ ] \\{ <( . ' % deg min mathbb m "
    "\\Omega Å \\AA \\mathring \\mu ☉ \\odot".split()
)


def plain_quantity(tokens: Tokens) -> Quantity | None:
    """Read an expression that has no unit, if nothing but an expression can stand here."""
    if len(tokens) == 1 and tokens[0][0] == "n" and tokens[0][1].isdecimal():
        return Quantity(num(number(tokens[0][1])), None, tokens[0][1])
    for kind, text in tokens:
        if kind not in "nsof" or text in _MARKS:
            return None
    try:
        return Quantity(parse(tokens), None, _digits(tokens))
    except Unreadable:
        return None  # it may be prose, or a label and its value


def _digits(tokens: Tokens) -> str:
    """Return the literal of ``1.6e-19`` or ``1.6 * 10 ^ -19``, sign included, else nothing."""
    if not all(kind in "no" for kind, _ in tokens):
        return ""
    text = "".join(t for _, t in tokens if t not in "{}")
    sign = "-" if text.startswith("-") else ""
    text = text.lstrip("+-").replace("(", "").replace(")", "")
    mantissa, times, exponent = text.partition("*10^")
    literal = f"{mantissa}e{exponent}" if times else mantissa
    head, _, tail = literal.replace(",", "").lower().partition("e")
    plain = head.replace(".", "", 1).isdigit() and (tail.lstrip("+-").isdigit() or not tail)
    return sign + (f"{head}e{tail}" if tail else head) if plain else ""


def _split_currency(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    places = [position for position, (kind, _) in enumerate(tokens) if kind == "c"]
    if len(places) != 1 or (2 <= places[0] < len(tokens) - 2):
        return tokens, None
    position = places[0]
    rest = tokens[position + 1 :]
    if tokens[position][1] == "₹" and rest and rest[0][1] == ".":
        rest = rest[1:]
    return [*tokens[:position], *rest], Unit(Fraction(1), ((tokens[position][1], 1),))


_DEGREES: Final = (("^", "deg"), ("^", "{", "deg", "}"), ("deg",))
_SCALES: Final = (("C", "celsius"), ("F", "fahrenheit"))


def _split_suffix(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    """Cut a percent sign, a degree sign or unit words off the end."""
    texts = tuple(text for _, text in tokens)
    if "%" in texts and (texts[-1] == "%" or texts[texts.index("%") + 1] == "of"):
        share, whole = tokens[: texts.index("%")], tokens[texts.index("%") + 1 :]
        if all(kind == "w" and text not in NO_WORDS for kind, text in whole):
            return share, PERCENT
    for sign in _DEGREES if "deg" in texts else ():
        for letter, name in _SCALES:
            if texts[-len(sign) - 1 :] == (*sign, letter):
                return tokens[: -len(sign) - 1], unit_named(name)
        if texts[-len(sign) :] == sign:
            rest = tokens[: -len(sign)]
            return (tokens, None) if _holds_degrees(rest) else (rest, DEGREE)
    return _split_words(tokens)


def _holds_degrees(tokens: Tokens) -> bool:
    """Whether a degree sign after these tokens belongs to a part: ``30° + 60°``, ``cis 60°``."""
    return any(
        text == "deg" or (kind == "f" and text not in ("frac", "sqrt", "bar"))
        for kind, text in tokens
    )


def _split_words(tokens: Tokens) -> tuple[Tokens, Unit | None]:
    if not any(kind in "wf" for kind, _ in tokens):
        return tokens, None
    tokens = _bare_unit(tokens)
    start = next(
        (position for position in range(len(tokens)) if _begins_unit(tokens, position)), len(tokens)
    )
    if start in (0, len(tokens)):
        return tokens, None
    tail = tokens[start:]
    words = [text.lower() for kind, text in tail if kind == "w"]
    if tokens[start][1].isupper() and unit_named(tokens[start][1]) is None:
        return tokens, None
    if len(words) > _MAX_UNIT_WORDS or not HEDGES.isdisjoint(words):
        raise Unreadable("prose")
    unit = read_unit(tail, counts_one=[text for _, text in tokens[:start]] == ["1"])
    if unit is None:
        raise Unreadable("odd unit")
    return tokens[:start], unit


def _bare_unit(tokens: Tokens) -> Tokens:
    """Write ``5 (cm)`` as ``5 cm``."""
    if tokens[-1] != ("o", ")") or ("o", "(") not in tokens:
        return tokens
    opening = len(tokens) - 1 - list(reversed(tokens)).index(("o", "("))
    words = tokens[opening + 1 : -1]
    if opening == 0 or not words or not all(kind == "w" for kind, _ in words):
        return tokens
    return [*tokens[:opening], *words]


# Signs of which a unit's symbol is made, as they are read, after a number.
_SIGNS_OF_UNITS: Final = (
    (("k", "\\Omega"), "kΩ"), (("M", "\\Omega"), "MΩ"), (("\\Omega",), "Ω"), (("Å",), "Å"),
    (("\\AA",), "Å"), (("\\mathring", "{", "A", "}"), "Å"),
    *((("\\mu", name), f"µ{name}") for name in "msgACFVLHWT"),
    *(((star, "_", *sun), f"{star}_sun") for star in "MRL"
      for sun in (("☉",), ("\\odot",), ("{", "\\odot", "}"), ("{", "☉", "}"))),
    *(((star, "☉"), f"{star}_sun") for star in "MRL"),
)  # fmt: skip


_LETTERS_OF_UNITS: Final = frozenset(("\\Omega", "Å", "\\AA", "\\mathring", "\\mu", "☉", "\\odot"))


def _merged_units(tokens: Tokens) -> Tokens:
    """Write the signs of a symbol such as ``μm``, ``kΩ`` and ``M_☉`` at the end as one word."""
    texts = tuple(text for _, text in tokens)
    if _LETTERS_OF_UNITS.isdisjoint(texts):
        return tokens
    for signs, name in _SIGNS_OF_UNITS:
        start = len(texts) - len(signs)
        if start > 0 and texts[start:] == signs:
            kind, before = tokens[start - 1]
            if kind == "n" or before in ("}", ")"):
                return [*tokens[:start], ("w", name)]
    return tokens


def _begins_unit(tokens: Tokens, position: int) -> bool:
    """Whether a unit may begin here: at a word that is no part of a subscript."""
    kind, text = tokens[position]
    if kind == "f":
        return text in ("min", "deg")
    return kind == "w" and "_" not in (
        tokens[position - 1][1],
        tokens[position - 2][1] if position > 1 else "",
    )


def _flat_units(tokens: Tokens) -> Tokens:
    r"""Write ``\frac{\text{m}}{\text{s}^2}`` at the end as ``m / s^2``."""
    if len(tokens) < 7 or tokens[-1][1] != "}" or ("f", "frac") not in tokens[1:]:
        return tokens
    start = len(tokens) - 1 - list(reversed(tokens)).index(("f", "frac"))
    if tokens[start + 1][1] != "{" or tokens[start + 2][0] != "w":
        return tokens
    middle = next(
        (at for at in range(start, len(tokens) - 1)
         if tokens[at][1] == "}" and tokens[at + 1][1] == "{"), 0
    )  # fmt: skip
    if not middle or tokens[middle + 2][0] != "w":
        return tokens
    return [*tokens[:start], *tokens[start + 2 : middle], ("o", "/"), *tokens[middle + 2 : -1]]


def _angle_or_length(tokens: Tokens) -> Quantity | None:
    r"""``22^\circ 30' 15''`` as degrees, ``5'10"`` as feet."""
    flat = [token for token in tokens if token[1] not in ("{", "}", "^")]
    parts = [number(text) for kind, text in flat if kind == "n"]
    shape = "".join("n" if kind == "n" else text for kind, text in flat)
    if shape in ("ndegn'", "ndegn'n''"):
        total = sum((part / 60**index for index, part in enumerate(parts)), Fraction(0))
        return Quantity(num(total), DEGREE)
    if shape == "n'n''" and len(flat) == len(tokens):
        return Quantity(num(parts[0] + parts[1] / 12), unit_named("ft"))
    return None


def read_compound(tokens: Tokens) -> Quantity | None:
    """``2 hours 30 minutes``: quantities side by side in falling units of one dimension."""
    starts = [
        position
        for position, (kind, _) in enumerate(tokens)
        if kind == "n" and (position == 0 or tokens[position - 1][0] == "w")
    ]
    if len(starts) < 2 or starts[0] != 0:
        return None
    if not {("w", "h"), ("w", "hr"), ("w", "hrs")}.isdisjoint(tokens):
        tokens = [("w", "min") if token == ("w", "m") else token for token in tokens]
    ends = [*starts[1:], len(tokens)]
    parts = [read_quantity(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]
    return add_up(parts)


def add_up(parts: Sequence[Value]) -> Quantity | None:
    """Sum quantities whose units fall in size within one dimension; None if they do not."""
    units = [part.unit for part in parts if isinstance(part, Quantity) and part.unit]
    if len(units) != len(parts) or len({unit.dims for unit in units}) != 1:
        return None
    factors = [unit.factor for unit in units]
    if any(a <= b for a, b in pairwise(factors)):
        return None
    terms = tuple(
        Node("mul", (part.tree, num(unit.factor / factors[0])))
        for part, unit in zip(parts, units, strict=True)
        if isinstance(part, Quantity)
    )
    return Quantity(Node("add", terms), units[0])


_TO_A_BASE: Final = ("_", "base", "in", "binary", "octal", "hexadecimal")


def read_based(tokens: Tokens) -> Based | Quantity | None:
    r"""``204_5``, ``204_{\text{five}}``, ``(1A)_{16}``, ``204 base 5``, ``101 (binary)``."""
    position = next((i for i, (_, text) in enumerate(tokens) if text in _TO_A_BASE), 0)
    if not position:
        return None
    digits = "".join(text for _, text in tokens[:position] if text not in ("(", ")", "{", "}"))
    rest = [
        t for _, t in tokens[position:] if t not in ("_", "{", "}", "(", ")", "base", "in", ",")
    ]
    numeral = any(map(str.isdigit, digits)) or (rest == ["16"] and digits.isupper())
    if not digits.replace(".", "", 1).isalnum() or not numeral or len(rest) != 1:
        return None
    base = int(rest[0]) if rest[0].isdigit() and len(rest[0]) <= 2 else spelled_base(rest[0])
    if base is None or not 2 <= base <= 36:
        return None
    digits = digits.upper()
    values = [int(c, 36) for c in digits if c != "."]
    if any(value >= base for value in values):
        return None
    if base == 10 and digits.isdecimal():
        return Quantity(num(int(digits)))
    return Based(digits.lstrip("0") or "0", base)


_HALVES: Final = {
    "": "", "am": "am", "pm": "pm", "noon": "pm", "oclock": "", "o'clock": "", "inthemorning": "am",
    "intheafternoon": "pm", "atnight": "pm", "intheevening": "pm",
}  # fmt: skip

# Hours that are before midnight where they are called night.
_AT_NIGHT: Final = ("6", "7", "8", "9", "10", "11", "06", "07", "08", "09")
_CLOCK: Final = re.compile(
    r"(?P<hour>\d\d?)(?:(?: : |(?P<point>\.))(?P<minute>[0-5]\d))?(?: : (?P<second>[0-5]\d))?"
    r"(?P<name>(?: [A-Za-z].*)?)"
)


def read_clock(tokens: Tokens) -> Clock | None:
    """``12:00``, ``3:30 p.m.``, ``15:30``, ``3 PM``, ``3.30 pm``."""
    time = _CLOCK.fullmatch(" ".join(text for _, text in tokens))
    if time is None:
        return None
    hour, minute, second, name = time["hour"], time["minute"], time["second"], time["name"]
    name = "".join(word for word in name.split() if word != ".").lower()
    half = _HALVES.get(name)
    if half is None or (name == "atnight" and hour not in _AT_NIGHT):
        return None
    if int(hour) > 24 or (time["point"] and second) or (not name and (not minute or time["point"])):
        return None
    return Clock(int(hour), int(minute or 0), int(second or 0), half)


def split_choice(tokens: Tokens) -> tuple[str, Tokens] | None:
    r"""``(B)``, ``(B) 12``, ``B. 12``, ``\text{B}``: the letter and what follows."""
    if len(tokens) < 3:
        return None
    first, second, third = (text for _, text in tokens[:3])
    if first == "(" and third == ")" and _is_letter(tokens[1]):
        return second.upper(), tokens[3:]
    if second in (".", ":", ")") and _is_letter(tokens[0]):
        return first.upper(), tokens[2:]
    return None


def _is_letter(token: Token) -> bool:
    kind, text = token
    return len(text) == 1 and (text in "ABCDEFGHIJ" or (kind == "w" and text in "abcde"))
