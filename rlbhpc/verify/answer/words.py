"""Answers in words: names, yes and no, numbers spelled out, dates, and phrases with a meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rlbhpc.verify.answer.lexer import Token
from rlbhpc.verify.answer.tree import Node, num
from rlbhpc.verify.answer.units import SCALES
from rlbhpc.verify.answer.value import Choice, Clock, Interval, Quantity, Region, Value, Words

_ARTICLES: Final = frozenset(("a", "an", "the", "on"))
_EMPTY: Final = frozenset(
    "emptyset|no solution|no solutions|no real solution|no real solutions|none|empty set|empty|"
    "no such number|no real roots|no roots|there is no solution|there are no solutions|"
    "there are no real solutions|no such numbers|no answer exists|null set".split("|")
)
_UNDEFINED: Final = frozenset(
    "undefined|not defined|dne|does not exist|limit does not exist|doesn t exist|"
    "no limit exists|no maximum exists|no minimum exists|no derivative exists|"
    "indeterminate".split("|")
)
_INFINITE: Final = frozenset(
    "infinite|infinitely many|infinitely many solutions|infinity|unbounded".split("|")
)
_REALS: Final = frozenset(
    "all real numbers|all reals|real numbers|reals|all real|any real number|all real x".split("|")
)
_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_PARTS: Final = "half third quarter fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_DAYS: Final = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_MONTHS: Final = (
    "january february march april may june july august september october november december"
).split()
# Words that change what follows them: prose with one of them cannot be skipped.
HEDGES: Final = frozenset(
    "not no never neither nor least most than over under between except unless either maybe "
    "perhaps might could possibly probably unknown cannot if below above minus plus without".split()
)


_VERDICTS: Final = frozenset("yes no true false".split())


def read_explained(tokens: Sequence[Token]) -> Value | None:
    """Read ``Yes, such a number exists`` and ``D. None of the above`` by what stands first."""
    if len(tokens) < 3 or tokens[1][0] != "o" or not any(k == "w" for k, _ in tokens[2:]):
        return None
    first, mark = tokens[0][1], tokens[1][1]
    if first in "ABCDEFGHIJ" and mark in (".", ":", ")"):
        rest = read_words(tokens[2:])
        return None if rest is None else Choice(first, rest)
    words = {text.lower() for _, text in tokens[2:]}
    plain = HEDGES.isdisjoint(words) and _VERDICTS.isdisjoint(words) and words.isdisjoint(_LIMITS)
    return Words(first.lower()) if first.lower() in _VERDICTS and mark in ",." and plain else None


_LIMITS: Final = frozenset("but only when sometimes".split())


def read_words(tokens: Sequence[Token]) -> Value | None:
    """Read tokens that are words throughout; None if they are not."""
    if not any(kind == "w" for kind, _ in tokens):
        return None
    if not all(kind in ("w", "s", "f") or text in _PUNCTUATION for kind, text in tokens):
        return None
    if sum(kind == "w" for kind, _ in tokens) * 2 < len(tokens) and len(tokens) > 2:
        return None
    words = [text for kind, text in tokens if kind in ("w", "s", "f")]
    if len(words) == 1 and len(words[0]) == 1 and words[0].isupper():
        return Choice(words[0])
    plain = [word.lower() for word in words]
    if len(words) == 2 and plain[0] in ("option", "choice") and words[1] in "ABCDEFGHIJ":
        return Choice(words[1])
    while len(plain) > 1 and plain[0] in _ARTICLES:
        del plain[0]
    text = " ".join(plain)
    bare = _SUBJECTS.sub("", text, count=1) if _SUBJECTS.match(text) else text
    bare = _SYNONYMS.get(bare, bare)
    return _meaning(text) or _meaning(bare) or _spelled(plain) or Words(bare)


_PUNCTUATION: Final = frozenset(".,'-!\"()/`:;")


# What is read as one word where writers use several.
_SYNONYMS: Final = {
    "divergent": "diverges", "convergent": "converges", "mon": "monday", "tue": "tuesday",
    "tues": "tuesday", "wed": "wednesday", "thu": "thursday", "thur": "thursday",
    "thurs": "thursday", "fri": "friday", "sat": "saturday", "sun": "sunday",
}  # fmt: skip
_SUBJECTS: Final = re.compile(r"(?:it(?: is)?|there are|series|integral|sequence|limit) (?=\w)")
_NONE: Final = re.compile(
    r"(?:equation|system|inequality|it) has no (?:real |integer )?(?:solutions?|roots?)"
    r"|no (?:such |real |integer )*(?!(?:limit|maximum|minimum|derivative|such|real|integer) )"
    r"\w+ exists?"
)
# Real numbers of one sign, by how they are called.
_SIGNED: Final = {
    "positive": (False, False), "nonnegative": (False, True), "non negative": (False, True),
    "negative": (True, False), "nonpositive": (True, True), "non positive": (True, True),
}  # fmt: skip


def _of_one_sign(text: str) -> Interval | None:
    sign = text.removeprefix("all ").removesuffix(" numbers").removesuffix("s")
    if not sign.endswith(" real") or sign[:-5] not in _SIGNED:
        return None
    below, closed = _SIGNED[sign[:-5]]
    zero = num(0)
    return Interval(None, zero, False, closed) if below else Interval(zero, None, closed)


def _meaning(text: str) -> Value | None:
    if text in _EMPTY or _NONE.fullmatch(text):
        return Region(())
    if text in _UNDEFINED:
        return Words("undefined")
    if text in _INFINITE:
        return Quantity(Node("const", (), "oo"))
    if text in _REALS:
        return Region((Interval(None, None),))
    if text in ("noon", "midnight"):
        return Clock(12, 0, 0, "pm" if text == "noon" else "am")
    if text in ("negative infinity", "minus infinity"):
        return Quantity(Node("neg", (Node("const", (), "oo"),)))
    return _of_one_sign(text) or _spoken_time(text)


_SPOKEN: Final = re.compile(r"(?:(half|quarter) past|quarter (to)) (\w+)|(\w+) o clock")


def _spoken_time(text: str) -> Clock | None:
    """Read ``half past three``, ``a quarter to four`` and ``four o'clock``."""
    time = _SPOKEN.fullmatch(text.removeprefix("a "))
    hour = None if time is None else _whole([time[3] or time[4]])
    if time is None or hour is None or not 1 <= hour <= 12:
        return None
    if time[2]:
        return Clock(hour - 1 or 12, 45, 0)
    return Clock(hour, {"half": 30, "quarter": 15}.get(time[1], 0), 0)


def _spelled(words: list[str]) -> Quantity | None:
    """Read a number in words: ``one hundred and five``, ``two thirds``, ``one and a half``."""
    if len(words) == 2 and words[0] in _ONES[1:]:
        name = words[1].replace("fourth", "quarter").replace("halves", "half").removesuffix("s")
        if name in _PARTS:
            return Quantity(num(Fraction(_ONES.index(words[0]), _PARTS.index(name) + 2)))
    if words[-3:-1] == ["and", "a"] and words[-1] in ("half", "quarter"):
        whole = _whole(words[:-3])
        part = Fraction(1, 2 if words[-1] == "half" else 4)
        return None if whole is None else Quantity(num(whole + part))
    sign = -1 if words[0] in ("negative", "minus") else 1
    whole = _whole(words[sign < 0 :])
    return None if whole is None else Quantity(num(sign * whole))


def in_digits(tokens: Sequence[Token]) -> list[Token]:
    """Write the number of ``twenty-one students`` in digits; nothing for other words."""
    whole = _whole([text.lower() for kind, text in tokens[:-1] if kind == "w"])
    return [] if whole is None else [("n", str(whole)), tokens[-1]]


def _whole(words: list[str]) -> int | None:
    """Read a whole number below a billion; None for words that are none."""
    total, group, smallest = 0, 0, 10**9
    for word in words:
        after_tens = group % 10 == 0 and group % 100 >= 20
        if word == "and" and group:
            continue
        if word in _TENS and group % 100 == 0:
            group += (_TENS.index(word) + 2) * 10
        elif word in _ONES and (group % 100 == 0 or (after_tens and word in _ONES[1:10])):
            group += _ONES.index(word)
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in ("thousand", "million") and group and SCALES[word] < smallest:
            smallest = SCALES[word]
            total, group = total + group * smallest, 0
        else:
            return None
    return total + group if words else None


_BASES: Final = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}


def spelled_base(word: str) -> int | None:
    """Return the base that a word such as ``five`` names."""
    if word.lower() in _BASES:
        return _BASES[word.lower()]
    quantity = _spelled([word.lower()])
    value = quantity.tree.value if quantity else None
    return None if value is None else int(value)


def read_date(tokens: Sequence[Token]) -> Words | None:
    """Read ``March 5``, ``5 March 2024``, ``March 5th``: month, day and year in one order."""
    months = [m for kind, t in tokens if kind == "w" and (m := _month(t))]
    numbers = [int(t) for kind, t in tokens if kind == "n" and t.isdigit() and len(t) <= 4]
    others = {t.lower() for kind, t in tokens if kind != "n" and not _month(t)}
    if len(months) != 1 or not 1 <= len(numbers) <= 2:
        return None
    others -= _DAYS
    if others - {",", ".", "st", "nd", "rd", "th", "of", "the", "s", "t", "n", "d", "r", "h", "^"}:
        return None
    days = [n for n in numbers if n <= 31]
    years = [n for n in numbers if n > 31]
    if len(days) != 1:
        return None
    return Words(f"{months[0]} {days[0]}" + "".join(f" {year}" for year in years))


def _month(word: str) -> str:
    low = word.lower()
    names = [m for m in _MONTHS if m == low or (len(low) == 3 and m.startswith(low))]
    return names[0] if names else ""
