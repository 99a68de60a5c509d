"""What a report knows about a run (*Report*), and one thing that it shows of it (*Aspect*).

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

from rlbhpc.report.chart import Chart, Colours
from rlbhpc.report.compare import Comparison, Settings, compare
from rlbhpc.report.markup import Node
from rlbhpc.report.measured import (
    MeasuredArm,
    positions_of,
    powers_of_two,
    read_step,
    take_rows,
)
from rlbhpc.report.phrases import FloatArray
from rlbhpc.stats import Interval
from rlbhpc.stats.interval import mean_interval, paired_interval, ratio_interval
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import Arm
from rlbhpc.study.layout import Layout

T = TypeVar("T")
#: How the samples of each group ``<arm>/<problem set>`` were made.
Provenance = Mapping[str, Mapping[str, Any]]


class Lineage(NamedTuple):
    """A base and the checkpoints that are compared with it on one problem set, steps rising."""

    base: MeasuredArm
    checkpoints: tuple[MeasuredArm, ...]


@dataclass(frozen=True)
class Report:
    """All that is known about a run.

    ``name, question``: of the study, or the folder's name. ``settings``: how the intervals were
    made. ``study_arms``: what each arm is, by name; empty without a study. ``measured_arms``: every
    arm, step and problem set. ``lineages``: each compared pair on each problem set.
    ``last_comparisons``: one for each lineage, at its last checkpoint that has samples. ``notes``:
    what a reader must know: what is missing, left out or not comparable. ``study_hash``: hash of
    what the study asks for; empty without a study. ``tree``: the run's results, opened once; values
    are read on demand. ``memo``: results of :func:`once`.
    """

    name: str
    question: str
    folder: Path
    settings: Settings
    study_arms: Mapping[str, Arm]
    measured_arms: tuple[MeasuredArm, ...]
    lineages: tuple[Lineage, ...]
    last_comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    provenance: Provenance
    study_hash: str
    tree: xr.DataTree = field(repr=False)
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def comparisons_by_lineage(self) -> list[list[Comparison]]:
        """Comparisons of each lineage at all its checkpoints, steps rising.

        A *lineage* is a base arm and the checkpoints that are compared with it on one problem set.
        The comparison at the last checkpoint was made when the report was read and is not made
        again.
        """
        comparisons = []
        for lineage, last in zip(self.lineages, self.last_comparisons, strict=True):
            earlier = [
                compare(lineage.base, checkpoint, self.settings)
                for checkpoint in lineage.checkpoints[:-1]
            ]
            comparisons.append([*earlier, last])
        return comparisons

    @property
    def comparisons_at_all_steps(self) -> list[Comparison]:
        """Comparisons of all lineages at all their checkpoints."""
        return [pair for pairs in self.comparisons_by_lineage for pair in pairs]

    @cached_property
    def compared_arms(self) -> list[MeasuredArm]:
        """The arms of the last comparisons, each once; all sampled arms where there are none.

        A *last comparison* is that of a base with the last checkpoint that has samples.
        """
        arms = [side for pair in self.last_comparisons for side in (pair.base, pair.trained)]
        if not arms:
            arms = [arm for arm in self.measured_arms if arm.has_samples.any()]
        return list({id(arm): arm for arm in arms}.values())

    def groups(self, kind: str) -> Iterator[xr.Dataset]:
        """Groups of one kind in the run's results."""
        return groups_of(self.tree, {kind})

    @cached_property
    def problem_sets(self) -> list[str]:
        """Problem sets in the order of the study."""
        return list(dict.fromkeys(arm.problem_set for arm in self.measured_arms))

    def by_set(self, items: Sequence[T]) -> Iterator[tuple[str, list[T]]]:
        """Yield each problem set with the items that belong to it, in the order of the study.

        An item is an arm or a comparison, which have a ``problem_set``, or has an arm as
        ``measured``.
        """
        for set_name in self.problem_sets:
            chosen = [item for item in items if _problem_set_of(item) == set_name]
            if chosen:
                yield set_name, chosen

    @cached_property
    def colours(self) -> Colours:
        """One colour per arm; an arm that is compared as a trained one is no base.

        Bases share a grey. A model is drawn in the colour of its first arm, unless an arm has its
        name.
        """
        trained = {pair.trained.arm for pair in self.last_comparisons}
        bases = {pair.base.arm for pair in self.last_comparisons} - trained
        # A model has the colour of its first arm, unless an arm has the model's name.
        arm_of_model = {arm.model: arm.arm for arm in reversed(self.measured_arms)}
        return Colours((arm.arm for arm in self.measured_arms), bases, arm_of_model)

    def k(self, largest: int) -> list[int]:
        """The k that tables show: the study's, or else the powers of two, up to ``largest``."""
        return [k for k in self.settings.k if k <= largest] or powers_of_two(largest)

    def mean(
        self, values: FloatArray, problems: Sequence[str], method: str = "problem bootstrap"
    ) -> Interval:
        """Interval of the mean over problems of values in [0, 1]."""
        return mean_interval(values, self.settings.weights(problems), self.settings.prob, method)

    def difference_interval(self, differences: FloatArray, problems: Sequence[str]) -> Interval:
        """Intervals of the mean over problems of differences, ``[problem, k]``."""
        return paired_interval(differences, self.settings.weights(problems), self.settings.prob)

    def ratio(self, sums: ArrayLike, totals: ArrayLike, problems: Sequence[str]) -> Interval:
        """Interval of a ratio of sums over problems."""
        return ratio_interval(sums, totals, self.settings.weights(problems), self.settings.prob)


def _problem_set_of(item: Any) -> str:
    return str(getattr(item, "measured", item).problem_set)


def groups_of(tree: xr.DataTree, kinds: Container[str]) -> Iterator[xr.Dataset]:
    """Groups of some kinds in a cube."""
    for node in tree.subtree:
        if node.attrs.get("kind") in kinds:
            yield node.to_dataset()


def once(work: Callable[[Report], T]) -> Callable[[Report], T]:
    """Make ``work`` run once per report: its result is kept in ``report.memo``, by the function.

    Many parts of a report read the same results. A new report has an empty memo.
    """

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


#: From a report to its figures, each with a name for its files.
Draw = Callable[[Report], Iterator[tuple[str, Chart]]]
#: From a report to tables by the name of their file.
Tables = Callable[[Report], dict[str, pd.DataFrame]]


def charts_by_set(
    name: str,
    gather: Callable[[Report], Sequence[T]],
    draw: Callable[[Sequence[T], Colours], Chart],
) -> Draw:
    """Return a function that draws one chart for each problem set of a report.

    ``name``: begins the names of the files. ``gather``: finds the items, such as arms, to draw.
    ``draw``: makes a chart of those of one set, in the report's colours.
    """

    def charts(report: Report) -> Iterator[tuple[str, Chart]]:
        for set_name, items in report.by_set(gather(report)):
            yield f"{name}-{set_name}", draw(items, report.colours)

    return charts


def single_chart(
    name: str,
    gather: Callable[[Report], Sequence[T]],
    draw: Callable[[Sequence[T], Colours], Chart],
) -> Draw:
    """Return a function that draws one chart of all that ``gather`` finds; none of nothing.

    ``name``: of the file. ``draw``: makes the chart of the items, in the report's colours.
    """

    def charts(report: Report) -> Iterator[tuple[str, Chart]]:
        items = gather(report)
        if items:
            yield name, draw(items, report.colours)

    return charts


def tables_of(gather: Callable[[Report], T], **frames: Callable[[T], pd.DataFrame]) -> Tables:
    """Return a function that makes the tables of a report from what ``gather`` finds in it.

    ``frames``: by the name of a table's file, the function that makes the table.
    """
    return lambda report: {name: frame(gather(report)) for name, frame in frames.items()}


@dataclass(frozen=True, eq=False)
class Aspect:
    """One thing that a report shows.

    ``part``: where it stands on the page. ``section``: its nodes; none where the run has nothing of
    it. ``comparison``: its nodes for one of the last comparisons, shown inside of that comparison.
    ``tables``: its numbers by the name of their file. ``metrics``: names in the registry of
    metrics, described under Methods where there are tables. ``charts``: its figures for a paper.
    """

    part: Part
    section: Callable[[Report], Iterable[Node]] | None = None
    comparison: Callable[[Report, Comparison], Iterable[Node]] | None = None
    tables: Tables = lambda report: {}
    metrics: tuple[str, ...] = ()
    charts: Draw = lambda report: iter(())

    def frames(self, report: Report) -> dict[str, pd.DataFrame]:
        """Give the tables that have rows, worked out once per report."""
        if self.tables not in report.memo:
            tables = self.tables(report)
            report.memo[self.tables] = {name: frame for name, frame in tables.items() if len(frame)}
        frames: dict[str, pd.DataFrame] = report.memo[self.tables]
        return frames


#: Response tokens of one arm that a report reads at most: about a second.
TOKENS: Final = 20_000_000


def read_variables(
    report: Report, arms: Sequence[MeasuredArm], names: tuple[str, ...]
) -> Iterator[tuple[MeasuredArm, list[NDArray[Any]]]]:
    """Read stored variables of each sampled arm, arrays ``[problem, sample]``.

    Rows are in the order of the arm's problems; −1 fills the row of a problem that is not stored.
    Columns are its first ``common_depth`` samples, which every problem has.

    ``names``: variables of the cube, the store that holds a group ``<arm>/<problem set>`` for all
    steps together. So arms of one group are read one after the other.
    """
    sampled = [arm for arm in arms if arm.verdicts is not None and arm.has_samples.any()]
    for path, arms_of_group in groupby(sampled, lambda arm: arm.group):
        group = report.tree[path].to_dataset()
        steps, problems = group["step"].values.tolist(), group["problem"].values.tolist()
        for arm in arms_of_group:
            rows = positions_of(arm.problems, problems)
            values = []
            for name in names:
                at_step = read_step(group, name, steps.index(arm.step))
                values.append(take_rows(at_step, rows)[:, : arm.common_depth])
            yield arm, values


def has_texts(report: Report, arm: MeasuredArm) -> bool:
    """Whether responses of an arm are stored, and not just its counts or its cube.

    The *cube* keeps verdicts and numbers of samples. Their texts are in *parts*, which are sealed
    files, and in *journals*, which are still written.
    """
    layout, group = Layout(report.folder), Group(arm.arm, arm.problem_set)
    folders = (layout.parts(*group), layout.journals(*group))
    has_files = any(folder.is_dir() and any(folder.iterdir()) for folder in folders)
    return has_files and arm.verdicts is not None


def read_frames(
    report: Report,
    costs: Iterable[tuple[MeasuredArm, FloatArray]],
    columns: tuple[str, ...],
    tokens: int = TOKENS,
) -> Iterator[tuple[MeasuredArm, pd.DataFrame]]:
    """Read columns of the samples of each arm, of as many problems as the tokens allow.

    ``costs``: arms, each with the mean tokens of a response to each of its sampled problems.
    ``tokens``: response tokens to read of one arm at most; :func:`affordable_problems` chooses the
    problems. Arms whose responses are not stored are left out.
    """
    for arm, cost in costs:
        if has_texts(report, arm):
            rows = read_columns(report, arm, affordable_problems(arm, cost, tokens), columns)
            if rows.num_rows:  # none in a cube whose samples are elsewhere
                yield arm, rows.to_pandas()


def affordable_problems(arm: MeasuredArm, cost: FloatArray, tokens: int) -> list[str]:
    """Ids of sampled problems, spread evenly over the set, that are cheap enough to read.

    Their number is such that their responses have about ``tokens`` tokens together; at least one.

    ``cost``: mean tokens of a response to each sampled problem. ``arm.counts.n``: judged samples of
    every problem of the arm. ``arm.sampled_rows``: positions of the problems that have any.
    """
    rows = arm.sampled_rows
    tokens_of_problem = np.nan_to_num(cost * arm.counts.n[rows])
    mean_tokens = max(1.0, float(tokens_of_problem.mean()))
    number = int(np.clip(tokens // mean_tokens, 1, len(rows)))
    chosen = np.unique(np.linspace(0, len(rows) - 1, number).round().astype(int))
    return list(arm.ids_at(rows[chosen]))


def read_columns(
    report: Report, arm: MeasuredArm, problems: list[str], columns: tuple[str, ...]
) -> pa.Table:
    """Read columns, ``sample`` among them, of the common samples of some problems."""
    group = Group(arm.arm, arm.problem_set)
    table = samples.read_current_rows(Layout(report.folder), group, arm.step, problems, columns)
    return table.filter(pc.less(table["sample"], arm.common_depth))
