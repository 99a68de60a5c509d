"""A rehearsal of the worst minute: of two tasks one is warned and comes back, one is cancelled."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from submitit.core.utils import FailedJobError

from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.launch import container, slurm
from rlbhpc.launch.cluster import Cluster, Resources, command
from rlbhpc.launch.folder import write_host
from rlbhpc.launch.options import SHARED, merged
from rlbhpc.launch.script import check_python, resource_options, site_set_up
from rlbhpc.launch.signs import what_starts
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
# Seconds for a step once no task waits in the queue, and between two looks at the queue.
PATIENCE = 900.0
LOOK = 30.0
_STAYS = "The same command goes on with job {jobs}, and scancel {jobs} ends it"


class _CannotStartError(Exception):
    """A task waits for what its turn alone does not bring."""


def rehearse(
    folder: Path, cluster: Cluster, options: dict[str, str], say: Callable[[str], None]
) -> bool:
    """Run the rehearsal under ``folder``, or go on with one in the queue; whether all worked.

    What happened is read from the tasks' own files, so Slurm is asked to act twice and no more.
    """
    clusters = _options(folder, cluster, options).get("clusters", "")
    own = _in_queue(folder, clusters) or _submit(folder, cluster, options)
    number = (own / "job").read_text()
    say(f"job {number} is in the queue; its files are in {own}")
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("both tasks started, with rlbhpc in them", lambda: _said(own, 0, 1, word="started")),
        ("the warned task drained", lambda: _said(own, 0, word="drained")),
        ("it came back by itself, and ended", lambda: _said(own, 0, word="resumed")),
        ("the cancelled task drained", lambda: _said(own, 1, word="drained")),
        ("it stays away", lambda: slurm.queue([int(number)], clusters) == []),
    ]
    for step, (what, happened) in enumerate(steps):
        # A task waits for its turn before it starts, and before it comes back.
        queue = partial(slurm.queue, [int(number)] if step in (0, 2) else [], clusters)
        try:
            is_done = _wait(own, happened, queue, say)
        except KeyboardInterrupt:
            raise UserError(_STAYS.format(jobs=number), TRY_AGAIN) from None
        except _CannotStartError as reason:
            told = f"cannot start: {reason}; {what_starts(str(reason))}. {_STAYS}"
            raise UserError(told.format(jobs=number), TRY_AGAIN) from None
        if not is_done:
            say(f"not {what}: {_last_line(own)}; see {own}")
            slurm.ask("scancel", number, clusters=clusters)
            return False
        say(what)
        if step == 0 and not _said(own, 0, word="drained"):
            slurm.ask("scancel", "--signal=USR1", "--batch", f"{number}_0", clusters=clusters)
        if step == 2:
            slurm.ask("scancel", f"{number}_1", clusters=clusters)
    if _said(own, 1, word="resumed"):
        say(f"but it came back all the same; see {own}")
        return False
    shutil.rmtree(own, ignore_errors=True)
    return True


def _in_queue(folder: Path, clusters: str) -> Path | None:
    """Folder of a rehearsal whose job is in the queue still."""
    for path in folder.absolute().glob("rehearsal-*/job"):
        if slurm.queue([int(path.read_text())], clusters):
            return path.parent
    return None


def _submit(folder: Path, cluster: Cluster, options: dict[str, str]) -> Path:
    """Submit a rehearsal and give its folder, in which the file `job` has its id."""
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
    text = executor.text(head, parameters, _set_up(own, cluster), _call(own, cluster))
    (own / "rehearsal.sbatch").write_text(text)
    try:
        warned, _ = executor.send()
    except (FailedJobError, OSError) as error:
        raise UserError(f"the rehearsal was not taken: {error}") from None
    (own / "job").write_text(warned.job_id.partition("_")[0])
    return own


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


def _wait(
    own: Path,
    happened: Callable[[], bool],
    queue: Callable[[], Sequence[slurm.Row] | None],
    say: Callable[[str], None],
) -> bool:
    """Wait for a step: for as long as a task waits in the queue, then for ``PATIENCE``.

    A task in which rlbhpc does not start ends the waiting.
    """
    told = ""
    end = time.monotonic() + PATIENCE
    look = 0.0
    while (now := time.monotonic()) < end:
        if happened():
            return True
        if _said(own, 0, word="broken") or _said(own, 1, word="broken"):
            return False
        for row in (queue() or ()) if now >= look else ():
            look = now + LOOK
            if row.state == "PENDING":
                end = now + PATIENCE
                if what_starts(row.reason):
                    raise _CannotStartError(row.reason)
                if row.reason not in (told, "None"):
                    told = row.reason
                    say(f"in the queue: {told}")
        time.sleep(1)
    return False
