"""From two models to samples in one go: write the study, fetch, launch, wait; and go on anywhere.

Each stage looks at what is there, so the same call after an interruption does what is left.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rlbhpc.errors import INCOMPLETE, TRY_AGAIN, UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.cluster import HERE, choose, table_folders
from rlbhpc.launch.launches import describe_worker, list_launches
from rlbhpc.launch.prepare import (
    SHARD_TOKENS,
    Prepared,
    Rates,
    gpu_hours,
    measured_rates,
    prepare,
)
from rlbhpc.launch.status import Status, status
from rlbhpc.problems.problemset import FileSet
from rlbhpc.problems.prompts import SEARCH, get_prompt
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
    write_study,
)
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.search import describe_searches
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan, make_plan, read_presence
from rlbhpc.sweep.process import devices

Say = Callable[[str], None]
# Seconds between two looks at the queue, or at the jobs of this machine.
SECONDS_BETWEEN_LOOKS: Final = 60.0
SECONDS_BETWEEN_LOCAL_LOOKS: Final = 1.0
# Response tokens per second of a model of 7B on one GPU, where nothing was measured yet.
ORDINARY_TOKENS_PER_SECOND: Final = 2500.0
DATA_FOLDER: Final = Path("data")
# What an engine needs of the environment, and the extra of rlbhpc that installs it.
MODULE_AND_EXTRA: Final = {"hf": ("torch", "train"), "vllm": ("vllm", "vllm")}


def draft(
    base: str, trained: str, sets: str | None, cluster: str | None, n: int | None = None,
    prompt: str | None = None,
) -> Draft:  # fmt: skip
    """A draft of the study that compares two models: what to ask, at a size for where it will run.

    ``base`` and ``trained`` are folders, or names on the hub. ``sets`` are problem sets separated
    by commas, ``n`` is samples per problem. ``cluster`` is an entry of the cluster table, or
    `HERE`, this machine; without one, the work runs here where there is no Slurm. The table is a
    few folders of files, the user's own first.

    The size, which is numbers of samples and tokens, is that for processors where the work runs
    here and `devices` finds no GPU, else that for GPUs.
    """
    base_model = ModelSource.read("--base", base)
    trained_model = ModelSource.read("--trained", trained)
    if base_model.folder == trained_model.folder:
        raise UserError(f"--base and --trained are both {base_model.folder}; name two models")
    if cluster is not None and cluster.endswith(".yaml"):
        raise UserError(
            f"--cluster {cluster}: a study names an entry of the cluster table; name "
            f"{Path(cluster).stem} after copying the file to {table_folders()[0]}"
        )
    if cluster is not None:
        choose(cluster)  # refuses an unknown name
        runs_here = cluster == HERE
    else:
        runs_here = shutil.which("sbatch") is None
    size = ON_CPUS if runs_here and not devices() else ON_GPUS
    if prompt not in (None, SEARCH):
        get_prompt(prompt)  # refuses an unknown one
    default_set = GENERATED_SET if base_model.is_toy else DEFAULT_SET
    problem_sets = read_sets(sets or default_set)
    return Draft(base_model, trained_model, problem_sets, cluster, size, n, prompt)


def _default_cluster() -> str | None:
    """Where a study runs that names no cluster: `HERE`, this machine, where there is no Slurm.

    None where there is one: the host's name then decides which entry of the cluster table it is.
    """
    if shutil.which("sbatch") is None:
        return HERE
    # A login node must not do the work because its Slurm is away for a moment.
    if slurm.query("sinfo", "--noheader") is None:
        raise UserError(
            "sbatch is here but Slurm does not answer; try again later, or work on this machine"
            " with --cluster local",
            TRY_AGAIN,
        )
    return None


def fetch(study: Draft, say: Say) -> None:
    """Fetch the models and problem sets of a study that are not here.

    `stage_model` says whether it had to fetch a model. `stage` gives the manifest of a set, which
    lists the set's parts with their numbers of problems.
    """
    for model in (study.base, study.trained):
        if model.hub is not None and stage_model(model.hub, model.folder):
            say(f"fetched {model.hub} into {model.folder}")
    for name in _absent_sets(study):
        manifest, _ = stage(name, DATA_FOLDER)
        problems = sum(part["count"] for part in manifest.problems.values())
        say(f"fetched {name}, {problems:,} problems")


def _absent_sets(study: Draft) -> list[str]:
    """Names of a study's public problem sets that were not fetched yet.

    A `FileSet` comes as files from the hub. Sets that the user wrote, and sets that are generated,
    need no fetching.
    """
    absent = []
    for name in study.problem_sets:
        is_public = not is_own_file(name) and isinstance(get_set(name), FileSet)
        if is_public and not (DATA_FOLDER / name).is_dir():
            absent.append(name)
    return absent


def describe_dry_run(study: Draft, overrides: Sequence[str], say: Say) -> None:
    """Say what `ask` would fetch, or else what it would draw; nothing is fetched, kept or sent.

    The cost is known only once all models and sets are here. The study is then loaded from a file
    that exists for a moment. A plan lists the samples that are missing of each block, which is one
    model's answers to one problem set, split into shards of about `SHARD_TOKENS` tokens.
    """
    models = (study.base, study.trained)
    absent = [model.hub for model in models if model.hub and not model.folder.is_dir()]
    absent += _absent_sets(study)
    if absent:
        say(f"it would fetch {', '.join(absent)}; what it costs is known once they are here")
        return
    with tempfile.NamedTemporaryFile("w", dir=Path.cwd(), suffix=".yaml") as file:
        file.write(study.text(Path.cwd()))
        file.flush()
        resolved = load_study(Path(file.name), overrides)
    say(f"it would draw {_describe_whole_cost(resolved)}")


def find_study(study: Draft, target: Path | None) -> Path:
    """Write the study file, or take the one that the same words have written.

    ``study`` is the draft that this call's words make, ``target`` the file that the user named. A
    file that `ask` wrote begins with its command; one that other words wrote is refused.
    """
    file = target or Path(f"{study.name}.yaml")
    if not file.is_file():
        if study.cluster is None:
            _default_cluster()  # while Slurm is away, no file is to stand in the way of other words
        return write_study(study, target)
    command = file.read_text().partition("\n")[0]
    if command == study.command:
        return file
    raise UserError(
        f"{file} is there, of other words. To go on with it: rlbhpc launch {file}. To change it, "
        "edit it; to ask anew, name another file with -o or remove this one. Written by: "
        f"{command}"
    )


def make_results(
    file: Path, say: Say, overrides: Sequence[str] = (), options: dict[str, str] | None = None,
    confirm: Callable[[str], None] | None = None,
) -> Layout:  # fmt: skip
    """Launch what is missing of a study until nothing is, and give the run's place.

    ``options`` are those of sbatch. ``confirm`` is told what the first launch costs before it is
    written, and raises where that is too much.
    """
    study = load_study(file, overrides)
    layout = study.layout
    cluster = study.file.cluster or _default_cluster()
    runs_here = cluster == HERE
    if runs_here:
        _reject_absent_engines(study)
    cancelled_before = _cancelled_launches(layout)
    last_remaining: tuple[int, list[str]] | None = None
    while True:
        if runs_here:
            _wait_for_earlier(layout, say)
        prepared = prepare(file, overrides, cluster=cluster, options=options)
        if not prepared.jobs and not prepared.notes:
            return layout
        if prepared.jobs:
            if confirm is not None and not runs_here:
                confirm(f"cluster {prepared.draft.cluster_name}: {_describe_whole_cost(study)}")
                confirm = None
            cost = _describe_launch_cost(study, prepared)
            launch = write_prepared(prepared)
            job_names = ", ".join(job.name for job in prepared.jobs)
            say(f"launch {launch.folder.name} on {cost}; jobs {job_names}")
            launch.submit(say=say)
        if not runs_here or prepared.notes:
            _wait_for_queue(layout, say)
        newly_cancelled = _cancelled_launches(layout) - cancelled_before
        if newly_cancelled:
            raise UserError(
                f"launch {max(newly_cancelled)} was cancelled; the same command again goes on from"
                " here",
                TRY_AGAIN,
            )
        run_status = status(layout)
        remaining = (run_status.missing, run_status.behind)
        if remaining == last_remaining and any(remaining):
            raise _no_progress_error(layout, run_status, prepared.notes)
        last_remaining = remaining


def _describe_launch_cost(study: Study, prepared: Prepared) -> str:
    """Where a launch runs, and what it takes."""
    name = prepared.draft.cluster_name
    where = "this machine" if name == HERE else f"cluster {name}"
    return f"{where}: {prepared.plan.samples:,} samples, {_describe_cost(study, prepared.plan)}"


def _describe_whole_cost(study: Study) -> str:
    """What all missing samples of a study take, also those of arms that search for a prompt."""
    blocks = [study.block(*key) for key in study.block_keys(searching=True)]
    plan = make_plan(study, read_presence(study.layout, blocks), SHARD_TOKENS)
    searches = f"; {describe_searches(study)}" if study.searching else ""
    return f"{plan.samples:,} samples, {_describe_cost(study, plan)}{searches}"


def _describe_cost(study: Study, plan: Plan) -> str:
    """What a plan takes, in words: tokens, and hours of GPUs at the measured or an ordinary rate.

    A rate is tokens per second of one copy of the model, and a copy has ``tensor_parallel`` GPUs.
    On processors of which nothing was measured, only the tokens are told.
    """
    tokens = f"about {plan.tokens:,} tokens"
    runs_here = study.file.cluster == HERE or shutil.which("sbatch") is None
    rates = measured_rates(read_attempts(study.layout))
    if rates is None:
        if runs_here and not devices():
            return tokens  # nobody knows how fast these processors are
        rates = Rates(ORDINARY_TOKENS_PER_SECOND, 0.0, "assumed")
    hours = gpu_hours(plan, rates, study.file.engine.tensor_parallel)
    return f"{tokens}: {hours:,.1f} GPU-hours at {rates.tokens:,.0f} tokens/s, {rates.source}"


def _reject_absent_engines(study: Study) -> None:
    """Refuse a study whose engines are not installed in this environment.

    An engine is what samples from a model, such as vllm. Only work on this machine is checked: jobs
    of a cluster have an environment of their own.
    """
    for engine in {study.engine(arm) for arm in study.arms}:
        if engine not in MODULE_AND_EXTRA:
            continue
        module, extra = MODULE_AND_EXTRA[engine]
        if importlib.util.find_spec(module) is None:
            raise UserError(
                f"engine {engine} needs {module}, which is not installed here: in a checkout, pip"
                f" install '.[{extra}]'; or send the work to a cluster with --cluster NAME"
            )


def _wait_for_earlier(layout: Layout, say: Say) -> None:
    """Wait for jobs that outlived a killed call: they draw what would else be drawn now."""
    worker = describe_worker(layout)
    if worker:
        say(f"{worker}; waiting for its end")
    while describe_worker(layout):
        time.sleep(SECONDS_BETWEEN_LOCAL_LOOKS)


def _wait_for_queue(layout: Layout, say: Say) -> None:
    """Wait until no job of the run is in the queue; one line where something has changed.

    The queue of a status counts the jobs by their state in words; it is None where Slurm does not
    answer. For jobs that Slurm hides nobody waits: they may be gone.
    """
    last_line = ""
    while True:
        run_status = status(layout)
        if run_status.queue is None:
            queue = "Slurm does not answer"
        else:
            visible_states = []
            for state, count in run_status.queue.items():
                if not state.startswith(slurm.HIDDEN.lower()):
                    visible_states.append(f"{count} {state}")
            if not visible_states:
                return
            queue = f"in the queue: {', '.join(visible_states)}"
        for blocked in run_status.blocked:
            queue += f"; {blocked.cause}; what would start it: {blocked.action}"
        line = f"{run_status.missing:,} samples are missing; {queue}"
        if line != last_line:
            say(line)
            last_line = line
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _cancelled_launches(layout: Layout) -> set[str]:
    return {launch.path.name for launch in list_launches(layout) if launch.is_cancelled}


def _no_progress_error(layout: Layout, run_status: Status, notes: Sequence[str]) -> UserError:
    """An error that says why launching again would not help.

    ``run_status`` has the number of missing samples and the failures of jobs, each with its cause
    and what to do. ``notes`` name launches that may still run.
    """
    what = "no report was made"
    if run_status.missing:
        what = f"{run_status.missing:,} samples are missing"
    why = "its logs say why"
    if run_status.failures:
        failure = run_status.failures[0]
        why = f"{failure.cause}: {failure.action}"
    elif notes:
        why = f"{notes[0]}; if it is over, rlbhpc cancel {layout.root} marks it"
    return UserError(
        f"{what} and the last launch changed nothing; {why}. See rlbhpc doctor {layout.root}",
        INCOMPLETE,
    )
