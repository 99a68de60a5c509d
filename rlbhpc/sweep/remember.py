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
from rlbhpc.store import grid
from rlbhpc.store.cube_schema import DECIDES, LOOKS, NO_THINK, QUESTIONS, STOP_AFTER, STRATA_KEY
from rlbhpc.store.questions import put_questions, questions_of
from rlbhpc.study.difference import judged_otherwise
from rlbhpc.study.keys import Cell
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

    The grids fix the cube's axes and order before the first sample, so that its bytes cannot
    depend on which sample came first. Gives the sets that another verifier judges than before.
    """
    judged: list[str] = []
    # Where there is no study before, or a damaged one, this one takes its place.
    with suppress(UserError, OSError):
        judged = judged_otherwise(stored_study(study.layout.study), study)
    text = self_contained(study).to_json().encode()
    for path in (study.layout.snapshot(study.hash), study.layout.study):
        files.put(path, text)
    record_given_models(study)
    _plan_grids(study)
    return judged


def _plan_grids(study: Study) -> None:
    layout = study.layout
    records = looks.read(layout)
    readable = {set_name: _problems(study, set_name) for set_name in study.problem_sets}
    strata = {set_name: _strata(problems) for set_name, problems in readable.items()}
    questions = {set_name: questions_of(problems) for set_name, problems in readable.items()}
    for arm in study.arms.values():
        for set_name in study.sets(arm.name):
            blocks = [study.block(arm.name, set_name, step) for step in arm.steps]
            cells = {
                Cell(arm.name, block.step, problem, int(fingerprint)): int(n)
                for block, requests in zip(
                    blocks, looks.requested_counts(layout, blocks), strict=True
                )
                for problem, fingerprint, n in zip(
                    block.problems, block.fingerprints, requests, strict=True
                )
            }
            provenance = _provenance(study, arm.name)
            raised = [
                asdict(more)
                for look in records
                for more in look.more
                if (more.arm, more.set_name) == (arm.name, set_name)
            ]
            if raised:
                provenance[LOOKS] = {"n": study.n(arm.name, set_name), "more": raised}
            if (probe := study.problem_sets[set_name].probe) is not None:
                provenance[PROBE] = probe
            if stop_after := study.stop_after(arm.name, set_name):
                provenance[STOP_AFTER.name] = stop_after
            if strata[set_name]:
                provenance[STRATA_KEY] = strata[set_name]
            provenance |= put_questions(layout, arm.name, set_name, questions[set_name])
            # Where the problem set cannot be read now, its words stay what they were.
            kept = [STRATA_KEY, QUESTIONS]
            grid.request_samples(
                layout, arm.name, set_name, arm.model, cells, provenance, keep=kept
            )


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
    """What the samples of an arm stand on; the same whenever the study is run again."""
    entry = study.arms[arm]
    engine = study.engine(arm)
    prompt = study.prompts[entry.prompt]
    dropped = {name: n for name, n in study.duplicates.items() if name in study.sets(arm)}
    exact = ENTROPY_OF_EXTRAS if entry.sampling.extras() else ENTROPY
    return {
        "study": study.name,
        "study_seed": study.seed,
        "model_digests": {str(s): study.digests[entry.model][s] for s in entry.steps},
        "prompt": prompt.digest,
        DECIDES: study.file.verification.decides,
        **({NO_THINK: True} if prompt.no_think else {}),
        **({"paper": verifier("math-paper").FINGERPRINT} if study.file.verification.paper else {}),
        "sampling": entry.sampling.record(),
        **({"duplicates": dropped} if dropped else {}),
        "engine": engine,
        "entropy": ENTROPY_OF_ENDPOINT if engine == "endpoint" else exact,
        "rlbhpc": __version__,
    }


def load_plan(plan_path: Path, numbers: Sequence[int] | None = None) -> tuple[Study, Plan]:
    """Return a plan, or some of its shards, and the study that it was made from."""
    plan = Plan.load(plan_path, numbers)
    layout = Layout(plan_path.resolve().parents[1])
    snapshot = layout.snapshot(plan.study)
    if not snapshot.is_file():
        raise UserError(f"{plan_path}: its study is not at {snapshot}; make a new plan")
    study = stored_study(snapshot)
    plugins.reject_changed(study.plugins)
    return study, plan
