"""The responses on which a moved boundary rests: right ones to problems that one side never solves.

A problem that the base solves once in a thousand samples and the trained model never counts as
lost. Whether that one response was right by reasoning or by luck is for a reader to judge, so the
report shows it, the rarest first: on the page, or on a second one beside it where it is long.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from rlbhpc.report.aspect import Aspect, Part, Report, has_samples, once
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import count_text
from rlbhpc.stats.coverage_table import rarest_first
from rlbhpc.store import samples
from rlbhpc.store.questions import read_questions
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: What a report shows of them; it says how many it leaves out.
PROBLEMS: Final = 8
RESPONSES: Final = 2
CHARACTERS: Final = 6000
#: The page beside the report, and how many characters of evidence are too many for the first one.
EVIDENCE_PAGE: Final = "evidence.html"
_INLINE: Final = 200_000


@dataclass(frozen=True)
class Response:
    """One response, cut to ``CHARACTERS``."""

    sample: int
    answer: str
    text: str
    cut: int
    origin: str


@dataclass(frozen=True)
class Case:
    """A problem that one side solves and the other does not.

    ``number``: its place among all cases of the report. ``problem, question``: its id, and its text
    where the problem set can be read; else empty. ``right, n``: right and judged samples of the
    side that solves it. ``responses``: right responses of that side. ``other``: a response of the
    side that never solves it, the first that was judged wrong.
    """

    number: int
    problem: str
    question: str
    right: int
    n: int
    responses: tuple[Response, ...]
    other: tuple[Response, ...]

    @property
    def anchor(self) -> str:
        """Where on its page the case stands."""
        return f"case-{self.number}"


class _Side(NamedTuple):
    """The problems that one side of a comparison solves and the other does not, rarest first.

    ``rows`` are their positions among the problems of the solver; ``left_out`` counts those that
    are not shown.
    """

    pair: Comparison
    solver: Measured
    other: Measured
    problems: list[str]
    rows: list[int]
    left_out: int

    @property
    def title(self) -> str:
        """Say who solves what the other does not."""
        set_name = self.solver.problem_set
        return f"{set_name}: solved by {self.solver.label}, never by {self.other.label}"


@dataclass(frozen=True)
class Evidence:
    """Cases of one side of a comparison, rarest first."""

    side: _Side
    cases: tuple[Case, ...]


@once
def evidence(report: Report) -> list[Evidence]:
    """Read the responses that a report shows; nothing where only counts were imported."""
    sides = list(_sides(report))
    texts = _responses(report, sides)
    parts: list[Evidence] = []
    number = 0
    for side in sides:
        solver = side.solver
        questions = read_questions(Layout(report.folder), solver.arm, solver.problem_set)
        cases = tuple(
            Case(
                number + place,
                problem,
                questions[problem].question[:CHARACTERS] if problem in questions else "",
                int(side.solver.counts.c[row]),
                int(side.solver.counts.n[row]),
                tuple(texts[id(side.solver), problem, Status.RIGHT][:RESPONSES]),
                tuple(texts[id(side.other), problem, Status.WRONG][:1]),
            )
            for place, (problem, row) in enumerate(zip(side.problems, side.rows, strict=True), 1)
        )
        if any(case.responses or case.other for case in cases):
            parts.append(Evidence(side, cases))
            number += len(cases)
    return parts


def _sides(report: Report) -> Iterator[_Side]:
    for pair in report.final:
        if pair.solved is None:
            continue
        for solver, other, cell, rows in (
            (pair.base, pair.trained, pair.solved.base_only, pair.rows[0]),
            (pair.trained, pair.base, pair.solved.trained_only, pair.rows[1]),
        ):
            if has_samples(report, solver):
                rarest = rarest_first(cell, solver.counts[rows].c)[:PROBLEMS]
                problems = [pair.problems[i] for i in rarest.tolist()]
                left_out = len(cell) - len(problems)
                yield _Side(pair, solver, other, problems, rows[rarest].tolist(), left_out)


def _responses(
    report: Report, sides: list[_Side]
) -> Mapping[tuple[int, str, Status], list[Response]]:
    """Read what the cases show, each arm and step in one pass, by arm, problem and verdict."""
    arms: dict[int, Measured] = {}
    numbers: dict[int, dict[str, list[int]]] = {}
    for side in sides:
        for problem in side.problems:
            for arm, status, most in (
                (side.solver, Status.RIGHT, RESPONSES), (side.other, Status.WRONG, 1)
            ):  # fmt: skip
                # Verdicts of the cube say which samples count, so that no other text is read.
                if arm.drawn is not None:
                    row = arm.drawn[arm.problems.index(problem)]
                    chosen = np.flatnonzero(row == status)[:most].tolist()
                    arms[id(arm)] = arm
                    numbers.setdefault(id(arm), {}).setdefault(problem, []).extend(chosen)
    texts: defaultdict[tuple[int, str, Status], list[Response]] = defaultdict(list)
    layout = Layout(report.folder)
    for key, arm in arms.items():
        if not has_samples(report, arm):
            continue
        group = Group(arm.arm, arm.problem_set)
        for sample, origin in samples.find_samples(layout, group, numbers[key], {arm.step}):
            cut = max(0, len(sample.text) - CHARACTERS)
            text = sample.text[:CHARACTERS]
            response = Response(sample.key.sample, sample.answer, text, cut, origin)
            texts[key, sample.key.problem, Status(sample.verdict)].append(response)
    return texts


@once
def has_own_page(report: Report) -> bool:
    """Whether the evidence is so long that it has a page of its own."""
    every = [case for part in evidence(report) for case in part.cases]
    texts = [shown.text for case in every for shown in (*case.responses, *case.other)]
    return sum(map(len, texts)) > _INLINE


def case_links(report: Report, pair: Comparison) -> dict[str, str]:
    """Address of the responses behind each problem of a comparison that has some."""
    page = EVIDENCE_PAGE if has_own_page(report) else ""
    return {
        case.problem: f"{page}#{case.anchor}"
        for part in evidence(report)
        if part.side.pair is pair
        for case in part.cases
    }


def section(report: Report) -> Iterator[Node]:
    """The cases, or where they stand."""
    if not has_own_page(report):
        yield from cases(report, evidence(report))
        return
    number = sum(len(part.cases) for part in evidence(report))
    yield el(
        "p",
        f"{count_text(number, 'problem')} with the responses that were right, and what the other "
        "side wrote: ",
        el("a", EVIDENCE_PAGE, href=EVIDENCE_PAGE),
        ", beside this page.",
    )


def cases(report: Report, parts: list[Evidence]) -> Iterator[Node]:
    """Cases, rarest first."""
    if not parts:
        yield el("p", "No problem with stored responses is solved by one side only.")
        return
    yield el(
        "p",
        "What a moved boundary consists of: right responses to problems that the other side "
        "never solves, the rarest first, beside a response of that side. The text is a "
        "model's, shown as it is. Every other sample of a problem: ",
        el("code", f"rlbhpc show {report.folder.name} --problem ID"),
        ".",
    )
    for part in parts:
        yield el("h3", part.side.title)
        for case in part.cases:
            head = f"{case.problem}: {case.right:,} right of {case.n:,}"
            question = [el("pre", case.question, class_="question")] if case.question else []
            right = _side(f"{part.side.solver.label}, right", case.responses)
            wrong = _side(f"{part.side.other.label}, wrong", case.other)
            # The anchor is inside: a browser opens what is around the target of a link.
            both = el("div", right, wrong, class_="pair", id=case.anchor)
            yield el("details", el("summary", head), *question, both)
        if part.side.left_out:
            yield note(f"Not shown: {count_text(part.side.left_out, 'problem')}.")


def _side(head: str, responses: tuple[Response, ...]) -> ET.Element:
    nodes: list[Node] = []
    for response in responses:
        cut = f", {response.cut:,} characters left out at the end" if response.cut else ""
        answer = response.answer or "(none)"
        about = f"Sample {response.sample}, answer {answer}, {response.origin}{cut}"
        nodes += [note(about), el("pre", response.text)]
    return el("div", el("h4", head), *(nodes or [el("p", "No response is stored.")]))


ASPECT = Aspect(Part.EVIDENCE, section)
