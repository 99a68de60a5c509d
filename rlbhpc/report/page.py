"""The report as an HTML page: the answer, all curves, and everything else folded below."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Final

from rlbhpc import __version__
from rlbhpc.launch.efficiency import efficiency
from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.aspects import aspects_of, pooled, ready_and_waiting
from rlbhpc.report.aspects.evidence import EVIDENCE_PAGE, beside, cases, evidence
from rlbhpc.report.aspects.pass_at_k import curve_grid
from rlbhpc.report.markup import Cell, Node, document, el, table
from rlbhpc.report.matrix import line, matrix
from rlbhpc.stats.metrics import Better, metric
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts

# Marks of mathematics and code in the first line of a docstring.
_MARKS: Final = re.compile(r":\w+:|[`\\]|\$")


PAGE = "report.html"


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


def pages(report: Report) -> dict[str, str]:
    """Write the page, and the one beside it where the evidence is long, by file name."""
    files = {PAGE: page(report)}
    if beside(report):
        files[EVIDENCE_PAGE] = _evidence(report)
    return files


def page(report: Report) -> str:
    """Write the main page."""
    ready, waiting = ready_and_waiting(report)
    # The other process does the comparisons first, and the rest while these are drawn.
    sections = _sections(report, ready)
    comparisons = _comparisons(report)
    sections |= _sections(report, waiting)
    parts = {part: _part(report, part, sections) for part in Part}
    parts[Part.COMPARISONS] = comparisons + parts[Part.COMPARISONS]
    present = {part: nodes for part, nodes in parts.items() if nodes}
    links = [("Answer", "answer"), ("Curves", "curves")]
    links += [(part.value, part.name.lower()) for part in present if part is not Part.CURVES]
    menu = (el("li", el("a", name, href=f"#{anchor}")) for name, anchor in links)
    grid = curve_grid(report)
    body: list[Node] = [
        el("header", el("h1", report.name), el("p", report.question, class_="soft")),
        el("nav", el("ul", *menu), aria_label="Parts of this report"),
        el(
            "main",
            el("section", el("h2", "Answer", class_="quiet"), *_answer(report), id="answer"),
            *([_section("curves", "Curves", [grid])] if grid is not None else []),
            *(_fold(part, nodes) for part, nodes in present.items()),
        ),
    ]
    return document(f"{report.name}: report", body)


def _answer(report: Report) -> list[Node]:
    if not report.final:
        return [el("p", "No two arms can be compared; what was sampled stands below.")]
    return [matrix(report), *pooled.answers(report)]


def _sections(report: Report, aspects: Iterable[Aspect]) -> dict[Aspect, list[Node]]:
    return {a: list(a.section(report)) for a in aspects if a.section is not None}


def _part(report: Report, part: Part, sections: Mapping[Aspect, list[Node]]) -> list[Node]:
    if part is Part.METHODS:
        names = [
            name
            for aspect in aspects_of(report)
            if aspect.frames(report)
            for name in aspect.metrics
        ]
        return methods(report, dict.fromkeys(names))
    of_part = [aspect for aspect in aspects_of(report) if aspect.part is part]
    return [node for aspect in of_part for node in sections.get(aspect, [])]


def _comparisons(report: Report) -> list[Node]:
    """One fold a comparison: its words, figures and tables."""
    folds: list[Node] = []
    for number, pair in enumerate(report.final, start=1):
        content = [
            node
            for aspect in aspects_of(report)
            if aspect.comparison is not None
            for node in aspect.comparison(report, pair)
        ]
        # The anchor is inside: a browser opens what is around the target of a link.
        inside = el("div", *content, id=f"comparison-{number}")
        folds.append(el("details", el("summary", line(pair)), inside))
    return folds


def _fold(part: Part, nodes: list[Node]) -> ET.Element:
    anchor = "numbers" if part is Part.CURVES else part.name.lower()
    if part is Part.COMPARISONS:  # its folds are those of the comparisons
        return _section(anchor, part.value, nodes)
    inside = el("div", *nodes, id=anchor)
    return el("details", el("summary", el("h2", part.value)), inside, class_="part")


def _section(anchor: str, head: str, nodes: list[Node]) -> ET.Element:
    return el("section", el("h2", head), *nodes, id=anchor)


def _evidence(report: Report) -> str:
    back = el("p", el("a", "Back to the report", href=PAGE))
    body: list[Node] = [
        el("header", el("h1", f"{report.name}: evidence")),
        el("main", back, *cases(report, evidence(report))),
    ]
    return document(f"{report.name}: evidence", body)
