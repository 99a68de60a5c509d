"""From a study to the jobs of one launch: what is missing, less what live jobs are making."""

from __future__ import annotations

import getpass
import importlib.util
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlbhpc import plugins
from rlbhpc.debug_log import keep
from rlbhpc.engines.completion import Finish
from rlbhpc.engines.engine import VLLM_MEMORY
from rlbhpc.engines.folder import weight_bytes
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch.cluster import HERE, Cluster, choose, copies_per_task
from rlbhpc.launch.jobs import Job, closing_jobs, jobs_of, list_outdated_jobs
from rlbhpc.launch.launches import (
    LaunchFolder,
    describe_worker,
    find_live_jobs,
    recover_launches,
    reject_namesake,
)
from rlbhpc.launch.script import Draft, with_requested_gpus
from rlbhpc.launch.slurm import HIDDEN, QueueRow
from rlbhpc.problems.problem import Problem
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import untrained_models
from rlbhpc.study.load import load_study
from rlbhpc.study.plugin_check import import_alone
from rlbhpc.study.study import Study
from rlbhpc.sweep.load import check_engines, check_verifiers
from rlbhpc.sweep.plan import Plan, Presence, make_plan, read_presence
from rlbhpc.sweep.remember import store_study
from rlbhpc.sweep.search import choose_prompts
from rlbhpc.train.rewards import REWARDS, Judged, make_reward
from rlbhpc.verify.registry import KINDS
from rlbhpc.verify.running.pool import reject_raising_verifier
from rlbhpc.verify.verdict import Status, Verdict

# Expected response tokens of one shard.
SHARD_TOKENS: Final = 50_000_000
BYTES_PER_GIB: Final = 2**30
# GPUs of a large node, where the cluster's file names no more.
GPUS_OF_LARGE_NODE: Final = 8


@dataclass(frozen=True)
class Prepared:
    """A launch that can be written; ``jobs`` is empty where there is nothing to do.

    ``notes`` say what runs already. ``judged`` are sets that another verifier judges than before.
    """

    draft: Draft
    plan: Plan
    jobs: list[Job]
    notes: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()


def prepare(
    study_file: Path,
    overrides: Sequence[str] = (),
    *,
    cluster: str | None = None,
    options: dict[str, str] | None = None,
    only: str | None = None,
    width: int | None = None,
    throttle: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    retry_failed: bool = False,
) -> Prepared:
    """Plan a launch; writes the plan and the study's snapshot, and no script.

    ``options`` are those of sbatch by their long names, ``only`` is the kind of job to keep. The
    rows are the jobs in the queue, None where Slurm does not answer. A block is the samples of one
    arm on one problem set, and ``present`` says which of them are stored. What jobs in the queue
    are making is counted as stored, so that the plan does not ask for it again.
    """
    study = choose_prompts(load_study(study_file, overrides))
    reject_namesake(study)
    keep(study.layout.logs, "launch")
    cluster_name, site = choose(cluster or study.file.cluster)
    if throttle is not None:
        site = site.model_copy(update={"throttle": throttle})
    site = with_requested_gpus(site, options or {})
    _reject_other_worker(study.layout)
    launches = recover_launches(study.layout)
    rows = find_live_jobs(study, launches)
    running_launches = _pair_with_rows(launches, rows or ())
    models = reject_what_jobs_would(study, site)
    _reject_second_training(running_launches, models)
    present = read_presence(study.layout, list(study.blocks()))
    plan = make_plan(
        study,
        _count_running_as_present(study, present, running_launches),
        shard_tokens,
        retry_failed,
        copies_per_task(site, study.file.engine.tensor_parallel),
    )
    # What is refused above leaves the study of the jobs that wait as it is.
    judged = tuple(store_study(study))
    jobs: list[Job] = []
    if plan.shards or models:
        if cluster_name == HERE:
            width = 1  # one task after the other, each with all GPUs of this machine
        jobs = jobs_of(study, plan, site, width)
        jobs = _keep_jobs(jobs, {job.name for job in jobs if only in (None, job.kind)})
    elif not running_launches and not any(block.missing for block in present):
        # Nothing to sample, but what follows may have failed.
        jobs = _keep_jobs(closing_jobs(), list_outdated_jobs(study.layout))
    if jobs:
        plan.save(study.layout.plans)
    counted: list[str] = []
    if rows is not None or shutil.which("squeue") is None:
        for launch in launches:
            counted += sorted(launch.submitted_scripts)
    draft = Draft(study, plan.name, site, cluster_name, options or {}, counted=tuple(counted))
    notes = tuple(running.note for running in running_launches)
    return Prepared(draft, plan, jobs, notes, judged)


def _reject_other_worker(layout: Layout) -> None:
    worker = describe_worker(layout)
    if worker:
        raise UserError(
            f"{worker}; wait for its end, or look: rlbhpc status {layout.root}", TRY_AGAIN
        )


def reject_what_jobs_would(study: Study, cluster: Cluster) -> list[str]:
    """Refuse what a job of a cluster would; gives the models to train.

    Models, engines, verifiers, recipes and parts of the user's own are looked at, and whether the
    GPUs hold what is loaded: ``gpu_memory`` is GiB of one GPU, and a rank is the process of one GPU
    in a training.
    """
    models = untrained_models(study, study.models)
    import_alone(study.plugins)
    check_engines(study)
    check_verifiers(study)
    if models:
        from rlbhpc.train.recipes import check_recipes  # loads torch where it is

        check_recipes(study)
    _reject_large_copies(study, cluster)
    # A login node without torch cannot forecast a training.
    if models and cluster.gpu_memory and importlib.util.find_spec("torch") is not None:
        from rlbhpc.train.forecast import forecast, refuse_what_cannot_fit

        ranks = max(1, cluster.train.gpus * cluster.train.nodes)
        memory_bytes = cluster.gpu_memory * BYTES_PER_GIB
        for name in models:
            refuse_what_cannot_fit(forecast(study, name, ranks, memory_bytes), memory_bytes)
    _try_own_verifiers(study)
    try_own_rewards(study, models)
    return models


def _reject_large_copies(study: Study, cluster: Cluster) -> None:
    """Refuse to sample from a model that the GPUs of its copy are too small for.

    A copy is a model loaded once; with vLLM it is spread over ``tensor_parallel`` GPUs of one node.
    ``gpu_memory`` is GiB of one GPU, of which vLLM uses a share. A model that is not trained yet is
    as large as what it is trained from. An endpoint is a server elsewhere.
    """
    engine = study.file.engine
    gpus_per_node = max(GPUS_OF_LARGE_NODE, cluster.sample.gpus, cluster.train.gpus)
    if engine.tensor_parallel > gpus_per_node:
        raise UserError(
            f"engine.tensor_parallel: found {engine.tensor_parallel}; allowed: 1 to"
            f" {gpus_per_node}, since a copy of a model lies on one node; if yours have more GPUs,"
            " name them in `gpus` under `sample` of the cluster's file"
        )
    if cluster.gpu_memory is None:
        return
    engine_by_model = {study.arms[arm].model: study.engine(arm) for arm in study.arms}
    vllm_options = engine.options.get("options", {})
    for model, engine_name in engine_by_model.items():
        if engine_name == "endpoint":
            continue
        folder = _folder_of_equal_size(study, model)
        if folder is None:
            continue
        gpus = 1
        usable_share = 1.0
        if engine_name == "vllm":
            # vLLM can make weights smaller as it loads them, or keep some in the host's memory.
            if "quantization" in vllm_options or "cpu_offload_gb" in vllm_options:
                continue
            gpus = engine.tensor_parallel
            usable_share = engine.options.get("memory", VLLM_MEMORY)
        weights_gib = weight_bytes(folder, engine.dtype) / BYTES_PER_GIB
        usable_gib = cluster.gpu_memory * usable_share
        if weights_gib > gpus * usable_gib:
            raise UserError(
                f"model {model}: its weights take {weights_gib:,.1f} GiB, and {gpus} of the"
                f" cluster's GPUs have {gpus * usable_gib:,.1f} for them;"
                f" {_advise_larger_copy(weights_gib / usable_gib, gpus_per_node)}"
            )


def _advise_larger_copy(needed_gpus: float, gpus_per_node: int) -> str:
    """What to change where a copy of a model has fewer GPUs than it needs."""
    for gpus in (2, 4, 8, gpus_per_node):
        if needed_gpus <= gpus:
            return f"`tensor_parallel: {gpus}` under `engine`, with vllm, is enough"
    return "no node holds it; take a smaller model or larger GPUs"


def _folder_of_equal_size(study: Study, model: str) -> Path | None:
    """Folder of a model that is as large as this one: itself, or what it is trained from."""
    folder = study.folder(model, study.last_step(model))
    if (folder / "config.json").is_file():
        return folder
    base = study.base(model)
    return None if base is None else _folder_of_equal_size(study, base)


def _try_own_verifiers(study: Study) -> None:
    """Call each verifier that is none of rlbhpc's on a problem of its set."""
    for name, entry in study.problem_sets.items():
        if entry.verifier and entry.verifier not in KINDS:
            for problem in study.problems(name)[:1]:
                reject_raising_verifier(problem)


def try_own_rewards(study: Study, models: Sequence[str]) -> None:
    """Call the rewards that are none of rlbhpc's on responses to a problem of their recipe.

    A user's reward that raises an error is so found before any job is sent. `REWARDS` are rlbhpc's
    own, and a recipe's "rewards" are weights by name.
    """
    trainings = [study.models[model].train for model in models]
    recipe_names = {training.recipe for training in trainings if training is not None}
    for recipe_name in sorted(recipe_names):
        recipe = study.file.recipes[recipe_name]
        rewards = recipe.options.get("rewards", {})
        own_rewards = {name: rewards[name] for name in rewards if name not in REWARDS}
        for component in recipe.components if own_rewards else ():
            problem = study.problems(component.problems)[0]
            _call_rewards(problem, own_rewards)


def _call_rewards(problem: Problem, weights: Mapping[str, float]) -> None:
    """Reward a right response and an empty one, each reward in a copy of its plugin.

    ``weights`` has the weight of each reward by its name. The plugin is a Python file of the
    user's; a copy is loaded so that the call leaves nothing behind in the real one.
    ``problem.gold`` is the right answer.
    """
    logprobs = np.zeros(1, np.float32)
    with ExitStack() as stack:
        weights_of_copies = {}
        for name, weight in weights.items():
            copy = stack.enter_context(plugins.isolated_plugin(name))
            weights_of_copies[copy] = weight
        reward = make_reward(weights_of_copies)
        for text, status in ((problem.gold, Status.RIGHT), ("", Status.NO_ANSWER)):
            reward(Judged(problem, text, 1, 1, Finish.EOS, Verdict(status), logprobs=logprobs))


@dataclass(frozen=True)
class _RunningLaunch:
    """A launch of which jobs are in the queue: these are its ``rows``."""

    folder: LaunchFolder
    rows: list[QueueRow]

    @property
    def note(self) -> str:
        """What a user is told of the launch, such as "launch 0003 is in the queue"."""
        first_row = self.rows[0]
        is_foreign = first_row.user not in ("", getpass.getuser())
        owner = f" of {first_row.user}" if is_foreign else ""
        is_hidden = any(row.state == HIDDEN for row in self.rows)
        where = "may be in the queue, which the site hides" if is_hidden else "is in the queue"
        return (
            f"launch {self.folder.path.name}{owner} {where}: {len(self.rows)} jobs, the first is"
            f" {first_row.job}"
        )


def _pair_with_rows(
    launches: Sequence[LaunchFolder], rows: Sequence[QueueRow]
) -> list[_RunningLaunch]:
    """The launches that have jobs in the queue, each with these jobs as squeue prints them."""
    running_launches = []
    for launch in launches:
        own_rows = launch.own_rows(rows)
        if own_rows:
            running_launches.append(_RunningLaunch(launch, own_rows))
    return running_launches


def _reject_second_training(
    running_launches: Sequence[_RunningLaunch], models: Sequence[str]
) -> None:
    """Refuse to train a model that a job in the queue trains.

    ``models`` are those that the new launch would train. Samples of them are made by that job's
    launch, too.
    """
    for launch in running_launches:
        for model in models:
            job_ids = launch.folder.submitted.get(f"train-{model}", [])
            if job_ids and any(row.job == job_ids[-1] for row in launch.rows):
                raise UserError(
                    f"{launch.note}; job {job_ids[-1]} trains {model}. Wait for it, or end it:"
                    f" rlbhpc cancel {launch.folder.path.parents[1]}"
                )


def _count_running_as_present(
    study: Study, present: Sequence[Presence], running_launches: Sequence[_RunningLaunch]
) -> list[Presence]:
    """What is there, with what live jobs are making counted as there.

    A block is the samples of one arm on one problem set at one step; ``present`` says for each
    which of them are stored. The shards of a launch that have a job in the queue are looked up in
    its plan. A shard is a list of spans: samples ``start`` to before ``stop`` of one problem.
    """
    ranges_of_block: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
    for launch in running_launches:
        plan = Plan.load(study.layout.plans / f"{launch.folder.plan}.json")
        shard_numbers: set[int] = set()
        for _, numbers in launch.folder.pair_shards(launch.rows):
            shard_numbers.update(numbers)
        for number in sorted(shard_numbers):
            for span in plan.shards[number].spans:
                key = (span.arm, span.set_name, span.step)
                sample_range = (span.problem, span.start, span.stop)
                ranges_of_block.setdefault(key, []).append(sample_range)
    counted = []
    for block_presence in present:
        block = block_presence.block
        ranges = ranges_of_block.get((block.arm, block.set_name, block.step), ())
        counted.append(block_presence.with_samples_present(ranges))
    return counted


def _keep_jobs(jobs: list[Job], names: Collection[str]) -> list[Job]:
    """The jobs of these names; those that they waited for may be gone, so they wait for fewer."""
    kept_jobs = []
    for job in jobs:
        if job.name in names:
            after = tuple(name for name in job.after if name in names)
            kept_jobs.append(replace(job, after=after))
    return kept_jobs


# What a plan will cost, from rates that were measured or given.


SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True)
class Rates:
    """How fast one worker is: response tokens per second once loaded, and seconds until loaded."""

    tokens: float
    start: float
    source: str


def measured_rates(attempts: Iterable[Mapping[str, Any]]) -> Rates | None:
    """How fast the workers of a run were, over all its launches; None if none has ended.

    An attempt is the record of one worker: when it started, had loaded its model and ended, in
    seconds, and how many response tokens it made. `Rates` has tokens per second after loading, and
    the mean seconds of loading.
    """
    load_seconds = []
    tokens = 0
    work_seconds = 0.0
    for attempt in attempts:
        if "ended" in attempt and "loaded" in attempt and attempt.get("tokens"):
            load_seconds.append(attempt["loaded"] - attempt["started"])
            tokens += attempt["tokens"]
            work_seconds += attempt["ended"] - attempt["loaded"]
    if work_seconds <= 0:
        return None
    mean_load = sum(load_seconds) / len(load_seconds)
    return Rates(tokens / work_seconds, mean_load, f"{len(load_seconds)} attempts of this run")


def gpu_hours(plan: Plan, rates: Rates, gpus_per_copy: int) -> float:
    """Hours of GPUs that a plan takes, where each shard loads a copy of the model."""
    worker_seconds = sum(rates.start + shard.tokens / rates.tokens for shard in plan.shards)
    return worker_seconds * gpus_per_copy / SECONDS_PER_HOUR
