"""Three ways to read an answer out of a response: ours, and the two that are most widely used.

A base and its trained model differ in style, so a reader that misses one style bends the
comparison itself. Judging the same responses by each of these shows how much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from rlbhpc.problems.record import braced
from rlbhpc.verify.answer.extract import extract

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*\{")
# A fraction, or a number with its sign, groups of three, decimals, a power of ten, and a fraction.
_VALUE: Final = re.compile(
    r"-?\\[dt]?frac\{\d{1,20}\}\{\d{1,20}\}"
    r"|-?\$?(?:\d{1,3}(?:,\d{3}){1,10}|\d{1,400})(?:\.\d{1,400})?(?:[eE][-+]?\d{1,3})?(?:/\d{1,20})?%?"
)


def committed(response: str, finish: str = "") -> str:
    """Return the answer that a response commits to, as the ``math`` verifier reads it."""
    extracted = extract(response, finish)
    return "" if extracted is None else extracted.text


def last_box(response: str) -> str:
    r"""Return what stands in the last ``\boxed{}`` that is closed, and nothing else."""
    starts = [match.end() - 1 for match in _BOX.finditer(response)]
    for start in reversed(starts[-8:]):
        content = braced(response, start)
        if content is not None:
            return content.strip()
    return ""


def last_value(response: str) -> str:
    """Return the last number or fraction of a response, wherever it stands.

    What harnesses fall back to where there is no box, or take in any case (lm-evaluation-harness
    calls it ``flexible-extract``).
    """
    value = ""
    for match in _VALUE.finditer(response):
        value = match[0]
    return value.replace("$", "")


POLICIES: Final[Mapping[str, Callable[..., str]]] = {
    "ours": committed,
    "last box": last_box,
    "last value": last_value,
}
