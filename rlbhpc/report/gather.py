"""Everything that a report shows, worked out once: from a run folder to plain frozen values.

Terminal, page, tables and figures read a :class:`Report` and compute nothing themselves, so they
cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.compare import Comparison, adjusted, compare, pair
from rlbhpc.report.draws import Draws, Settings
from rlbhpc.report.measured import Measured, by_line, measured, powers_of_two
from rlbhpc.report.phrases import several
from rlbhpc.stats import k_grid, pass_curve
from rlbhpc.stats.interval import PROB
from rlbhpc.store.grid import Grid
from rlbhpc.store.reader import open_cube
from rlbhpc.study.arm import Arm
from rlbhpc.study.layout import Layout
from rlbhpc.study.study import Study

#: Replicates where no study says how many.
REPLICATES: Final = 1000
#: Base arm and trained arm.
Pair = tuple[str, str]


class Line(NamedTuple):
    """A base and the checkpoints that are compared with it on one problem set."""

    base: Measured
    steps: tuple[Measured, ...]


@dataclass(frozen=True)
class Report:
    """All that is known about a run.

    Attributes
    ----------
    name, question
        Of the study, or the folder's name.
    folder
        The run.
    settings, draws
        How the intervals were made, and the bootstrap weights that all of them share.
    arms
        What each arm is, by name; empty without a study.
    measured
        Every arm, step and problem set.
    lines
        Of each pair and problem set the base and, steps rising, what is compared with it.
    final
        One comparison per line, at its last step that has samples.
    notes
        What a reader must know: what is missing, left out or not comparable.
    provenance
        What the samples stand on, by ``<arm>/<problem set>``.
    study_hash
        Hash of what the study asks for; empty without a study.
    """

    name: str
    question: str
    folder: Path
    settings: Settings
    draws: Draws
    arms: Mapping[str, Arm]
    measured: tuple[Measured, ...]
    lines: tuple[Line, ...]
    final: tuple[Comparison, ...]
    notes: tuple[str, ...]
    provenance: Mapping[str, Mapping[str, Any]]
    study_hash: str

    @cached_property
    def line_ups(self) -> list[list[Comparison]]:
        """Comparisons of each line, steps rising; the earlier ones are made when they are asked."""
        return [
            [
                *(_compared(line.base, one, self.draws, self.settings) for one in line.steps[:-1]),
                last,
            ]
            for line, last in zip(self.lines, self.final, strict=True)
        ]

    def k(self, reach: int) -> list[int]:
        """The k that tables show: the study's, or the powers of two, up to what there is."""
        return [k for k in self.settings.k if k <= reach] or powers_of_two(reach)


def gather(folder: Path, pairs: Sequence[Pair] = ()) -> Report:
    """Read a run and work out all that a report shows.

    Parameters
    ----------
    folder
        The folder of a run, or a cube by itself.
    pairs
        Arms to compare, base first. Where none are given: the study's; without a study, the first
        step of each arm with its later ones.
    """
    study = read_study(folder)
    groups = [
        node.to_dataset()
        for node in open_cube(folder).subtree
        if node.attrs.get("kind") in {"samples", "counts"}
    ]
    found = [one for group in groups for one in measured(group, study)]
    if not any(one.sampled.any() for one in found):
        raise UserError(
            f"{folder}: no judged samples yet, so there is nothing to report; make some with "
            "`rlbhpc sample`, or take in results with `rlbhpc import`",
            NOTHING_TO_DO,
        )
    found.sort(key=_order(study))
    settings = _settings(study)
    draw = Draws(settings)
    found = [_with_curve(one, draw, settings) for one in found]
    arms = list(dict.fromkeys(one.arm for one in found))
    chosen = _pairs(arms, study, pairs)
    notes = _notes(found)
    if study is None and not pairs and len(arms) > 1:
        notes.append(
            "Nothing says which arm is the base of which: there is no study.json. Name pairs with "
            "--compare BASE:TRAINED."
        )
    lines = _lines(found, chosen, notes)
    final = [_compared(line.base, line.steps[-1], draw, settings) for line in lines]
    notes += [note for one in final for note in _comparison_notes(one)]
    return Report(
        study.name if study else folder.resolve().name,
        (study.file.question or "") if study else "",
        folder,
        settings,
        draw,
        study.arms if study else {},
        tuple(found),
        tuple(lines),
        tuple(adjusted(final)),
        tuple(notes),
        _provenance(Layout(folder)),
        study.hash if study else "",
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
        return Study.from_json(Layout(folder).study.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _order(study: Study | None) -> Callable[[Measured], tuple[int, int, str, str, int]]:
    """Sort arms and sets as the study lists them, and by name what it does not list."""
    arms = list(study.arms) if study else []
    sets = list(study.problem_sets) if study else []

    def rank(names: list[str], name: str) -> int:
        return names.index(name) if name in names else len(names)

    def place(one: Measured) -> tuple[int, int, str, str, int]:
        ranks = rank(sets, one.problem_set), rank(arms, one.arm)
        return *ranks, one.problem_set, one.arm, one.step

    return place


def _settings(study: Study | None) -> Settings:
    if study is None:
        return Settings(PROB, REPLICATES, 0, ())
    asked = study.file.analysis
    k = tuple(sorted(set(asked.k)))
    return Settings(asked.confidence, asked.bootstrap, study.seed, k, asked.margin)


def _with_curve(one: Measured, draw: Draws, settings: Settings) -> Measured:
    rows = np.flatnonzero(one.sampled)
    if not len(rows):
        return one
    problems = tuple(one.problems[i] for i in rows)
    counts = one.counts[rows]
    asked = [k for k in settings.k if k <= counts.reach]
    k = np.union1d(k_grid(counts.reach), np.array(asked, np.int64))
    return replace(one, curve=pass_curve(counts, draw.of(problems), k, settings.prob))


def _pairs(arms: list[str], study: Study | None, asked: Sequence[Pair]) -> list[Pair]:
    for two in asked:
        for arm in two:
            if arm not in arms:
                raise UserError(f"--compare: no arm {arm!r}; there are {', '.join(arms)}")
    if asked:
        return list(asked)
    if study is not None:
        return study.comparisons()
    return [(arm, arm) for arm in arms]


def _lines(found: list[Measured], pairs: list[Pair], notes: list[str]) -> list[Line]:
    """Find what can be compared: each pair on each problem set that both have samples of."""
    lines = by_line([one for one in found if one.sampled.any()])
    made = []
    for base_arm, trained_arm in pairs:
        sets = [s for arm, s in lines if arm == base_arm and (trained_arm, s) in lines]
        if not sets:
            notes.append(f"{trained_arm} and {base_arm} have no samples of one problem set yet.")
        for set_name in sets:
            base, steps = _sides(lines[base_arm, set_name], lines[trained_arm, set_name])
            enough = []
            for trained in steps:
                shared = len(pair(base, trained).problems)
                if shared < 2:
                    notes.append(
                        f"{trained.label} and {base.label} share "
                        f"{several(shared, 'sampled problem')} of {set_name}: too few to compare."
                    )
                    continue
                enough.append(trained)
            if enough:
                made.append(Line(base, tuple(enough)))
    return made


def _compared(base: Measured, trained: Measured, draws: Draws, settings: Settings) -> Comparison:
    paired = pair(base, trained)
    return compare(base, trained, paired, draws.of(paired.problems), settings.prob, settings.margin)


def _sides(base: list[Measured], trained: list[Measured]) -> tuple[Measured, list[Measured]]:
    """Say which step of the base arm is the base, and which steps of the other are compared."""
    if base is trained:
        return base[0], base[1:]
    # A base has one step; of a line that was trained before, its last checkpoint is the base.
    # Step 0 of a trained line is the base once more.
    later = [one for one in trained if one.step > 0]
    return base[-1], later or trained


def _notes(found: list[Measured]) -> list[str]:
    notes = []
    for one in found:
        name, tally = f"{one.label} on {one.problem_set}", one.tally
        if not one.sampled.any():
            notes.append(f"{name}: no judged samples yet.")
        elif tally.missing:
            notes.append(
                f"{name}: {tally.missing:,} of {tally.asked:,} samples are missing; "
                f"{int((~one.sampled).sum()):,} of {several(len(one.problems), 'problem')} without "
                "any."
            )
        excluded = (tally.failed or 0) + (tally.verifier_errors or 0)
        if excluded:
            notes.append(
                f"{name}: {several(excluded, 'sample')} neither right nor wrong: "
                f"{several(tally.failed or 0, 'generation')} and "
                f"{several(tally.verifier_errors or 0, 'verification')} failed."
            )
        if one.topped_up:
            notes.append(
                f"{name}: {several(one.topped_up, 'problem')} with more samples, which a rule "
                f"chose; the first {one.depth:,} of each count."
            )
    return notes


def _comparison_notes(one: Comparison) -> list[str]:
    notes = []
    if one.left_out:
        notes.append(
            f"{one.title}: left out {several(len(one.left_out), 'problem')} that one of the two "
            "has no samples of, or fewer than 98 % of the others have."
        )
    asked = min(one.base.depth, one.trained.depth)
    if one.reach < asked:
        notes.append(
            f"{one.title}: k ends at {one.reach:,} and not at {asked:,}, because some problem "
            "has no more judged samples."
        )
    if one.solved is None:
        notes.append(
            f"{one.title}: no coverage table, since counts were imported of unequal numbers of "
            "samples."
        )
    return notes


def _provenance(layout: Layout) -> dict[str, dict[str, Any]]:
    grids = {f"{arm}/{name}": Grid.load(layout.grid(arm, name)) for arm, name in layout.groups()}
    return {name: dict(grid.provenance) for name, grid in grids.items() if grid is not None}
