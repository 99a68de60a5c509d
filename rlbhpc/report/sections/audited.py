"""Whether the answer hangs on how answers are read and graded."""

from __future__ import annotations

from collections.abc import Sequence

from rlbhpc.report.audited import Audited, Judged, survival
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds, percent


def audited_styles(audits: Sequence[Audited]) -> list[Node]:
    """Show each comparison under every reader and grader; nothing without an audit."""
    if not audits:
        return []
    nodes: list[Node] = [
        el("h3", "Other readers and another grader"),
        el(
            "p",
            "A sample of the responses, judged again: answers taken as this project takes them, "
            "from the last box alone, or as the last value of the text; graded by this project or "
            "by Math-Verify. Base and trained models differ in style, so a reader that misses a "
            "style bends the comparison.",
            class_="soft",
        ),
        *(el("p", survival(one)) for one in audits),
    ]
    for one in audits:
        heads = ["reader, grader", "base, %", "trained, %", "trained − base at k = 1, points",
                 f"at k = {one.k:,}", "base otherwise, %", "trained otherwise, %",
                 "survives"]  # fmt: skip
        rows = [audit_row(judged) for judged in one.judged]
        nodes.append(table(f"{one.title}: readers and graders", heads, rows))
    return nodes


def audit_row(judged: Judged) -> list[Cell]:
    """One judging: rates, differences, shares of responses that it sees otherwise."""
    return [
        judged.judging,
        *(percent(rate) for rate in judged.rates),
        bounds(judged.difference, 0, sign=True),
        bounds(judged.difference, -1, sign=True),
        *(percent(share) for share in judged.differing),
        "yes" if judged.survives else "no",
    ]
