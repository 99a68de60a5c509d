"""Run a plan on this machine: one worker per device, no scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rlbhpc.errors import DONE, TRY_AGAIN
from rlbhpc.study.study import Study
from rlbhpc.sweep.devices import devices, shares
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.load import load_engine
from rlbhpc.sweep.plan import Plan, Shard
from rlbhpc.sweep.progress import Progress
from rlbhpc.sweep.worker import Work, load_all_problems, work

_POLL_SECONDS = 0.5


def run_plan(
    study: Study,
    plan: Plan,
    path: Path,
    drain: Drain,
    workers: int | None = None,
    *,
    backwards: bool = False,
) -> int:
    """Work all shards of a plan, by default in a process for each copy that the GPUs hold.

    ``path``: the plan's file. ``backwards``: begin with the last shard, where another process
    begins with the first. Each shard looks what is there by then. Returns an exit code.
    """
    gpus_per_copy = study.file.engine.tensor_parallel
    worker_count = workers or max(1, len(shares(devices(), gpus_per_copy)))
    shards = plan.shards[::-1] if backwards else plan.shards
    if worker_count == 1:
        return run_here(study, plan, shards, drain)
    numbers = [shard.number for shard in shards]
    return run_workers(path, numbers, worker_count, drain, gpus_per_copy)


def run_here(study: Study, plan: Plan, shards: Sequence[Shard], drain: Drain) -> int:
    """Work shards one after the other in this process. Returns an exit code."""
    progress = Progress(sum(shard.samples for shard in shards))
    job = Work(
        study=study,
        plan=plan,
        problems=load_all_problems(study, tuple(shards)),
        make_engine=lambda shard: load_engine(study, shard.engine, shard.model, shard.step),
        drain=drain,
        progress=progress,
    )
    exit_code = DONE
    for shard in shards:
        if drain.requested:
            log.debug("asked to stop before shard %d", shard.number)
            exit_code = TRY_AGAIN
            break
        exit_code = max(exit_code, work(job, shard))
    progress.finish()
    return exit_code


def run_workers(
    plan: Path, shards: Sequence[int], workers: int, drain: Drain, gpus_per_copy: int = 1
) -> int:
    """Work shards in ``workers`` processes, each with the GPUs of one copy of the model.

    A warning to this process is handed on to the workers, which drain by themselves. Returns an
    exit code.
    """
    gpus_of_copies = shares(devices(), gpus_per_copy)
    processes = []
    for number in range(min(workers, len(shards))):
        environment = dict(os.environ)
        if gpus_of_copies:
            gpus = gpus_of_copies[number] if number < len(gpus_of_copies) else ""
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        shards_of_worker = ",".join(str(shard) for shard in shards[number::workers])
        command = [sys.executable, "-P", "-m", "rlbhpc", "run", str(plan)]
        command += ["--shards", shards_of_worker, "--grace", str(drain.grace)]
        log.debug("worker %d: %s", number, command)
        processes.append(subprocess.Popen(command, env=environment))
    was_warned = False
    while any(process.poll() is None for process in processes):
        if drain.requested and not was_warned:
            was_warned = True
            for process in processes:
                process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_POLL_SECONDS)
    return max((_exit_code(process) for process in processes), default=DONE)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Exit code of a process, as a shell tells it where the process died of a signal.

    So the parent of a job sees a failure, such as of memory, and not that all have drained.
    """
    code: int = process.returncode
    return 128 - code if code < 0 else code
