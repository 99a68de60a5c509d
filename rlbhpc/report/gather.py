"""From the folder of a run to its report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from rlbhpc import plugins
from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Lineage, Provenance, Report, groups_of
from rlbhpc.report.compare import (
    Comparison,
    Settings,
    comparable_problems,
    compare,
    share_error,
)
from rlbhpc.report.measured import MeasuredArm, by_arm_and_set, read_arms
from rlbhpc.report.phrases import count_text, percent_text
from rlbhpc.stats import k_grid, pass_curve
from rlbhpc.stats.difference import cluster_effect
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

#: Bootstrap replicates where no study says how many.
REPLICATES: Final = 1000
#: Kinds of groups in a cube that hold samples, or the counts of imported ones.
SAMPLED: Final = frozenset({"samples", "counts"})
# Field of a problem set that names topics. Problems of a topic tell less than others if so many of
# them tell as much as one, by a test at this level.
_TOPIC: Final = "subject"
_LARGE_EFFECT: Final = 2.0
_TOPIC_ERROR: Final = 0.005
#: Base arm and trained arm.
Pair = tuple[str, str]


def gather(folder: Path, pairs: Sequence[Pair] = ()) -> Report:
    """Read a run and work out all that a report shows.

    ``folder``: the folder of a run, or a cube by itself. ``pairs``: arms to compare, base first.
    Where none are given: the study's; without a study, the first step of each arm with its later
    ones.

    An *arm* is a model as it is sampled. A *lineage* is a base arm and the checkpoints that are
    compared with it on one problem set; its last comparison is at the last checkpoint.
    *Provenance*: how each arm's samples on a problem set were made. *Notes*: what a reader must
    know. A *probe* shows only a part of each question, to see what the model remembers.
    *Shortfalls*: what imported files lack.
    """
    layout = Layout(folder)
    study = study_of(layout)
    tree = open_cube(folder)
    settings = _settings(study, tree)
    # Another grader's verdicts ended the samples, and looks decided by them.
    regraded = layout.regraded.is_file()
    arms = _without_tries(study, _measured_arms(layout, study, tree, settings, regraded))
    provenance = _provenance(tree)
    notes = [*_search_notes(study), *_run_notes(arms, study, pairs)]
    if study is not None and not regraded:
        # Before all other notes; adds the graders to the provenance.
        notes[:0] = _foreign_verdict_notes(study, layout, provenance)
    # Whether one model remembers more of a set than another is no boundary of reasoning.
    answering = [arm for arm in arms if PROBE not in provenance.get(arm.group, {})]
    names = list(dict.fromkeys(arm.arm for arm in arms))
    lineages = _lineages(answering, _pairs(names, study, pairs), notes)
    last_comparisons = share_error(
        [compare(lineage.base, lineage.checkpoints[-1], settings) for lineage in lineages],
        () if regraded else looks.read(layout),
    )
    shortfalls = _shortfalls(provenance)
    topics = {} if settings.clusters else _cluster_of_problem(tree, _TOPIC)
    return Report(
        name=study.name if study else folder.resolve().name,
        question=(study.file.question or "") if study else "",
        folder=folder,
        settings=settings,
        study_arms=study.arms if study else {},
        measured_arms=tuple(arms),
        lineages=tuple(lineages),
        last_comparisons=tuple(last_comparisons),
        notes=(
            *(f"{group}, imported from {causes}." for group, causes in shortfalls.items()),
            *_shared_file_notes(provenance, last_comparisons),
            *notes,
            *(note for pair in last_comparisons for note in _comparison_notes(pair, shortfalls)),
            *(note for pair in last_comparisons for note in _topic_notes(pair, topics)),
        ),
        provenance=provenance,
        study_hash=study.hash if study else "",
        tree=tree,
    )


def read_pair(text: str) -> Pair:
    """Read ``BASE:TRAINED`` as the command line and the scripts take it."""
    base, colon, trained = text.partition(":")
    if not (base and colon and trained):
        raise UserError(f"--compare {text!r}: write two arms, base first, as BASE:TRAINED")
    return base, trained


def _settings(study: Study | None, tree: xr.DataTree) -> Settings:
    """How the intervals are made and what is pooled, as the study says; defaults without a study.

    ``tree``: the run's results, which say which problems share a source (a *cluster*).
    """
    if study is None:
        return Settings(PROB, REPLICATES, seed=0, k=())
    analysis = study.file.analysis
    return Settings(
        prob=analysis.confidence,
        replicates=analysis.bootstrap,
        seed=study.seed,
        k=tuple(sorted(set(analysis.k))),
        margin=analysis.margin,
        trainings=study.trainings(),
        averages={mean.name: tuple(mean.problem_sets) for mean in analysis.averages},
        statistics=tuple(analysis.statistics),
        aspects=tuple(analysis.aspects),
        clusters=_cluster_of_problem(tree, analysis.cluster) if analysis.cluster else {},
    )


def _cluster_of_problem(tree: xr.DataTree, field: str) -> dict[str, str]:
    """The label of each problem in a field of the problem sets; problems without one are absent.

    ``field``: such as ``source``. Problems with one label form a cluster: the bootstrap draws them
    together.
    """
    clusters: dict[str, str] = {}
    for group in groups_of(tree, SAMPLED):
        if field in group.coords:
            labels = map(str, group[field].values)
            clusters |= zip(group["problem"].values, labels, strict=True)
    return {problem: label for problem, label in clusters.items() if label}


def _measured_arms(
    layout: Layout, study: Study | None, tree: xr.DataTree, settings: Settings, regraded: bool
) -> list[MeasuredArm]:
    """All arms at all steps, with their curves, in the order of the study.

    ``tree``: the run's results; each of its groups is an arm on a problem set. ``regraded``: its
    verdicts are of another grader than the one that ended the sampling. ``place``: the key to sort
    by. ``stated``: error rates of the verifier that the study states by arm; they go before those
    that an audit found.
    """
    arms = [
        arm
        for group in groups_of(tree, SAMPLED)
        for arm in read_arms(group, study, regraded=regraded)
    ]
    if not any(arm.has_samples.any() for arm in arms):
        raise UserError(
            f"{layout.root}: no judged samples yet, so there is nothing to report; make some with "
            "`rlbhpc sample`, or take in results with `rlbhpc import`",
            NOTHING_TO_DO,
        )
    study_arms = list(study.arms) if study else []
    study_sets = list(study.problem_sets) if study else []

    def place(arm: MeasuredArm) -> tuple[int, int, str, str, int]:
        set_rank, arm_rank = _rank(study_sets, arm.problem_set), _rank(study_arms, arm.arm)
        return set_rank, arm_rank, arm.problem_set, arm.arm, arm.step

    stated = study.file.analysis.errors if study else {}
    audited = _audited_errors(layout)
    measured = []
    for arm in sorted(arms, key=place):
        errors: Errors = audited.get(Side(arm.arm, arm.step, arm.problem_set))
        if arm.arm in stated:
            errors = Told(stated[arm.arm])
        measured.append(_with_curve(replace(arm, errors=errors), settings))
    return measured


def _without_tries(study: Study | None, arms: list[MeasuredArm]) -> list[MeasuredArm]:
    """The arms but for those that only try prompts; these too while there is nothing else."""
    answers = [arm for arm in arms if study is None or arm.arm not in study.tries]
    return answers if any(arm.has_samples.any() for arm in answers) else arms


def _search_notes(study: Study | None) -> Iterator[str]:
    """Which prompt each arm has that searched for one, and how good the others were."""
    for arm, search in study.searches.items() if study else ():
        if not search.chosen:
            yield f"{arm}: its prompt is not chosen yet; `rlbhpc launch` goes on."
            continue
        rates = [
            f"{candidate} {' and '.join(percent_text(rate) for rate in by_half)}"
            for candidate, by_half in search.rates.items()
        ]
        yield (
            f"{arm}: asked by {' and '.join(dict.fromkeys(search.chosen))}, of {len(rates)} that "
            "were tried. The best on one half of the problems asks the other half; right on "
            f"each half, %: {'; '.join(rates)}."
        )


def _rank(names: list[str], name: str) -> int:
    """Position of a name; behind all others where it is missing."""
    return names.index(name) if name in names else len(names)


def _audited_errors(layout: Layout) -> dict[Side, ErrorCounts]:
    """The verifier's errors that an audit found, by arm, step and problem set."""
    errors = {}
    for side, rates in load_error_rates(layout).items():
        right, wrong = rates.false_right, rates.false_wrong
        errors[side] = ErrorCounts(right.errors, right.audited, wrong.errors, wrong.audited)
    return errors


def _with_curve(arm: MeasuredArm, settings: Settings) -> MeasuredArm:
    """The arm with its pass@k curve over its problems; unchanged where it has no samples.

    The *counterpart* is the same samples by the other verdict, strict or lenient; it gets a curve
    too. ``counts.reach``: the largest k that all problems support. ``weights``: bootstrap weights
    of the problems. ``k``: a grid, evenly spaced on a log scale, with the k of the study.
    """
    if arm.counterpart is not None:
        arm = replace(arm, counterpart=_with_curve(arm.counterpart, settings))
    if not len(arm.sampled_rows):
        return arm
    counts = arm.counts[arm.curve_rows]
    study_k = [k for k in settings.k if k <= counts.reach]
    k = np.union1d(k_grid(counts.reach), np.array(study_k, np.int64))
    weights = settings.weights(arm.curve_problems)
    return replace(arm, curve=pass_curve(counts, weights, k, settings.prob))


def _provenance(tree: xr.DataTree) -> dict[str, dict[str, Any]]:
    """How the samples of each group were made, as its file in the cube says."""
    return {
        node.path.strip("/"): json.loads(node.attrs["provenance"])
        for node in tree.subtree
        if node.attrs.get("kind") in SAMPLED
    }


def _pairs(arms: list[str], study: Study | None, named: Sequence[Pair]) -> list[Pair]:
    """The arms to compare, base first: the named ones, else the study's, else each arm with itself.

    An arm with itself means: its first step with its later ones. ``arms``: names of all. Raises for
    a named arm that is not there.
    """
    for pair in named:
        for arm in pair:
            if arm not in arms:
                raise UserError(f"--compare: no arm {arm!r}; there are {', '.join(arms)}")
    if named:
        return list(named)
    if study is not None:
        return study.comparisons()
    return [(arm, arm) for arm in arms]


def _lineages(arms: list[MeasuredArm], pairs: list[Pair], notes: list[str]) -> list[Lineage]:
    """What can be compared: each pair on each problem set that both have samples of.

    A *lineage* is a base arm and the checkpoints that are compared with it on one problem set.
    ``arms``: every arm at every step. ``pairs``: names, base first. ``checkpoints_of``: the steps
    of an arm on a set, rising. ``comparable_problems``: those that both have enough samples of.
    Appends to ``notes`` what cannot be compared.
    """
    checkpoints_of = by_arm_and_set([arm for arm in arms if arm.has_samples.any()])
    lineages = []
    for base_name, trained_name in pairs:
        sets = [set_name for arm, set_name in checkpoints_of
                if arm == base_name and (trained_name, set_name) in checkpoints_of]  # fmt: skip
        if not sets:
            notes.append(f"{trained_name} and {base_name} have no samples of one problem set yet.")
        for set_name in sets:
            base, candidates = _base_and_checkpoints(
                checkpoints_of[base_name, set_name], checkpoints_of[trained_name, set_name]
            )
            checkpoints = []
            for trained in candidates:
                shared = len(comparable_problems(base, trained))
                if shared < 2:
                    notes.append(
                        f"{trained.label} and {base.label} share "
                        f"{count_text(shared, 'sampled problem')} of {set_name}: "
                        "too few to compare."
                    )
                else:
                    checkpoints.append(trained)
            if checkpoints:
                lineages.append(Lineage(base, tuple(checkpoints)))
    return lineages


def _base_and_checkpoints(
    base_steps: list[MeasuredArm], trained_steps: list[MeasuredArm]
) -> tuple[MeasuredArm, list[MeasuredArm]]:
    """Choose the step that is the base, and the steps that are compared with it.

    Each list has the steps of one arm on one problem set, rising. They are one and the same list
    where an arm is compared with its own first step.
    """
    if base_steps is trained_steps:
        return base_steps[0], base_steps[1:]
    # A base has one step. If it was trained before, its last checkpoint is the base.
    # Step 0 of the trained arm is the base once more.
    later = [arm for arm in trained_steps if arm.step > 0]
    return base_steps[-1], later or trained_steps


def _run_notes(
    arms: list[MeasuredArm], study: Study | None, pairs: Sequence[Pair]
) -> Iterator[str]:
    """What a reader must know of the arms and of the run as a whole.

    ``arm.stop_after``: right samples at which the sampling of a problem ends; 0 where it never
    does. ``pairs``: the arms to compare as the command names them.
    """
    for arm in arms:
        yield from _arm_notes(arm)
    if any(arm.stop_after for arm in arms):
        yield (
            "Where samples end at the r-th right one, what needs equally many of each problem "
            "(votes, G-Pass@k, repeats, entropy, lengths, the choice of a checkpoint) takes the "
            "first r, which all have; for more, raise `stop_after`. Chains of thought have no "
            "value there."
        )
    if study is None and not pairs and len({arm.arm for arm in arms}) > 1:
        yield (
            "Nothing says which arm is the base of which: there is no study.json. Name pairs with "
            "--compare BASE:TRAINED."
        )


def _arm_notes(arm: MeasuredArm) -> Iterator[str]:
    """What a reader must know of one arm: samples that are missing, failed, left out or extra.

    ``arm.tally``: what became of the samples. ``counts.stopped``: whether a problem's sampling
    ended early, at enough right samples. A *straggler* is a problem with so few samples that the
    curve leaves it out: it has ``sampled_rows`` but no ``curve_rows``.
    """
    name, tally, problems = f"{arm.label} on {arm.problem_set}", arm.tally, len(arm.problems)
    if not arm.has_samples.any():
        yield f"{name}: no judged samples yet."
    elif tally.missing:
        unsampled = problems - len(arm.sampled_rows)
        yield (
            f"{name}: {tally.missing:,} of {tally.asked:,} samples are missing; "
            f"{unsampled:,} of {count_text(problems, 'problem')} without any."
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
    stragglers = len(arm.sampled_rows) - len(arm.curve_rows)
    if stragglers:
        yield (
            f"{name}: its curve leaves out {count_text(stragglers, 'problem')} with fewer samples "
            "than 98 % of the others."
        )
    if arm.topped_up:
        yield (
            f"{name}: {count_text(arm.topped_up, 'problem')} with more samples, which looks or "
            f"another grader asked for; curves take the first {arm.depth:,} of each."
        )


def _foreign_verdict_notes(
    study: Study, layout: Layout, provenance: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """Name verdicts that the study's own verifier, as it is today, did not give.

    ``provenance``: how the samples of each group ``<arm>/<problem set>`` were made. The graders of
    each set that has a verifier of the study's own are added to it. A grader's name has a digest of
    its code, so a changed verifier is another grader. ``count_graders``: verdicts by grader.
    """
    for name, stored in provenance.items():
        group = Group(*name.split("/"))
        entry = study.problem_sets.get(group.problem_set)
        verifier = (entry.verifier or "") if entry else ""
        own_grader = plugins.planned_identity(study.plugins, "verifiers", verifier)
        if own_grader is None or group not in layout.groups():
            continue
        verdicts_by_grader = samples.count_graders(layout, group)
        stored["graders"] = sorted(verdicts_by_grader)
        foreign = sorted({*verdicts_by_grader} - {own_grader})
        if foreign:
            total = verdicts_by_grader.total()
            yield (
                f"{group.arm} on {group.problem_set}: {total - verdicts_by_grader[own_grader]:,} "
                f"of {total:,} verdicts are of {', '.join(foreign)} and not of {own_grader}, the "
                "study's verifier; `rlbhpc verify RUN --into NEW` judges all of them with it."
            )


def _shared_file_notes(provenance: Provenance, comparisons: list[Comparison]) -> Iterator[str]:
    """Name pairs of different arms that hold samples of one imported file.

    ``provenance``: how the samples of each group ``<arm>/<problem set>`` were made, with the digest
    of each imported file. Equal digests: both arms have the same samples.
    """
    for pair in comparisons:
        base, trained = pair.base.group, pair.trained.group
        base_files = provenance[base].get("imported", {})
        trained_files = provenance[trained].get("imported", {})
        digests = {origin["sha256"] for origin in base_files.values()}
        shared = [name for name, origin in trained_files.items() if origin["sha256"] in digests]
        if shared and base != trained:
            yield (
                f"{trained} and {base} hold samples of the same file, {', '.join(shared)}: what "
                "they are compared on cannot differ there."
            )


def _shortfalls(provenance: Provenance) -> dict[str, str]:
    """What imported logs lack of their runs, by the group that they went into.

    ``provenance``: how the samples of each group ``<arm>/<problem set>`` were made. An imported log
    of a run that did not finish has a *shortfall*.
    """
    shortfalls = {}
    for group, stored in provenance.items():
        causes = [
            f"{name}: {origin['shortfall']}"
            for name, origin in stored.get("imported", {}).items()
            if "shortfall" in origin
        ]
        if causes:
            shortfalls[group] = ", ".join(causes)
    return shortfalls


def _comparison_notes(pair: Comparison, shortfalls: Mapping[str, str]) -> Iterator[str]:
    """What a reader must know of one comparison: problems left out, a short curve, no coverage.

    ``shortfalls``: what imported files lack, by group ``<arm>/<problem set>``. ``pair.reach``: the
    largest k that all compared problems support. ``depth``: samples requested of each problem.
    ``pair.solved``: who solves which problem; None where it is not known.
    """
    groups = (pair.base.group, pair.trained.group)
    if pair.left_out:
        causes = [shortfalls[group] for group in groups if group in shortfalls]
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


def _topic_notes(pair: Comparison, topics: Mapping[str, str]) -> Iterator[str]:
    """Say so where topics explain much of a comparison whose intervals know nothing of them.

    ``topics``: of each problem; empty where the study names a cluster, or its problems no topic.
    """
    if not any(problem in topics for problem in pair.problems):
        return
    labels = [topics.get(problem, problem) for problem in pair.problems]
    for k, column in ((1, 0), (pair.reach, -1)):
        effect, p = cluster_effect(pair.curve.differences[:, column], labels)
        if effect >= _LARGE_EFFECT and p <= _TOPIC_ERROR:
            yield (
                f"{pair.title}: at k = {k:,} problems of one {_TOPIC} move together: about "
                f"{effect:.1f} of them tell as much as one. Intervals are about new problems of "
                f"these topics; for new topics set `analysis.cluster: {_TOPIC}`."
            )
