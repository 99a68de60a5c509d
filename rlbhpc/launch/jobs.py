"""The jobs of a launch and their order: train → sample → score → compact → report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Final, Literal, NamedTuple

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import Cluster, copies_per_task
from rlbhpc.store import cube
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout
from rlbhpc.study.lineage import checkpoint_exists, untrained_models
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Shard

JobKind = Literal["train", "sample", "light"]

COMPACT: Final = "compact"
REPORT: Final = "report"
REPORT_PAGE: Final = "report.html"
# The study as it was launched, in the launch's folder: what is edited later changes no job.
SNAPSHOT: Final = "study.json"
# Jobs run in RUN/launches/NUMBER.
RUN_FOLDER: Final = "../.."
SCORE_FILES: Final = f"{RUN_FOLDER}/tables/scores/*/*/*/*.parquet"


class Checkpoint(NamedTuple):
    """A step of a model."""

    model: str
    step: int


@dataclass(frozen=True)
class Job:
    """One batch script.

    ``words`` are the arguments of ``rlbhpc``. The jobs in ``after`` must have ended, well or not:
    each job looks itself at what is there. ``tasks`` are the shards of each array task, empty for a
    job that is no array. Without the checkpoint that it ``needs`` it has nothing to do.
    A job that asks a server needs no ``gpu``. ``grows`` are patterns of the files that grow, or
    appear, when it makes something new.
    """

    name: str
    kind: JobKind
    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tasks: tuple[tuple[int, ...], ...] = ()
    needs: Checkpoint | None = None
    gpu: bool = True
    grows: tuple[str, ...] = ()


@dataclass(frozen=True)
class _ShardGroup:
    """Shards that wait for the same checkpoint, if any, and all need a GPU or none."""

    needs: Checkpoint | None
    gpu: bool
    shards: list[int]

    @property
    def job_name(self) -> str:
        name = "sample" if self.needs is None else f"sample-{self.needs.model}-{self.needs.step}"
        return name if self.gpu else f"{name}-endpoint"


def jobs_of(study: Study, plan: Plan, cluster: Cluster, width: int | None = None) -> list[Job]:
    """All jobs of one launch, each after those that it waits for.

    ``plan`` has the samples to draw as shards, numbered units of work of one model. ``width`` is
    the most array tasks in all; a task then works several shards, one after the other. A group is
    the shards that wait for the same checkpoint, if any: they make one array job. A task has room
    for several copies of the model, each of which works a shard. Closing jobs are compact and
    report.
    """
    models = untrained_models(study, study.models)
    groups = _group_shards(study, plan.shards)
    other_jobs = len(models) + bool(study.file.scores) + 2  # compact and report
    max_tasks = _limit_tasks(cluster, width, other_jobs, len(groups))
    sampling: list[Job] = []
    for group in groups:
        task_count = len(group.shards)
        if group.gpu:
            copies = copies_per_task(cluster, study.file.engine.tensor_parallel)
            # Shards over copies, rounded up.
            task_count = -(-task_count // copies)
        if max_tasks is not None:
            # One task for each group, and of the others a share by its size.
            spare_tasks = max(0, max_tasks - len(groups))
            share = spare_tasks * len(group.shards) // len(plan.shards)
            task_count = min(task_count, 1 + share)
        sampling += _sampling_jobs(study, cluster, group, task_count)
    # With a throttle each array waits for the one before it: those that can start come first.
    sampling.sort(key=lambda job: job.needs is not None)
    jobs = [_train_job(study, model, models, sampling) for model in models] + sampling
    after = tuple(job.name for job in jobs)
    if study.file.scores:
        words = ("score", SNAPSHOT)
        jobs.append(Job("score", "sample", words, after=after, grows=(SCORE_FILES,)))
        after = ("score",)
    return _sort_by_dependency([*jobs, *closing_jobs(after)])


def _sampling_jobs(
    study: Study, cluster: Cluster, group: _ShardGroup, task_count: int
) -> list[Job]:
    """Array jobs whose tasks work a group of shards, none larger than the site allows.

    ``group`` has the numbers of the shards that wait for one checkpoint, or for none.
    ``task_count`` is how many array tasks share them; each takes neighbours. Where a group needs
    several arrays, their names end in a number.
    """
    after = (f"train-{trained_by(study, group.needs)}",) if group.needs else ()
    # Neighbours have one model, which a task then loads once.
    tasks = [tuple(part.tolist()) for part in np.array_split(group.shards, task_count)]
    array_size = cluster.max_array_size
    jobs = []
    for number, start in enumerate(range(0, len(tasks), array_size)):
        is_only_array = len(tasks) <= array_size
        name = group.job_name if is_only_array else f"{group.job_name}.{number:03d}"
        array = tuple(tasks[start : start + array_size])
        jobs.append(Job(name, "sample", after=after, tasks=array, needs=group.needs, gpu=group.gpu))
    return jobs


def closing_jobs(after: tuple[str, ...] = ()) -> list[Job]:
    """What turns samples into an answer; journals are sealed on the way, so that few files stay."""
    compact = Job(COMPACT, "light", ("compact", RUN_FOLDER, "--seal"), after=after)
    report = Job(REPORT, "light", ("report", RUN_FOLDER), after=(COMPACT,))
    return [compact, report]


def list_outdated_jobs(layout: Layout) -> list[str]:
    """Names of the closing jobs whose result is missing or older than what it is made from.

    Closing jobs turn samples into an answer: compact derives the cube, the array of all verdicts,
    from the samples on disk, and report makes a page from the cube. A cube has a record of the
    files that it was derived from (``sources``), which is compared with the files that are there
    now.
    """
    if not layout.groups():
        return []
    try:
        version = cube.current_version(layout)
        if version is None or version.sources.get("inputs") != Sources.survey(layout).inputs:
            return [COMPACT, REPORT]
        cube_time = version.folder.stat().st_mtime
    except (OSError, UserError):
        return [COMPACT, REPORT]
    try:
        report_time = (layout.report / REPORT_PAGE).stat().st_mtime
    except OSError:
        return [REPORT]
    return [REPORT] if report_time < cube_time else []


def _sort_by_dependency(jobs: list[Job]) -> list[Job]:
    """The jobs so that each comes after those that it waits for, as sbatch needs their ids."""
    job_by_name = {job.name: job for job in jobs}
    predecessors = {job.name: job.after for job in jobs}
    return [job_by_name[name] for name in TopologicalSorter(predecessors).static_order()]


def _group_shards(study: Study, shards: Sequence[Shard]) -> list[_ShardGroup]:
    """Groups of shards that wait for the same checkpoint, if any, and all need a GPU or none.

    A shard is a unit of work of a plan: samples of one model at one step. It waits while the
    checkpoint of that step does not exist yet. Work on an endpoint, which is a server, needs no
    GPU.
    """
    groups: dict[tuple[Checkpoint | None, bool], _ShardGroup] = {}
    for shard in shards:
        checkpoint = Checkpoint(shard.model, shard.step)
        needs = None if checkpoint_exists(study, *checkpoint) else checkpoint
        gpu = shard.engine != "endpoint"
        group = groups.setdefault((needs, gpu), _ShardGroup(needs, gpu, []))
        group.shards.append(shard.number)
    return list(groups.values())


def _limit_tasks(
    cluster: Cluster, width: int | None, other_jobs: int, group_count: int
) -> int | None:
    """Most array tasks in all, so that the whole launch fits into the queue; None is no limit.

    ``cluster.max_jobs`` is how many jobs a user may have there, each array task counted. ``width``
    is what the user asked for, ``other_jobs`` the jobs of the launch that are no array, and
    ``group_count`` the arrays, each of which needs a task at least.
    """
    if cluster.max_jobs is None:
        return width
    free_places = cluster.max_jobs - other_jobs
    fewest_tasks = max(1, group_count)
    if free_places < fewest_tasks:
        raise UserError(
            f"this launch has {other_jobs + fewest_tasks} jobs at least and the cluster's"
            f" `max_jobs` is {cluster.max_jobs}; train first with `rlbhpc launch --only train`, or"
            " raise it"
        )
    return free_places if width is None else min(free_places, width)


def trained_by(study: Study, checkpoint: Checkpoint) -> str:
    """The model whose training makes a checkpoint.

    Step 0 of a model that has several steps is where its training began: the last step of its base,
    which may be trained by the study, too.
    """
    model, step = checkpoint
    while step == 0 and study.models[model].steps is not None:
        base = study.base(model)
        assert base is not None
        model = base
        step = study.last_step(base)
    return model


def _train_job(study: Study, model: str, models: list[str], sampling: list[Job]) -> Job:
    """The job that trains a model, after its base is trained and its teacher has answered.

    ``models`` are all that the launch trains, ``sampling`` all its jobs that sample. A teacher is
    an arm (a model as it is sampled) whose answers the training learns from, so the jobs that
    sample it come first; a job that waits for no checkpoint may be one of these. ``grows`` are
    patterns of the saved states and checkpoints, whose number shows that the training goes on.
    """
    training = study.models[model].train
    assert training is not None
    base = training.from_
    after = [f"train-{base}"] if base in models else []
    teacher = study.file.recipes[training.recipe].teacher
    if teacher is not None:
        teacher_model = study.arms[teacher.arm].model
        after += [
            job.name for job in sampling if job.needs is None or job.needs.model == teacher_model
        ]
    step_folders = (study.layout.states(model), study.layout.checkpoints(model))
    grows = [
        f"{RUN_FOLDER}/{folder.relative_to(study.layout.root)}/step-*[0-9]"
        for folder in step_folders
    ]
    return Job(
        f"train-{model}",
        "train",
        ("train", SNAPSHOT, model),
        after=tuple(after),
        needs=Checkpoint(base, study.last_step(base)) if base else None,
        grows=tuple(grows),
    )
