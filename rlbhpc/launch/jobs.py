"""The jobs of a launch and their order: train → sample → score → compact → report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Final, Literal

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import Cluster, copies_per_task
from rlbhpc.store import cube
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import checkpoint_exists, untrained_models
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Shard

Kind = Literal["train", "sample", "light"]


@dataclass(frozen=True)
class Job:
    """One batch script.

    ``words`` are the arguments of ``rlbhpc``. The jobs in ``after`` must have ended, well or not:
    each job looks itself at what is there. ``tasks`` are the shards of each array task, empty for a
    job that is no array. Without the checkpoint (model, step) that it ``needs`` it has nothing to
    do; it ``releases`` checkpoints that other jobs need and that appear while it runs: (model,
    step, job). A job that asks a server needs no ``gpu``. ``grows`` are patterns of the files that
    grow, or appear, when it makes something new.
    """

    name: str
    kind: Kind
    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tasks: tuple[tuple[int, ...], ...] = ()
    needs: tuple[str, int] | None = None
    releases: tuple[tuple[str, int, str], ...] = ()
    gpu: bool = True
    grows: tuple[str, ...] = ()


COMPACT = "compact"
SEAL = "seal"
_WORDS: Final = ("compact", "../..", "--seal")
# Tasks, each with journals of its own, behind which a launch seals before all have ended.
SEALED_TOGETHER: Final = 250
# The study as it was launched, in the launch's folder: what is edited later changes no job.
SNAPSHOT = "study.json"
LAST = "report"
PAGE = "report.html"
SCORES = "../../tables/scores/*/*/*/*.parquet"


def jobs_of(
    study: Study,
    plan: Plan,
    cluster: Cluster,
    width: int | None = None,
    shards: Sequence[Shard] | None = None,
) -> list[Job]:
    """All jobs of one launch, each after those that it waits for.

    ``width`` is the most array tasks in all; a task then works several shards, one after the other.
    ``shards`` are those of the plan that are to be worked; all when left out.
    """
    chosen = plan.shards if shards is None else shards
    training = untrained_models(study, study.models)
    groups = _groups(study, chosen)
    ends = 2 + bool(study.file.scores)  # score, compact and report
    limit = _width(cluster, width, len(training) + ends, len(groups))
    sampling: list[Job] = []
    for (needs, gpu), members in groups.items():
        copies = copies_per_task(cluster, study.file.engine.tensor_parallel) if gpu else 1
        share = -(-len(members) // copies)
        if limit is not None:
            spare = max(0, limit - len(groups))
            share = min(share, 1 + spare * len(members) // len(chosen))
        stem = "sample" if needs is None else f"sample-{needs[0]}-{needs[1]}"
        stem += "" if gpu else "-endpoint"
        # A task keeps to one model as long as it can.
        parts = np.array_split([shard.number for shard in members], share)
        tasks = [tuple(part.tolist()) for part in parts]
        after = (f"train-{trained_by(study, *needs)}",) if needs else ()
        for start in range(0, len(tasks), cluster.max_array_size):
            wave = tuple(tasks[start : start + cluster.max_array_size])
            number = start // cluster.max_array_size
            name = stem if len(wave) == len(tasks) else f"{stem}.{number:03d}"
            sampling.append(Job(name, "sample", after=after, tasks=wave, needs=needs, gpu=gpu))
    # With a throttle each array waits for the one before it: those that can start come first.
    sampling.sort(key=lambda job: job.needs is not None)
    trains = [_train_job(study, name, training, sampling) for name in training]
    jobs = [*trains, *sampling, *_seals(sampling)]
    done = tuple(job.name for job in jobs)
    if study.file.scores:
        words = ("score", SNAPSHOT)
        jobs.append(Job("score", "sample", words, after=done, grows=(SCORES,)))
        done = ("score",)
    return _in_order([*jobs, *ends_of(done)])


def ends_of(after: tuple[str, ...] = ()) -> list[Job]:
    """What turns samples into an answer; journals are sealed on the way, so that few files stay."""
    compact = Job(COMPACT, "light", _WORDS, after=after)
    report = Job(LAST, "light", ("report", "../.."), after=(COMPACT,))
    return [compact, report]


def outdated_jobs(layout: Layout) -> list[str]:
    """Names of these jobs whose result is missing or older than what it is made from."""
    if not layout.groups():
        return []
    version = cube.current_version(layout)
    try:
        if version is None or version.sources.get("inputs") != Sources.survey(layout).inputs:
            return [COMPACT, LAST]
        report_written = (layout.report / PAGE).stat().st_mtime
        return [LAST] if report_written < version.folder.stat().st_mtime else []
    except FileNotFoundError:
        return [LAST]
    except (OSError, UserError):
        return [COMPACT, LAST]


def _seals(sampling: list[Job]) -> list[Job]:
    """Jobs that seal while others sample, so that a large launch never has many files.

    Each waits for the arrays since the one before. Those behind the last are left to ``compact``.
    """
    seals: list[Job] = []
    since: list[Job] = []
    for job in sampling[:-1]:
        since.append(job)
        if sum(len(array.tasks) for array in since) >= SEALED_TOGETHER:
            name = f"{SEAL}.{len(seals):03d}"
            seals.append(Job(name, "light", _WORDS, after=tuple(array.name for array in since)))
            since = []
    return seals


def _in_order(jobs: list[Job]) -> list[Job]:
    """The jobs so that each comes after those that it waits for, as sbatch needs their ids."""
    by_name = {job.name: job for job in jobs}
    waits = {job.name: job.after for job in jobs}
    return [by_name[name] for name in TopologicalSorter(waits).static_order()]


def _groups(
    study: Study, shards: Sequence[Shard]
) -> dict[tuple[tuple[str, int] | None, bool], list[Shard]]:
    """Shards by the checkpoint that they wait for, if any, and by whether they need a GPU."""
    groups: dict[tuple[tuple[str, int] | None, bool], list[Shard]] = {}
    for shard in shards:
        needs = (
            None if checkpoint_exists(study, shard.model, shard.step) else (shard.model, shard.step)
        )
        groups.setdefault((needs, shard.engine != "endpoint"), []).append(shard)
    return groups


def _width(cluster: Cluster, width: int | None, others: int, groups: int) -> int | None:
    """Most array tasks in all, so that the whole launch fits into the queue; None is no limit."""
    if cluster.max_jobs is None:
        return width
    room = cluster.max_jobs - others
    if room > SEALED_TOGETHER:
        room -= -(-room // SEALED_TOGETHER)  # jobs that seal
    if room < max(1, groups):
        raise UserError(
            f"this launch has {others + max(1, groups)} jobs at least and the cluster's `max_jobs`"
            f" is {cluster.max_jobs}; train first with `rlbhpc launch --only train`, or raise it"
        )
    return min(room, width) if width else room


def trained_by(study: Study, model: str, step: int) -> str:
    """The model whose training makes a checkpoint; step 0 of a line is its base's last one."""
    while step == 0 and study.models[model].steps is not None:
        parent = study.base(model)
        assert parent is not None
        model, step = parent, study.last_step(parent)
    return model


def _train_job(study: Study, name: str, training: list[str], sampling: list[Job]) -> Job:
    training_of = study.models[name].train
    assert training_of is not None
    base = training_of.from_
    after = [f"train-{base}"] if base in training else []
    teacher = study.file.recipes[training_of.recipe].teacher
    if teacher is not None:
        wanted = study.arms[teacher.arm].model
        after += [job.name for job in sampling if job.needs is None or job.needs[0] == wanted]
    releases = tuple(
        (*job.needs, job.name)
        for job in sampling
        if job.needs and trained_by(study, *job.needs) == name
    )
    layout = study.layout
    steps = (layout.states(name), layout.checkpoints(name))
    grows = tuple(f"../../{folder.relative_to(layout.root)}/step-*[0-9]" for folder in steps)
    return Job(
        f"train-{name}", "train", ("train", SNAPSHOT, name), after=tuple(after), grows=grows,
        needs=(base, study.last_step(base)) if base else None, releases=releases,
    )  # fmt: skip
