r"""What stands right before and right behind a box: it denies the box, or belongs to its number."""

from __future__ import annotations

import re
from typing import Final

_BOUNDS: Final = (
    " at most", " at least", " up to", " no greater than", " no more than", " no less than",
)  # fmt: skip
# Right before a box these deny it, bound it, or make it a part of something larger.
_DENY: Final = (
    *_BOUNDS, " not", "n't", "n’t", " never", " than", "not equal to", "not be", "\\ne", "\\neq",
    "\\sqrt{", "\\sqrt", "frac{", "^{", "^", "_{", "\\cdot", "\\times", "/", "+",
    " wrong answer", " incorrect answer", " naive answer",
)  # fmt: skip
_LAST_SIGNS: Final = frozenset(words[-1] for words in _DENY)
_OPEN: Final = re.compile(
    r"\b(?:not|cannot\s+be|can't\s+be|isn['’]t|un)\s*(?:uniquely\s+)?(?:determined|known|certain)\b"
)

# A function that is taken of the box: "\\log_2 \\boxed{5}", "f(\\boxed{5})".
_FUNCTION: Final = re.compile(
    r"\\(?:log|ln|lg|exp|a?(?:rc)?(?:sin|cos|tan|cot|sec|csc))(?:[_^]\{?-?\w+\}?)?[\s({]*$"
)
_CALLED: Final = re.compile(r"(?<![A-Za-z\\])[A-Za-z]\($")
_DENOMINATOR: Final = re.compile(r"frac\{.*\}\{$", re.DOTALL)

# A dollar before a word is a price's: "$20. So he spends \\boxed{5} - and keeps $15".
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
# A formula within dollars that goes on behind its box.
_MORE: Final = re.compile(
    r"\s*(?!\+\s*[CKck]\s*\$)(?:[!/+-]|[xyzn]\b|\\(?:cdot|times)[^$\n]*=)[^$\n]*\$"
)


def denied(body: str, box: int, end: int) -> bool:
    """Whether what stands around a box denies it, bounds what is unknown, or makes it a part."""
    if not body.startswith("$", end) and _MORE.match(body, end) and body.count("$", 0, box) % 2:
        return _WORD.search(body, body.rfind("$", 0, box), box) is None
    before = body[max(0, box - 24) : box]
    if before.endswith("(") and _CALLED.search(before) is not None:
        return True
    if "\\" in before and _FUNCTION.match(before, before.rfind("\\")) is not None:
        return True
    words = before.rstrip(" $\\([*")
    if words[-1:] not in _LAST_SIGNS:
        return False
    if not words.endswith(_DENY):
        return words.endswith("}{") and _DENOMINATOR.search(words) is not None  # nearly never
    if not words.endswith(_BOUNDS):
        return True
    sentence = body[max(0, box - 300) : box].rpartition(". ")[2]
    return _OPEN.search(sentence) is not None


# --- behind ---------------------------------------------------------------------------------------

# What belongs to the number in a box though it stands behind it.
_SCALE: Final = re.compile(
    r"[$\s]*(?:\\text\{\s*|\\[,;: ]\s*)*"
    r"(\\?%|(?:percent|dozen|hundred|thousand|million|billion|seconds|minutes|hours|days|weeks|months|"
    r"years|dollars|cents|degrees|radians|inches|feet|miles|[km]?grams|(?:centi|milli|kilo)?met(?:er|re)s|"
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
