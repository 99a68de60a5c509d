"""From the folder of a run to its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from rlbhpc import plugins
from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Line, Report, groups_of
from rlbhpc.report.compare import Comparison, Settings, compare, share_error
from rlbhpc.report.compare import pair_problems as pair_up
from rlbhpc.report.measured import Measured, by_line, measured
from rlbhpc.report.phrases import count_text
from rlbhpc.stats import k_grid, pass_curve
from rlbhpc.stats.interval import PROB
from rlbhpc.stats.verifier_error import ErrorCounts, Errors, Told
from rlbhpc.store import samples
from rlbhpc.store.reader import open_cube
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.remember import PROBE
from rlbhpc.verify.error_audit import Side, load_error_rates

#: Replicates where no study says how many.
REPLICATES: Final = 1000
#: Kinds of groups in a cube that hold samples, or the counts of imported ones.
SAMPLED: Final = frozenset({"samples", "counts"})
#: Base arm and trained arm.
Pair = tuple[str, str]


def same_files(
    provenance: Mapping[str, Mapping[str, Any]], pairs: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Tell of pairs of different arms that hold samples of one imported file."""
    for base, trained in pairs:
        files = [provenance[group].get("imported", {}) for group in (base, trained)]
        digests = {origin["sha256"] for origin in files[0].values()}
        shared = [name for name, origin in files[1].items() if origin["sha256"] in digests]
        if shared and base != trained:
            yield (
                f"{trained} and {base} hold samples of the same file, {', '.join(shared)}: what "
                "they are compared on cannot differ there."
            )


def shortfalls(provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What imported logs lack of their runs, by the group that they went into."""
    lacking = {
        group: [
            f"{name}: {origin['shortfall']}"
            for name, origin in stored.get("imported", {}).items()
            if "shortfall" in origin
        ]
        for group, stored in provenance.items()
    }
    return {group: ", ".join(causes) for group, causes in lacking.items() if causes}


def other_verdicts(
    study: Study, layout: Layout, provenance: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """Tell of verdicts that the study's own verifier of today did not give.

    Adds the graders of each such set to the provenance.
    """
    for name, stored in provenance.items():
        group = Group(*name.split("/"))
        entry = study.problem_sets.get(group.problem_set)
        own = plugins.planned_identity(study.plugins, "verifiers", (entry and entry.verifier) or "")
        if own is None or group not in layout.groups():
            continue
        graders = samples.count_graders(layout, group)
        stored["graders"] = sorted(graders)
        if others := sorted({*graders} - {own}):
            yield (
                f"{group.arm} on {group.problem_set}: {graders.total() - graders[own]:,} of "
                f"{graders.total():,} verdicts are of {', '.join(others)} and not of {own}, the "
                "study's verifier; `rlbhpc verify RUN --into NEW` judges all of them with "
                "it."
            )


def gather(folder: Path, pairs: Sequence[Pair] = ()) -> Report:
    """Read a run and work out all that a report shows.

    ``folder``: the folder of a run, or a cube by itself. ``pairs``: arms to compare, base first.
    Where none are given: the study's; without a study, the first step of each arm with its later
    ones.
    """
    layout = Layout(folder)
    study = study_of(layout)
    tree = open_cube(folder)
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
    settings = replace(settings, clusters=_clusters(study, tree))
    known = _errors(study, layout)
    arms = [_with_curve(replace(arm, errors=known(arm)), settings) for arm in arms]
    names = list(dict.fromkeys(arm.arm for arm in arms))
    notes = [note for arm in arms for note in _notes(arm)]
    if any(arm.stop_after for arm in arms):
        notes.append(
            "Where samples end at the r-th right one, what needs equally many of each problem "
            "(votes, G-Pass@k, repeats, entropy, lengths, the choice of a checkpoint) takes the "
            "first r, which all have; for more, raise `stop_after`. Chains of thought have no "
            "value there."
        )
    if study is None and not pairs and len(names) > 1:
        notes.append(
            "Nothing says which arm is the base of which: there is no study.json. Name pairs with "
            "--compare BASE:TRAINED."
        )
    provenance: dict[str, dict[str, Any]] = {
        node.path.strip("/"): json.loads(node.attrs["provenance"])
        for node in tree.subtree
        if node.attrs.get("kind") in SAMPLED
    }
    if study is not None and not regraded:
        notes[:0] = other_verdicts(study, layout, provenance)
    # Whether one model remembers more of a set than another is no boundary of reasoning.
    answered = [arm for arm in arms if PROBE not in provenance.get(arm.group, {})]
    lines = _lines(answered, _pairs(names, study, pairs), notes)
    final = [compare(line.base, line.steps[-1], settings) for line in lines]
    notes[:0] = same_files(provenance, [(p.base.group, p.trained.group) for p in final])
    lacking = shortfalls(provenance)
    notes[:0] = [f"{group}, imported from {causes}." for group, causes in lacking.items()]
    notes += [note for pair in final for note in _comparison_notes(pair, lacking)]
    return Report(
        study.name if study else folder.resolve().name,
        (study.file.question or "") if study else "",
        folder,
        settings,
        study.arms if study else {},
        tuple(arms),
        tuple(lines),
        tuple(share_error(final, () if regraded else looks.read(layout))),
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


def _errors(study: Study | None, layout: Layout) -> Callable[[Measured], Errors]:
    """What is known of the verifier's errors: what the study states, else what an audit found."""
    stated = study.file.analysis.errors if study else {}
    audited = load_error_rates(layout)

    def known(arm: Measured) -> Errors:
        if arm.arm in stated:
            return Told(stated[arm.arm])
        rates = audited.get(Side(arm.arm, arm.step, arm.problem_set))
        if rates is None:
            return None
        right, wrong = rates.false_right, rates.false_wrong
        return ErrorCounts(right.errors, right.audited, wrong.errors, wrong.audited)

    return known


def _clusters(study: Study | None, tree: xr.DataTree) -> dict[str, str]:
    """The source of each problem by the study's field; nothing where the study names none."""
    field = study.file.analysis.cluster if study else None
    labels: dict[str, str] = {}
    for group in groups_of(tree, SAMPLED) if field else ():
        if field in group.coords:
            labels |= dict(zip(group["problem"].values, group[field].values, strict=True))
    return {problem: str(label) for problem, label in labels.items() if label}


def _with_curve(arm: Measured, settings: Settings) -> Measured:
    if arm.counterpart is not None:
        arm = replace(arm, counterpart=_with_curve(arm.counterpart, settings))
    if not len(arm.rows):
        return arm
    counts = arm.counts[arm.curve_rows]
    own = [k for k in settings.k if k <= counts.reach]
    k = np.union1d(k_grid(counts.reach), np.array(own, np.int64))
    weights = settings.weights(arm.curve_problems)
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
                        f"{count_text(shared, 'sampled problem')} of {set_name}: "
                        "too few to compare."
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
            f"{problems - len(arm.rows):,} of {count_text(problems, 'problem')} without any."
        )
    failed, errors = tally.failed or 0, tally.verifier_errors or 0
    if failed + errors:
        yield (
            f"{name}: {count_text(failed + errors, 'sample')} neither right nor wrong: "
            f"{count_text(failed, 'generation')} and {count_text(errors, 'verification')} failed."
        )
    if arm.stop_after:
        yield (
            f"{name}: the samples of a problem end at {count_text(arm.stop_after, 'right one')}; "
            f"those of {int(arm.counts.stopped.sum()):,} of {count_text(problems, 'problem')} did."
        )
    if stragglers := len(arm.rows) - len(arm.curve_rows):
        yield (
            f"{name}: its curve leaves out {count_text(stragglers, 'problem')} with fewer samples "
            "than 98 % of the others."
        )
    if arm.topped_up:
        yield (
            f"{name}: {count_text(arm.topped_up, 'problem')} with more samples, which looks or "
            f"another grader asked for; curves take the first {arm.depth:,} of each."
        )


def _comparison_notes(pair: Comparison, lacking: Mapping[str, str]) -> Iterator[str]:
    if pair.left_out:
        causes = [lacking[arm.group] for arm in (pair.base, pair.trained) if arm.group in lacking]
        because = f" ({', '.join(causes)})" if causes else ""
        yield (
            f"{pair.title}: left out {count_text(len(pair.left_out), 'problem')} that one of the "
            f"two has no samples of, or fewer than 98 % of the others have{because}."
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
