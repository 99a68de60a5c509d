"""The responses on which a moved boundary rests: right ones to problems that one side never solves.

A problem that the base solves once in a thousand samples and the trained model never counts as
lost. Whether that one response was right by reasoning or by luck is for a reader to judge, so the
report shows it, the rarest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report, read_study
from rlbhpc.report.measured import Measured
from rlbhpc.stats.coverage_table import rarest_first
from rlbhpc.store import samples
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: What a report shows of them; it says how many it leaves out.
PROBLEMS: Final = 8
RESPONSES: Final = 2
CHARACTERS: Final = 6000


@dataclass(frozen=True)
class Response:
    """One right response, cut to ``CHARACTERS``."""

    sample: int
    answer: str
    text: str
    cut: int
    origin: str


@dataclass(frozen=True)
class Case:
    """A problem that one side solves and the other does not.

    Attributes
    ----------
    number
        Its place among all cases of the report.
    problem, question
        Its id, and its text where the problem set can be read; else empty.
    right, n
        Right and judged samples of the side that solves it.
    responses
        Right responses of that side.
    other
        A response of the side that never solves it, the first that was judged wrong.
    """

    number: int
    problem: str
    question: str
    right: int
    n: int
    responses: tuple[Response, ...]
    other: tuple[Response, ...]


@dataclass(frozen=True)
class Evidence:
    """Cases of one side of a comparison, rarest first.

    ``left_out`` counts the problems of that side that are not shown.
    """

    of: Comparison
    solver: Measured
    other: Measured
    cases: tuple[Case, ...]
    left_out: int

    @property
    def title(self) -> str:
        """Say who solves what the other does not."""
        set_name = self.solver.problem_set
        return f"{set_name}: solved by {self.solver.label}, never by {self.other.label}"


def evidence(report: Report) -> list[Evidence]:
    """Read the responses that a report shows; nothing where only counts were imported."""
    layout = Layout(report.folder)
    known = set(layout.groups())
    found: list[Evidence] = []
    questions: dict[str, dict[str, str]] = {}
    for one in report.final:
        if one.solved is None:
            continue
        for side, arm in (("base", one.base), ("trained", one.trained)):
            if arm.verdicts is None or (arm.arm, arm.problem_set) not in known:
                continue
            if arm.problem_set not in questions:
                questions[arm.problem_set] = _questions(report, arm.problem_set)
            before = sum(len(part.cases) for part in found)
            shown = _of_side(layout, one, side, arm, questions[arm.problem_set], before)
            if shown.cases:
                found.append(shown)
    return found


def _questions(report: Report, set_name: str) -> dict[str, str]:
    """Texts of the problems; nothing where the set is not where the study found it."""
    study = read_study(report.folder)
    if study is None or set_name not in study.problem_sets:
        return {}
    try:
        return {problem.id: problem.fields["question"] for problem in study.problems(set_name)}
    except (UserError, OSError):
        return {}


def _of_side(
    layout: Layout,
    one: Comparison,
    side: str,
    arm: Measured,
    questions: dict[str, str],
    before: int,
) -> Evidence:
    other = one.trained if arm is one.base else one.base
    assert one.solved is not None
    cell = one.solved.base_only if side == "base" else one.solved.trained_only
    counts = arm.counts[one.rows[0 if side == "base" else 1]]
    chosen = rarest_first(cell, counts.c)[:PROBLEMS].tolist()
    cases = tuple(
        Case(
            before + number,
            one.problems[i],
            questions.get(one.problems[i], "")[:CHARACTERS],
            int(counts.c[i]),
            int(counts.n[i]),
            tuple(_judged(layout, arm, one.problems[i], Status.RIGHT, RESPONSES)),
            tuple(_judged(layout, other, one.problems[i], Status.WRONG, 1)),
        )
        for number, i in enumerate(chosen, start=1)
    )
    return Evidence(one, arm, other, cases, len(cell) - len(chosen))


def _judged(
    layout: Layout, arm: Measured, problem: str, status: Status, most: int
) -> Iterator[Response]:
    # Verdicts of the cube say which samples are wanted, so that no other text is read.
    if arm.verdicts is None or (arm.arm, arm.problem_set) not in layout.groups():
        return
    row = arm.verdicts[arm.problems.index(problem)]
    wanted = (row == status).nonzero()[0][:most].tolist()
    for sample, origin in samples.find(layout, arm.arm, problem, samples=wanted, steps={arm.step}):
        cut = max(0, len(sample.text) - CHARACTERS)
        text = sample.text[:CHARACTERS]
        yield Response(sample.key.sample, sample.answer, text, cut, origin)
