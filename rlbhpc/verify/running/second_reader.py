"""Math-Verify as the second reader of answers that the ``math`` verifier extracted.

Runs only inside a worker of :mod:`rlbhpc.verify.running.pool`: the LaTeX grammar and SymPy may
take any time and memory. Math-Verify's extraction is not used (its plain-expression path ends in
``sympy.parse_expr``, which evaluates Python); text goes through ``latex2sympy`` alone.
"""

from __future__ import annotations

import logging
from typing import Any, Final

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
    """Return Math-Verify's word on two LaTeX answers: ``right``, ``wrong`` or ``unread``."""
    try:
        gold = _parse(str(payload["gold"]))
        answer = _parse(str(payload["answer"]))
    except Exception:
        # Whatever the grammar raises, the text is no answer that it knows.
        return "unread"
    is_equal = math_verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True)
    return "right" if is_equal else "wrong"


def _parse(text: str) -> Any:
    latex = normalize_latex(text, _NORMALIZATION)
    return latex2sympy(
        latex, is_real=not should_treat_as_complex(latex), convert_degrees=False,
        normalization_config=None,
    )  # fmt: skip
