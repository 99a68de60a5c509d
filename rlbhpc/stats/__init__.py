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
    from rlbhpc.stats.bayes import bayes_at_n
    from rlbhpc.stats.binomial import clopper_pearson, detection_threshold
    from rlbhpc.stats.counts import Counts
    from rlbhpc.stats.coverage_table import Coverage, coverage, solvable_sets
    from rlbhpc.stats.crossings import Crossing, crossing, crossing_points
    from rlbhpc.stats.curve import PassCurve, k_grid, pass_curve
    from rlbhpc.stats.decision import Answer, Word, answer
    from rlbhpc.stats.difference import (
        DifferenceCurve,
        delta_se,
        delta_se_interval,
        difference_curve,
    )
    from rlbhpc.stats.examples import pythia
    from rlbhpc.stats.extrapolation import extrapolate
    from rlbhpc.stats.finding import Finding, Verdict
    from rlbhpc.stats.fixed import fixed_curve
    from rlbhpc.stats.histogram import accuracy_histogram
    from rlbhpc.stats.interval import Interval, Target
    from rlbhpc.stats.majority import maj_at_k_by_votes
    from rlbhpc.stats.mcnemar import mcnemar_exact
    from rlbhpc.stats.multiple import holm
    from rlbhpc.stats.perplexities import perplexity
    from rlbhpc.stats.reliability import g_pass_at_k, mg_pass_at_k, pass_hat_k
    from rlbhpc.stats.support import SupportMetrics, support_metrics
    from rlbhpc.stats.weights import ProblemWeights

_HOME = {
    "bayes": ("bayes_at_n",),
    "binomial": ("clopper_pearson", "detection_threshold"),
    "counts": ("Counts",),
    "coverage_table": ("Coverage", "coverage", "solvable_sets"),
    "crossings": ("Crossing", "crossing", "crossing_points"),
    "curve": ("PassCurve", "k_grid", "pass_curve"),
    "decision": ("Answer", "Word", "answer"),
    "difference": ("DifferenceCurve", "delta_se", "delta_se_interval", "difference_curve"),
    "examples": ("pythia",),
    "extrapolation": ("extrapolate",),
    "finding": ("Finding", "Verdict"),
    "fixed": ("fixed_curve",),
    "histogram": ("accuracy_histogram",),
    "interval": ("Interval", "Target"),
    "majority": ("maj_at_k_by_votes",),
    "mcnemar": ("mcnemar_exact",),
    "multiple": ("holm",),
    "perplexities": ("perplexity",),
    "reliability": ("g_pass_at_k", "mg_pass_at_k", "pass_hat_k"),
    "support": ("SupportMetrics", "support_metrics"),
    "weights": ("ProblemWeights",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Answer", "Counts", "Coverage", "Crossing", "DifferenceCurve", "Finding",
    "Interval", "PassCurve", "ProblemWeights", "SupportMetrics", "Target", "Verdict",
    "Word", "accuracy_histogram", "answer", "bayes_at_n", "clopper_pearson",
    "coverage", "crossing", "crossing_points", "delta_se", "delta_se_interval",
    "detection_threshold", "difference_curve", "extrapolate", "fixed_curve", "g_pass_at_k", "holm",
    "k_grid", "log_fail_at_k", "maj_at_k_by_votes", "mcnemar_exact", "mg_pass_at_k", "pass_at_k",
    "pass_curve", "pass_curves", "pass_hat_k", "perplexity", "pythia",
    "solvable_sets", "support_metrics",
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
