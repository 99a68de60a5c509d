r"""The registry of metrics: name, formula, direction, range, what each needs, where it comes from.

Tables of the report and of the documentation are generated from it. A new metric is one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Any, Final, Literal

from rlbhpc.errors import UserError
from rlbhpc.stats.coverage_table import accuracy_histogram, coverage, support_metrics
from rlbhpc.stats.curve import counts_within_turns, pass_at_budget
from rlbhpc.stats.difference import crossing, delta_se, difference_curve
from rlbhpc.stats.exact import (
    bayes_at_n,
    detection_threshold,
    g_pass_at_k,
    mcnemar_exact,
    mg_pass_at_k,
    pass_hat_k,
)
from rlbhpc.stats.extrapolation import fit_power_law
from rlbhpc.stats.interval import ratio_interval
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.stats.perplexities import perplexity
from rlbhpc.stats.verifier_error import chance_at_k
from rlbhpc.stats.votes import maj_at_k_by_votes

#: Which direction of a metric is good.
Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    ``name, aliases``: how it is called; aliases are what other papers and tools call it.
    ``function``: the function that computes it. ``formula``: LaTeX. ``better``: which direction is
    good. ``low, high``: range; infinite ends allowed. ``needs``: variables of the cube that it
    reads. ``reference``: where it was defined. ``samples_per_k``: least n as a multiple of k; 0
    where the metric has no k. ``advised_per_k``: least n, as a multiple of k, from which its value
    is more than a few draws.
    """

    name: str
    function: Callable[..., Any]
    formula: str
    better: Better
    low: float
    high: float
    needs: tuple[str, ...]
    reference: str
    aliases: tuple[str, ...] = ()
    samples_per_k: int = 0
    advised_per_k: int = 0

    @property
    def summary(self) -> str:
        """First line of the function's documentation."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def where(self) -> str:
        """Dotted path of the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


_STUDY: Final = "Yue et al. (2025), arXiv:2504.13837"
_LEASH: Final = "Wu et al. (2025), arXiv:2507.14843"
_COUNTS: Final = ("n", "c")

#: Every metric, in the order of the documentation.
METRICS: Final = (
    Metric(
        "pass@k", pass_at_k, r"1 - \binom{n-c}{k} \Big/ \binom{n}{k}",
        "higher", 0, 1, _COUNTS, "Chen et al. (2021), arXiv:2107.03374",
        ("coverage@k", "pass_at_k", "pass@1", "avg@k", "accuracy"),
        samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "pass@(k, T)", counts_within_turns, r"c_T = \#\{\text{right}, \text{turns} \le T\}",
        "higher", 0, 1, ("verdict", "n_turns"), "pass@k of n and c_T", samples_per_k=1,
        advised_per_k=4,
    ),
    Metric(
        "difference", difference_curve,
        r"D(k) = \tfrac1P \sum_i (\hat\pi^{\text{trained}}_i(k) - \hat\pi^{\text{base}}_i(k))",
        "neither", -1, 1, _COUNTS, "paired over problems", ("d(k)",),
        samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "crossing", crossing, r"\{k : 0 \in D(k) \pm t\,s(k)\}",
        "neither", 1, inf, _COUNTS, "Fieller-like inversion of D(k)", ("k*", "crossover"),
        samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "Delta_SE", delta_se, r"\text{pass@}256^{\text{base}} - \text{pass@}1^{\text{trained}}",
        "lower", -1, 1, _COUNTS, _STUDY, ("sampling efficiency gap",),
        samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "coverage", coverage, r"1\{c_i > 0\}", "neither", 0, 1, _COUNTS, _STUDY,
        ("four-way coverage",),
    ),
    Metric(
        "McNemar p", mcnemar_exact,
        r"\min(1, 2 \Pr[\text{Bin}(b+c, \tfrac12) \le \min(b, c)])",
        "neither", 0, 1, _COUNTS, "McNemar (1947), exact form", ("mcnemar",),
    ),
    Metric(
        "support", support_metrics,
        r"\text{SRR} = \tfrac{P}{P+S},\; \text{NDR} = \tfrac{E}{P+E},\; "
        r"\text{SDS} = \tfrac{2\,\text{SRR}\,\text{NDR}}{\text{SRR}+\text{NDR}},\; "
        r"\text{NSCR} = \tfrac{E-S}{P+E+S}",
        "higher", -1, 1, _COUNTS, _LEASH, ("SRR", "NDR", "SDS", "NSCR"),
    ),
    Metric(
        "accuracy histogram", accuracy_histogram, r"\{0\}, (0, .1], \dots, (.9, 1), \{1\}",
        "neither", 0, inf, _COUNTS, _STUDY,
    ),
    Metric(
        "pass^k", pass_hat_k, r"\binom ck \Big/ \binom nk", "higher", 0, 1, _COUNTS,
        "Yao et al. (2024), arXiv:2406.12045", ("pass_hat_k",), samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "G-Pass@k", g_pass_at_k,
        r"\sum_{j \ge \lceil \tau k \rceil} \binom cj \binom{n-c}{k-j} \Big/ \binom nk",
        "higher", 0, 1, _COUNTS, "Liu et al. (2024), arXiv:2412.13147", ("g_pass_at_k",),
        samples_per_k=1, advised_per_k=3,
    ),
    Metric(
        "mG-Pass@k", mg_pass_at_k,
        r"\tfrac2k \sum_{j > \lceil k/2 \rceil} (j - \lceil k/2 \rceil) \Pr[X=j]",
        "higher", 0, 1, _COUNTS, "Liu et al. (2024), arXiv:2412.13147", (),
        samples_per_k=1, advised_per_k=3,
    ),
    Metric(
        "maj@k", maj_at_k_by_votes,
        r"\sum_r \Pr[r \text{ has most of } k \text{ votes}], \text{ ties at random}",
        "higher", 0, 1, ("answer", "verdict"), "Wang et al. (2022), arXiv:2203.11171",
        ("cons@k", "majority"), samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "Bayes@N", bayes_at_n, r"\tfrac1P \sum_i \sum_j \tfrac{\nu_{ij}}{T} w_j",
        "higher", 0, 1, ("verdict",), "Hariri et al. (2026), arXiv:2510.04265",
    ),
    Metric(
        "pass@budget", pass_at_budget, r"\text{pass@}\lfloor B / t_i \rfloor",
        "higher", 0, 1, ("n", "c", "n_tokens"), "token- or cost-matched pass@k",
        ("coverage@cost",), samples_per_k=1, advised_per_k=4,
    ),
    Metric(
        "detection threshold", detection_threshold, r"1 - .05^{1/n}", "lower", 0, 1, ("n",),
        "one-sided exact bound at c = 0",
    ),
    Metric(
        "chance@k", chance_at_k, r"1 - (1-f)^k", "lower", 0, 1, ("audit",),
        "false positives compound with k",
    ),
    Metric(
        "power-law exponent", fit_power_law, r"-\log \text{pass@}k = A k^{-B}",
        "neither", 0, inf, _COUNTS, "Brown et al. (2024), arXiv:2407.21787",
    ),
    Metric(
        "perplexity", perplexity, r"\exp(-\tfrac1T \sum_t \log P(y_t \mid x, y_{<t}))",
        "neither", 1, inf, ("logprob_sum", "n_tokens"), _STUDY, ("ppl",),
    ),
    Metric(
        "token entropy", ratio_interval, r"\sum_i S_i \big/ \sum_i T_i", "neither", 0, inf,
        ("entropy_sum", "n_tokens"), "full vocabulary, in nats",
    ),
)  # fmt: skip


def metric(name: str) -> Metric:
    """Find a metric by name or alias, whatever the case.

    ``METRICS`` lists all metrics; each has a name and may have aliases. An unknown name is refused
    with the names that look like it.

    >>> metric("cons@k").name
    'maj@k'
    """
    names = {n.lower(): entry for entry in METRICS for n in (entry.name, *entry.aliases)}
    found = names.get(name.lower())
    if found is None:
        close = get_close_matches(name.lower(), names, n=3) or sorted(names)
        raise UserError(f"metric {name!r} is unknown; perhaps {', '.join(close)}")
    return found
