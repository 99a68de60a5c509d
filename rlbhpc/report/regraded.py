"""The same samples under two graders: what the choice of a verifier makes of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.beyond import compared
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Pair, Report, gather
from rlbhpc.report.measured import Measured
from rlbhpc.report.stored import has_samples, read
from rlbhpc.stats import Counts, Interval, difference_curve
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Regraded:
    """One arm under the grader of the run and under another, sample by sample.

    Attributes
    ----------
    of, other
        The same arm and step as both graders saw it.
    graders
        Fingerprints of the two; empty where no sample says.
    gained, lost
        Samples that only the other grader calls right, and that only the run's does.
    k, rates, difference
        Mean pass@k under each grader, and other minus own, paired over problems.
    solved
        Problems that only the run's grader, and that only the other, calls solved.
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


def read_regraded(report: Report, folder: Path, pairs: Sequence[Pair] = ()) -> Verdicts:
    """Read what ``rlbhpc verify RUN --again --into FOLDER`` wrote, beside the run itself.

    Parameters
    ----------
    report
        The run.
    folder
        The run with the other verdicts.
    pairs
        As for :func:`rlbhpc.report.gather.gather`.
    """
    note = Layout(folder).regraded
    if not note.is_file():
        raise UserError(
            f"--regraded {folder}: was not written by `rlbhpc verify RUN --again --into FOLDER`; "
            "only the same samples under another grader can be compared"
        )
    other = gather(folder, pairs)
    if other.study_hash != report.study_hash:
        raise UserError(f"--regraded {folder}: is of another study; give one that was made from "
                        f"{report.folder}")  # fmt: skip
    theirs = {(one.arm, one.problem_set, one.step): one for one in other.measured}
    arms = []
    for one in compared(report):
        same = theirs.get((one.arm, one.problem_set, one.step))
        made = None if same is None else _regraded(report, other, one, same)
        arms += [made] if made is not None else []
    named = {one.title: one for one in other.final}
    answers = [(one, named[one.title]) for one in report.final if one.title in named]
    return Verdicts(tuple(arms), tuple(answers))


def _regraded(report: Report, other: Report, own: Measured, new: Measured) -> Regraded | None:
    if own.verdicts is None or new.verdicts is None or own.verdicts.shape != new.verdicts.shape:
        return None
    # A sample that one of the two could not judge is evidence about neither.
    judged = [(v >= Status.WRONG) & (v <= Status.TIMEOUT) for v in (own.verdicts, new.verdicts)]
    both = judged[0] & judged[1]
    right = [(v == Status.RIGHT) & both for v in (own.verdicts, new.verdicts)]
    rows = np.flatnonzero(both.any(axis=1))
    if len(rows) < 2:
        return None
    n = both.sum(axis=1)[rows]
    counts = [Counts.of(n, r.sum(axis=1)[rows]) for r in right]
    weights = report.draws.of(tuple(own.problems[i] for i in rows))
    curve = difference_curve(counts[0], counts[1], weights, prob=report.settings.prob)
    solved = [one.solved for one in counts]
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


def _grader(report: Report, one: Measured) -> str:
    """Graders of the first sampled problem's samples."""
    if not has_samples(report, one):
        return ""
    first = one.problems[int(np.flatnonzero(one.sampled)[0])]
    found = read(report, one, [first], ("sample", "grader"))["grader"].unique().to_pylist()
    return ", ".join(sorted(name for name in found if name))
