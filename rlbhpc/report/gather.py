"""Everything that a report shows, worked out once: from a run folder to plain frozen values.

Terminal, page, tables and figures read a :class:`Report` and compute nothing themselves, so they
cannot disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.compare import Comparison, adjusted, compare
from rlbhpc.report.compare import pair as pair_up
from rlbhpc.report.draw.chart import Colours
from rlbhpc.report.draws import Settings
from rlbhpc.report.measured import Measured, by_line, measured, powers_of_two
from rlbhpc.report.origins import other_verdicts, same_files
from rlbhpc.report.phrases import several
from rlbhpc.stats import Interval, ProblemWeights, k_grid, pass_curve
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.stats.paired import paired_interval
from rlbhpc.stats.priors import LEAST
from rlbhpc.stats.ratio import ratio_interval
from rlbhpc.store.reader import open_cube
from rlbhpc.study.arm import Arm
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import stored_study
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.remember import PROBE

#: Replicates where no study says how many.
REPLICATES: Final = 1000
#: Kinds of groups in a cube that hold samples, or the counts of imported ones.
SAMPLED: Final = frozenset({"samples", "counts"})
P = TypeVar("P")
#: Base arm and trained arm.
Pair = tuple[str, str]


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

    @cached_property
    def fitted(self) -> list[Measured]:
        """The compared arms that have problems enough for a distribution of rates."""
        return [arm for arm in self.compared if arm.sampled.sum() >= LEAST]

    def groups(self, kind: str) -> Iterator[xr.Dataset]:
        """Groups of one kind in the run's results."""
        return groups_of(self.tree, {kind})

    @cached_property
    def problem_sets(self) -> list[str]:
        """Problem sets in the order of the study."""
        return list(dict.fromkeys(arm.problem_set for arm in self.measured))

    def by_set(self, parts: Sequence[P]) -> Iterator[tuple[str, list[P]]]:
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


def gather(folder: Path, pairs: Sequence[Pair] = ()) -> Report:
    """Read a run and work out all that a report shows.

    ``folder``: the folder of a run, or a cube by itself. ``pairs``: arms to compare, base first.
    Where none are given: the study's; without a study, the first step of each arm with its later
    ones.
    """
    study = read_study(folder)
    tree = open_cube(folder)
    layout = Layout(folder)
    # Another grader's verdicts ended the samples, and looks decided by them.
    regraded = layout.regraded.is_file()
    arms = [
        arm
        for group in groups_of(tree, SAMPLED)
        for arm in measured(group, study, regraded=regraded)
    ]
    if not any(arm.sampled.any() for arm in arms):
        raise UserError(
            f"{folder}: no judged samples yet, so there is nothing to report; make some with "
            "`rlbhpc sample`, or take in results with `rlbhpc import`",
            NOTHING_TO_DO,
        )
    arms.sort(key=_order(study))
    settings = _settings(study)
    arms = [_with_curve(arm, settings) for arm in arms]
    names = list(dict.fromkeys(arm.arm for arm in arms))
    notes = [note for arm in arms for note in _notes(arm)]
    if any(arm.stop_after for arm in arms):
        notes.append(
            "Where samples end at the r-th right one, what needs equally many of each problem "
            "(votes, G-Pass@k, repeats, entropy, lengths, the choice of a checkpoint) takes the "
            "first r, which all have; for more, raise `stop_after`. Chains of thought and "
            "forecasts have no value there."
        )
    if study is None and not pairs and len(names) > 1:
        notes.append(
            "Nothing says which arm is the base of which: there is no study.json. Name pairs with "
            "--compare BASE:TRAINED."
        )
    provenance = _provenance(tree)
    if study is not None and not regraded:
        notes[:0] = other_verdicts(study, layout, provenance)
    # Whether one model remembers more of a set than another is no boundary of reasoning.
    answered = [arm for arm in arms if PROBE not in provenance.get(arm.group, {})]
    lines = _lines(answered, _pairs(names, study, pairs), notes)
    final = [compare(line.base, line.steps[-1], settings) for line in lines]
    notes[:0] = same_files(provenance, [(p.base.group, p.trained.group) for p in final])
    notes += [note for pair in final for note in _comparison_notes(pair)]
    return Report(
        study.name if study else folder.resolve().name,
        (study.file.question or "") if study else "",
        folder,
        settings,
        study.arms if study else {},
        tuple(arms),
        tuple(lines),
        tuple(adjusted(final, () if regraded else looks.read(layout))),
        tuple(notes),
        provenance,
        study.hash if study else "",
        tree,
    )


def read_pair(text: str) -> Pair:
    """Read ``BASE:TRAINED`` as the command line and the scripts take it."""
    base, colon, trained = text.partition(":")
    if not (base and colon and trained):
        raise UserError(f"--compare {text!r}: write two arms, base first, as BASE:TRAINED")
    return base, trained


def read_study(folder: Path) -> Study | None:
    """Read the study that a run was made for; None for a run without one."""
    try:
        return stored_study(Layout(folder).study)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _order(study: Study | None) -> Callable[[Measured], tuple[int, int, str, str, int]]:
    """Sort arms and sets as the study lists them, and by name what it does not list."""
    arms = list(study.arms) if study else []
    sets = list(study.problem_sets) if study else []

    def rank(names: list[str], name: str) -> int:
        return names.index(name) if name in names else len(names)

    def place(arm: Measured) -> tuple[int, int, str, str, int]:
        ranks = rank(sets, arm.problem_set), rank(arms, arm.arm)
        return *ranks, arm.problem_set, arm.arm, arm.step

    return place


def _settings(study: Study | None) -> Settings:
    if study is None:
        return Settings(PROB, REPLICATES, 0, ())
    analysis = study.file.analysis
    sizes = tuple(sorted(set(analysis.k)))
    return Settings(
        analysis.confidence,
        analysis.bootstrap,
        study.seed,
        sizes,
        analysis.margin,
        study.trainings(),
        {mean.name: tuple(mean.problem_sets) for mean in analysis.averages},
        tuple(analysis.statistics),
        tuple(analysis.aspects),
    )


def _with_curve(arm: Measured, settings: Settings) -> Measured:
    if not len(arm.rows):
        return arm
    counts = arm.counts[arm.rows]
    own = [k for k in settings.k if k <= counts.reach]
    k = np.union1d(k_grid(counts.reach), np.array(own, np.int64))
    weights = settings.weights(arm.sampled_problems)
    return replace(arm, curve=pass_curve(counts, weights, k, settings.prob))


def _pairs(arms: list[str], study: Study | None, named: Sequence[Pair]) -> list[Pair]:
    for pair in named:
        for arm in pair:
            if arm not in arms:
                raise UserError(f"--compare: no arm {arm!r}; there are {', '.join(arms)}")
    if named:
        return list(named)
    if study is not None:
        return study.comparisons()
    return [(arm, arm) for arm in arms]


def _lines(arms: list[Measured], pairs: list[Pair], notes: list[str]) -> list[Line]:
    """Find what can be compared: each pair on each problem set that both have samples of."""
    by_arm = by_line([arm for arm in arms if arm.sampled.any()])
    lines = []
    for base_arm, trained_arm in pairs:
        sets = [s for arm, s in by_arm if arm == base_arm and (trained_arm, s) in by_arm]
        if not sets:
            notes.append(f"{trained_arm} and {base_arm} have no samples of one problem set yet.")
        for set_name in sets:
            base, steps = _sides(by_arm[base_arm, set_name], by_arm[trained_arm, set_name])
            enough = []
            for trained in steps:
                shared = len(pair_up(base, trained).problems)
                if shared < 2:
                    notes.append(
                        f"{trained.label} and {base.label} share "
                        f"{several(shared, 'sampled problem')} of {set_name}: too few to compare."
                    )
                    continue
                enough.append(trained)
            if enough:
                lines.append(Line(base, tuple(enough)))
    return lines


def _sides(base: list[Measured], trained: list[Measured]) -> tuple[Measured, list[Measured]]:
    """Say which step of the base arm is the base, and which steps of the other are compared."""
    if base is trained:
        return base[0], base[1:]
    # A base has one step; of a line that was trained before, its last checkpoint is the base.
    # Step 0 of a trained line is the base once more.
    later = [arm for arm in trained if arm.step > 0]
    return base[-1], later or trained


def _notes(arm: Measured) -> Iterator[str]:
    name, tally, problems = f"{arm.label} on {arm.problem_set}", arm.tally, len(arm.problems)
    if not arm.sampled.any():
        yield f"{name}: no judged samples yet."
    elif tally.missing:
        yield (
            f"{name}: {tally.missing:,} of {tally.asked:,} samples are missing; "
            f"{problems - len(arm.rows):,} of {several(problems, 'problem')} without any."
        )
    failed, errors = tally.failed or 0, tally.verifier_errors or 0
    if failed + errors:
        yield (
            f"{name}: {several(failed + errors, 'sample')} neither right nor wrong: "
            f"{several(failed, 'generation')} and {several(errors, 'verification')} failed."
        )
    if arm.stop_after:
        yield (
            f"{name}: the samples of a problem end at {several(arm.stop_after, 'right one')}; "
            f"those of {int(arm.counts.stopped.sum()):,} of {several(problems, 'problem')} did."
        )
    if arm.topped_up:
        yield (
            f"{name}: {several(arm.topped_up, 'problem')} with more samples, which looks or "
            f"another grader asked for; curves take the first {arm.depth:,} of each."
        )


def _comparison_notes(pair: Comparison) -> Iterator[str]:
    if pair.left_out:
        yield (
            f"{pair.title}: left out {several(len(pair.left_out), 'problem')} that one of the two "
            "has no samples of, or fewer than 98 % of the others have."
        )
    depth = min(pair.base.depth, pair.trained.depth)
    if pair.reach < depth:
        yield (
            f"{pair.title}: k ends at {pair.reach:,} and not at {depth:,}, because some problem "
            "has no more judged samples."
        )
    if pair.solved is None:
        yield (
            f"{pair.title}: no coverage table, since counts were imported of unequal numbers of "
            "samples."
        )


def _set_of(part: Any) -> str:
    return str(getattr(part, "of", part).problem_set)


def groups_of(tree: xr.DataTree, kinds: Container[str]) -> Iterator[xr.Dataset]:
    """Groups of some kinds in a cube."""
    for node in tree.subtree:
        if node.attrs.get("kind") in kinds:
            yield node.to_dataset()


def _provenance(tree: xr.DataTree) -> dict[str, dict[str, Any]]:
    return {
        node.path.strip("/"): json.loads(node.attrs["provenance"])
        for node in tree.subtree
        if node.attrs.get("kind") in SAMPLED
    }
