"""Keep the resolved study beside its results, for workers and for the next run to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlbhpc import __version__, files, plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.store.cube_schema import DECIDES, LOOKS, NO_THINK, QUESTIONS, STOP_AFTER, STRATA_KEY
from rlbhpc.store.grid import request_samples
from rlbhpc.store.questions import put_questions, questions_of
from rlbhpc.study.difference import judged_otherwise
from rlbhpc.study.keys import Arm, Cell
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import record_given_models
from rlbhpc.study.load import stored_study
from rlbhpc.study.plugin_check import self_contained
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.plan import Plan
from rlbhpc.verify.registry import verifier

# What the entropies of an arm are; log-probs and entropies belong to the same distribution.
ENTROPY = "exact: full vocabulary, at the sampling temperature, before top-p"
ENTROPY_OF_EXTRAS = f"{ENTROPY}, every other cut and every penalty"
# Key of a grid whose problems show only so much of their questions.
PROBE = "probe"
ENTROPY_OF_ENDPOINT = "lower bound: from the likeliest tokens, of the log-probs the server reports"


def store_study(study: Study) -> list[str]:
    """Store the study as the current one, and what it asks of the cube.

    The *cube* is the table of all results; a *grid* lists, for one arm on one problem set, the
    problems, steps and samples that it has axes for. The grids fix the cube's axes and order before
    the first sample, so that its bytes cannot depend on which sample came first.

    ``self_contained`` copies the plugin files that the study names into its folder.
    ``judged_otherwise`` compares the stored study with this one: the function gives the sets that
    another verifier judges than before.
    """
    rejudged_sets: list[str] = []
    # Where there is no study before, or a damaged one, this one takes its place.
    with suppress(UserError, OSError):
        rejudged_sets = judged_otherwise(stored_study(study.layout.study), study)
    text = self_contained(study).to_json().encode()
    for path in (study.layout.snapshot(study.hash), study.layout.study):
        files.put(path, text)
    record_given_models(study)
    _store_grids(study)
    return rejudged_sets


def _store_grids(study: Study) -> None:
    """Add what the study asks for to the grid of each arm and problem set.

    A *grid* lists the cells (a problem at a step, under one request) and how many samples are asked
    for of each; its *provenance* records what the samples depend on, such as model and prompt
    digests. The *looks* are decisions on growing data; ``more`` is what they asked for beyond the
    study's n. *Strata* are a problem set's words for groups of its problems. ``put_questions``
    stores the questions and gives the provenance entry that refers to them.
    """
    look_records = looks.read(study.layout)
    for set_name in study.problem_sets:
        problems = _problems(study, set_name)
        strata = _strata(problems)
        questions = questions_of(problems)
        for arm in study.arms.values():
            if set_name not in study.sets(arm.name) or arm.name in study.searching:
                continue
            provenance = _provenance(study, arm.name)
            raised = [
                asdict(more)
                for look in look_records
                for more in look.more
                if (more.arm, more.set_name) == (arm.name, set_name)
            ]
            if raised:
                provenance[LOOKS] = {"n": study.n(arm.name, set_name), "more": raised}
            probe = study.problem_sets[set_name].probe
            if probe is not None:
                provenance[PROBE] = probe
            stop_after = study.stop_after(arm.name, set_name)
            if stop_after:
                provenance[STOP_AFTER.name] = stop_after
            if strata:
                provenance[STRATA_KEY] = strata
            provenance |= put_questions(study.layout, arm.name, set_name, questions)
            request_samples(
                study.layout, arm.name, set_name, arm.model, _requested_cells(study, arm, set_name),
                provenance,
                # Where the problem set cannot be read now, its words stay what they were.
                keep=[STRATA_KEY, QUESTIONS],
            )  # fmt: skip


def _requested_cells(study: Study, arm: Arm, set_name: str) -> dict[Cell, int]:
    """Samples asked for of each cell of an arm on a problem set.

    A *cell* is one problem at one step under one request, which the fingerprint identifies. A
    *block* is all cells of one step; ``looks.requested_counts`` gives the samples asked for of each
    of its problems, which looks at the results may have raised.
    """
    blocks = [study.block(arm.name, set_name, step) for step in arm.steps]
    cells = {}
    for block, counts in zip(blocks, looks.requested_counts(study.layout, blocks), strict=True):
        fingerprints = block.fingerprints.tolist()
        for problem, fingerprint, n in zip(
            block.problems, fingerprints, counts.tolist(), strict=True
        ):
            cells[Cell(arm.name, block.step, problem, fingerprint)] = n
    return cells


def _problems(study: Study, set_name: str) -> list[Problem]:
    """The problems of a set; none where it cannot be read now."""
    with suppress(UserError, OSError):
        return study.problems(set_name)
    return []


def _strata(problems: Sequence[Problem]) -> dict[str, dict[str, str]]:
    """Words that a problem set has for its problems, by stratum."""
    strata: dict[str, dict[str, str]] = {}
    for problem in problems:
        for name, word in problem.strata.items():
            strata.setdefault(name, {})[problem.id] = word
    return strata


def _provenance(study: Study, arm: str) -> dict[str, Any]:
    """What the samples of an arm stand on; the same whenever the study is run again.

    ``digests`` are content hashes of the model at each step. The entropy entry says of which
    distribution the entropies are. ``duplicates`` counts the repeated records left out of each set.
    """
    entry = study.arms[arm]
    engine = study.engine(arm)
    prompt = study.prompts[entry.prompt]
    entropy = ENTROPY_OF_EXTRAS if entry.sampling.extras() else ENTROPY
    if engine == "endpoint":
        entropy = ENTROPY_OF_ENDPOINT
    digests = study.digests[entry.model]
    provenance: dict[str, Any] = {
        "study": study.name,
        "study_seed": study.seed,
        "model_digests": {str(step): digests[step] for step in entry.steps},
        "prompt": prompt.digest,
        DECIDES: study.file.verification.decides,
    }
    # The order of the keys is in the cube's bytes.
    if prompt.no_think:
        provenance[NO_THINK] = True
    if study.file.verification.paper:
        provenance["paper"] = verifier("math-paper").FINGERPRINT
    provenance["sampling"] = entry.sampling.record()
    dropped = {name: n for name, n in study.duplicates.items() if name in study.sets(arm)}
    if dropped:
        provenance["duplicates"] = dropped
    return provenance | {"engine": engine, "entropy": entropy, "rlbhpc": __version__}


def load_plan(plan_path: Path, numbers: Sequence[int] | None = None) -> tuple[Study, Plan]:
    """Return a plan, or some of its shards, and the study that it was made from.

    A *plan* is a file of missing samples, cut into shards (``numbers``: which to read; None for
    all). It names its study by its hash, and that study is kept beside it in the run's folder.
    Plugins that changed since are refused.
    """
    plan = Plan.load(plan_path, numbers)
    layout = Layout(plan_path.resolve().parents[1])
    snapshot = layout.snapshot(plan.study)
    if not snapshot.is_file():
        raise UserError(f"{plan_path}: its study is not at {snapshot}; make a new plan")
    study = stored_study(snapshot)
    plugins.reject_changed(study.plugins)
    return study, plan
