r"""A last sentence whose number arithmetic vouches for, as in "16 + 4 = 20. That's 20 eggs".

Of what the sentence speaks is not asked, so any word voids it that may deny, bound, suppose or part
the number, or make it one of several.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.value import Quantity

# "9 * 2 = $18": arithmetic on plain numbers and its value; to read it is to check it. A lone dollar
# opens a formula that was cut.
_NUMBER: Final = r"[($\\\s]*\d[\d,]*(?:\.\d+)?[\\%)$\s]*"
_SIGN: Final = r"(?:[-+*/x×÷−·]|\\(?:times|cdot|div)\b)"
COMPUTED: Final = re.compile(
    rf"(?<!\S)(?!\$[^$]*\Z)-?{_NUMBER}{_SIGN}{_NUMBER}(?:(?:{_SIGN}|=){_NUMBER})*={_NUMBER}"
    rf"(?:(?:{_SIGN}|=){_NUMBER})*"
)
#: A cross between two numbers is a product's.
CROSS: Final = re.compile(r"(?<=\d) [x×] (?=\$?\d)")
_WORDS: Final = "|".join(
    resources.files("rlbhpc.verify.answer").joinpath("voiding_words.txt").read_text("utf-8").split()
).replace("*", r"\w*")
_VOIDS: Final = re.compile(
    rf"\b(?:{_WORDS}|would(?!\s+take)|over(?!\s+the\b)|(?<!years\s)old)\b|n['’]t\b"
    r"|[?;:<>≤≥≠^_~≈]|\d[A-Za-z]|\b[A-Za-z]\s*="
    r"|[不非没未或约近每半倍余几若如超多少]|左右|可能|至少|至多|第",
    re.IGNORECASE,
)
_PLAIN: Final = re.compile(r"(?<![\w.,/])[$€£¥]?\d[\d,]*(?:\.\d+)?(?![\d,.]*\d)%?")
_UNIT: Final = re.compile(r"\s*\\?(%|[a-z]+\b|[一-鿿])?")
_ONLY_UNIT: Final = re.compile(r"[\s$\\)]*[A-Za-z一-鿿 ]{0,30}")
# What else may hold a number behind the value: "for the 16 glasses", "with $2.50".
_CIRCUMSTANCE: Final = re.compile(
    r"(?:\s+[A-Za-z]+){0,3}?\s+(?:for|with|in|during|over|on|from)\s+(?:(?:the|these|those|all)\s+)?"
    r"[$€£]?\d[\d,]*(?:\.\d+)?(?:\s+[a-z]+){0,3}"
)


def vouched(sentence: str, before: str) -> str | None:
    """Return the value that a last sentence states, if arithmetic in it or before it gives it."""
    sentence = CROSS.sub(" * ", sentence.replace("**", ""))
    computed = list(COMPUTED.finditer(sentence))
    if len(computed) > 1:
        return None
    if computed:
        shown = computed[0]
        start, value = shown.start(), shown[0].strip()
        end = shown.start() + len(shown[0].rstrip())
    else:
        given = _given(before)
        numbers = list(_PLAIN.finditer(sentence))
        if given is None or not numbers or _amount(numbers[0][0]) != given:
            return None
        start, end, value = numbers[0].start(), numbers[0].end(), numbers[0][0]
    lead, rest = sentence[:start], sentence[end:]
    if re.search(r"\d", lead) or _VOIDS.search(lead) or _VOIDS.search(rest):
        return None
    if re.search(r"\d", rest) and _CIRCUMSTANCE.fullmatch(rest) is None:
        return None
    unit = _UNIT.match(rest)
    with_unit = f"{value} {unit[1]}" if unit is not None and unit[1] else value
    for text in (with_unit, value):
        if isinstance(read(text), Quantity):
            return text
    return None


def _given(before: str) -> object:
    """Return what the arithmetic at the end of a sentence comes to."""
    before = CROSS.sub(" * ", before.replace("**", "").rstrip(" .!。，,"))
    computed = list(COMPUTED.finditer(before))
    if not computed or not _ONLY_UNIT.fullmatch(before[computed[-1].end() :]):
        return None
    return _amount(computed[-1][0].strip()) and _amount(computed[-1][0].rpartition("=")[2])


def _amount(text: str) -> object:
    value = read(text.strip(" $€£¥%\\"))
    return value.tree if isinstance(value, Quantity) else None
