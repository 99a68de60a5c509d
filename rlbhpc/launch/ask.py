"""From two models to samples in one go: write the study, fetch, launch, wait; and go on anywhere.

Each stage looks at what is there, so the same call after an interruption does what is left.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlbhpc.errors import INCOMPLETE, TRY_AGAIN, UserError
from rlbhpc.files import put
from rlbhpc.launch import slurm
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.cluster import HERE, choose, folders
from rlbhpc.launch.launches import at_work, launches
from rlbhpc.launch.prepare import SHARD_TOKENS, measured_rates, prepare
from rlbhpc.launch.status import Status, status
from rlbhpc.problems.problemset import FileSet
from rlbhpc.problems.registry import get_set
from rlbhpc.problems.stage import stage, stage_model
from rlbhpc.study.draft import (
    DEFAULT_SET,
    GENERATED_SET,
    ON_CPUS,
    ON_GPUS,
    Draft,
    ModelSource,
    is_own_file,
    read_sets,
    unedited_draft,
    write_study,
)
from rlbhpc.study.layout import Layout, entries
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, make_plan, read_presence
from rlbhpc.sweep.process import devices

Say = Callable[[str], None]
# Seconds between two looks at the queue, or at the jobs of this machine.
LOOK: Final = 60.0
LOOK_HERE: Final = 1.0
# Response tokens per second of a model of 7B on one GPU, where nothing was measured yet.
ORDINARY_RATE: Final = 2500.0


def draft(
    base: str, trained: str, sets: str | None, cluster: str | None, n: int | None = None,
    prompt: str | None = None,
) -> Draft:  # fmt: skip
    """What to ask about two models, at the size of where it will run."""
    models = ModelSource.read("--base", base), ModelSource.read("--trained", trained)
    if models[0].folder == models[1].folder:
        raise UserError(f"--base and --trained are both {models[0].folder}; name two models")
    if cluster is not None and cluster.endswith(".yaml"):
        raise UserError(
            f"--cluster {cluster}: a study names an entry of the cluster table; name "
            f"{Path(cluster).stem} after copying the file to {folders()[0]}"
        )
    if cluster is not None:
        choose(cluster)  # refuses an unknown name
    is_here = cluster == HERE if cluster else shutil.which("sbatch") is None
    size = ON_CPUS if is_here and not devices() else ON_GPUS
    usual = GENERATED_SET if models[0].is_toy else DEFAULT_SET
    return Draft(*models, read_sets(sets or usual), cluster, size, n, prompt)


def _usual_cluster() -> str | None:
    """Where a study runs that names no cluster: by the host's name, or here if it has no Slurm."""
    if shutil.which("sbatch") is None:
        return "local"
    # A login node must not do the work because its Slurm is away for a moment.
    if slurm.ask("sinfo", "--noheader") is None:
        raise UserError(
            "sbatch is here but Slurm does not answer; try again later, or work on this machine"
            " with --cluster local",
            TRY_AGAIN,
        )
    return None


def fetch(study: Draft, say: Say) -> None:
    """Fetch models and problem sets that are not here."""
    for model in (study.base, study.trained):
        if model.hub is not None and stage_model(model.hub, model.folder):
            say(f"fetched {model.hub} into {model.folder}")
    for name in _sets_to_fetch(study):
        manifest, _ = stage(name, Path("data"))
        problems = sum(part["count"] for part in manifest.problems.values())
        say(f"fetched {name}, {problems:,} problems")


def _sets_to_fetch(study: Draft) -> list[str]:
    registered = [name for name in study.problem_sets if not is_own_file(name)]
    public = [name for name in registered if isinstance(get_set(name), FileSet)]
    return [name for name in public if not Path("data", name).is_dir()]


def describe_dry_run(study: Draft, overrides: Sequence[str], say: Say) -> None:
    """Say what `ask` would fetch, or else what it would draw; nothing is written or sent."""
    models = (study.base, study.trained)
    absent = [model.hub for model in models if model.hub and not model.folder.is_dir()]
    absent += _sets_to_fetch(study)
    if absent:
        say(f"it would fetch {', '.join(absent)}; what it costs is known once they are here")
        return
    with tempfile.NamedTemporaryFile("w", dir=Path.cwd(), suffix=".yaml") as file:
        file.write(study.text(Path.cwd()))
        file.flush()
        resolved = load_study(Path(file.name), overrides)
    blocks = read_presence(resolved.layout, list(resolved.blocks()))
    plan = make_plan(resolved, blocks, SHARD_TOKENS)
    say(f"it would draw {plan.samples:,} samples, {_cost(resolved, plan)}")


def find_study(study: Draft, target: Path | None) -> Path:
    """Write the study file, or take the one that the same words have written.

    A file that other words wrote, and nobody edited, gives way where nothing is lost by it: while
    nothing was drawn or sent, or where the new words only add problem sets.
    """
    file = target or Path(f"{study.name}.yaml")
    if not file.is_file():
        if study.cluster is None:
            _usual_cluster()  # where Slurm is away, no file is to stand in the way of other words
        return write_study(study, target)
    command = file.read_text().partition("\n")[0]
    if command == study.command:
        return file
    earlier = unedited_draft(file)
    if earlier is not None:
        layout = load_study(file).layout
        is_begun = any(launch.tried for launch in launches(layout)) or _has_samples(layout)
        adds_sets = earlier == replace(study, problem_sets=earlier.problem_sets)
        adds_sets = adds_sets and set(earlier.problem_sets) <= set(study.problem_sets)
        if adds_sets or not is_begun:
            if not adds_sets:
                # What was planned of the other study is not missing in this one.
                for group in layout.groups():
                    layout.grid(*group).unlink(missing_ok=True)
            put(file, study.text(file.absolute().parent).encode())
            return file
    raise UserError(
        f"{file} is there, of other words; its samples are in use. To go on with it: rlbhpc launch "
        f"{file}. To change it, edit its `problem_sets` or `cluster` first. Written by: {command}"
    )


def _has_samples(layout: Layout) -> bool:
    folders = [f(*group) for group in layout.groups() for f in (layout.journals, layout.parts)]
    return any(map(entries, folders))


def make_results(
    file: Path, say: Say, overrides: Sequence[str] = (), options: dict[str, str] | None = None,
    confirm: Callable[[str], None] | None = None,
) -> Layout:  # fmt: skip
    """Launch what is missing of a study until nothing is, and give the run's place.

    ``options`` are those of sbatch. ``confirm`` is told what the first launch costs before it is
    written, and raises where that is too much.
    """
    study = load_study(file, overrides)
    cluster = study.file.cluster or _usual_cluster()
    is_here = cluster == HERE
    if is_here:
        _reject_lacking(study)
    cancelled = _cancelled_launches(study.layout)
    before: tuple[int, list[str]] | None = None
    while True:
        if is_here:
            _wait_for_earlier(study.layout, say)
        prepared = prepare(file, overrides, cluster=cluster, options=options)
        if not prepared.jobs and not prepared.notes:
            return study.layout
        if prepared.jobs:
            where = "this machine" if is_here else f"cluster {prepared.draft.cluster_name}"
            samples = f"{prepared.plan.samples:,} samples, {_cost(study, prepared.plan)}"
            if confirm is not None and not is_here:
                confirm(f"{where}: {samples}")
                confirm = None
            launch = write_prepared(prepared)
            jobs = ", ".join(job.name for job in prepared.jobs)
            say(f"launch {launch.folder.name} on {where}: {samples}; jobs {jobs}")
            launch.submit(say=say)
        if not is_here or prepared.notes:
            _watch(study.layout, say)
        if newly := _cancelled_launches(study.layout) - cancelled:
            raise UserError(
                f"launch {max(newly)} was cancelled; the same command again goes on from here",
                TRY_AGAIN,
            )
        now = status(study.layout)
        remaining = now.missing, now.behind
        if remaining == before and any(remaining):
            raise _no_progress_error(study.layout, now)
        before = remaining


def _cost(study: Study, plan: Plan) -> str:
    """What a plan takes: tokens, and hours of GPUs at the measured or an ordinary rate."""
    rates = measured_rates(study.layout)
    if rates is None and not devices() and shutil.which("sbatch") is None:
        return f"about {plan.tokens:,} tokens"
    rate = ORDINARY_RATE if rates is None else rates.tokens
    hours = plan.tokens / rate * study.file.engine.tensor_parallel / 3600
    basis = "assumed" if rates is None else "measured here"
    return f"about {plan.tokens:,} tokens: {hours:,.1f} GPU-hours at {rate:,.0f} tokens/s, {basis}"


def _reject_lacking(study: Study) -> None:
    """Refuse what this environment cannot draw; jobs of a cluster have one of their own."""
    needed = {"hf": "torch", "vllm": "vllm"}
    for engine in {study.engine(arm) for arm in study.arms}:
        if engine in needed and importlib.util.find_spec(needed[engine]) is None:
            extra = "train" if engine == "hf" else "vllm"
            raise UserError(
                f"engine {engine} needs {needed[engine]}, which is not installed here: in a"
                f" checkout, pip install '.[{extra}]'; or send the work to a cluster with"
                " --cluster NAME"
            )


def _wait_for_earlier(layout: Layout, say: Say) -> None:
    """Wait for jobs that outlived a killed call: they draw what would else be drawn now."""
    if holder := at_work(layout):
        say(f"{holder}; waiting for its end")
    while at_work(layout):
        time.sleep(LOOK_HERE)


def _watch(layout: Layout, say: Say) -> None:
    """Wait until no job of the run is in the queue; one line where something has changed.

    For jobs that Slurm hides nobody waits: they may be gone, and the next launch helps with them.
    """
    line = ""
    while True:
        now = status(layout)
        hidden = slurm.HIDDEN.lower()
        if now.queue is not None and all(state.startswith(hidden) for state in now.queue):
            return
        queue = "Slurm does not answer"
        if now.queue is not None:
            jobs = ", ".join(f"{count} {state}" for state, count in now.queue.items())
            queue = f"in the queue: {jobs}"
        for blocked in now.blocked:
            queue += f"; {blocked.cause}; what would start it: {blocked.action}"
        if line != (line := f"{now.missing:,} samples are missing; {queue}"):
            say(line)
        time.sleep(LOOK)


def _cancelled_launches(layout: Layout) -> set[str]:
    return {launch.path.name for launch in launches(layout) if launch.is_cancelled}


def _no_progress_error(layout: Layout, now: Status) -> UserError:
    """Say why launching again would not help."""
    causes = [f"{failure.cause}: {failure.action}" for failure in now.failures]
    what = f"{now.missing:,} samples are missing" if now.missing else "no report was made"
    return UserError(
        f"{what} and the last launch changed nothing; "
        f"{causes[0] if causes else 'its logs say why'}. See rlbhpc doctor {layout.root}",
        INCOMPLETE,
    )
