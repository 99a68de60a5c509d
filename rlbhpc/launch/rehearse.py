"""A rehearsal of the worst minute: of two tasks one is warned and comes back, one is cancelled."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from submitit.core.utils import FailedJobError

from rlbhpc.errors import UserError
from rlbhpc.launch import container, slurm
from rlbhpc.launch.cluster import Cluster, Resources, command
from rlbhpc.launch.folder import write_host
from rlbhpc.launch.options import SHARED, merged
from rlbhpc.launch.script import check_python, resource_options, site_set_up
from rlbhpc.launch.study_executor import StudyExecutor

# The work of a task: rlbhpc must start; the first run waits to be ended, a second one says so.
WORK = """\
events=events.$SLURM_ARRAY_TASK_ID
if [ -e "$events" ]; then echo "resumed" >>"$events"; exit 0; fi
"$@" --version >>"$events" 2>&1 || { echo "broken" >>"$events"; exit 64; }
trap 'echo "drained" >>"$events"; exit 75' TERM
echo "started" >>"$events"
while :; do sleep 1; done
"""
PATIENCE = 900.0


def rehearse(
    folder: Path, cluster: Cluster, options: dict[str, str], say: Callable[[str], None]
) -> bool:
    """Run the rehearsal under ``folder``; whether all of it worked.

    What happened is read from the tasks' own files, so Slurm is asked to act twice and no more.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=folder.absolute()))
        write_host(own / "host")
        (own / "work.sh").write_text(WORK)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; choose another folder") from None
    executor = StudyExecutor(own, "rehearsal", "rlbhpc", calls=2)
    head = "# A rehearsal, written by rlbhpc doctor."
    parameters = _options(own, cluster, options)
    clusters = parameters.get("clusters", "")
    text = executor.text(head, parameters, _set_up(own, cluster), _call(own, cluster))
    (own / "rehearsal.sbatch").write_text(text)
    try:
        jobs = executor.send()
    except (FailedJobError, OSError) as error:
        raise UserError(f"the rehearsal was not taken: {error}") from None
    warned, cancelled = (job.job_id for job in jobs)
    number = warned.partition("_")[0]
    say(f"job {number} is in the queue; its files are in {own}")
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("both tasks started, with rlbhpc in them", lambda: _said(own, 0, 1, word="started")),
        ("the warned task drained", lambda: _said(own, 0, word="drained")),
        ("it came back by itself, and ended", lambda: _said(own, 0, word="resumed")),
        ("the cancelled task drained", lambda: _said(own, 1, word="drained")),
        ("it stays away", lambda: slurm.queue([int(number)], clusters) == []),
    ]
    for step, (what, happened) in enumerate(steps):
        if not _wait(own, happened):
            say(f"not {what}: {_last_line(own)}; see {own}")
            slurm.ask("scancel", number, clusters=clusters)
            return False
        say(what)
        if step == 0:
            slurm.ask("scancel", "--signal=USR1", "--batch", warned, clusters=clusters)
        if step == 2:
            slurm.ask("scancel", cancelled, clusters=clusters)
    if _said(own, 1, word="resumed"):
        say(f"but it came back all the same; see {own}")
        return False
    shutil.rmtree(own, ignore_errors=True)
    return True


def _options(own: Path, cluster: Cluster, more: dict[str, str]) -> dict[str, str]:
    small = Resources(partition=cluster.light.partition, time="5", cpus=1)
    options = {
        "array": "0-1", "chdir": str(own), "job-name": "rlbhpc-rehearsal", "ntasks": "1",
        "open-mode": "append", "output": "log.%a", "requeue": "",
        **resource_options(cluster, small),
    }  # fmt: skip
    options = merged(options, cluster.light.options)
    return merged(options, {name: text for name, text in more.items() if name in SHARED})


def _set_up(own: Path, cluster: Cluster) -> list[str]:
    lines = site_set_up(cluster, own)
    if cluster.container is not None:
        lines.append(container.exports(cluster.environment))
    return [*lines, *check_python(cluster, 'echo broken >"events.$SLURM_ARRAY_TASK_ID"; ')]


def _call(own: Path, cluster: Cluster) -> str:
    lines = [
        'exec "$python" -m host --drain 20 --last 10 --scratch "$scratch" --',
        "bash work.sh",
        *container.runner(cluster.model_copy(update={"stage": None}), [own]),
        shlex.join(command(cluster)),
    ]
    return " \\\n    ".join(lines)


def _said(own: Path, *tasks: int, word: str) -> bool:
    paths = [own / f"events.{task}" for task in tasks]
    return all(path.exists() and word in path.read_text().split() for path in paths)


def _last_line(own: Path) -> str:
    lines = [line for log in sorted(own.glob("log.*")) for line in log.read_text().splitlines()]
    return lines[-1] if lines else f"no log within {PATIENCE:.0f} s"


def _wait(own: Path, happened: Callable[[], bool]) -> bool:
    """Wait for a step; a task in which rlbhpc does not start ends the waiting."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if happened():
            return True
        if _said(own, 0, word="broken") or _said(own, 1, word="broken"):
            return False
        time.sleep(1)
    return False
