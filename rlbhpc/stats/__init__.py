"""Pure functions on arrays: pass@k, intervals, coverage, crossing, and conclusions in words.

Everything starts from :class:`Counts` (samples and right samples per problem) and, where there is
an interval, from one :class:`ProblemWeights` that all models of a report share. Random generators
are passed in. Functions live in one file per family; the names below are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The one module that shares its name with its function, so it is bound before anyone asks.
from rlbhpc.stats.pass_at_k import log_fail_at_k, pass_at_k, pass_curves

if TYPE_CHECKING:
    from rlbhpc.stats.counts import Counts, pythia
    from rlbhpc.stats.coverage_table import (
        Coverage,
        SupportMetrics,
        accuracy_histogram,
        coverage,
        support_metrics,
    )
    from rlbhpc.stats.curve import PassCurve, k_grid, pass_curve
    from rlbhpc.stats.decision import Answer, answer
    from rlbhpc.stats.difference import (
        Crossing,
        DifferenceCurve,
        crossing,
        crossing_points,
        delta_se,
        delta_se_interval,
        difference_curve,
    )
    from rlbhpc.stats.exact import (
        bayes_at_n,
        clopper_pearson,
        detection_threshold,
        g_pass_at_k,
        holm,
        mcnemar_exact,
        mg_pass_at_k,
        pass_hat_k,
    )
    from rlbhpc.stats.extrapolation import extrapolate, fixed_curve
    from rlbhpc.stats.interval import Interval, ProblemWeights, Target
    from rlbhpc.stats.joint import Finding, Verdict
    from rlbhpc.stats.perplexities import perplexity
    from rlbhpc.stats.scenario import Tip, Word
    from rlbhpc.stats.verifier_error import ErrorCounts, Told
    from rlbhpc.stats.votes import maj_at_k_by_votes

_HOME = {
    "counts": "Counts pythia",
    "coverage_table": "Coverage SupportMetrics accuracy_histogram coverage support_metrics",
    "curve": "PassCurve k_grid pass_curve",
    "decision": "Answer answer",
    "difference": "Crossing DifferenceCurve crossing crossing_points delta_se delta_se_interval "
    "difference_curve",
    "exact": "bayes_at_n clopper_pearson detection_threshold g_pass_at_k holm mcnemar_exact "
    "mg_pass_at_k pass_hat_k",
    "extrapolation": "extrapolate fixed_curve",
    "interval": "Interval ProblemWeights Target",
    "joint": "Finding Verdict",
    "perplexities": "perplexity",
    "scenario": "Tip Word",
    "verifier_error": "ErrorCounts Told",
    "votes": "maj_at_k_by_votes",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Answer", "Counts", "Coverage", "Crossing", "DifferenceCurve",
    "ErrorCounts", "Finding",
    "Interval", "PassCurve", "ProblemWeights", "SupportMetrics", "Target", "Tip", "Told", "Verdict",
    "Word", "accuracy_histogram", "answer", "bayes_at_n", "clopper_pearson",
    "coverage", "crossing", "crossing_points", "delta_se", "delta_se_interval",
    "detection_threshold", "difference_curve", "extrapolate", "fixed_curve", "g_pass_at_k", "holm",
    "k_grid", "log_fail_at_k", "maj_at_k_by_votes", "mcnemar_exact", "mg_pass_at_k", "pass_at_k",
    "pass_curve", "pass_curves", "pass_hat_k", "perplexity", "pythia",
    "support_metrics",
]  # fmt: skip


def __dir__() -> list[str]:
    """The public names, also before their first use."""
    return __all__


# Hidden from type checkers, which would take every misspelt name for one that it gives.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, so that a login node loads no more than it needs."""
        if name in _MODULE:
            return getattr(importlib.import_module(f"rlbhpc.stats.{_MODULE[name]}"), name)
        raise AttributeError(f"module 'rlbhpc.stats' has no attribute {name!r}")
