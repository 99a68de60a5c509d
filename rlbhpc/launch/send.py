"""Submit the scripts of a launch's folder, each once, whatever Slurm answers and when.

The name of a script is written down before sbatch is called and its id after it. So whoever comes
after a kill, or after an answer that was late, knows what to look for before it calls again.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import sleep

from submitit import Job
from submitit.core.utils import FailedJobError
from submitit.local.local import LocalJob

from rlbhpc.errors import DONE, INCOMPLETE, TRY_AGAIN, USAGE, UserError
from rlbhpc.files import explain
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.host.task import LOCAL, launching_environment
from rlbhpc.launch.jobs import SNAPSHOT, outdated_jobs
from rlbhpc.launch.launches import LaunchFolder, launch_in, only_sender
from rlbhpc.study.lineage import untrained_models
from rlbhpc.study.load import stored_study
from rlbhpc.sweep.plan import read_presence
from rlbhpc.sweep.process import Drain, devices, shares

# A launch on this machine: the same scripts as local processes.


# Begins a task's log, whose name has the pid as submitit's has it, and becomes the script.
LOGGED = 'exec >"$0/$$_0_log.out" 2>&1; exec bash "$1"'
LOOK = 0.2


def run_here(
    folder: Path, width: int | None = None, say: Callable[[str], None] = print
) -> dict[str, list[Job[str]]]:
    """Run all jobs of a launch, each after those before it; returns when they have ended."""
    with only_sender(folder, "runs") as launch:
        (launch.path / "submitted").touch()
        return _as_processes(launch, width, say)


def reject_missing(launch: LaunchFolder) -> None:
    """Say what a launch was to make and has not."""
    study = stored_study(launch.path / SNAPSHOT)
    kinds = {job["kind"] for job in launch.jobs.values()}
    missing = sum(block.missing for block in read_presence(study.layout, list(study.blocks())))
    models = untrained_models(study, study.models) if "train" in kinds else []
    late = outdated_jobs(study.layout) if "light" in kinds else []
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
    running: dict[tuple[str, int], tuple[subprocess.Popen[bytes], str | None]] = {}
    jobs: dict[str, list[Job[str]]] = {}
    was_told = False
    with Drain() as drain:
        while waiting or running:
            if drain.requested and not was_told:
                was_told = True
                waiting = []
                # Each job has the time of a job that is preempted.
                for process, _ in running.values():
                    process.terminate()
            for name, task in list(waiting):
                open_names = {other for other, _ in (*waiting, *running)}
                if slots and not open_names & set(launch.jobs[name]["after"]):
                    waiting.remove((name, task))
                    device = slots.pop(0)
                    logs = launch.path / "logs" / f"{name}-{task}"
                    process = _start(launch.path / f"{name}.sbatch", task, device, logs)
                    running[name, task] = (process, device)
                    job = LocalJob[str](logs, str(process.pid), process=process)
                    jobs.setdefault(name, []).append(job)
                    say(f"{name}: process {job.job_id}, log {job.paths.stdout}")
            for key, (process, device) in list(running.items()):
                if process.poll() is not None:
                    del running[key]
                    slots.append(device)
            try:
                time.sleep(LOOK)
            except KeyboardInterrupt:
                drain.request()
    return jobs


def _start(script: Path, task: int, device: str | None, logs: Path) -> subprocess.Popen[bytes]:
    """Start a task in a session of its own: Ctrl-C is for whoever launched it."""
    logs.mkdir(parents=True, exist_ok=True)
    environment = {
        **launching_environment(), LOCAL: "1", "SLURM_ARRAY_TASK_ID": str(task),
        "CUDA_VISIBLE_DEVICES": device or "",
    }  # fmt: skip
    return subprocess.Popen(
        ["bash", "-c", LOGGED, str(logs), str(script)], env=environment,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _slots(gpus_per_copy: int, width: int | None) -> list[str | None]:
    """The devices of each task, which holds one copy of the model; None where there are none."""
    gpus = devices()
    if gpus and len(gpus) < gpus_per_copy:
        raise UserError(
            f"engine.tensor_parallel: found {gpus_per_copy}; allowed: 1 to {len(gpus)}, the GPUs of"
            " this machine; lower it, or launch on a cluster"
        )
    return [*shares(gpus, gpus_per_copy)[:width]] or [None] * (width or 1)


# Seconds before each repetition when Slurm does not answer.
PAUSES = (5, 15, 45, 120, 300)
# What stands before Slurm's own error, on the last line. The lines before it may be the site's.
FAILED = "sbatch: error: Batch job submission failed: "
# Of Slurm's own errors those that pass.
LATE = (
    "imed out", "Unable to contact", "ry again", "emporarily", "onnection", "Zero Bytes",
    "receive failure", "send failure", "standby mode", "Rate limit exceeded", "MaxJobCount",
    "I/O error writing script", "uthentication",
)  # fmt: skip
POLICY = "Job violates accounting/QOS policy"


def send(folder: Path, say: Callable[[str], None] = print) -> dict[str, list[slurm.StudyJob]]:
    """Submit what of a launch was not submitted; returns all its jobs by name."""
    with only_sender(folder, "submits") as launch:
        for name in launch.jobs:
            if launch.submitted.get(name):
                say(f"{name}: {launch.submitted[name][-1]}, submitted before")
                continue
            launch.reject_cancelled()
            number = _send_one(launch, name, say)
            launch.note(name, number)
            say(f"{name}: {number}")
        return launch.submitted_jobs()


def _dependency(launch: LaunchFolder, name: str, forgotten: bool) -> str | None:
    """What a job waits for: the jobs before it, else what the user named.

    None where Slurm does not say which of them it has forgotten.
    """
    record = launch.record
    names = list(launch.jobs[name]["after"])
    arrays = [other for other, job in launch.jobs.items() if job["tasks"]]
    if record.get("throttle") and name in arrays[1:]:
        # The arrays of a launch run one after the other.
        names.append(arrays[arrays.index(name) - 1])
    before = [number for other in names for number in launch.submitted[other]]
    if forgotten and before:
        # What Slurm has forgotten has ended long ago.
        rows = slurm.queue(before, launch.clusters)
        if rows is None:
            return None
        before = sorted({row.job for row in rows})
    if before:
        return "afterany:" + ":".join(map(str, before))
    return str(record.get("dependency", ""))


def _send_one(launch: LaunchFolder, name: str, say: Callable[[str], None]) -> str:
    """Call sbatch until there is an id; look for the job before each repetition."""
    first = 0
    if name in launch.tried:
        # Somebody was killed while sbatch was at work, which may be at work still.
        first = PAUSES[0]
    else:
        launch.note(name, "?")
    for pause in (first, *PAUSES):
        if pause:
            sleep(pause)
            number = launch.look(name, getpass.getuser())
            if number:
                return number
            if number is None and shutil.which("squeue"):
                # It may have the job, and another call would submit it twice.
                continue
        if number := _call(launch, name, say):
            return number
    raise UserError(
        f"{name}: Slurm does not answer; run {launch.path / 'submit.sh'} again later",
        TRY_AGAIN,
    )


def _call(launch: LaunchFolder, name: str, say: Callable[[str], None]) -> str:
    """The id that sbatch answers; empty where another call may get one."""
    answer = ""
    for forgotten in (False, True):
        dependency = _dependency(launch, name, forgotten)
        if dependency is None:
            return ""
        try:
            label = f"{launch.record['prefix']}-{name}"
            if number := slurm.sbatch(launch.path, name, label, dependency, say):
                return number
            answer = "an answer without an id"
        except FailedJobError as error:
            answer = str(error)
        except OSError as error:
            raise UserError(f"sbatch: {error.strerror}; run this on a login node") from None
        if "ependency" not in _own_error(answer):
            break
    _refuse(name, answer, launch.path)
    say(answer)
    return ""


def _own_error(answer: str) -> str:
    """What Slurm itself says of a submission that failed, without the words of a site's plugin."""
    last_line = answer.rpartition("\n")[2]
    return last_line.removeprefix(FAILED) if last_line.startswith(FAILED) else ""


def _refuse(name: str, answer: str, folder: Path) -> None:
    """Say what to change where another call would be refused as well."""
    error = _own_error(answer)
    if any(words in error for words in LATE):
        return
    submit = folder / "submit.sh"
    advice = f"change {name}.sbatch or the cluster's file, then run {submit} again"
    code = USAGE
    # Slurm names the limit on a line of its own.
    limit = re.search(r"(?m)^sbatch: error: (?:QOS|Assoc)(\w+)$", answer)
    if error.startswith(POLICY) and (limit is None or "Submit" in limit[1]):
        advice = (
            "the queue takes fewer jobs. Write the launch again with --width, or set max_jobs in"
            f" the cluster's file; or run {submit} again when jobs have ended"
        )
        code = TRY_AGAIN
    if "Invalid job array specification" in error:
        advice = (
            "`max_array_size` in the cluster's file is larger than the site's MaxArraySize"
            " (scontrol show config | grep MaxArraySize); correct it, then launch again"
        )
    raise UserError(f"{name} was refused:\n{answer}\nnext: {advice}", code)


def start_estimates(folder: Path) -> dict[str, str]:
    """When Slurm would start each script if it were submitted now, in its own words."""
    answers = {}
    for name in launch_in(folder).jobs:
        command = ["sbatch", "--test-only", f"{name}.sbatch"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False,
                env=launching_environment(),
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"sbatch: {error.strerror}; run this on a login node") from None
        lines = (done.stderr + done.stdout).strip().splitlines()
        answers[name] = lines[-1].removeprefix("sbatch: ") if lines else "no answer"
    return answers


def main() -> int:
    """What submit.sh runs, in the folder of its launch."""
    try:
        launch = launch_in(Path.cwd())
        if launch.record["cluster"] == HERE:
            run_here(launch.path)
            reject_missing(launch)
        else:
            send(launch.path)
    except (UserError, OSError) as error:
        if isinstance(error, OSError):
            error = explain(error, Path(error.filename or Path.cwd()))
        print(f"submit.sh: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return TRY_AGAIN
    return DONE


if __name__ == "__main__":
    sys.exit(main())
