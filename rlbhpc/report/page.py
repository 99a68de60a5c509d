"""The report as an HTML page: the answer, all curves, and everything else folded below."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from rlbhpc import __version__
from rlbhpc.report.aspect import Part, Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.aspects.answer import comparison_line, matrix, pooled_answers
from rlbhpc.report.aspects.coverage import EVIDENCE_PAGE, cases, evidence, has_own_page
from rlbhpc.report.aspects.pass_at_k import curve_grid
from rlbhpc.report.markup import Node, document, el, note, table
from rlbhpc.stats.metrics import metric

# Marks of mathematics and code in the first line of a docstring.
_DOCSTRING_MARKS: Final = re.compile(r":\w+:|[`\\]|\$")
PAGE: Final = "report.html"


def pages(report: Report) -> dict[str, str]:
    """The report's pages as HTML by file name.

    That is the main page, and beside it the *evidence*, responses to problems that only one side
    solves, where they are long.
    """
    files = {PAGE: page(report)}
    if has_own_page(report):
        title = f"{report.name}: evidence"
        back = el("p", el("a", "Back to the report", href=PAGE))
        main = el("main", back, *cases(report, evidence(report)))
        files[EVIDENCE_PAGE] = document(title, [el("header", el("h1", title)), main])
    return files


def page(report: Report) -> str:
    """The main page as HTML: answer, curves, and the folded parts below.

    ``aspects_of``: what a report shows; each aspect gives the elements of one part. ``parts`` keeps
    their order; a part without elements is not shown. ``el`` makes an HTML element.
    """
    parts: dict[Part, list[Node]] = {part: [] for part in Part}
    parts[Part.COMPARISONS] += _comparison_folds(report)
    for aspect in aspects_of(report):
        if aspect.section is not None:
            parts[aspect.part] += aspect.section(report)
    parts[Part.METHODS] += _methods(report)
    shown = {part: nodes for part, nodes in parts.items() if nodes}
    answer: list[Node] = [el("p", "No two arms can be compared; what was sampled stands below.")]
    if report.last_comparisons:
        answer = [matrix(report), *pooled_answers(report)]
    links = {"answer": "Answer", "curves": "Curves"}
    links |= {part.name.lower(): part.value for part in shown if part is not Part.CURVES}
    menu = (el("li", el("a", text, href=f"#{anchor}")) for anchor, text in links.items())
    body: list[Node] = [
        el("header", el("h1", report.name), note(report.question)),
        el("nav", el("ul", *menu), aria_label="Parts of this report"),
        el(
            "main",
            el("section", el("h2", "Answer", class_="quiet"), *answer, id="answer"),
            el("section", el("h2", "Curves"), curve_grid(report), id="curves"),
            *(_part(part, nodes) for part, nodes in shown.items()),
        ),
    ]
    return document(f"{report.name}: report", body)


def _comparison_folds(report: Report) -> Iterator[Node]:
    """Yield one fold for each comparison, with its words, figures and tables inside.

    ``aspects_of``: what a report shows; some aspects have elements for every comparison. ``el``
    makes an HTML element.
    """
    for number, pair in enumerate(report.last_comparisons, start=1):
        nodes: list[Node] = []
        for aspect in aspects_of(report):
            if aspect.comparison is not None:
                nodes += aspect.comparison(report, pair)
        # The anchor is inside: a browser opens what is around the target of a link.
        content = el("div", *nodes, id=f"comparison-{number}")
        yield el("details", el("summary", comparison_line(pair)), content)


def _part(part: Part, nodes: list[Node]) -> ET.Element:
    """One part of the page, folded; the comparisons have folds of their own."""
    if part is Part.COMPARISONS:
        return el("section", el("h2", part.value), *nodes, id="comparisons")
    anchor = "numbers" if part is Part.CURVES else part.name.lower()
    content = el("div", *nodes, id=anchor)
    return el("details", el("summary", el("h2", part.value)), content, class_="part")


def _methods(report: Report) -> Iterator[Node]:
    """How the numbers were made, and what they stand on, as HTML.

    ``settings``: of the intervals. ``provenance``: how each arm's samples on a problem set were
    made; ``duplicates`` counts repeated records of an imported file. ``el`` makes an HTML element.
    """
    settings = report.settings
    yield el(
        "p",
        "pass@k of a problem is 1 − C(n − c, k) / C(n, k) for n judged and c right samples, "
        "and of a set its mean over problems; where a problem has fewer than k samples there "
        "is none.",
    )
    yield el(
        "p",
        f"Intervals are {100 * settings.prob:g} % for problems like these, from "
        f"{settings.replicates:,} bootstrap replicates over problems with seed {settings.seed}, "
        "shared by all curves of the same problems, so that differences are paired. The words "
        "follow a rule that was fixed before any data: docs/statistics.md, “How the answer is "
        "decided”.",
    )
    yield el(
        "p",
        "A crossing set holds every k at which the difference is compatible with 0. Coverage "
        "compares equal numbers of samples, with McNemar's exact test. p-values are adjusted "
        "by Holm's method over the comparisons of this report.",
    )
    yield el("details", el("summary", "Metrics of this report"), _metrics(report))
    versions = [(name, version(name)) for name in ("numpy", "scipy", "xarray")]
    yield table("Versions", ["package", "version"], [("rlbhpc", __version__), *versions])
    duplicates: dict[str, int] = {}
    for provenance in report.provenance.values():
        duplicates |= provenance.get("duplicates", {})
    for name, count in duplicates.items():
        text = "repeated records of its files were left out (duplicates: drop)."
        yield el("p", f"Of {name}, {count:,} {text}")
    yield el("p", f"Study {report.study_hash or '(none)'}, run {report.folder.name}.")
    origins = json.dumps(report.provenance, ensure_ascii=False, indent=1, sort_keys=True)
    yield el("details", el("summary", "Provenance of the samples"), el("pre", origins))


def _metrics(report: Report) -> ET.Element:
    """Describe the metrics that this report has values of, from the registry, as a table.

    ``aspect.frames``: the tables of one thing that the report shows; those with rows name metrics.
    ``samples_per_k``, ``advised_per_k``: n that a metric needs, and should have, as multiples of k.
    """
    names = [
        name for aspect in aspects_of(report) if aspect.frames(report) for name in aspect.metrics
    ]
    rows = []
    for name in dict.fromkeys(names):
        entry = metric(name)
        better = "–" if entry.better == "neither" else str(entry.better)
        least = "1" if entry.samples_per_k == 0 else "k"
        enough = f"{entry.advised_per_k} k" if entry.advised_per_k > 1 else least
        summary = _DOCSTRING_MARKS.sub("", entry.summary)
        rows.append([entry.name, summary, better, least, enough, entry.reference])
    heads = ["metric", "what", "better", "least n", "enough n", "defined in"]
    return table("From the registry of metrics", heads, rows, wide=(1, 5))
