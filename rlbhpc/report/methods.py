"""How the numbers were made, and what they stand on."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from importlib.metadata import version
from typing import Final

from rlbhpc import __version__
from rlbhpc.launch.efficiency import efficiency
from rlbhpc.report.aspect import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.stats.metrics import Better, metric
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts

# Marks of mathematics and code in the first line of a docstring.
_MARKS: Final = re.compile(r":\w+:|[`\\]|\$")


def methods(report: Report, metrics: Iterable[str]) -> list[Node]:
    """Estimators, the metrics that this report has values of, versions and provenance."""
    s = report.settings
    spent = efficiency(read_attempts(Layout(report.folder)))
    versions = {"rlbhpc": __version__} | {
        name: version(name) for name in ("numpy", "scipy", "xarray")
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
            "same problems, so that differences are paired. The words follow a rule that was "
            "fixed before any data: docs/statistics.md, “How the answer is decided”.",
        ),
        el(
            "p",
            "A crossing set holds every k at which the difference is compatible with 0. Coverage "
            "compares equal numbers of samples, with McNemar's exact test. p-values are adjusted "
            "by Holm's method over the comparisons of this report. The gap is "
            "pass@K of the base − pass@1 of the trained model.",
        ),
        el("details", el("summary", "Metrics of this report"), _metrics(metrics)),
        table("Versions", ["package", "version"], list(versions.items())),
        *(el("p", text) for text in _duplicates(report)),
        el("p", f"Study {report.study_hash or '(none)'}, run {report.folder.name}."),
        *([el("p", f"Time of sampling: {spent}.")] if spent else []),
        el(
            "details",
            el("summary", "Provenance of the samples"),
            el("pre", provenance),
        ),
    ]


def _duplicates(report: Report) -> list[str]:
    """What of the problem sets' files was left out as repeated."""
    counts: dict[str, int] = {}
    for provenance in report.provenance.values():
        counts |= provenance.get("duplicates", {})
    return [
        f"Of {name}, {count:,} repeated records of its files were left out (duplicates: drop)."
        for name, count in counts.items()
    ]


def _metrics(names: Iterable[str]) -> ET.Element:
    """Describe metrics from the registry."""
    rows: list[list[Cell]] = []
    for name in names:
        entry = metric(name)
        better = "–" if entry.better is Better.NEITHER else str(entry.better)
        least = "1" if entry.samples_per_k == 0 else "k"
        enough = f"{entry.advised_per_k} k" if entry.advised_per_k > 1 else least
        summary = _MARKS.sub("", entry.summary)
        rows.append([entry.name, summary, better, least, enough, entry.reference])
    heads = ["metric", "what", "better", "least n", "enough n", "defined in"]
    return table("From the registry of metrics", heads, rows, wide=(1, 5))
