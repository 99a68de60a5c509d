"""The nouns *Report* and *Aspect*: all that is known about a run, and one thing shown of it.

Terminal, page, tables and figures read a :class:`Report` and compute nothing themselves, so they
cannot disagree. An aspect is one file: what it reads, its figure, its table and its words stand
together. The registry in :mod:`rlbhpc.report.aspects` lists all of them in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.report.compare import Comparison, Settings, compare
from rlbhpc.report.draw.chart import Chart, Colours
from rlbhpc.report.markup import Node
from rlbhpc.report.measured import Measured, at_step, powers_of_two, rows_at, take_rows
from rlbhpc.stats import Interval, ProblemWeights
from rlbhpc.stats.interval import mean_interval, paired_interval, ratio_interval
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import Arm
from rlbhpc.study.layout import Layout

T = TypeVar("T")


class Line(NamedTuple):
    """A base and the checkpoints that are compared with it on one problem set."""

    base: Measured
    steps: tuple[Measured, ...]


@dataclass(frozen=True)
class Report:
    """All that is known about a run.

    ``name, question``: of the study, or the folder's name. ``settings``: how the intervals were
    made. ``arms``: what each arm is, by name; empty without a study. ``measured``: every arm, step
    and problem set. ``lines``: of each pair and problem set the base and, steps rising, what is
    compared with it. ``final``: one comparison per line, at its last step that has samples.
    ``notes``: what a reader must know: what is missing, left out or not comparable. ``provenance``:
    what the samples stand on, by ``<arm>/<problem set>``. ``study_hash``: hash of what the study
    asks for; empty without a study. ``tree``: the run's results, opened once: values are read on
    demand. ``memo``: what aspects worked out, see :func:`rlbhpc.report.aspect.once`.
    """

    name: str
    question: str
    folder: Path
    settings: Settings
    arms: Mapping[str, Arm]
    measured: tuple[Measured, ...]
    lines: tuple[Line, ...]
    final: tuple[Comparison, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Mapping[str, Any]]
    study_hash: str
    tree: xr.DataTree = field(repr=False)
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def line_ups(self) -> list[list[Comparison]]:
        """Comparisons of each line, steps rising; the earlier ones are made on demand."""
        return [
            [*(compare(line.base, arm, self.settings) for arm in line.steps[:-1]), last]
            for line, last in zip(self.lines, self.final, strict=True)
        ]

    @property
    def every_comparison(self) -> list[Comparison]:
        """Comparisons of all lines at all steps."""
        return [pair for line_up in self.line_ups for pair in line_up]

    @cached_property
    def compared(self) -> list[Measured]:
        """The arms of the last comparisons, each once; without any the last of each line."""
        sides = [side for pair in self.final for side in (pair.base, pair.trained)]
        arms = sides or [arm for arm in self.measured if arm.sampled.any()]
        return list({id(arm): arm for arm in arms}.values())

    def groups(self, kind: str) -> Iterator[xr.Dataset]:
        """Groups of one kind in the run's results."""
        return groups_of(self.tree, {kind})

    @cached_property
    def problem_sets(self) -> list[str]:
        """Problem sets in the order of the study."""
        return list(dict.fromkeys(arm.problem_set for arm in self.measured))

    def by_set(self, parts: Sequence[T]) -> Iterator[tuple[str, list[T]]]:
        """Problem sets that have any of these: arms, comparisons, or what is ``of`` one of them."""
        for name in self.problem_sets:
            chosen = [part for part in parts if _set_of(part) == name]
            if chosen:
                yield name, chosen

    @cached_property
    def colours(self) -> Colours:
        """One colour per arm; an arm that is compared as a trained one is no base."""
        trained = {pair.trained.arm for pair in self.final}
        bases = {pair.base.arm for pair in self.final} - trained
        # The first arm of a model stands for it; an arm that has a model's name goes before.
        models = {arm.model: arm.arm for arm in reversed(self.measured)}
        return Colours((arm.arm for arm in self.measured), bases, models)

    def k(self, reach: int) -> list[int]:
        """The k that tables show: the study's, or the powers of two, up to what there is."""
        return [k for k in self.settings.k if k <= reach] or powers_of_two(reach)

    def weights(self, problems: Sequence[str]) -> ProblemWeights:
        """The bootstrap weights that all intervals over these problems share."""
        return self.settings.weights(problems)

    def mean(
        self, values: NDArray[np.float64], problems: Sequence[str], how: str = "problem bootstrap"
    ) -> Interval:
        """Interval of the mean over problems of values in [0, 1]."""
        return mean_interval(values, self.weights(problems), self.settings.prob, how)

    def paired(self, differences: NDArray[np.float64], problems: Sequence[str]) -> Interval:
        """Intervals of the mean over problems of differences, ``[problem, k]``."""
        return paired_interval(differences, self.weights(problems), self.settings.prob)

    def ratio(self, sums: ArrayLike, totals: ArrayLike, problems: Sequence[str]) -> Interval:
        """Interval of a ratio of sums over problems."""
        return ratio_interval(sums, totals, self.weights(problems), self.settings.prob)


def _set_of(part: Any) -> str:
    return str(getattr(part, "of", part).problem_set)


def groups_of(tree: xr.DataTree, kinds: Container[str]) -> Iterator[xr.Dataset]:
    """Groups of some kinds in a cube."""
    for node in tree.subtree:
        if node.attrs.get("kind") in kinds:
            yield node.to_dataset()


#: From a report to its figures, each with a name for its files.
Draw = Callable[[Report], Iterator[tuple[str, Chart]]]


def once(work: Callable[[Report], T]) -> Callable[[Report], T]:
    """Keep the result of ``work`` with the report that it was made from."""

    @wraps(work)
    def remembered(report: Report) -> T:
        if work not in report.memo:
            report.memo[work] = work(report)
        result: T = report.memo[work]
        return result

    return remembered


def once_each(work: Callable[[Report], Iterator[T]]) -> Callable[[Report], list[T]]:
    """Keep all that ``work`` yields with the report that it was made from."""

    @wraps(work)
    def listed(report: Report) -> list[T]:
        return list(work(report))

    return once(listed)


class Part(StrEnum):
    """Parts of the page, in their order; the value is the heading."""

    COMPARISONS = "Comparisons"
    CURVES = "Curves in numbers"
    MORE = "More samples"
    TRAINING = "Over training"
    RESPONSES = "Responses"
    SAMPLES = "Samples"
    EVIDENCE = "Evidence"
    METHODS = "Methods"


# Parts of a report, and what draws some of them.
_Gather = Callable[[Report], Sequence[T]]
_DrawParts = Callable[[Sequence[T], Colours], Chart]


def charts_by_set(name: str, gathered: _Gather[T], draw: _DrawParts[T]) -> Draw:
    """What a script of ``analysis/`` draws: one chart a problem set."""

    def charts(report: Report) -> Iterator[tuple[str, Chart]]:
        for set_name, parts in report.by_set(gathered(report)):
            yield f"{name}-{set_name}", draw(parts, report.colours)

    return charts


def single_chart(name: str, gathered: _Gather[T], draw: _DrawParts[T]) -> Draw:
    """What a script of ``analysis/`` draws: one chart of all that there is."""

    def charts(report: Report) -> Iterator[tuple[str, Chart]]:
        if gathered(report):
            yield name, draw(gathered(report), report.colours)

    return charts


#: From a report to tables by the name of their file.
Tables = Callable[[Report], dict[str, pd.DataFrame]]


def tables_of(gathered: Callable[[Report], T], **frames: Callable[[T], pd.DataFrame]) -> Tables:
    """Tables of what an aspect works out, each by the name of its file."""
    return lambda report: {name: frame(gathered(report)) for name, frame in frames.items()}


def _no_tables(_: Report) -> dict[str, pd.DataFrame]:
    return {}


@dataclass(frozen=True, eq=False)
class Aspect:
    """One thing that a report shows.

    ``part``: where it stands on the page. ``section``: its nodes; none where the run has nothing of
    it. ``comparison``: its nodes for one comparison at its last step, shown inside of that
    comparison. ``tables``: its numbers by the name of their file. ``metrics``: names in the
    registry of metrics, described under Methods where there are tables. ``charts``: what of it goes
    into a paper.
    """

    part: Part
    section: Callable[[Report], Iterable[Node]] | None = None
    comparison: Callable[[Report, Comparison], Iterable[Node]] | None = None
    tables: Tables = _no_tables
    metrics: tuple[str, ...] = ()
    charts: Draw | None = None

    def frames(self, report: Report) -> dict[str, pd.DataFrame]:
        """Give the tables that have rows, worked out once per report."""
        if self.tables not in report.memo:
            tables = self.tables(report)
            report.memo[self.tables] = {n: frame for n, frame in tables.items() if len(frame)}
        frames: dict[str, pd.DataFrame] = report.memo[self.tables]
        return frames


#: Response tokens of one arm that a report reads at most: about a second.
TOKENS: Final = 20_000_000


def read_variables(
    report: Report, arms: Sequence[Measured], names: tuple[str, ...]
) -> Iterator[tuple[Measured, list[NDArray[Any]]]]:
    """Read variables ``[problem, sample]`` of arms with samples, in the order of their problems."""
    stored = (arm for arm in arms if arm.verdicts is not None and arm.sampled.any())
    for path, steps_of_group in groupby(stored, lambda arm: arm.group):
        group = report.tree[path].to_dataset()
        steps, problems = group["step"].values.tolist(), group["problem"].values.tolist()
        for arm in steps_of_group:
            step, rows = steps.index(arm.step), rows_at(arm.problems, problems)
            arrays = (take_rows(at_step(group, name, step), rows) for name in names)
            yield arm, [values[:, : arm.width] for values in arrays]


@once
def stored_groups(report: Report) -> set[tuple[str, str]]:
    """Arms and problem sets with whole samples in files, and not just in the cube."""
    layout = Layout(report.folder)
    return {
        group
        for group in layout.groups()
        if any(
            folder.is_dir() and any(folder.iterdir())
            for folder in (layout.parts(*group), layout.journals(*group))
        )
    }


def has_samples(report: Report, arm: Measured) -> bool:
    """Whether whole samples of an arm are stored, and not just its counts or its cube."""
    return arm.verdicts is not None and (arm.arm, arm.problem_set) in stored_groups(report)


def read_frames(
    report: Report,
    costs: Iterable[tuple[Measured, NDArray[np.float64]]],
    columns: tuple[str, ...],
    tokens: int = TOKENS,
) -> Iterator[tuple[Measured, pd.DataFrame]]:
    """Read columns of as many problems of each arm as :func:`some_problems` says."""
    for arm, cost in costs:
        if has_samples(report, arm):
            rows = read_columns(report, arm, some_problems(arm, cost, tokens), columns)
            if rows.num_rows:  # none in a cube whose samples are elsewhere
                yield arm, rows.to_pandas()


def some_problems(arm: Measured, cost: NDArray[np.float64], tokens: int) -> list[str]:
    """Sampled problems spread evenly over the set whose responses have so many tokens at most.

    ``cost`` is the mean length of a response of each sampled problem.
    """
    rows = arm.rows
    mean = max(1.0, float(np.nan_to_num(cost * arm.counts.n[rows]).mean()))
    number = int(np.clip(tokens // mean, 1, len(rows)))
    chosen = np.unique(np.linspace(0, len(rows) - 1, number).round().astype(int))
    return [arm.problems[rows[i]] for i in chosen.tolist()]


def read_columns(
    report: Report, arm: Measured, problems: list[str], columns: tuple[str, ...]
) -> pa.Table:
    """Read columns, ``sample`` among them, of the first ``width`` samples of some problems."""
    group = Group(arm.arm, arm.problem_set)
    table = samples.read_current_rows(Layout(report.folder), group, arm.step, problems, columns)
    return table.filter(pc.less(table["sample"], arm.width))
