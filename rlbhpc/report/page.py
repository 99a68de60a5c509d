"""The report as one HTML page: the answer first, then curves, tables, evidence and methods."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from rlbhpc.report.details import Details
from rlbhpc.report.evidence import Evidence, evidence
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, document, el
from rlbhpc.report.sections.beyond import beyond_samples
from rlbhpc.report.sections.comparisons import comparisons
from rlbhpc.report.sections.curves import curves
from rlbhpc.report.sections.evidence import chains, evidence_shown
from rlbhpc.report.sections.methods import methods
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.sections.responses import behaviour
from rlbhpc.report.sections.samples import samples
from rlbhpc.report.sections.training import over_training

#: The largest page that is written; evidence goes first where it would be larger.
LIMIT: Final = 5_000_000
_PARTS: Final = {
    "answer": "Answer",
    "curves": "Curves",
    "comparisons": "Comparisons",
    "beyond": "More samples",
    "training": "Over training",
    "responses": "Responses",
    "samples": "Samples",
    "evidence": "Evidence",
    "methods": "Methods",
}


def page(report: Report, details: Details) -> str:
    """Write the whole page, of at most ``LIMIT`` bytes."""
    shown = evidence(report)
    text = _page(report, details, shown, "")
    if len(text.encode()) <= LIMIT:
        return text
    left_out = "Responses are left out here: with them the page would be too large."
    return _page(report, details, [], left_out)


def _page(report: Report, details: Details, shown: list[Evidence], left_out: str) -> str:
    pen = Pen(report)
    parts: dict[str, list[Node]] = {
        "answer": _answers(report),
        "curves": curves(report, details, pen),
        "comparisons": comparisons(report, shown, pen),
        "beyond": beyond_samples(details, pen),
        "training": over_training(report, details, pen),
        "responses": behaviour(report, details, pen),
        "samples": samples(report, details, pen),
        "evidence": [*evidence_shown(report, shown, left_out), *chains(details)],
        "methods": methods(report, details),
    }
    there = {anchor: nodes for anchor, nodes in parts.items() if nodes}
    links = (el("li", el("a", _PARTS[anchor], href=f"#{anchor}")) for anchor in there)
    sections = (_section(anchor, nodes) for anchor, nodes in there.items())
    body: list[Node] = [
        el("header", el("h1", report.name), el("p", report.question, class_="soft")),
        el("nav", el("ul", *links), aria_label="Parts of this report"),
        el("main", *sections),
    ]
    return document(f"{report.name}: report", body)


def _section(anchor: str, content: list[Node]) -> ET.Element:
    return el("section", el("h2", _PARTS[anchor]), *content, id=anchor)


def _answers(report: Report) -> list[Node]:
    if not report.final:
        return [el("p", "No two arms can be compared; what was sampled stands below.")]
    return [
        el(
            "div",
            el("h3", one.title),
            el("p", f"{one.conclusion.headline}", class_="verdict"),
            *(el("p", sentence) for sentence in one.words),
            class_="answer",
        )
        for one in report.final
    ]
