"""Which problems only one of two arms solves, and the responses on which that rests.

A problem that the base solves once in a thousand samples and the trained model never counts as
lost. Whether that one response was right by reasoning or by luck is for a reader to judge. So the
report shows it, the rarest first: on the page, or on a second one beside it where it is long.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from rlbhpc.engines.completion import as_conversation
from rlbhpc.report.aspect import Aspect, Part, Report, has_texts, once, single_chart
from rlbhpc.report.chart import (
    INK,
    Chart,
    Colours,
    Panel,
    percent_axis,
    row_axis,
)
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import (
    adjusted_p,
    count_text,
    percent_text,
    stack_rows,
)
from rlbhpc.stats.coverage_table import rarest_first
from rlbhpc.stats.decision import p_value
from rlbhpc.store import samples
from rlbhpc.store.questions import read_questions
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: The cells of the 2 × 2 table, as they are named in words.
CELLS: Final = {
    "both": "both",
    "base_only": "base only",
    "trained_only": "trained only",
    "neither": "neither",
}
# Ids that a table lists before it says how many more there are.
_LISTED_IDS: Final = 60


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """The 2 × 2 table of one comparison, and McNemar's test, as HTML.

    Its four *cells* are the problems that both arms solve at least once, only one does, or none.
    ``pair.solved`` holds them as positions among the compared problems. ``pair.reach``: samples of
    each problem that count. ``links``: addresses of the responses of some problems.
    """
    if pair.solved is None:
        yield el("p", "Coverage is not known: imported counts of unequal numbers of samples.")
        return
    links = case_links(report, pair)
    rows = []
    for name, words in CELLS.items():
        positions = getattr(pair.solved, name).tolist()
        ids: Node = ""
        if "only" in name:
            ids = _id_list([pair.problems[i] for i in positions], links)
        rows.append([words, len(positions), percent_text(pair.solved.shares[name]), ids])
    caption = f"Solved at least once in {count_text(pair.reach, 'sample')}"
    yield table(caption, ["by", "problems", "%", "ids"], rows, wide=(3,))
    p = adjusted_p(pair.solved.p_value, pair.p_solved_holm, len(report.last_comparisons))
    yield el("p", f"McNemar's exact test, two-sided: p {p}.")


def _id_list(problems: list[str], links: dict[str, str]) -> ET.Element:
    """The ids of problems as HTML, one after the other; at most ``_LISTED_IDS``, then a count.

    ``links``: the address of a problem's responses, where they are shown. ``el`` makes an HTML
    element; its ``tail`` is the text behind it.
    """
    cell = el("span")
    listed = problems[:_LISTED_IDS]
    for number, problem in enumerate(listed, start=1):
        link = links.get(problem)
        node = el("a", problem, href=link) if link else el("span", problem)
        node.tail = ", " if number < len(listed) else ""
        cell.append(node)
    if len(problems) > len(listed):
        more = len(problems) - len(listed)
        cell.append(el("span", f" and {more:,} more, in coverage.csv"))
    return cell


def coverage_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw one bar per comparison, split into both, base only, trained only and neither.

    Shares are of the compared problems, by who solves them at least once. The two middle parts are
    filled in the colour of the arm that solves them; the outer ones are outlines.
    """
    x = percent_axis("share of problems solved at least once, %")
    panel = Panel(x, row_axis(len(pairs)), height=40 * len(pairs))
    for number, pair in enumerate(pairs):
        assert pair.solved is not None
        cells = ", ".join(f"{CELLS[name]} {count}" for name, count in pair.solved.counts.items())
        title = f"{pair.trained.label} − {pair.base.arm}, {pair.problem_set}"
        middle = panel.row(number, f"{title}: {cells}; p {p_value(pair.solved.p_value)}")
        colour_of_cell = {
            "base_only": colours[pair.base.arm], "trained_only": colours[pair.trained.arm]
        }  # fmt: skip
        left = 0.0
        for name, share in pair.solved.shares.items():
            right = left + 100 * share
            colour = colour_of_cell.get(name, INK)
            is_filled = name in colour_of_cell
            # A row is 1 high; the bar stands below its head.
            panel.bar((left, right), (middle - 0.18, middle + 0.22), colour, filled=is_filled)
            left = right
    return Chart([panel], lambda: coverage_frame(pairs))


def coverage_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """One row per compared problem: its cell, and samples and right samples of both arms.

    A *cell* says who solves the problem at least once: both, base only, trained only, neither. Rows
    are in the order of the cells; ``order`` holds the positions of their problems.
    """
    parts = []
    for pair in pairs:
        if pair.solved is None:
            continue
        cells = [np.asarray(getattr(pair.solved, name), np.int64) for name in CELLS]
        order = np.concatenate(cells)
        base, trained = pair.base_counts, pair.trained_counts
        columns: dict[str, object] = {
            **pair.key,
            "samples": pair.reach,
            "cell": np.repeat(list(CELLS), [len(cell) for cell in cells]),
            "problem": np.array(pair.problems, object)[order],
            "base_n": base.n[order],
            "base_right": base.c[order],
            "trained_n": trained.n[order],
            "trained_right": trained.c[order],
        }
        parts.append(columns)
    return stack_rows(parts)


def _pairs_with_coverage(report: Report) -> list[Comparison]:
    return [pair for pair in report.last_comparisons if pair.solved is not None]


charts = single_chart("coverage", _pairs_with_coverage, coverage_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"coverage": coverage_frame(report.comparisons_at_all_steps)},
    metrics=("coverage", "McNemar p"),
    charts=charts,
)


#: What a report shows of the responses; it says how many it leaves out.
PROBLEMS: Final = 8
RESPONSES: Final = 2
CHARACTERS: Final = 6000
#: The page beside the report, for more characters of responses than the report itself may hold.
EVIDENCE_PAGE: Final = "evidence.html"
_INLINE_CHARACTERS: Final = 200_000


@dataclass(frozen=True)
class Response:
    """One response, cut to ``CHARACTERS``; ``cut`` characters are left out."""

    sample: int
    answer: str
    text: str
    cut: int
    origin: str


@dataclass(frozen=True)
class Case:
    """A problem that one side solves and the other does not.

    ``number``: its place among all cases of the report. ``question``: its text; empty where the
    problem set cannot be read. ``right, judged``: samples of the side that solves it. ``right_
    responses``: of that side. ``wrong_responses``: the first wrong one of the other side.
    """

    number: int
    problem: str
    question: str
    right: int
    judged: int
    right_responses: tuple[Response, ...]
    wrong_responses: tuple[Response, ...]

    @property
    def anchor(self) -> str:
        """Where on its page the case stands."""
        return f"case-{self.number}"


class _OneSided(NamedTuple):
    """The problems that only one side of a comparison solves, rarest first.

    ``rows`` are their positions among the problems of the solver; ``left_out`` counts those that
    are not shown.
    """

    pair: Comparison
    solver: MeasuredArm
    other: MeasuredArm
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

    side: _OneSided
    cases: tuple[Case, ...]


@once
def evidence(report: Report) -> list[Evidence]:
    """Read the responses that a report shows: those that solve what the other side does not.

    Grouped by side: one side solves the problems, the other never does. A *case* is one such
    problem with some right responses of the first and a wrong one of the other. ``row``: its
    position in the solver's arrays. ``counts.c`` right of ``counts.n`` samples. Empty where only
    counts were imported.
    """
    sides = list(_one_sided(report))
    responses = _read_responses(report, sides)
    found: list[Evidence] = []
    # Cases are numbered over all sides; a side without any response takes no numbers.
    number = 0
    for side in sides:
        solver, other = side.solver, side.other
        questions = read_questions(Layout(report.folder), solver.arm, solver.problem_set)
        cases = []
        for place, (problem, row) in enumerate(zip(side.problems, side.rows, strict=True), 1):
            question = questions[problem].question if problem in questions else ""
            case = Case(
                number + place,
                problem,
                question[:CHARACTERS],
                int(solver.counts.c[row]),
                int(solver.counts.n[row]),
                tuple(responses[id(solver), problem, Status.RIGHT][:RESPONSES]),
                tuple(responses[id(other), problem, Status.WRONG][:1]),
            )
            cases.append(case)
        if any(case.right_responses or case.wrong_responses for case in cases):
            found.append(Evidence(side, tuple(cases)))
            number += len(cases)
    return found


def _one_sided(report: Report) -> Iterator[_OneSided]:
    """Yield the problems that only one side of each comparison solves, both ways round.

    ``solved``: their positions among the compared problems. ``rows``: for every compared problem,
    its position among those of the solver. The rarest come first: those with the fewest right
    samples. At most ``PROBLEMS`` are shown, the others are counted.
    """
    for pair in _pairs_with_coverage(report):
        assert pair.solved is not None
        for solver, other, solved, rows in (
            (pair.base, pair.trained, pair.solved.base_only, pair.base_rows),
            (pair.trained, pair.base, pair.solved.trained_only, pair.trained_rows),
        ):
            if has_texts(report, solver):
                rarest = rarest_first(solved, solver.counts[rows].c)[:PROBLEMS]
                problems = [pair.problems[i] for i in rarest.tolist()]
                left_out = len(solved) - len(problems)
                yield _OneSided(pair, solver, other, problems, rows[rarest].tolist(), left_out)


def _read_responses(
    report: Report, sides: list[_OneSided]
) -> defaultdict[tuple[int, str, Status], list[Response]]:
    """Read the responses to show, by the arm's ``id``, the problem and the verdict.

    Of a problem that only one side solves: the first right responses of that side, and the first
    wrong one of the other. ``wanted``: sample numbers by arm and problem, so that each arm's files
    are read once.
    """
    arms: dict[int, MeasuredArm] = {}
    wanted: dict[int, dict[str, list[int]]] = {}
    for side in sides:
        for arm, status, most in (
            (side.solver, Status.RIGHT, RESPONSES), (side.other, Status.WRONG, 1)
        ):  # fmt: skip
            if arm.all_verdicts is None or not has_texts(report, arm):
                continue
            arms[id(arm)] = arm
            for problem in side.problems:
                # The cube's verdicts say which samples are shown, so that no other text is read.
                verdicts = arm.all_verdicts[arm.problems.index(problem)]
                numbers = np.flatnonzero(verdicts == status)[:most].tolist()
                wanted.setdefault(id(arm), {}).setdefault(problem, []).extend(numbers)
    responses: defaultdict[tuple[int, str, Status], list[Response]] = defaultdict(list)
    for key, numbers_of_problem in wanted.items():
        arm = arms[key]
        group = Group(arm.arm, arm.problem_set)
        for sample, origin in samples.find_samples(
            Layout(report.folder), group, numbers_of_problem, {arm.step}
        ):
            text = as_conversation(sample.trace, sample.text)
            response = Response(
                sample.key.sample,
                sample.answer,
                text[:CHARACTERS],
                max(0, len(text) - CHARACTERS),
                origin,
            )
            responses[key, sample.key.problem, Status(sample.verdict)].append(response)
    return responses


@once
def has_own_page(report: Report) -> bool:
    """Whether the responses shown are so long together that they have a page of their own.

    ``evidence``: by side of a comparison, the problems (*cases*) that only it solves, with
    responses of both sides.
    """
    characters = sum(
        len(response.text)
        for part in evidence(report)
        for case in part.cases
        for response in (*case.right_responses, *case.wrong_responses)
    )
    return characters > _INLINE_CHARACTERS


def case_links(report: Report, pair: Comparison) -> dict[str, str]:
    """Where each problem's responses are shown, by the id of the problem, for one comparison.

    A *case* is a problem that only one side solves, with responses of both; its anchor names its
    place on the page.
    """
    page = EVIDENCE_PAGE if has_own_page(report) else ""
    return {
        case.problem: f"{page}#{case.anchor}"
        for part in evidence(report)
        if part.side.pair is pair
        for case in part.cases
    }


def evidence_section(report: Report) -> Iterator[Node]:
    """The problems that only one side solves, with responses; or a link to where they are.

    ``evidence``: these problems (*cases*), by comparison and side. ``el`` makes an HTML element.
    """
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
    """Show the problems that only one side solves, rarest first, with responses of both sides.

    A *case* is one such problem: its question, right responses of the side that solves it, and a
    wrong one of the other. ``parts``: the cases of one side of one comparison each. ``el`` makes an
    HTML element.
    """
    if not parts:
        yield el("p", "No problem with stored responses is solved by one side only.")
        return
    yield el(
        "p",
        "What a moved boundary consists of: right responses to problems that the other side "
        "never solves, the rarest first, beside a response of that side. The text is a "
        "model's, shown as it is. Every other sample of a problem: ",
        el("code", f"rlbhpc show {report.folder.name} --problem ID"),
        ". Both arms of a problem in a browser: ",
        el("code", f"rlbhpc view {report.folder.name} --open --problem ID"),
        ".",
    )
    for part in parts:
        side = part.side
        yield el("h3", side.title)
        for case in part.cases:
            head = f"{case.problem}: {case.right:,} right of {case.judged:,}"
            question = [el("pre", case.question, class_="question")] if case.question else []
            right = _response_column(f"{side.solver.label}, right", case.right_responses)
            wrong = _response_column(f"{side.other.label}, wrong", case.wrong_responses)
            # The anchor is inside: a browser opens what is around the target of a link.
            both = el("div", right, wrong, class_="pair", id=case.anchor)
            yield el("details", el("summary", head), *question, both)
        if side.left_out:
            yield note(f"Not shown: {count_text(side.left_out, 'problem')}.")


def _response_column(head: str, responses: tuple[Response, ...]) -> ET.Element:
    """A column of the page: some responses of one arm to a problem, each below a line about it.

    ``response.cut``: characters that were left out. ``response.origin``: the file that it is from.
    """
    nodes: list[Node] = [el("h4", head)]
    for response in responses:
        cut = f", {response.cut:,} characters left out at the end" if response.cut else ""
        answer = response.answer or "(none)"
        nodes.append(note(f"Sample {response.sample}, answer {answer}, {response.origin}{cut}"))
        nodes.append(el("pre", response.text))
    if not responses:
        nodes.append(el("p", "No response is stored."))
    return el("div", *nodes)


EVIDENCE = Aspect(Part.EVIDENCE, evidence_section)
