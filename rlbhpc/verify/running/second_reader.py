"""Math-Verify as the second reader of answers that the ``math`` verifier extracted.

Runs only inside a worker of :mod:`rlbhpc.verify.running.pool`: the LaTeX grammar and SymPy may
take any time and memory. Math-Verify's extraction is not used (its plain-expression path ends in
``sympy.parse_expr``, which evaluates Python); text goes through ``latex2sympy`` alone. A yes stands
only if no veto speaks against it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from math_verify.grader import verify as math_verify
from math_verify.parser import should_treat_as_complex

for library in ("math_verify", "latex2sympy2_extended"):
    # Printing an expression can hang.
    logging.getLogger(library).setLevel(logging.CRITICAL + 1)

_NORMALIZATION: Final = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none"
)


def decide(payload: Any) -> Any:
    """Say whether two LaTeX answers are equal: ``{"equal": bool, "why": rule or veto}``.

    Math-Verify compares both as SymPy expressions. A yes of it stands only if no *veto* speaks
    against it: each is a function that knows one of the mistakes that Math-Verify makes.
    """
    gold_text = str(payload["gold"])
    answer_text = str(payload["answer"])
    try:
        gold = _parse(gold_text)
        answer = _parse(answer_text)
    except Exception:
        # Whatever the grammar raises, the text is no answer that it knows.
        return {"equal": False, "why": "unparsed"}
    if not math_verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True):
        return {"equal": False, "why": "symbolic"}
    for veto in _VETOES:
        if veto(gold, answer, gold_text, answer_text):
            return {"equal": False, "why": f"veto {veto.__name__.strip('_')}"}
    return {"equal": True, "why": "symbolic"}


def _parse(text: str) -> Any:
    latex = normalize_latex(text, _NORMALIZATION)
    return latex2sympy(
        latex, is_real=not should_treat_as_complex(latex), convert_degrees=False,
        normalization_config=None,
    )  # fmt: skip


# --- vetoes --------------------------------------------------------------------------------------

# Each looks at both expressions and both texts, and returns whether a yes of Math-Verify is wrong.

_UNEVALUATED_TYPES: Final = (
    sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative,
)  # fmt: skip
_SUBSCRIPT: Final = re.compile(r"_\s*\{?\s*(\d+)")
# Where a sum begins: its ``k=1`` is no equation of the answer.
_SUM_BOUND: Final = re.compile(r"\\(?:sum|prod)_\{[A-Za-z]=[^{}]*\}")
_RELATION: Final = re.compile(r"=|<|>|\\(?:le|ge|lt|gt|ne|leq|geq|neq)\b")
# Values that differ by no more than this are equal but for rounding.
_RELATIVE_TOLERANCE: Final = 1e-9


def _unevaluated(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse an answer that still holds the task: a sum, a product, an integral."""
    return _has_unevaluated(answer) and not _has_unevaluated(gold)


def _has_unevaluated(expression: Any) -> bool:
    return hasattr(expression, "has") and bool(expression.has(*_UNEVALUATED_TYPES))


def _other_symbols(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse different letters, or the same in another case."""
    gold_symbols = {str(symbol) for symbol in getattr(gold, "free_symbols", ())}
    answer_symbols = {str(symbol) for symbol in getattr(answer, "free_symbols", ())}
    return gold_symbols != answer_symbols


def _subscripts(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse other digits of a base or an index, which the grammar drops."""
    return sorted(_SUBSCRIPT.findall(gold_text)) != sorted(_SUBSCRIPT.findall(answer_text))


def _brackets(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse a tuple beside a set."""
    return ("\\{" in gold_text) != ("\\{" in answer_text)


def _half_equation(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse an equation beside an expression, which Math-Verify compares to the last side."""
    return _has_relation(gold_text) != _has_relation(answer_text)


def _has_relation(text: str) -> bool:
    return _RELATION.search(_SUM_BOUND.sub("", text)) is not None


def _words(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse text, which the grammar reads as a product of letters."""
    return "\\text" in gold_text or "\\text" in answer_text


def _apart(gold: Any, answer: Any, gold_text: str, answer_text: str) -> bool:
    """Return whether two values differ by more than rounding: Math-Verify rounds absolutely.

    ``gold`` and ``answer`` are SymPy expressions. Their values are compared relative to the larger
    one; what has no value in numbers is left to Math-Verify.
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    # Expressions with variables are compared at one point, of values that meet no special case.
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    point = {symbol: sympy.Rational(31 + 7 * i, 23) for i, symbol in enumerate(symbols)}
    try:
        gold_value = complex(gold.subs(point).evalf(30))
        answer_value = complex(answer.subs(point).evalf(30))
    except (TypeError, ValueError, AttributeError):
        return False
    largest = max(abs(gold_value), abs(answer_value))
    return abs(gold_value - answer_value) > _RELATIVE_TOLERANCE * largest


_VETOES: Final[tuple[Callable[[Any, Any, str, str], bool], ...]] = (
    _unevaluated, _other_symbols, _subscripts, _brackets, _half_equation, _words, _apart,
)  # fmt: skip
