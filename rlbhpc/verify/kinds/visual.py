"""The ``visual`` verifier: answers to questions about pictures, as MathVista states them.

The mathematics is that of ``math``. The problem's ``extras`` add what the set says of its gold:
``answer_type`` (integer, float, list, text), ``precision`` (to how many decimals a float is given)
and ``unit``. A float is right if it rounds to the gold at that precision, a list if its items are
right in their order; an integer and a text must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.compare_scalar import Tolerance
from rlbhpc.verify.answer.extract import Extracted
from rlbhpc.verify.answer.extract import extract as extract
from rlbhpc.verify.answer.lexer import canonical as canonical
from rlbhpc.verify.kinds.math import FINGERPRINT as MATH
from rlbhpc.verify.kinds.math import Hints, judge
from rlbhpc.verify.kinds.math import distinct as distinct
from rlbhpc.verify.verdict import Verdict

FINGERPRINT: Final = f"visual-3 {MATH}"


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge the committed answer of a response to a question about a picture."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge an extracted answer to a question about a picture."""
    extras: Mapping[str, Any] = {} if problem is None else problem.extras
    kind = str(extras.get("answer_type") or "")
    hint = Hints(unit=str(extras.get("unit") or ""), tolerance=_tolerance(kind, extras))
    if kind == "list" and answer is not None:
        hint = hint._replace(kind="Tuple")
        return judge(
            _in_parentheses(gold), answer._replace(text=_in_parentheses(answer.text)), hint
        )
    return judge(gold, answer, hint)


def _tolerance(kind: str, extras: Mapping[str, Any]) -> Tolerance:
    """Half a unit of the last decimal that a float is given to."""
    precision = extras.get("precision")
    if kind != "float" or precision is None:
        return Tolerance()
    return Tolerance(error=Fraction(1, 2) / 10 ** int(float(precision)))


def _in_parentheses(text: str) -> str:
    r"""Write ``[1, 2]``, ``1, 2`` and ``\left[1, 2\right]`` as an ordered list."""
    inner = text.strip().strip("$").replace("\\left", "").replace("\\right", "").strip()
    if inner[:1] in "[(" and inner[-1:] in "])":
        inner = inner[1:-1]
    return f"({inner})" if "," in inner else inner
