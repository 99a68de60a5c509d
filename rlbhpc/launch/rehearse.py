"""A rehearsal of the worst minute: a job is warned, drains, is requeued and goes on."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from rlbhpc.errors import UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import Cluster
from rlbhpc.launch.options import SHARED

# The work of the rehearsal: the first run waits to be warned, the second one finds its file.
WORK = """\
if [ -e kept ]; then echo "resumed" >>events; exit 0; fi
trap 'echo "drained" >>events; touch kept; exit 75' TERM
echo "started" >>events
while :; do sleep 1; done
"""
PATIENCE = 900.0
EVENTS = ("started", "drained", "resumed")


def rehearse(
    folder: Path, cluster: Cluster, options: dict[str, str], say: Callable[[str], None]
) -> bool:
    """Run the rehearsal under ``folder``; whether all of it worked.

    What happened is read from the job's own file, so Slurm is asked to act twice and no more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=folder))
    parent = resources.files("rlbhpc.launch").joinpath("parent.py").read_text()
    (own / "parent.py").write_text(parent)
    (own / "work.sh").write_text(WORK)
    (own / "rehearsal.sbatch").write_text(_script(cluster, options))
    done = subprocess.run(
        ["sbatch", "--parsable", "rehearsal.sbatch"], cwd=own, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise UserError(f"the rehearsal was not taken: {done.stderr.strip()}")
    job = done.stdout.split(";")[0].strip()
    say(f"job {job} is in the queue; its files are in {own}")
    for event in EVENTS:
        if not _wait(own / "events", event):
            say(f"not {event} within {PATIENCE:.0f} s; see {own}")
            slurm.ask("scancel", job)
            return False
        say(event)
        if event == "started":
            slurm.ask("scancel", "--signal=USR1", "--batch", job)
    shutil.rmtree(own, ignore_errors=True)
    return True


def _script(cluster: Cluster, options: dict[str, str]) -> str:
    found = {
        "time": "5", "nodes": "1", "ntasks": "1", "open-mode": "append", "requeue": "",
        "output": "log", "job-name": "rlbhpc-rehearsal",
    }  # fmt: skip
    if cluster.light.partition:
        found["partition"] = cluster.light.partition
    if cluster.account:
        found["account"] = cluster.account
    found |= cluster.light.options | {k: v for k, v in options.items() if k in SHARED}
    lines = [f"#SBATCH --{k}={v}" if v else f"#SBATCH --{k}" for k, v in sorted(found.items())]
    work = f"exec {cluster.python} parent.py --drain 20 --last 10 -- bash work.sh"
    return "\n".join(["#!/bin/bash", *lines, "", *cluster.setup, work]) + "\n"


def _wait(path: Path, event: str) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if path.exists() and event in path.read_text().split():
            return True
        time.sleep(1)
    return False
