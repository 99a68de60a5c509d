"""Where it moved: a comparison by level, by subject, and by how often the base is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.problems.problem import STRATA
from rlbhpc.report.aspect import Aspect, Part, Report, once, tables_of
from rlbhpc.report.aspects.checkpoints import count_even_and_odd
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Cell, Node, note, table
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text
from rlbhpc.stats import Counts, Interval, ProblemWeights
from rlbhpc.stats.difference import difference_curve

#: What a stratum is by where the problem set says nothing of its problems.
BY_RATE: Final = "base pass@1"
# More strata than these are ids and no groups; fewer problems have no mean worth showing.
_MOST: Final = 16
_LEAST: Final = 2
_PARTS: Final = 4


@dataclass(frozen=True)
class Stratum:
    """A comparison on some of its problems.

    ``by, name``: what splits the problems, and which of its values these have. ``problems, k``: how
    many problems, and the largest k of the samples used. ``base``: pass@1 of the base. ``first,
    last``: trained minus base at k = 1 and at the largest k. ``lost, gained``: problems that only
    the base, and only the trained model, solves in k samples.
    """

    of: Comparison
    by: str
    name: str
    problems: int
    k: int
    base: float
    first: Interval
    last: Interval
    lost: int
    gained: int


@once
def strata(report: Report) -> list[Stratum]:
    """Split the last comparisons, one after the other."""
    return [
        stratum
        for pair in report.final
        for stratum in (*_by_value(report, pair), *_by_rate(report, pair))
    ]


def _by_value(report: Report, pair: Comparison) -> Iterator[Stratum]:
    """By what the problem set says of its problems."""
    coordinates = report.tree[pair.base.group].coords
    for by in STRATA:
        if by not in coordinates:
            continue
        words = dict(zip(coordinates["problem"].values, coordinates[by].values, strict=True))
        values = np.array([words[problem] for problem in pair.problems])
        names = np.unique(values[values != ""]).tolist()
        if 1 < len(names) <= _MOST:
            sides = pair.sides.base, pair.sides.trained
            for name in names:
                yield from _stratum(report, pair, (by, name), values == name, sides)


def _by_rate(report: Report, pair: Comparison) -> Iterator[Stratum]:
    """By quarters of the base's success rate in even samples; odd ones of both arms are compared.

    The samples that sort the problems would favour the trained model where the base had bad luck.
    """
    width = min(pair.base.width, pair.trained.width)
    if pair.base.verdicts is None or pair.trained.verdicts is None or width < 2:
        return
    even, odd = count_even_and_odd(report, pair.base, pair.problems, width)
    _, theirs = count_even_and_odd(report, pair.trained, pair.problems, width)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = even.c / even.n
    if np.isnan(rate).any():
        return
    edges = np.unique(np.quantile(rate, np.linspace(0, 1, _PARTS + 1)[1:-1]))
    part = np.searchsorted(edges, rate)
    for number in np.unique(part).tolist():
        which = part == number
        low, high = percent_text(float(rate[which].min())), percent_text(float(rate[which].max()))
        name = f"{low} %" if low == high else f"{low} to {high} %"
        yield from _stratum(report, pair, (BY_RATE, name), which, (odd, theirs))


def _stratum(
    report: Report,
    pair: Comparison,
    names: tuple[str, str],
    which: NDArray[np.bool_],
    sides: tuple[Counts, Counts],
) -> Iterator[Stratum]:
    if which.sum() < _LEAST:
        return
    base, trained = (side[which] for side in sides)
    reach = min(base.reach, trained.reach)
    if not reach:
        return
    # The intervals need no replicates.
    problems = [pair.problems[i] for i in np.flatnonzero(which)]
    labels = report.settings.labels(problems)
    weights = ProblemWeights.draw(len(base), np.random.default_rng(0), 1, labels)
    curve = difference_curve(base, trained, weights, np.unique([1, reach]), report.settings.prob)
    ours, theirs = base.pass_at_k(reach)[:, 0], trained.pass_at_k(reach)[:, 0]
    yield Stratum(
        pair,
        *names,
        len(base),
        reach,
        float(base.pass_at_k(1).mean()),
        curve.pointwise[0],
        curve.pointwise[len(curve.k) - 1],
        round(float((ours * (1 - theirs)).sum())),
        round(float((theirs * (1 - ours)).sum())),
    )


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """The strata of one comparison."""
    rows: list[list[Cell]] = [
        [f"{stratum.by}: {stratum.name}", stratum.problems, percent_text(stratum.base),
         interval_text(stratum.first, sign=True), stratum.lost, stratum.gained, stratum.k,
         interval_text(stratum.last, sign=True)]
        for stratum in strata(report)
        if stratum.of is pair
    ]  # fmt: skip
    if not rows:
        return
    heads = ["stratum", "problems", "base pass@1, %", "− base at k = 1, points", "lost", "gained",
             "K", "− base at K, points"]  # fmt: skip
    yield table("Where it moved", heads, rows, last=True)
    if any(str(row[0]).startswith(BY_RATE) for row in rows):
        yield note(
            "Quarters of the base's success rate: even samples of the base sort the problems, odd "
            "samples of both arms are compared, so that luck in the one is not seen in the other."
        )


def strata_frame(parts: list[Stratum]) -> pd.DataFrame:
    """One row per comparison and stratum."""
    return pd.DataFrame(
        {
            **part.of.key,
            "by": part.by,
            "stratum": part.name,
            "problems": part.problems,
            "base_pass_at_1": part.base,
            "lost": part.lost,
            "gained": part.gained,
            "k": k,
            **interval_columns("difference", interval, sound=True),
        }
        for part in parts
        for k, interval in ((1, part.first), (part.k, part.last))
    )


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=tables_of(strata, strata=strata_frame),
)
