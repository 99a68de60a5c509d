"""Right responses to problems that the other side never solves, beside what that side wrote."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rlbhpc.report.details import Details
from rlbhpc.report.evidence import Case, Evidence, Response
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds, several
from rlbhpc.report.reviewed import Chains, Reviewed


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


def chains(details: Details) -> list[Node]:
    """Show what readers of the chains said, where somebody has read some."""
    if not details.reviewed:
        return []
    rows: list[list[Cell]] = [
        [one.of, one.readers, one.problems, one.valid, one.unknown] for one in details.reviewed
    ]
    heads = ["of", "readers", "hard problems solved", "with a valid chain", "open"]
    curves = [table for one in details.reviewed if one.chains for table in _cot(one, one.chains)]
    return [
        el("h3", "Chains that people read"),
        table("Hard problems by what readers hold of their chains", heads, rows),
        el(
            "p",
            "A chain is valid if all who judged it say so; open are problems where none is valid "
            "but one is unclear or unread.",
            class_="soft",
        ),
        *curves,
    ]


def _cot(one: Reviewed, chains: Chains) -> list[Node]:
    """Say what is left of pass@k when a right answer needs a valid chain."""
    rows: list[list[Cell]] = [
        [k, bounds(chains.any_right, i), bounds(chains.valid, i)]
        for i, k in enumerate(chains.k.tolist())
    ]
    last = len(chains.k) - 1
    return [
        el(
            "p",
            f"{one.of}: on {several(chains.problems, 'hard problem')} with a chain that was read, "
            f"pass@{chains.k[last]:,} is {bounds(chains.any_right, last)} %, and "
            f"{bounds(chains.valid, last)} % if the chain has to be valid too.",
        ),
        table(f"CoT-pass@k of {one.of}, percent", ["k", "pass@k", "CoT-pass@k"], rows),
    ]


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
