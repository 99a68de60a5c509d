"""The same samples under two graders: what the choice of a verifier makes of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, has_samples, once, read_columns
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.chart import (
    DOTTED,
    Chart,
    Colours,
    Panel,
    k_axis,
    percent_axis,
    points_axis,
)
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.gather import Pair, gather
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import (
    count_text,
    interval_columns,
    interval_text,
    percent_text,
    stack_rows,
)
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.study.layout import Layout
from rlbhpc.verify.error_audit import ErrorRate, load_error_rates
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Regraded:
    """One arm under the grader of the run and under another, sample by sample.

    ``of, other``: the same arm and step as both graders saw it. ``graders``: fingerprints of the
    two; empty where no sample says. ``gained, lost``: samples that only the other grader calls
    right, and that only the run's does. ``k, rates, difference``: mean pass@k under each grader,
    and other minus own, paired over problems. ``solved``: problems that only the run's grader, and
    that only the other, calls solved.
    """

    of: Measured
    other: Measured
    graders: tuple[str, str]
    gained: int
    lost: int
    k: NDArray[np.int64]
    rates: tuple[NDArray[np.float64], NDArray[np.float64]]
    difference: Interval
    solved: tuple[int, int]


@dataclass(frozen=True)
class Verdicts:
    """All that another grader says of a run.

    ``answers`` holds each last comparison as both graders have it.
    """

    arms: tuple[Regraded, ...]
    answers: tuple[tuple[Comparison, Comparison], ...]


def lay_beside(report: Report, folder: Path, pairs: Sequence[Pair] = ()) -> None:
    """Show what ``rlbhpc verify RUN --into FOLDER`` wrote, beside the run itself.

    ``report``: the run; its sections compare the two graders from now on. ``folder``: the run with
    the other verdicts. ``pairs``: as for :func:`rlbhpc.report.gather.gather`.
    """
    note = Layout(folder).regraded
    if not note.is_file():
        raise UserError(
            f"--regraded {folder}: was not written by `rlbhpc verify RUN --into FOLDER`; "
            "only the same samples under another grader can be compared"
        )
    other = gather(folder, pairs)
    if other.study_hash != report.study_hash:
        raise UserError(f"--regraded {folder}: is of another study; give one that was made from "
                        f"{report.folder}")  # fmt: skip
    report.memo[lay_beside] = other


@once
def verdicts(report: Report) -> Verdicts:
    """Compare the verdicts of both graders; nothing where there is one grader."""
    other: Report | None = report.memo.get(lay_beside)
    if other is None:
        return Verdicts((), ())
    theirs = {(arm.arm, arm.problem_set, arm.step): arm for arm in other.measured}
    arms = []
    for own in report.compared:
        same = theirs.get((own.arm, own.problem_set, own.step))
        comparison = None if same is None else _regraded(report, other, own, same)
        arms += [comparison] if comparison is not None else []
    named = {pair.title: pair for pair in other.final}
    answers = [(pair, named[pair.title]) for pair in report.final if pair.title in named]
    return Verdicts(tuple(arms), tuple(answers))


def _regraded(report: Report, other: Report, own: Measured, new: Measured) -> Regraded | None:
    if own.verdicts is None or new.verdicts is None or own.verdicts.shape != new.verdicts.shape:
        return None
    # A sample that one of the two could not judge is evidence about neither.
    both = own.judged & new.judged
    right = [(v == Status.RIGHT) & both for v in (own.verdicts, new.verdicts)]
    rows = np.flatnonzero(both.any(axis=1))
    if len(rows) < 2:
        return None
    n = both.sum(axis=1)[rows]
    counts = [Counts.of(n, r.sum(axis=1)[rows]) for r in right]
    weights = report.weights(tuple(own.problems[i] for i in rows))
    curve = difference_curve(counts[0], counts[1], weights, prob=report.settings.prob)
    solved = [side.solved for side in counts]
    return Regraded(
        own,
        new,
        (_grader(report, own), _grader(other, new)),
        int((right[1] & ~right[0]).sum()),
        int((right[0] & ~right[1]).sum()),
        curve.k,
        (counts[0].pass_at_k(curve.k).mean(axis=0), counts[1].pass_at_k(curve.k).mean(axis=0)),
        curve.pointwise,
        (int((solved[0] & ~solved[1]).sum()), int((solved[1] & ~solved[0]).sum())),
    )


def _grader(report: Report, arm: Measured) -> str:
    """Graders of the first sampled problem's samples."""
    if not has_samples(report, arm):
        return ""
    first = arm.sampled_problems[0]
    names = read_columns(report, arm, [first], ("sample", "grader"))["grader"].unique().to_pylist()
    return ", ".join(sorted(name for name in names if name))


def section(report: Report) -> Iterator[Node]:
    """Compare two graders, sample by sample and in what they say; nothing without a second."""
    arms = verdicts(report).arms
    if not arms:
        return
    yield el("h3", "Another grader")
    yield el("p", _graders(arms))
    yield from (el("p", _answer(own, other)) for own, other in verdicts(report).answers)
    changed = [arm for arm in arms if arm.gained or arm.lost]
    if same := ", ".join(arm.of.label for arm in arms if not (arm.gained or arm.lost)):
        yield note(f"Of {same} they judge every sample alike.")
    for set_name, set_arms in report.by_set(changed):
        caption = (
            "Left: pass@k of the same samples under the run's grader (solid) and the other "
            "(dotted). Right: other minus own, paired over problems, with intervals. What a "
            "lenient grader accepts by mistake grows with k."
        )
        yield figure(caption, regraded_chart(set_arms, report.colours))
        rows: list[list[Cell]] = []
        for arm in set_arms:
            last = len(arm.k) - 1
            for i in sorted({0, int(np.searchsorted(arm.k, arm.k[-1] // 4)), last}, reverse=True):
                counts = (arm.gained, arm.lost, arm.solved[1], arm.solved[0])
                rows.append(
                    [arm.of.label, int(arm.k[i]), percent_text(float(arm.rates[0][i])),
                     percent_text(float(arm.rates[1][i])),
                     interval_text(arm.difference, i, sign=True),
                     *(count if i == last else None for count in counts)]
                )  # fmt: skip
        heads = ["arm", "k", "own, %", "other, %", "other − own, points", "samples gained", "lost",
                 "problems gained", "lost"]  # fmt: skip
        yield table(f"The same samples of {set_name} under two graders", heads, rows)


def regraded_chart(arms: Sequence[Regraded], colours: Colours) -> Chart:
    """Draw both curves of each arm on the left, and other minus own grader on the right."""
    x = k_axis(max(int(arm.k[-1]) for arm in arms))
    curves = Panel(x, percent_axis("pass@k, % (dotted: other grader)"))
    y = points_axis([arm.difference for arm in arms], "other − own grader, points")
    difference = Panel(x, y)
    difference.level(0)
    for arm in arms:
        name, colour, (own, other) = arm.of.arm, colours[arm.of.arm], arm.rates
        curves.line(arm.k, 100 * own, colour, name=name)
        curves.line(arm.k, 100 * other, colour, name=f"{name}, other grader", dash=DOTTED)
        curves.end(100 * own, name, colour)
        difference.curve(arm.k, arm.difference, colour, name)
        difference.end(100 * arm.difference.estimate, name, colour)
    return Chart([curves, difference], lambda: regraded_frame(arms))


def regraded_frame(arms: Sequence[Regraded]) -> pd.DataFrame:
    """pass@k under both graders and their difference, one row per arm and k."""
    return stack_rows(
        {
            **arm.of.key,
            "k": arm.k,
            "own": arm.rates[0],
            "other": arm.rates[1],
            **interval_columns("difference", arm.difference),
            "own_grader": arm.graders[0],
            "other_grader": arm.graders[1],
        }
        for arm in arms
    )


def _graders(arms: Sequence[Regraded]) -> str:
    names = [dict.fromkeys(arm.graders[i] for arm in arms if arm.graders[i]) for i in (0, 1)]
    own, other = (" / ".join(graders) or "(not stored)" for graders in names)
    changed = sum(arm.gained + arm.lost for arm in arms)
    return (
        f"Grader of the run: {own}; the other: {other}. They differ on "
        f"{count_text(changed, 'sample')} of the compared arms."
    )


def _answer(own: Comparison, other: Comparison) -> str:
    """Say whether the answer hangs on the grader."""
    first, second = own.answer.headline, other.answer.headline
    differences = (
        f"{interval_text(own.net, sign=True)} points at k = {own.reach:,}, and "
        f"{interval_text(other.net, sign=True)} at k = {other.reach:,} under the other grader"
    )
    if first == second:
        return f"{own.title}: {first} under both graders; {differences}."
    return (
        f"{own.title}: the answer hangs on the grader. It is {first}, and "
        f"{second} under the other; {differences}."
    )


ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=lambda report: {"regraded": regraded_frame(verdicts(report).arms)},
)


def audit_section(report: Report) -> Iterator[Node]:
    """Show how often verdicts are wrong by what people judged; nothing without an audit."""
    rates = load_error_rates(Layout(report.folder))
    if not rates:
        return
    yield el("h3", "Error rates of the verdicts")
    yield note(
        "A sample of the responses, judged by people who saw neither arm nor verdict. False right: "
        "share of the accepted responses whose answer is wrong; false wrong: share of the refused "
        "ones whose answer is right."
    )
    heads = ["arm", "false right, %", "read", "false wrong, %", "read"]
    rows: list[list[Cell]] = [
        [
            str(side),
            _rate_text(side_rates.false_right),
            side_rates.false_right.read,
            _rate_text(side_rates.false_wrong),
            side_rates.false_wrong.read,
        ]
        for side, side_rates in rates.items()
    ]
    yield table("Error rates of the verdicts, with 95 % intervals", heads, rows)


def _rate_text(rate: ErrorRate) -> str:
    if not rate.audited:
        return "–"
    return f"{100 * rate.rate:.2f} [{100 * rate.low:.2f}, {100 * rate.high:.2f}]"


AUDIT = Aspect(Part.SAMPLES, audit_section)
