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
from collections.abc import Callable
from pathlib import Path
from time import sleep

from submitit.core.utils import FailedJobError

from rlbhpc.errors import DONE, TRY_AGAIN, USAGE, UserError
from rlbhpc.files import explain
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.host.task import launching_environment
from rlbhpc.launch.launches import LaunchFolder, alone, launch_in
from rlbhpc.launch.local import reject_missing, run_here
from rlbhpc.launch.study_executor import StudyJob

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


def send(folder: Path, say: Callable[[str], None] = print) -> dict[str, list[StudyJob]]:
    """Submit what of a launch was not submitted; returns all its jobs by name."""
    with alone(folder, "submits") as launch:
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
            (job, *_) = launch.executor(name).send(dependency, say)
            if number := job.job_id.partition("_")[0]:
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
            with launching_environment():
                done = subprocess.run(
                    command, cwd=folder, capture_output=True, text=True, check=False
                )
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
