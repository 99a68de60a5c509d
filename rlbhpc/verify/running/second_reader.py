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

_NORMAL: Final = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none"
)


def decide(payload: Any) -> Any:
    """Say whether two LaTeX answers are equal: ``{"equal": bool, "why": rule or veto}``."""
    gold_text, answer_text = str(payload["gold"]), str(payload["answer"])
    try:
        gold, answer = _parse(gold_text), _parse(answer_text)
    except Exception:  # whatever the grammar raises, the text is no answer that it knows
        return {"equal": False, "why": "unparsed"}
    if not math_verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True):
        return {"equal": False, "why": "symbolic"}
    for veto in _VETOES:
        if veto(gold, answer, gold_text, answer_text):
            return {"equal": False, "why": f"veto {veto.__name__.strip('_')}"}
    return {"equal": True, "why": "symbolic"}


def _parse(text: str) -> Any:
    latex = normalize_latex(text, _NORMAL)
    return latex2sympy(
        latex, is_real=not should_treat_as_complex(latex), convert_degrees=False,
        normalization_config=None,
    )  # fmt: skip


# --- vetoes --------------------------------------------------------------------------------------

_TASKS: Final = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)
_SUBSCRIPT: Final = re.compile(r"_\s*\{?\s*(\d+)")
# Where a sum begins: its ``k=1`` is no equation of the answer.
_BOUND: Final = re.compile(r"\\(?:sum|prod)_\{[A-Za-z]=[^{}]*\}")
_RELATION: Final = re.compile(r"=|<|>|\\(?:le|ge|lt|gt|ne|leq|geq|neq)\b")


def _unevaluated(gold: Any, answer: Any, *_: str) -> bool:
    """Refuse an answer that still holds the task: a sum, a product, an integral."""
    return _holds(answer, _TASKS) and not _holds(gold, _TASKS)


def _holds(expression: Any, kinds: tuple[type, ...]) -> bool:
    return bool(getattr(expression, "has", lambda *_: False)(*kinds))


def _other_symbols(gold: Any, answer: Any, *_: str) -> bool:
    """Refuse different letters, or the same in another case."""
    ours = {str(s) for s in getattr(gold, "free_symbols", ())}
    theirs = {str(s) for s in getattr(answer, "free_symbols", ())}
    return ours != theirs


def _subscripts(_: Any, __: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse other digits of a base or an index, which the grammar drops."""
    return sorted(_SUBSCRIPT.findall(gold_text)) != sorted(_SUBSCRIPT.findall(answer_text))


def _brackets(_: Any, __: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse a tuple beside a set."""
    return ("\\{" in gold_text) != ("\\{" in answer_text)


def _half_equation(_: Any, __: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse an equation beside an expression, which Math-Verify compares to the last side."""
    ours, theirs = (_BOUND.sub("", text) for text in (gold_text, answer_text))
    return bool(_RELATION.search(ours)) != bool(_RELATION.search(theirs))


def _words(_: Any, __: Any, gold_text: str, answer_text: str) -> bool:
    """Refuse text, which the grammar reads as a product of letters."""
    return "\\text" in gold_text or "\\text" in answer_text


def _apart(gold: Any, answer: Any, *_: str) -> bool:
    """Refuse two values that differ by more than rounding: Math-Verify rounds absolutely."""
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    point = {name: sympy.Rational(31 + 7 * i, 23) for i, name in enumerate(names)}
    try:
        left, right = (complex(e.subs(point).evalf(30)) for e in (gold, answer))
    except (TypeError, ValueError, AttributeError):
        return False
    return abs(left - right) > 1e-9 * max(abs(left), abs(right))


_VETOES: Final[tuple[Callable[..., bool], ...]] = (
    _unevaluated, _other_symbols, _subscripts, _brackets, _half_equation, _words, _apart,
)  # fmt: skip
