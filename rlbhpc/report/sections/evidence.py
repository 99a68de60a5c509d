"""Right responses to problems that the other side never solves, beside what that side wrote."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rlbhpc.report.evidence import Case, Evidence, Response
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el
from rlbhpc.report.phrases import several


def evidence_shown(report: Report, shown: list[Evidence], left_out: str) -> list[Node]:
    """Cases, rarest first."""
    if not shown:
        text = left_out or "No problem with stored responses is solved by one side only."
        return [el("p", text)]
    command = f"rlbhpc show {report.folder.name} --problem ID"
    nodes: list[Node] = [
        el(
            "p",
            "What a moved boundary consists of: right responses to problems that the other side "
            "never solves, the rarest first, beside a response of that side. The text is a "
            "model's, shown as it is. Every other sample of a problem: ",
            el("code", command),
            ".",
        )
    ]
    for part in shown:
        nodes.append(el("h3", part.title))
        for case in part.cases:
            head = f"{case.problem}: {case.right:,} right of {case.n:,}"
            nodes.append(
                el(
                    "details",
                    el("summary", head),
                    *_question(case),
                    el(
                        "div",
                        _side(f"{part.solver.label}, right", case.responses),
                        _side(f"{part.other.label}, wrong", case.other),
                        class_="pair",
                        # Inside: a browser opens what is around the target of a link.
                        id=anchor(case),
                    ),
                )
            )
        if part.left_out:
            nodes.append(el("p", f"Not shown: {several(part.left_out, 'problem')}.", class_="soft"))
    return nodes


def anchor(case: Case) -> str:
    """Where on the page a case stands."""
    return f"case-{case.number}"


def _question(case: Case) -> list[Node]:
    return [el("pre", case.question, class_="question")] if case.question else []


def _side(head: str, responses: tuple[Response, ...]) -> ET.Element:
    nodes: list[Node] = []
    for one in responses:
        cut = f", {one.cut:,} characters left out at the end" if one.cut else ""
        about = f"Sample {one.sample}, answer {one.answer or '(none)'}, {one.origin}{cut}"
        nodes += [el("p", about, class_="soft"), el("pre", one.text)]
    return el("div", el("h4", head), *(nodes or [el("p", "No response is stored.")]))
