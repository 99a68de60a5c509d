r"""What stands right before and right behind a box and belongs to its number."""

from __future__ import annotations

import re
from typing import Final

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
