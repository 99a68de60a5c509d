"""When a returned value is right for EvalPlus: equality, closeness, and the tasks with own rules.

Rules and names as in evalplus v0.3.1 (``eval/__init__.py``, ``eval/_special_oracle.py``). All of it
runs in the trusted process on decoded data.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

# A tolerance that floats get where the task states none, and NumPy's default relative one.
FLOAT_TOLERANCE: Final = 1e-6
RELATIVE_TOLERANCE: Final = 1e-7
# MBPP tasks whose order of results is open, and those where any object stands for "yes".
AS_SETS: Final = {
    "similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
    "intersection_array", "find_dissimilar", "Diff",
}  # fmt: skip
AS_NOT_NONE: Final = {"check_str", "text_match_three", "text_starta_endb"}


def is_floats(value: Any) -> bool:
    """Whether a value is a float or a list or tuple of floats (an empty one included)."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def is_right(
    dataset: str, entry: str, arguments: list[Any], expected: Any, value: Any, tolerance: float
) -> bool:
    """Judge one returned value.

    ``dataset``: ``humaneval`` or ``mbpp``; names of functions mean something within one only.
    ``arguments``: what it was called with. ``expected``: what the reference returned. ``value``:
    what the program returned: decoded, but hostile. ``tolerance``: absolute tolerance; 0 for
    equality.
    """
    try:
        if dataset == "humaneval" and entry == "find_zero":
            return abs(_polynomial(arguments[0], value)) <= tolerance
        if dataset == "mbpp" and _special(entry, arguments, value, tolerance):
            return True
        return bool(value == expected) or (tolerance != 0 and _close(value, expected, tolerance))
    except (ValueError, TypeError, ArithmeticError, RecursionError, AttributeError):
        return False


def _special(entry: str, arguments: list[Any], value: Any, tolerance: float) -> bool:
    """Judge by a second reading of the four tasks that have one."""
    if entry == "are_equivalent":
        return True
    if entry == "sum_div":
        return bool(value == 0)
    if entry == "surface_Area":
        edge, height = arguments
        slant = math.sqrt((edge / 2) ** 2 + height**2)
        return bool(abs(value - round(edge**2 + 2 * edge * slant)) <= tolerance)
    if entry == "digit_distance_nums":
        first, second = (str(number) for number in arguments)
        width = max(len(first), len(second))
        pairs = zip(first.zfill(width), second.zfill(width), strict=True)
        return bool(value == sum(abs(int(one) - int(other)) for one, other in pairs))
    return False


def _polynomial(coefficients: list[float], x: float) -> float:
    return sum(c * math.pow(x, power) for power, c in enumerate(coefficients))


def _close(value: Any, expected: Any, tolerance: float) -> bool:
    if type(value) is not type(expected):
        return False
    if isinstance(expected, list | tuple) and len(value) != len(expected):
        return False
    return bool(np.allclose(value, expected, rtol=RELATIVE_TOLERANCE, atol=tolerance))
