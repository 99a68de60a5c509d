"""A launch on this machine: the same scripts as local processes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from submitit.core.core import Job
from submitit.local.local import LocalExecutor, LocalJob

from rlbhpc.errors import INCOMPLETE, UserError
from rlbhpc.launch.host.task import launching_environment
from rlbhpc.launch.jobs import SNAPSHOT, behind
from rlbhpc.launch.launches import LaunchFolder, alone
from rlbhpc.study.lineage import untrained
from rlbhpc.study.load import stored_study
from rlbhpc.sweep.devices import devices, shares
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.plan import presence

# submitit ends local jobs after two minutes unless it is told otherwise.
MINUTES = 365 * 24 * 60
LOOK = 0.2


def run_here(
    folder: Path, width: int | None = None, say: Callable[[str], None] = print
) -> dict[str, list[Job[str]]]:
    """Run all jobs of a launch, each after those before it; returns when they have ended."""
    with alone(folder, "runs") as launch:
        (launch.path / "submitted").touch()
        return _as_processes(launch, width, say)


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


def _as_processes(
    launch: LaunchFolder, width: int | None, say: Callable[[str], None]
) -> dict[str, list[Job[str]]]:
    """Run jobs as processes of this host, some at once; TERM lets what runs drain, and stops."""
    slots = _slots(stored_study(launch.path / SNAPSHOT).file.engine.tensor_parallel, width)
    waiting = [
        (name, task) for name, job in launch.jobs.items() for task in range(len(job["tasks"]) or 1)
    ]
    running: dict[tuple[str, int], tuple[LocalJob[str], str | None]] = {}
    jobs: dict[str, list[Job[str]]] = {}
    was_told = False
    with Drain() as drain:
        while waiting or running:
            if drain.requested and not was_told:
                was_told = True
                waiting = []
                # Each job has the time of a job that is preempted.
                for job, _ in running.values():
                    assert job._process is not None
                    job._process.terminate()
            for name, task in list(waiting):
                open_names = {other for other, _ in (*waiting, *running)}
                if slots and not open_names & set(launch.jobs[name]["after"]):
                    waiting.remove((name, task))
                    device = slots.pop(0)
                    job = _start(launch.path, name, task, device)
                    running[name, task] = (job, device)
                    jobs.setdefault(name, []).append(job)
                    say(f"{name}: process {job.job_id}, log {job.paths.stdout}")
            for key, (job, device) in list(running.items()):
                if job.done():
                    del running[key]
                    slots.append(device)
            try:
                time.sleep(LOOK)
            except KeyboardInterrupt:
                drain.request()
    return jobs


def _start(folder: Path, name: str, task: int, device: str | None) -> LocalJob[str]:
    executor = LocalExecutor(folder / "logs" / f"{name}-{task}")
    executor.update_parameters(timeout_min=MINUTES, stderr_to_stdout=True)
    script = str(folder / f"{name}.sbatch")
    # submitit sets these, too, but knows no devices by a name, such as MIG-….
    gpus = [] if device is None else [f"CUDA_VISIBLE_DEVICES={device}"]
    command = ["env", *gpus, f"SLURM_ARRAY_TASK_ID={task}", "bash", script]
    with launching_environment():
        return executor._submit_command(shlex.join(command))


def _slots(gpus_per_copy: int, width: int | None) -> list[str | None]:
    """The devices of each task, which holds one copy of the model; None where there are none."""
    gpus = devices()
    if gpus and len(gpus) < gpus_per_copy:
        raise UserError(
            f"engine.tensor_parallel: found {gpus_per_copy}; allowed: 1 to {len(gpus)}, the GPUs of"
            " this machine; lower it, or launch on a cluster"
        )
    return [*shares(gpus, gpus_per_copy)[:width]] or [None] * (width or 1)
