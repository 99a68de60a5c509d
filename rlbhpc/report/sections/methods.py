"""How the numbers were made, and what they stand on."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from importlib.metadata import version
from typing import Final

from rlbhpc import __version__
from rlbhpc.report.details import Details
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.stats.metrics import metric
from rlbhpc.stats.registry import Better


def methods(report: Report, details: Details) -> list[Node]:
    """Estimators, metrics, versions and provenance."""
    s = report.settings
    versions = {"rlbhpc": __version__} | {
        name: version(name) for name in ("numpy", "scipy", "xarray", "matplotlib")
    }
    provenance = json.dumps(report.provenance, ensure_ascii=False, indent=1, sort_keys=True)
    return [
        el(
            "p",
            "pass@k of a problem is 1 − C(n − c, k) / C(n, k) for n judged and c right samples, "
            "and of a set its mean over problems; where a problem has fewer than k samples there "
            "is none.",
        ),
        el(
            "p",
            f"Intervals are {100 * s.prob:g} % for problems like these, from {s.replicates:,} "
            f"bootstrap replicates over problems with seed {s.seed}, shared by all curves of the "
            "same problems, so that differences are paired. Words claim a lead only where the "
            "simultaneous band lies on one side of 0 and the sign-flip test says that anything "
            "moved.",
        ),
        el(
            "p",
            "A crossing set holds every k at which the difference is compatible with 0. Coverage "
            "compares equal numbers of samples, with McNemar's exact test. p-values are adjusted "
            "by Holm's method over the comparisons of this report. The gap is "
            "pass@K of the base − pass@1 of the trained model.",
        ),
        el("details", el("summary", "Metrics of this report"), _metrics(report, details)),
        table("Versions", ["package", "version"], list(versions.items())),
        el("p", f"Study {report.study_hash or '(none)'}, run {report.folder.name}."),
        el(
            "details",
            el("summary", "Provenance of the samples"),
            el("pre", provenance),
        ),
    ]


def _metrics(report: Report, details: Details) -> ET.Element:
    """Describe every metric that the page shows, from the registry."""
    rows: list[list[Cell]] = []
    for name in _shown(report, details):
        one = metric(name)
        better = "–" if one.better is Better.NEITHER else str(one.better)
        least = "1" if one.samples_per_k == 0 else "k"
        enough = f"{one.advised_per_k} k" if one.advised_per_k > 1 else least
        rows.append([one.name, _MARKS.sub("", one.summary), better, least, enough, one.reference])
    heads = ["metric", "what", "better", "least n", "enough n", "defined in"]
    return table("From the registry of metrics", heads, rows, wide=(1, 5))


# Marks of mathematics and code in the first line of a docstring.
_MARKS: Final = re.compile(r":\w+:|[`\\]|\$")


def _shown(report: Report, details: Details) -> list[str]:
    """Names of the metrics for which this run has data, in the order of the page."""
    there = {
        "pass@k": True,
        "difference": report.final,
        "crossing": report.final,
        "Delta_SE": report.final,
        "accuracy histogram": report.final,
        "coverage": report.final,
        "McNemar p": report.final,
        "support": report.final,
        "flip probability": report.final,
        "power-law exponent": details.beyond,
        "maj@k": details.votes,
        "answer entropy": details.votes,
        "token entropy": details.responses,
        "pass@budget": details.budgets,
        "perplexity": details.scored or details.positions,
        "pass^k": details.reliability,
        "G-Pass@k": details.reliability,
        "mG-Pass@k": details.reliability,
        "Cover@tau": details.reliability,
        "Bayes@N": details.reliability,
        "detection threshold": details.reliability,
        "effective n": details.repeats,
        "CoT-pass@k": any(one.chains for one in details.reviewed),
        "verifier floor": any(one.tally.timeouts is not None for one in report.measured),
    }
    return [name for name, data in there.items() if data]
