"""Whether what a report concludes survives other readers of answers and another grader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounds, percent
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout

_WORDS: Final = {1: "higher", -1: "lower", 0: "undecided"}


@dataclass(frozen=True)
class Judged:
    """A base and its trained arm under one pair of reader and grader.

    ``judging``: the pair. ``rates``: mean pass@1 of base and trained. ``differing``: shares of
    their responses that the reference judging sees otherwise. ``difference``: trained minus base at
    k = 1 and at the largest k. ``words``: what follows at each of the two: ``higher``, ``lower`` or
    ``undecided``. ``survives``: whether that is what follows from the reference judging.
    """

    judging: str
    rates: tuple[float, float]
    differing: tuple[float, float]
    difference: Interval
    words: tuple[str, str]
    survives: bool


@dataclass(frozen=True)
class Audited:
    """One comparison of the report in all judgings, the reference first; ``k`` is the largest."""

    title: str
    responses: tuple[int, int]
    k: int
    judged: tuple[Judged, ...]


def read_audit(layout: Layout) -> Mapping[str, Any] | None:
    """Read what ``rlbhpc audit`` left; None without one."""
    if not layout.audit.is_file():
        return None
    from rlbhpc.sweep.audit import FORMAT  # with all graders: few reports need it

    try:
        record: Mapping[str, Any] = checked.read(layout.audit)
    except ValueError as error:
        record = {"format": str(error)}
    if record.get("format") != FORMAT:
        raise UserError(f"{layout.audit}: {record.get('format')!r}; allowed is {FORMAT!r}; "
                        f"make it anew: rlbhpc audit {layout.root}")  # fmt: skip
    return record


@once
def audited(report: Report) -> list[Audited]:
    """Compare base and trained arms of the report in each judging of the run's audit."""
    record = read_audit(Layout(report.folder))
    if record is None:
        return []
    audits: list[Audited] = []
    for pair in report.final:
        base, trained = _cell(record, pair.base), _cell(record, pair.trained)
        if base is not None and trained is not None:
            audits += _audited(report, pair, base, trained)
    return audits


def _cell(record: Mapping[str, Any], arm: Measured) -> Mapping[str, Any] | None:
    place = (arm.arm, arm.problem_set, arm.step)
    cells = (
        cell
        for cell in record["cells"]
        if (cell["arm"], cell["problem_set"], cell["step"]) == place
    )
    return next(cells, None)


def _audited(
    report: Report, comparison: Comparison, base: Mapping[str, Any], trained: Mapping[str, Any]
) -> Iterator[Audited]:
    shared = sorted(set(base["problems"]) & set(trained["problems"]))
    if len(shared) < 2:
        return
    from rlbhpc.verify.audit.style import JUDGINGS

    weights = report.weights(shared)
    judged: list[Judged] = []
    for judging in JUDGINGS:
        ours, theirs = (_counts(cell, judging, shared) for cell in (base, trained))
        reach = min(ours.reach, theirs.reach)
        sizes = np.unique([1, reach])
        curve = difference_curve(ours, theirs, weights, k=sizes, prob=report.settings.prob)
        first, last = (_WORDS[int(curve.pointwise.sign[place])] for place in (0, -1))
        judged.append(
            Judged(
                judging,
                (float(ours.pass_at_k(1).mean()), float(theirs.pass_at_k(1).mean())),
                (_share(base, judging), _share(trained, judging)),
                curve.pointwise,
                (first, last),
                not judged or (first, last) == judged[0].words,
            )
        )
    responses = (base["responses"], trained["responses"])
    yield Audited(comparison.title, responses, reach, tuple(judged))


def _counts(cell: Mapping[str, Any], judging: str, problems: Sequence[str]) -> Counts:
    place = {problem: row for row, problem in enumerate(cell["problems"])}
    rows = [place[problem] for problem in problems]
    right = cell["right"][judging]
    return Counts.of([cell["n"][row] for row in rows], [right[row] for row in rows])


def _share(cell: Mapping[str, Any], judging: str) -> float:
    return float(cell["differing"][judging] / cell["responses"])


def survival(audit: Audited) -> str:
    """Say in a sentence whether a conclusion survives."""
    changed = [judged.judging for judged in audit.judged if not judged.survives]
    own = audit.judged[0]
    says = f"trained is {own.words[0]} at k = 1"
    if audit.k > 1:
        says += f" and {own.words[1]} at k = {audit.k:,}"
    others = len(audit.judged) - 1
    if not changed:
        return f"{audit.title}: {says}, under {own.judging} and under all {others} other judgings."
    return (
        f"{audit.title}: {says} under {own.judging}; this does not survive {len(changed)} of "
        f"{others} other judgings: {'; '.join(changed)}."
    )


def section(report: Report) -> Iterator[Node]:
    """Show each comparison under every reader and grader; nothing without an audit."""
    audits = audited(report)
    if not audits:
        return
    yield el("h3", "Other readers and another grader")
    yield note(
        "A sample of the responses, judged again: answers taken as this project takes them, "
        "from the last box alone, or as the last value of the text; graded by this project or "
        "by Math-Verify. Base and trained models differ in style, so a reader that misses a "
        "style bends the comparison."
    )
    yield from (el("p", survival(audit)) for audit in audits)
    for audit in audits:
        heads = ["reader, grader", "base, %", "trained, %", "trained − base at k = 1, points",
                 f"at k = {audit.k:,}", "base otherwise, %", "trained otherwise, %",
                 "survives"]  # fmt: skip
        rows: list[list[Cell]] = [
            [
                judged.judging,
                *(percent(rate) for rate in judged.rates),
                bounds(judged.difference, 0, sign=True),
                bounds(judged.difference, -1, sign=True),
                *(percent(share) for share in judged.differing),
                "yes" if judged.survives else "no",
            ]
            for judged in audit.judged
        ]
        yield table(f"{audit.title}: readers and graders", heads, rows)


ASPECT = Aspect(Part.SAMPLES, section)
