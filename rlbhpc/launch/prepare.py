"""From a study to the jobs of one launch: what is missing, less what live jobs are making."""

from __future__ import annotations

import getpass
import heapq
import importlib.util
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from rlbhpc import plugins
from rlbhpc.debug_log import keep
from rlbhpc.engines.completion import Finish
from rlbhpc.engines.engine import VLLM_MEMORY
from rlbhpc.engines.folder import weight_bytes
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import Cluster, choose, copies_per_task
from rlbhpc.launch.jobs import SEALED_TOGETHER, Job, ends_of, jobs_of, outdated_jobs
from rlbhpc.launch.launches import (
    Gaps,
    LaunchFolder,
    at_work,
    find_launches,
    in_queue,
    reject_namesake,
)
from rlbhpc.launch.script import Draft, with_gpus
from rlbhpc.problems.problem import Problem
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import set_aside, untrained_models
from rlbhpc.study.load import load_study
from rlbhpc.study.plugin_check import first_call
from rlbhpc.study.study import Study
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.load import check_engines, check_verifiers
from rlbhpc.sweep.plan import Plan, Presence, Shard, make_plan, read_presence
from rlbhpc.sweep.remember import store_study
from rlbhpc.train.rewards import REWARDS, Judged, make_reward
from rlbhpc.verify.registry import KINDS
from rlbhpc.verify.running.pool import reject_raising_verifier
from rlbhpc.verify.verdict import Status, Verdict

# Expected response tokens of one shard.
SHARD_TOKENS = 50_000_000
GIB = 2**30
# GPUs of a large node, where the cluster's file names no more.
NODE_GPUS = 8


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
    study: Path,
    overrides: Sequence[str] = (),
    *,
    cluster: str | None = None,
    options: dict[str, str] | None = None,
    only: str | None = None,
    width: int | None = None,
    throttle: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    retry_failed: bool = False,
    retrain: bool = False,
) -> Prepared:
    """Plan a launch; writes the plan and the study's snapshot, and no script."""
    resolved = load_study(study, overrides)
    reject_namesake(resolved)
    keep(resolved.layout.logs, "launch")
    name, entry = choose(cluster or resolved.file.cluster)
    if throttle is not None:
        entry = entry.model_copy(update={"throttle": throttle})
    entry = with_gpus(entry, options or {})
    if holder := at_work(resolved.layout):
        raise UserError(
            f"{holder}; wait for its end, or look: rlbhpc status {resolved.layout.root}", TRY_AGAIN
        )
    folders = find_launches(resolved.layout)
    rows = in_queue(resolved, folders)
    running = [_Running(folder, own) for folder in folders if (own := folder.own(rows or ()))]
    retired = _retire(resolved, running) if retrain else []
    training = reject_what_jobs_would(resolved, entry)
    present = read_presence(resolved.layout, list(resolved.blocks()))
    _refuse_twice(running, training)
    copies = copies_per_task(entry, resolved.file.engine.tensor_parallel)
    missing = _uncovered(resolved, present, running)
    plan = make_plan(resolved, missing, shard_tokens, retry_failed, copies)
    shards: Sequence[Shard] = plan.shards
    if running and not shards:
        plan, shards = _help(resolved, present, running) or (plan, ())
    # What is refused above leaves the study of the jobs that wait as it is.
    judged = tuple(store_study(resolved))
    counted: tuple[str, ...] = ()
    if rows is not None or shutil.which("squeue") is None:
        counted = tuple(script for folder in folders for script in folder.by_script)
    draft = Draft(resolved, plan.name, entry, name, options or {}, counted=counted)
    notes = (*retired, *(launch.note for launch in running))
    jobs: list[Job] = []
    if shards or training:
        jobs = jobs_of(resolved, plan, entry, width, shards)
        jobs = _only(jobs, {job.name for job in jobs if only in (None, job.kind)})
    elif not running and not any(p.missing for p in present):
        # Nothing to sample, but what follows may have failed.
        jobs = _only(ends_of(), outdated_jobs(resolved.layout))
    if jobs:
        plan.save(resolved.layout.plans)
    return Prepared(draft, plan, jobs, notes, judged)


def reject_what_jobs_would(study: Study, cluster: Cluster) -> list[str]:
    """Refuse what a job of a cluster would; gives the models to train.

    Models, engines, verifiers, recipes and parts of the user's own are looked at, and whether the
    GPUs hold what is loaded.
    """
    training = untrained_models(study, study.models)
    check_engines(study)
    check_verifiers(study)
    if training:
        from rlbhpc.train.recipes import check_recipes  # loads torch where it is

        check_recipes(study)
    _reject_large_copies(study, cluster)
    # Models as large as that are not forecast without torch, as on some login nodes.
    if training and cluster.gpu_memory and importlib.util.find_spec("torch") is not None:
        from rlbhpc.train.forecast import forecast, refuse_what_cannot_fit

        ranks = max(1, cluster.train.gpus * cluster.train.nodes)
        limit = cluster.gpu_memory * GIB
        for name in training:
            refuse_what_cannot_fit(study, forecast(study, name, ranks, limit), limit)
    _try_own_verifiers(study)
    try_own_rewards(study, training)
    return training


def _reject_large_copies(study: Study, cluster: Cluster) -> None:
    """Refuse to sample from a model that the GPUs of its copy are too small for."""
    gpus_per_copy = study.file.engine.tensor_parallel
    most = max(NODE_GPUS, cluster.sample.gpus, cluster.train.gpus)
    if gpus_per_copy > most:
        raise UserError(
            f"engine.tensor_parallel: found {gpus_per_copy}; allowed: 1 to {most}, since a copy of"
            " a model lies on one node; if yours have more GPUs, name them in `gpus` under `sample`"
            " of the cluster's file"
        )
    if cluster.gpu_memory is None:
        return
    options = study.file.engine.options
    for model, engine in {study.arms[arm].model: study.engine(arm) for arm in study.arms}.items():
        # vLLM can make weights smaller as it loads them, or keep some in the host's memory.
        if engine == "vllm" and {"quantization", "cpu_offload_gb"} & {*options.get("options", ())}:
            continue
        folder = None if engine == "endpoint" else _folder_like(study, model)
        if folder is None:
            continue
        needed = weight_bytes(folder, study.file.engine.dtype) / GIB
        gpus, share = 1, 1.0
        if engine == "vllm":
            gpus, share = gpus_per_copy, options.get("memory", VLLM_MEMORY)
        room = cluster.gpu_memory * share
        if needed > gpus * room:
            enough = next((n for n in (2, 4, 8, most) if needed <= n * room), None)
            way_out = f"`tensor_parallel: {enough}` under `engine`, with vllm, is enough"
            if enough is None:
                way_out = "no node holds it; take a smaller model or larger GPUs"
            raise UserError(
                f"model {model}: its weights take {needed:,.1f} GiB, and {gpus} of the cluster's"
                f" GPUs have {gpus * room:,.1f} for them; {way_out}"
            )


def _folder_like(study: Study, model: str) -> Path | None:
    """Where a model is that is as large as this one: itself, or what it is trained from."""
    folder = study.folder(model, study.last_step(model))
    base = study.base(model)
    if (folder / "config.json").is_file():
        return folder
    return None if base is None else _folder_like(study, base)


def _try_own_verifiers(study: Study) -> None:
    """Call each verifier that is none of rlbhpc's on a problem of its set."""
    for name, entry in study.problem_sets.items():
        if entry.verifier and entry.verifier not in KINDS:
            for problem in study.problems(name)[:1]:
                reject_raising_verifier(problem)


def try_own_rewards(study: Study, models: Sequence[str]) -> None:
    """Call the rewards that are none of rlbhpc's on responses to a problem of their recipe."""
    training = [study.models[model].train for model in models]
    for name in dict.fromkeys(entry.recipe for entry in training if entry is not None):
        recipe = study.file.recipes[name]
        rewards = {**recipe.options.get("rewards", {})}
        own = {reward: rewards[reward] for reward in rewards if reward not in REWARDS}
        if own and recipe.problems is not None:
            [problem] = study.problems(recipe.problems)[:1]
            place = f"reward {', '.join(own)}: on a response to {problem.id}: it"
            first_call(partial(_reward, problem, own), place)


def _reward(problem: Problem, rewards: Mapping[str, float]) -> None:
    logprobs = np.zeros(1, np.float32)
    with ExitStack() as stack:
        copies = {name: stack.enter_context(plugins.isolated_plugin(name)) for name in rewards}
        reward = make_reward({copies[name]: weight for name, weight in rewards.items()})
        for text, status in ((problem.gold, Status.RIGHT), ("", Status.NO_ANSWER)):
            reward(Judged(problem, text, 1, 1, Finish.EOS, Verdict(status), logprobs=logprobs))


@dataclass(frozen=True)
class _Running:
    """A launch of which jobs are in the queue."""

    folder: LaunchFolder
    rows: list[slurm.Row]

    @property
    def note(self) -> str:
        row = self.rows[0]
        owner = "" if self.is_ours else f" of {row.user}"
        is_hidden = any(row.state == slurm.HIDDEN for row in self.rows)
        place = "may be in the queue, which the site hides" if is_hidden else "is in the queue"
        return (
            f"launch {self.folder.path.name}{owner} {place}: {len(self.rows)} jobs, the first is"
            f" {row.job}"
        )

    @property
    def is_ours(self) -> bool:
        return self.rows[0].user in ("", getpass.getuser())


def _retire(study: Study, running: Sequence[_Running]) -> list[str]:
    """Set aside what another recipe has trained, unless jobs may be using it."""
    if running:
        raise UserError(
            f"{running[0].note}; --retrain would move weights away under it. Wait for it, or end"
            f" it: rlbhpc cancel {study.layout.root}"
        )
    return [f"set aside: {path} (can be deleted)" for path in set_aside(study, study.models)]


def _refuse_twice(running: Sequence[_Running], training: Sequence[str]) -> None:
    """A model is trained by one job; samples of it are that launch's, too."""
    for launch in running:
        for name in training:
            number = launch.folder.submitted.get(f"train-{name}", [-1])[-1]
            if any(row.job == number for row in launch.rows):
                raise UserError(
                    f"{launch.note}; job {number} trains {name}. Wait for it, or end it:"
                    f" rlbhpc cancel {launch.folder.path.parents[1]}"
                )


def _uncovered(
    study: Study, present: Sequence[Presence], running: Sequence[_Running]
) -> list[Presence]:
    """What is there, with what live jobs are making counted as there."""
    spans: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
    for shard in (shard for launch in running for shard, _ in _shards(study, launch)):
        for span in shard.spans:
            cell = (span.arm, span.set_name, span.step)
            spans.setdefault(cell, []).append((span.problem, span.start, span.stop))
    return [
        p.with_samples_present(spans.get((p.block.arm, p.block.set_name, p.block.step), ()))
        for p in present
    ]


def _shards(study: Study, launch: _Running) -> list[tuple[Shard, str]]:
    """Shards of a launch that live jobs have, with the state of the job."""
    plan = Plan.load(study.layout.plans / f"{launch.folder.plan}.json")
    states: dict[int, str] = {}
    for row, numbers in launch.folder.worked(launch.rows):
        for number in numbers:
            states.setdefault(number, row.state)
    return [(plan.shards[number], state) for number, state in sorted(states.items())]


def _help(
    study: Study, present: Sequence[Presence], running: Sequence[_Running]
) -> tuple[Plan, list[Shard]] | None:
    """Shards of somebody else's launch that no job has begun; ours would only wait twice."""
    gaps = Gaps(present)
    for launch in running:
        plan = Plan.load(study.layout.plans / f"{launch.folder.plan}.json")
        ours = {
            shard.number
            for other in running
            if other.is_ours and other.folder.plan == launch.folder.plan
            for shard, _ in _shards(study, other)
        }
        waiting = [
            shard
            for shard, state in _shards(study, launch)
            if state in ("PENDING", slurm.HIDDEN) and shard.number not in ours and gaps.of(shard)
        ]
        if waiting and not launch.is_ours:
            return plan, waiting
    return None


def _only(jobs: list[Job], names: Collection[str]) -> list[Job]:
    """Some of the jobs; those that they waited for are gone, so they wait for fewer."""
    named_jobs = [job for job in jobs if job.name in names]
    return [replace(job, after=tuple(n for n in job.after if n in names)) for job in named_jobs]


# What a plan will cost, from rates that were measured or given.


# Sealed or not, a response takes about so much where nothing was stored yet to measure it on.
BYTES_PER_TOKEN: Final = 6.0
BYTES_PER_SAMPLE: Final = 120.0
# Files of a launch besides one script per wave: parent, submit.sh, record, ids, two light jobs
# with their logs, the plan and the study.
FIXED_FILES: Final = 12


@dataclass(frozen=True)
class Rates:
    """How fast one worker is: response tokens per second once loaded, and seconds until loaded."""

    tokens: float
    start: float
    source: str


@dataclass(frozen=True)
class Prediction:
    """What a plan will cost.

    ``gpu_hours`` counts the GPUs of each worker, its start included; ``start_share`` is the part
    of that time in which models load.
    """

    gpu_hours: float
    start_share: float
    wall_seconds: float
    files: int
    megabytes: float
    sbatch_calls: int


def measured_rates(layout: Layout) -> Rates | None:
    """Rates of the workers that have ended, over all launches of a run."""
    loads, tokens, seconds = [], 0, 0.0
    for attempt in read_attempts(layout):
        if "ended" in attempt and "loaded" in attempt and attempt.get("tokens"):
            loads.append(attempt["loaded"] - attempt["started"])
            tokens += attempt["tokens"]
            seconds += attempt["ended"] - attempt["loaded"]
    if seconds <= 0:
        return None
    return Rates(tokens / seconds, sum(loads) / len(loads), f"{len(loads)} attempts of this run")


def predict(
    plan: Plan, rates: Rates, cluster: Cluster, width: int, gpus_per_copy: int = 1
) -> Prediction:
    """Cost of a plan on ``width`` workers at a time.

    A worker holds one copy of the model, on ``gpus_per_copy`` GPUs.
    """
    times = [rates.start + shard.tokens / rates.tokens for shard in plan.shards]
    busy = sum(times)
    tasks = -(-len(times) // copies_per_task(cluster, gpus_per_copy))
    waves = -(-tasks // cluster.max_array_size)
    sealed_waves = -(-SEALED_TOGETHER // cluster.max_array_size)
    seals = max(0, waves - 1) // sealed_waves
    groups = sum(len({(s.arm, s.set_name) for s in shard.spans}) for shard in plan.shards)
    size = plan.tokens * BYTES_PER_TOKEN + plan.samples * BYTES_PER_SAMPLE
    return Prediction(
        gpu_hours=busy * gpus_per_copy / 3600,
        start_share=rates.start * len(times) / busy if busy else 0.0,
        wall_seconds=wall_seconds(times, width),
        # One journal per arm and set of a shard, one attempt and one log per task.
        files=groups + len(times) + tasks + waves + 2 * seals + FIXED_FILES,
        megabytes=size / 1e6,
        sbatch_calls=waves + seals + 2,
    )


def wall_seconds(times: Iterable[float], width: int) -> float:
    """Seconds until all is done when ``width`` workers take one piece after the other, in order."""
    free = [0.0] * width
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
