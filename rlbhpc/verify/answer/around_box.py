r"""What stands right before and right behind a box: it denies the box, or belongs to its number."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rlbhpc.verify.answer.lexer import FUNCTIONS, tokenize

_BOUNDS: Final = (
    " at most", " at least", " up to", " no greater than", " no more than", " no less than",
)  # fmt: skip
# Before a box these deny it, bound it, or make it a part of something larger.
_DENY: Final = (
    " than", "instead of", "\\ne", "\\neq", "\\not=", "\\not\\equiv", "≠", "不是", "不等于",
    "\\sqrt{", "\\sqrt", "frac{", "^{", "_{", "\\cdot", " \\times", " /", " +",
    " wrong answer", " incorrect answer", " naive answer", " anything but",
)  # fmt: skip
# Of a letter these may be the answer: an option is asked for that is wrong.
_WRONG: Final = (" wrong answer is", " incorrect answer is")
# "It is **not** $\\boxed{5}$", "\\text{ is not } \\boxed{5}"; "Prime or not: \\boxed{No}" asks.
_NOT: Final = re.compile(
    r"(?:n['’]t|(?<![a-z])(?:not|never|neither|nor|cannot))"
    r"(?:\s+(?:be|equal\s+to|the|exactly|necessarily|actually))?"
    r"(?:[\s*_$\[({}\\]|(?<=answer is not):|\\text[a-z]*)*$",
    re.IGNORECASE,
)
# These do on the line of the box: the line before may end with "C++" or "$\\mathbb{F}_7^*$".
_DENY_ON_LINE: Final = ("^", "\\times", "/", "+")
_OPEN: Final = re.compile(
    r"\b(?:not|cannot\s+be|can't\s+be|isn['’]t|un)\s*(?:uniquely\s+)?(?:determined|known|certain)\b"
)

# A function that is taken of the box: "\\log_2 \\boxed{5}", "f\\left(\\boxed{5}\\right)".
_MARKS: Final = r"(?:[_^]\{?-?\w+\}?)?'*"
_FUNCTION: Final = re.compile(rf"\\(?!textbf)([A-Za-z]+)(?:\{{(\w+)\}})?{_MARKS}\s*$")
_CALLED: Final = re.compile(
    rf"(\\[A-Za-z]+|(?<![A-Za-z\\])[A-Za-z]+)(?:\{{(\w+)\}})?{_MARKS}"
    r"(\s*)\{?(?:\\(?:left|[bB]igg?l?))?\s*\($"
)
# "So this is the gcd ($\\boxed{5}$)."
_IN_PROSE: Final = re.compile(r"(?<![\\A-Za-z])[a-z]+ \(\$$")
# "P(\\boxed{(3,4)})" is a point; "-P(", "The norm is N(" and "P(\\boxed{(3,4)}) = 7" are values.
_CAPITAL: Final = re.compile(r"(?<![A-Za-z\\\d-])[A-Z](?:\\left)?\($")
_OF_POINT: Final = (" norm is", " length is", " distance is", " value is", " determinant is")
_VALUED: Final = re.compile(r"\s*(?:\\right)?\)\s*[=+/^<>]")
_COORDINATES: Final = re.compile(r"\\boxed\{(?:\([^()]*,|[^{}]*\}\s*,\s*\\boxed)")
_DENOMINATOR: Final = re.compile(r"frac\{.*\}\{$", re.DOTALL)

# A dollar before a word is a price's: "$20. So he spends \\boxed{5} - and keeps $15".
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
# A formula within dollars that goes on behind its box.
_MORE: Final = re.compile(
    r"\s*(?!\+\s*[CKck]\s*\$)(?:[!/+-]|[xyzn]\b|\\(?:cdot|times)[^$\n]*=)[^$\n]*\$"
)


def denied(body: str, box: int, end: int) -> bool:
    """Whether what stands around a box denies it, bounds what is unknown, or makes it a part."""
    if body[end : end + 1] != "$" and _MORE.match(body, end) and body.count("$", 0, box) % 2:
        return _WORD.search(body, body.rfind("$", 0, box), box) is None
    lead = _lead(body[max(0, box - 24) : box])
    if lead == "named":
        return _COORDINATES.match(body, box) is None or _VALUED.match(body, end) is not None
    if lead == "wrong":
        return any(map(str.isdigit, body[box:end]))
    if lead == "bound":
        return _OPEN.search(body[max(0, box - 300) : box].rpartition(". ")[2]) is not None
    return bool(lead)


@lru_cache(maxsize=4096)
def _lead(before: str) -> str:
    """Say whether a box is "denied" by what leads to it, "wrong", "bound", or "named" by a capital.

    Few words lead to a box, and they are written again and again.
    """
    point = None
    if _is_argument(before.rstrip(" $\n{")) and _IN_PROSE.search(before) is None:
        point = _CAPITAL.search(before)
        if point is None:
            return "denied"
        before = before[: point.start()]
    words = before.rstrip(" $\\([*\n")
    if words.endswith(_BOUNDS):
        return "bound" if point is None else "denied"
    if words.endswith(_WRONG):
        return "wrong"
    if _NOT.search(before) is not None:
        return "denied"
    part = words.endswith("}{") and _DENOMINATOR.search(words) is not None
    on_line = before.rstrip(" $\\([*").endswith(_DENY_ON_LINE)
    if part or on_line or words.endswith(_DENY if point is None else (*_DENY, *_OF_POINT)):
        return "denied"
    return "" if point is None else "named"


def _is_argument(before: str) -> bool:
    """Whether a function is taken of what follows."""
    if not before.endswith("(") or before.endswith("\\("):
        name = _FUNCTION.search(before)
        return name is not None and (name[2] or name[1]) in FUNCTIONS
    called = _CALLED.search(before)
    if called is None:
        return False
    kinds = [kind for kind, _ in tokenize(called[2] or called[1])]
    return kinds in ([["f"]] if called[3] else [["f"], ["s"], ["u"]])


# --- behind ---------------------------------------------------------------------------------------

# What belongs to the number in a box though it stands behind it.
_SCALE: Final = re.compile(
    r"[$\s]*(?:\\text\{\s*|\\[,;: ]\s*)*"
    r"(\\?%|(?:percent|dozen|hundred|thousand|million|billion|seconds|minutes|hours|days|weeks|months|"
    r"years|dollars|cents|degrees|radians|[km]?grams|"
    r"(?:(?:square|cubic)\s+)?(?:inches|feet|miles|yards|(?:centi|milli|kilo)?met(?:er|re)s)|"
    r"[ckm]m|kg|[ck]?m/(?:s|h|min)|mph)\b(?!\s*[\^/]|\s+(?:and|of|per|more|less|point|squared|cubed)))"
)


# A factor, a power or a constant that the formula goes on with: "$\\boxed{5}\\times 10^3$".
_FACTOR: Final = re.compile(
    r"\s*((?:\+(?=\s*[CKck]\s*[$\\])|\\times|\\cdot|\\(?:pi|sqrt)(?![A-Za-z])|"
    r"\^(?!\{?(?:\*|\\dagger)))[^$\n=]{0,40}?)"
    r"(?:\$|\\[)\]])"
)


# "$\\boxed{5m}$ where $m$ is the slope": what looks like a unit is a letter.
_LETTER: Final = re.compile(
    r"[$\s,(]*(where\s+\$?[mshgNJWLKCVA]\$?\s+(?:is|denotes)\s+[a-z]+\s+[a-z ]{2,30})"
)


_DIGITS_AND_LETTER: Final = re.compile(r"(-?[\d.,]+)\s*([A-Za-z])")
_IN_TEN: Final = re.compile(r"\b(?:in|to)\s+(?:base[\s-]*(?:10|ten)|decimal)\b[^.\n]*$")
# One with a space at the start of a line is a bullet.
_MINUS: Final = re.compile(r"[=$(\[]\s*-\s*$|^\s*-$", re.MULTILINE)


def joined(body: str, box: int, text: str, suffix: str) -> str:
    """Join what a box holds and what stands around it; a letter that is explained is no unit."""
    before = body[max(0, box - 60) : box]
    if before.endswith(("-", "- ")) and not text.startswith("-") and _MINUS.search(before):
        text = f"-({text})" if "+" in text or "-" in text else f"-{text}"
    elif text.isdecimal() and ("base" in before or "decimal" in before) and _IN_TEN.search(before):
        text = f"{text}_{{10}}"
    if not suffix.startswith(" where"):
        return text + suffix
    product = _DIGITS_AND_LETTER.fullmatch(text)
    named = product is not None and re.search(rf"\b{product[2]}\b", suffix) is not None
    return f"{product[2]} \\cdot {product[1]}" if product is not None and named else text


def scale(rest: str) -> str:
    """Return the percent sign or scale word right behind a box, as text to add to it."""
    match = _SCALE.match(rest)
    if match is None:
        factor = _FACTOR.match(rest) or _LETTER.match(rest)
        return "" if factor is None else f" {factor[1]}"
    return r"\%" if match[1][-1] == "%" else rf" \text{{ {match[1]}}}"
