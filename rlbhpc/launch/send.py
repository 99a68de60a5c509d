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
from typing import Final

from submitit import Job
from submitit.core.utils import FailedJobError
from submitit.local.local import LocalJob

from rlbhpc.errors import DONE, INCOMPLETE, TRY_AGAIN, USAGE, UserError
from rlbhpc.files import explain
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.host.task import LOCAL, launching_environment
from rlbhpc.launch.jobs import SNAPSHOT, list_outdated_jobs
from rlbhpc.launch.launches import LaunchFolder, only_sender, open_launch
from rlbhpc.study.lineage import untrained_models
from rlbhpc.study.load import stored_study
from rlbhpc.sweep.plan import read_presence
from rlbhpc.sweep.process import Drain, devices

Say = Callable[[str], None]

# A launch on this machine: the same scripts as local processes.


# This shell opens a task's log, whose name has the process id as submitit's has it, and becomes
# the script. Its arguments are the folder of logs and the script.
RUN_WITH_LOG: Final = 'exec >"$0/$$_0_log.out" 2>&1; exec bash "$1"'
SECONDS_BETWEEN_LOOKS: Final = 0.2


def run_here(folder: Path, say: Say = print) -> dict[str, list[Job[str]]]:
    """Run all jobs of a launch one after the other; returns when they have ended."""
    with only_sender(folder, "runs") as launch:
        (launch.path / "submitted").touch()
        return _run_as_processes(launch, say)


def reject_missing(launch: LaunchFolder) -> None:
    """Refuse to call a launch done where something that it was to make is missing.

    The kinds of its jobs are train, sample and light; only what these make is looked for.
    ``missing`` is how many samples are not stored. Outdated are the names of the light jobs,
    compact and report, whose result is not up to date.
    """
    study = stored_study(launch.path / SNAPSHOT)
    kinds = {job["kind"] for job in launch.jobs.values()}
    missing = sum(block.missing for block in read_presence(study.layout, list(study.blocks())))
    models = untrained_models(study, study.models) if "train" in kinds else []
    outdated = list_outdated_jobs(study.layout) if "light" in kinds else []
    if missing and "sample" in kinds:
        what = f"{missing:,} samples are missing"
    elif models:
        what = f"training of {', '.join(models)} has not ended"
    elif outdated:
        what = f"{' and '.join(outdated)} did not end well"
    else:
        return
    raise UserError(f"{what}; rlbhpc doctor {study.layout.root} says why", INCOMPLETE)


def _run_as_processes(launch: LaunchFolder, say: Say) -> dict[str, list[Job[str]]]:
    """Run each task of each job of a launch as a process of this host; gives the jobs by name.

    A launch is one folder of scripts. A `Drain` catches the wish to stop, such as TERM, and is then
    ``requested``: the task that runs may finish what it is at, and no other starts.
    """
    gpus_per_copy = stored_study(launch.path / SNAPSHOT).file.engine.tensor_parallel
    if 0 < len(devices()) < gpus_per_copy:
        raise UserError(
            f"engine.tensor_parallel: found {gpus_per_copy}; allowed: 1 to {len(devices())}, the"
            " GPUs of this machine; lower it, or launch on a cluster"
        )
    jobs: dict[str, list[Job[str]]] = {}
    with Drain() as drain:
        for name, job in launch.jobs.items():
            task_count = len(job["tasks"]) or 1
            for task in range(task_count):
                if drain.requested:
                    return jobs
                process, local_job = _start_task(launch, name, task)
                jobs.setdefault(name, []).append(local_job)
                say(f"{name}: process {process.pid}, log {local_job.paths.stdout}")
                _wait_for_process(process, drain)
    return jobs


def _wait_for_process(process: subprocess.Popen[bytes], drain: Drain) -> None:
    """Wait for the end of a task; hand on the wish to stop, once.

    ``drain.requested`` says that this process was told to stop, as by TERM or Ctrl-C.
    """
    has_warned = False
    while process.poll() is None:
        if drain.requested and not has_warned:
            has_warned = True
            # The task has the time of a job that is preempted.
            process.terminate()
        try:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        except KeyboardInterrupt:
            drain.request()


def _start_task(
    launch: LaunchFolder, job_name: str, task: int
) -> tuple[subprocess.Popen[bytes], LocalJob[str]]:
    """Start a task of a launch as a process; gives it, and the same as a job of submitit's.

    Its session is its own, so Ctrl-C reaches only whoever launched it. A job that is no array is
    task 0. The variable `LOCAL` tells the task that no Slurm runs it.
    """
    logs = launch.path / "logs" / f"{job_name}-{task}"
    logs.mkdir(parents=True, exist_ok=True)
    script = launch.path / f"{job_name}.sbatch"
    gpus = devices()
    if launch.jobs[job_name]["kind"] != "sample":
        gpus = gpus[:1]  # a training is one rank here
    environment = {
        **launching_environment(),
        LOCAL: "1",
        "SLURM_ARRAY_TASK_ID": str(task),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
    }
    process = subprocess.Popen(
        ["bash", "-c", RUN_WITH_LOG, str(logs), str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process, LocalJob[str](logs, str(process.pid), process=process)


# A launch on a cluster.


# Seconds before each repetition when Slurm does not answer.
PAUSES: Final = (5, 15, 45, 120, 300)
# What stands before Slurm's own error, on the last line. The lines before it may be the site's.
FAILURE_PREFIX: Final = "sbatch: error: Batch job submission failed: "
# Of Slurm's own errors those that pass.
PASSING_ERRORS: Final = (
    "imed out", "Unable to contact", "ry again", "emporarily", "onnection", "Zero Bytes",
    "receive failure", "send failure", "standby mode", "Rate limit exceeded", "MaxJobCount",
    "I/O error writing script", "uthentication",
)  # fmt: skip
POLICY_ERROR: Final = "Job violates accounting/QOS policy"


def send(folder: Path, say: Say = print) -> dict[str, list[slurm.StudyJob]]:
    """Submit what of a launch was not submitted; returns all its jobs by script.

    A launch is one folder of scripts, one for each job. ``submitted`` has the ids of each script,
    the newest last. `only_sender` keeps everybody else from submitting meanwhile.
    """
    with only_sender(folder, "submits") as launch:
        for script in launch.jobs:
            if launch.submitted.get(script):
                say(f"{script}: {launch.submitted[script][-1]}, submitted before")
                continue
            launch.reject_cancelled()
            job_id = _submit_until_answered(launch, script, say)
            launch.record_submission(script, job_id)
            say(f"{script}: {job_id}")
        return launch.submitted_jobs()


def _submit_until_answered(launch: LaunchFolder, script: str, say: Say) -> str:
    """Call sbatch until there is a job id; look for the job before each repetition.

    An answer may be lost although Slurm took the job. `find_lost_job` looks for it by its name: it
    gives the id, nothing if there is no such job, and None where Slurm does not say.
    """
    first_pause = 0
    if script in launch.attempted_scripts:
        # Somebody was killed while sbatch was at work, which may be at work still.
        first_pause = PAUSES[0]
    else:
        launch.record_submission(script, "?")
    for pause in (first_pause, *PAUSES):
        if pause:
            sleep(pause)
            job_id = launch.find_lost_job(script, getpass.getuser())
            if job_id:
                return job_id
            if job_id is None and shutil.which("squeue"):
                # Slurm may have the job, and another call would submit it twice.
                continue
        job_id = _submit_once(launch, script, say)
        if job_id:
            return job_id
    raise UserError(
        f"{script}: Slurm does not answer; run {launch.path / 'submit.sh'} again later",
        TRY_AGAIN,
    )


def _submit_once(launch: LaunchFolder, script: str, say: Say) -> str:
    """The job id that sbatch answers; empty where another call may get one.

    A job waits for others by their ids. The answer is an id or the words of an error.
    """
    job_ids = _predecessors(launch, script)
    answer = _call_sbatch(launch, script, _format_dependency(launch, job_ids), say)
    if job_ids and "ependency" in _slurm_error(answer):
        # Slurm has forgotten a job that ended long ago, and refuses to wait for it.
        rows = slurm.read_queue(job_ids)
        if rows is None:
            return ""
        job_ids = sorted({row.job for row in rows})
        answer = _call_sbatch(launch, script, _format_dependency(launch, job_ids), say)
    if answer.isdigit():
        return answer
    _reject_lasting_error(script, answer, launch.path)
    say(answer)
    return ""


def _call_sbatch(launch: LaunchFolder, script: str, dependency: str, say: Say) -> str:
    """The job's id, or what sbatch said instead.

    ``dependency`` is the option that lets the job wait for others. The job's name begins with the
    launch's ``prefix``, so that it can be found by its name.
    """
    job_name = f"{launch.record['prefix']}-{script}"
    try:
        job_id = slurm.submit_script(launch.path, script, job_name, dependency, say)
    except FailedJobError as error:
        return str(error)
    except OSError as error:
        raise UserError(f"sbatch: {error.strerror}; run this on a login node") from None
    return job_id or "an answer without an id"


def _predecessors(launch: LaunchFolder, script: str) -> list[int]:
    """Ids of the jobs that a job waits for.

    The record names the scripts that a job comes ``after``; an array has ``tasks``. With a
    throttle, which is the most tasks of a launch that run at once, the arrays run one after the
    other.
    """
    scripts = list(launch.jobs[script]["after"])
    arrays = [name for name, job in launch.jobs.items() if job["tasks"]]
    if launch.record.get("throttle") and script in arrays[1:]:
        # The arrays of a launch run one after the other.
        scripts.append(arrays[arrays.index(script) - 1])
    job_ids = []
    for earlier_script in scripts:
        job_ids += launch.submitted[earlier_script]
    return job_ids


def _format_dependency(launch: LaunchFolder, job_ids: list[int]) -> str:
    """The option that lets a job wait for others; without these, what the user named."""
    if not job_ids:
        return str(launch.record.get("dependency", ""))
    return "afterany:" + ":".join(map(str, job_ids))


def _slurm_error(answer: str) -> str:
    """What Slurm itself says of a submission that failed, without the words of a site's plugin."""
    last_line = answer.rpartition("\n")[2]
    if not last_line.startswith(FAILURE_PREFIX):
        return ""
    return last_line.removeprefix(FAILURE_PREFIX)


def _reject_lasting_error(script: str, answer: str, folder: Path) -> None:
    """Say what to change where another call of sbatch would be refused as well, as an error.

    ``answer`` is what sbatch printed. Errors that pass, such as a controller that is down, are no
    reason to give up. A limit on the number of jobs is met by waiting; other limits are not.
    """
    error = _slurm_error(answer)
    if any(words in error for words in PASSING_ERRORS):
        return
    submit = folder / "submit.sh"
    advice = f"change {script}.sbatch or the cluster's file, then run {submit} again"
    code = USAGE
    # Slurm names the limit on a line of its own.
    limit = re.search(r"(?m)^sbatch: error: (?:QOS|Assoc)(\w+)$", answer)
    is_number_of_jobs = limit is None or "Submit" in limit[1]
    if error.startswith(POLICY_ERROR) and is_number_of_jobs:
        advice = (
            "the queue takes fewer jobs. Write the launch again with --width, or set max_jobs in"
            f" the cluster's file; or run {submit} again when jobs have ended"
        )
        code = TRY_AGAIN
    elif "Invalid job array specification" in error:
        advice = (
            "`max_array_size` in the cluster's file is larger than the site's MaxArraySize"
            " (scontrol show config | grep MaxArraySize); correct it, then launch again"
        )
    raise UserError(f"{script} was refused:\n{answer}\nnext: {advice}", code)


def main() -> int:
    """What submit.sh runs, in the folder of its launch; returns the exit code.

    A launch whose cluster is `HERE` runs on this machine until all its jobs have ended;
    `reject_missing` then raises if something was not made. Any other is submitted to Slurm.
    `TRY_AGAIN` is the exit code that says that the same command goes on later.
    """
    try:
        launch = open_launch(Path.cwd())
        if launch.record["cluster"] == HERE:
            run_here(launch.path)
            reject_missing(launch)
        else:
            send(launch.path)
    except UserError as error:
        print(f"submit.sh: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        explained = explain(error, Path(error.filename or Path.cwd()))
        print(f"submit.sh: {explained}", file=sys.stderr)
        return explained.code
    except KeyboardInterrupt:
        return TRY_AGAIN
    return DONE


if __name__ == "__main__":
    sys.exit(main())
