"""The ``visual`` verifier: answers to questions about pictures, as MathVista states them.

The mathematics is that of ``math``. The problem's ``extras`` add what the set says of its gold:
``answer_type`` (integer, float, list, text), ``precision`` (to how many decimals a float is given)
and ``unit``. A float is right if it rounds to the gold at that precision, a list if its items are
right in their order; an integer and a text must be equal.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.compare_scalar import EXACT, Tolerance
from rlbhpc.verify.answer.extract import Extracted
from rlbhpc.verify.answer.extract import extract as extract
from rlbhpc.verify.kinds.math import FINGERPRINT as MATH_FINGERPRINT
from rlbhpc.verify.kinds.math import Hints, judge_with_hints
from rlbhpc.verify.kinds.math import distinct as distinct
from rlbhpc.verify.verdict import Verdict

FINGERPRINT: Final = f"visual-3 {MATH_FINGERPRINT}"


def verify(gold: str, response: str, problem: Problem | None = None, finish: str = "") -> Verdict:
    """Judge the committed answer of a response to a question about a picture."""
    return judge_extracted(gold, extract(response, finish), problem)


def judge_extracted(gold: str, answer: Extracted | None, problem: Problem | None) -> Verdict:
    """Judge an extracted answer to a question about a picture.

    The problem's ``extras`` say of the gold its type, its unit and its ``precision``, the number of
    its decimals: a float is right within half a unit of the last one. A list is compared as a
    tuple, in which the order counts.
    """
    extras = {} if problem is None else problem.extras
    answer_type, precision = extras.get("answer_type"), extras.get("precision")
    tolerance = EXACT
    if answer_type == "float" and precision is not None:
        half_last_decimal = Fraction(1, 2) / 10 ** int(float(precision))
        tolerance = Tolerance(error=half_last_decimal)
    hints = Hints(unit=str(extras.get("unit") or ""), tolerance=tolerance)
    if answer_type == "list" and answer is not None:
        hints = hints._replace(answer_type="Tuple")
        gold = _write_as_tuple(gold)
        answer = answer._replace(text=_write_as_tuple(answer.text))
    return judge_with_hints(gold, answer, hints)


def _write_as_tuple(text: str) -> str:
    r"""Write ``[1, 2]``, ``1, 2`` and ``\left[1, 2\right]`` as an ordered list."""
    items = text.strip().strip("$").replace("\\left", "").replace("\\right", "").strip()
    if items[:1] in "[(" and items[-1:] in "])":
        items = items[1:-1]
    return f"({items})" if "," in items else items
