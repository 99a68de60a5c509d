"""A launch on this machine: the same scripts as local processes, or their work in this process."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from submitit.core.core import Job
from submitit.local.debug import DebugExecutor
from submitit.local.local import LocalExecutor, LocalJob

from rlbhpc.errors import INCOMPLETE, UserError
from rlbhpc.launch.host.task import launching_environment
from rlbhpc.launch.jobs import SNAPSHOT, behind
from rlbhpc.launch.launches import LaunchFolder, alone
from rlbhpc.study.lineage import untrained
from rlbhpc.study.load import stored_study
from rlbhpc.sweep.devices import devices
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.presence import presence

# submitit ends local jobs after two minutes unless it is told otherwise.
MINUTES = 365 * 24 * 60
LOOK = 0.2


def run_here(
    folder: Path,
    in_process: bool = False,
    width: int | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, list[Job[str]]]:
    """Run all jobs of a launch, each after those before it; returns when they have ended."""
    with alone(folder, "runs") as launch:
        (launch.path / "submitted").touch()
        return _in_process(launch, say) if in_process else _Here(launch, width, say).run()


def reject_missing(launch: LaunchFolder) -> None:
    """Say what a launch was to make and has not."""
    study = stored_study(launch.path / SNAPSHOT)
    kinds = {job["kind"] for job in launch.jobs.values()}
    missing = sum(block.missing for block in presence(study.layout, list(study.blocks())))
    models = untrained(study, study.models) if "train" in kinds else []
    late = behind(study.layout) if "light" in kinds else []
    if missing and "sample" in kinds:
        what = f"{missing:,} samples are missing"
    elif models:
        what = f"training of {', '.join(models)} has not ended"
    elif late:
        what = f"{' and '.join(late)} did not end well"
    else:
        return
    raise UserError(f"{what}; rlbhpc doctor {study.layout.root} says why", INCOMPLETE)


class _Here:
    """The jobs of one launch as processes of this host, some at once."""

    def __init__(self, launch: LaunchFolder, width: int | None, say: Callable[[str], None]) -> None:
        self.launch = launch
        self.say = say
        per_copy = stored_study(launch.path / SNAPSHOT).file.engine.tensor_parallel
        self.slots: list[str | None] = [*_groups(devices(), per_copy)] or [None] * (width or 1)
        if width is not None:
            self.slots = self.slots[:width]
        self.running: dict[tuple[str, int], tuple[LocalJob[str], str | None]] = {}
        self.jobs: dict[str, list[Job[str]]] = {}

    def run(self) -> dict[str, list[Job[str]]]:
        """Start what may start until nothing is left; TERM lets what runs drain, and stops."""
        waiting = [
            (name, task)
            for name, job in self.launch.jobs.items()
            for task in range(len(job["tasks"]) or 1)
        ]
        was_told = False
        with Drain() as drain:
            while waiting or self.running:
                if drain.requested and not was_told:
                    was_told = True
                    waiting = []
                    # Each job has the time of a job that is preempted.
                    for job, _ in self.running.values():
                        assert job._process is not None
                        job._process.terminate()
                for key in [key for key in waiting if self._may_start(key[0], waiting)]:
                    if not self.slots:
                        break
                    waiting.remove(key)
                    self._start(*key)
                self._collect()
                try:
                    time.sleep(LOOK)
                except KeyboardInterrupt:
                    drain.request()
        return self.jobs

    def _may_start(self, name: str, waiting: list[tuple[str, int]]) -> bool:
        """Whether every job that this one waits for has ended."""
        open_names = {other for other, _ in (*waiting, *self.running)}
        return not open_names & set(self.launch.jobs[name]["after"])

    def _start(self, name: str, task: int) -> None:
        device = self.slots.pop(0)
        executor = LocalExecutor(self.launch.path / "logs" / f"{name}-{task}")
        executor.update_parameters(timeout_min=MINUTES, stderr_to_stdout=True)
        script = str(self.launch.path / f"{name}.sbatch")
        # submitit sets these, too, but knows no devices by a name, such as MIG-….
        gpus = [] if device is None else [f"CUDA_VISIBLE_DEVICES={device}"]
        with launching_environment():
            job: LocalJob[str] = executor._submit_command(
                shlex.join(["env", *gpus, f"SLURM_ARRAY_TASK_ID={task}", "bash", script])
            )
        self.running[name, task] = (job, device)
        self.jobs.setdefault(name, []).append(job)
        self.say(f"{name}: process {job.job_id}, log {job.paths.stdout}")

    def _collect(self) -> None:
        for key, (job, device) in list(self.running.items()):
            if job.done():
                del self.running[key]
                self.slots.append(device)


def _groups(gpus: list[str], per_copy: int) -> list[str]:
    """The devices of each task, which holds one copy of the model."""
    if gpus and len(gpus) < per_copy:
        raise UserError(
            f"engine.tensor_parallel: found {per_copy}; allowed: 1 to {len(gpus)}, the GPUs of this"
            " machine; lower it, or launch on a cluster"
        )
    count = len(gpus) // per_copy
    return [",".join(gpus[i * per_copy : (i + 1) * per_copy]) for i in range(count)]


def _in_process(launch: LaunchFolder, say: Callable[[str], None]) -> dict[str, list[Job[str]]]:
    """One task after the other in this very process, where a debugger can stop."""
    executor = DebugExecutor(launch.path / "logs")
    jobs: dict[str, list[Job[str]]] = {}
    for name, job in launch.jobs.items():
        for task in job["tasks"] or [[]]:
            if launch.is_cancelled:
                return jobs
            shards = ",".join(map(str, task))
            words = [shards if word == "{}" else word for word in job["words"]]
            made: Job[str] = executor.submit(call, launch.path, words)
            jobs.setdefault(name, []).append(made)
            say(f"{name}: rlbhpc {shlex.join(words)} ended with {made.result()}")
    return jobs


def call(folder: Path, words: list[str]) -> str:
    """What a job calls, called here as `python -m rlbhpc` calls it; its exit code."""
    # By name, since no room imports the command line, which imports all of them.
    main = importlib.import_module("rlbhpc.cli.main").main
    try:
        with contextlib.chdir(folder):
            main(words)
    except SystemExit as end:
        return str(end.code or 0)
    return "0"
