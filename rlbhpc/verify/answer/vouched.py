r"""A last sentence whose number arithmetic vouches for, as in "16 + 4 = 20. That's 20 eggs".

Of what the sentence speaks is not asked, so any word voids it that may deny, bound, suppose or part
the number, or make it one of several.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rlbhpc.verify.answer.read import read
from rlbhpc.verify.answer.tables import words
from rlbhpc.verify.answer.value import Choice, Opaque, Quantity, Words

# "9 * 2 = $18": arithmetic on plain numbers and its value; to read it is to check it. A lone dollar
# opens a formula that was cut.
_NUMBER: Final = r"[($\\\s]*\d[\d,]*(?:\.\d+)?!?[\\%)$\s]*"
_SIGN: Final = r"(?:[-+*/x×÷−·]|\\(?:times|cdot|div)\b)"
COMPUTED: Final = re.compile(
    rf"(?<!\S)(?!\$[^$]*\Z)-?(?:\d+!\s*|{_NUMBER}{_SIGN}{_NUMBER}(?:(?:{_SIGN}|=){_NUMBER})*)={_NUMBER}"
    rf"(?:(?:{_SIGN}|=){_NUMBER})*"
)
#: A cross between two numbers is a product's.
CROSS: Final = re.compile(r"(?<=\d) [x×] (?=\$?\d)")
_WORDS: Final = "|".join(words("voiding_words.txt")).replace("*", r"\w*")
_VOIDS: Final = re.compile(
    rf"\b(?:{_WORDS}|would(?!\s+take)|over(?!\s+the\b)|only(?!\s+\$?\d)|left\s+with|['’]s\s+(?:answer|square)|(?<!years\s)old)\b|n['’]t\b"
    r"|[?;:<>≤≥≠^_~≈]|\d[A-Za-z]|\b[A-Za-z]\s*="
    r"|[不非没未或约近每半倍余几若如超多少]|左右|可能|至少|至多|第",
    re.IGNORECASE,
)
_PLAIN: Final = re.compile(r"(?<![A-Za-z0-9_.,/])[$€£¥]?\d[\d,]*(?:\.\d+)?(?![\d,.]*\d)%?")
# A word for a number, where there are no digits; a formula.
_TENS: Final = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_ONES: Final = "two|three|four|five|six|seven|eight|nine"
_VALUE: Final = re.compile(rf"\$[^$]*[^$\s]\$|{_PLAIN.pattern}")
_IN_WORDS: Final = re.compile(
    rf"\b(?:(?:{_TENS})(?:-(?:one|{_ONES}))?|{_ONES}|zero|ten|eleven|twelve|"
    rf"(?:thir|four|fif|six|seven|eigh|nine)teen|(?:one|{_ONES})\s+(?:hundred|thousand))\b"
)
_LETTER: Final = re.compile(r"\$[A-Za-z]\$")
_UNIT: Final = re.compile(r"\s*\\?(%|[a-z]+\b|[一-鿿])?")
_ONLY_UNIT: Final = re.compile(r"[\s$\\)]*[A-Za-z一-鿿 ]{0,30}")
# What else may hold a number behind the value: "for the 16 glasses", "with $2.50".
_CIRCUMSTANCE: Final = re.compile(
    r"(?:\s+[A-Za-z]+){0,3}?\s+(?:for|with|in|during|over|on|from)\s+"
    r"(?:(?:the|these|those|all|his|her|their)\s+)?"
    r"[$€£]?\d[\d,]*(?:\.\d+)?(?:\s+[a-z]+){0,3}"
)
_CLAUSES: Final = re.compile(r",\s+(?:and|so|which)\s+")
_NAMED: Final = re.compile(r"\b[A-Za-z]\s*=\s*$")
_HOW_OFTEN: Final = re.compile(
    r"\bMay\b|\b(?:every|each|per)\s+(?:day|week|month|year|hour|minute|morning|night)\b"
)
# And before it: "his average over the 3 tests was 85".
_OF_SO_MANY: Final = re.compile(
    r"(\s(?:for|of|in|over|from|with)\s+(?:the|these|all|his|her|their)\s+)\d+(?=\s+[a-z]+\s)"
)


class _Parts(NamedTuple):
    """A sentence cut at its value."""

    lead: str
    value: str
    rest: str


def vouched(sentence: str, before: str, *, led: bool) -> str | None:
    """Return the value of a last sentence that arithmetic in it or before it gives.

    In a sentence that is ``led`` to, by "so" or the like, its only value needs no arithmetic.
    """
    sentence = CROSS.sub(" * ", sentence.replace("**", ""))
    computed = list(COMPUTED.finditer(sentence))
    if len(computed) > 1:
        return None
    parts = _computed(sentence, computed[0]) if computed else _plain(sentence, before, led)
    if parts is None or _is_void(parts):
        return None
    unit = _UNIT.match(parts.rest)
    with_unit = f"{parts.value} {unit[1]}" if unit is not None and unit[1] else parts.value
    for text in (with_unit, parts.value):
        if not isinstance(read(text), Opaque | Words | Choice):
            return text
    return None


def _computed(sentence: str, shown: re.Match[str]) -> _Parts:
    clause = _CLAUSES.split(sentence[: shown.start()])[-1]
    behind = shown.start() + len(shown[0].rstrip())
    return _Parts(clause, shown[0].strip(), sentence[behind:])


def _plain(sentence: str, before: str, led: bool) -> _Parts | None:
    if not led:
        number = _PLAIN.search(sentence)
        result = None if number is None else _result(before)
        if number is None or result is None or _amount(number[0]) != result:
            return None
        return _Parts(sentence[: number.start()], number[0], sentence[number.end() :])
    sentence = _LETTER.sub("it", _OF_SO_MANY.sub(r"\1it", sentence))
    only = _VALUE.search(sentence) or _IN_WORDS.search(sentence)
    if only is None:
        return None
    value = only[0].strip("$") if only[0].endswith("$") else only[0]
    return _Parts(_NAMED.sub("", sentence[: only.start()]), value, sentence[only.end() :])


def _is_void(parts: _Parts) -> bool:
    """Whether a word around the value may change it, or another value stands beside it."""
    lead, rest = (_HOW_OFTEN.sub("", part) for part in (parts.lead, parts.rest))
    if re.search(r"\d", lead) or _VOIDS.search(lead) or _VOIDS.search(rest):
        return True
    another = re.search(r"[\d$]", rest) is not None
    return another and _CIRCUMSTANCE.fullmatch(rest) is None


def _result(before: str) -> object:
    """Return what the arithmetic at the end of a sentence comes to."""
    before = CROSS.sub(" * ", before.replace("**", "").rstrip(" .!。，,"))
    computed = list(COMPUTED.finditer(before))
    if not computed or not _ONLY_UNIT.fullmatch(before[computed[-1].end() :]):
        return None
    return _amount(computed[-1][0].strip()) and _amount(computed[-1][0].rpartition("=")[2])


def _amount(text: str) -> object:
    value = read(text.strip(" $€£¥%\\"))
    return value.tree if isinstance(value, Quantity) else None
