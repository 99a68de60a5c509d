"""The folder of one launch: its batch scripts, the parent, and submit.sh."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.launch.container import expanded
from rlbhpc.launch.image import digest
from rlbhpc.launch.jobs import Job
from rlbhpc.launch.script import Launch, script
from rlbhpc.study.layout import Layout

RECORD = "launch.json"


def write_launch(launch: Launch, jobs: Sequence[Job]) -> Path:
    """Write all files of a launch into the next free folder and return the folder.

    What is there may be read, edited and submitted by hand; nothing is submitted here.
    """
    folder = _next_folder(launch.study.layout)
    image = image_of(launch)
    launch = replace(launch, number=folder.name, image=image.get("sha256", ""))
    here = resources.files("rlbhpc.launch")
    for job in jobs:
        (folder / f"{job.name}.sbatch").write_text(script(launch, job))
    (folder / "parent.py").write_text(here.joinpath("parent.py").read_text())
    submit = folder / "submit.sh"
    submit.write_text(submit_text(launch, jobs))
    submit.chmod(0o755)
    (folder / "logs").mkdir()
    record = {
        "launch": folder.name,
        "prefix": launch.prefix,
        "plan": launch.plan,
        "cluster": launch.cluster_name,
        "image": image,
        "jobs": {job.name: {"kind": job.kind, "tasks": job.tasks} for job in jobs},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    return folder


def image_of(launch: Launch) -> dict[str, Any]:
    """Path, size, time and SHA-256 of the image that jobs run in; empty without a container.

    Images have gigabytes: one that an earlier launch has read is not read again.
    """
    if launch.cluster.container is None:
        return {}
    path = expanded(launch.cluster.container.image)
    if not path.is_file():
        return {"path": str(path)}
    found = path.stat()
    seen = {"path": str(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns}
    for record in sorted(launch.study.layout.launches.glob(f"*/{RECORD}"), reverse=True):
        try:
            known = json.loads(record.read_text()).get("image", {})
        except ValueError:  # a launch that was killed while it was written
            continue
        if known.get("sha256") and seen.items() <= known.items():
            return dict(known)
    return {**seen, "sha256": digest(path)}


def submit_text(launch: Launch, jobs: Sequence[Job]) -> str:
    """The whole of submit.sh."""
    head = resources.files("rlbhpc.launch").joinpath("submit.sh").read_text()
    calls = [shlex.join(["submit", job.name, *job.after]) for job in jobs]
    return f"{head}prefix={shlex.quote(launch.prefix)}\n" + "\n".join(calls) + "\n"


def _next_folder(layout: Layout) -> Path:
    """Make the next numbered folder; two launches at the same moment get two."""
    try:
        layout.launches.mkdir(parents=True, exist_ok=True)
        number = max(
            (int(p.name) for p in layout.launches.iterdir() if p.name.isdigit()), default=0
        )
        while True:
            number += 1
            folder = layout.launches / f"{number:04d}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise UserError(f"{layout.launches}: {error.strerror}; choose another `output`") from None


def submit(folder: Path) -> int:
    """Run submit.sh; its exit code."""
    return subprocess.run(["bash", "submit.sh"], cwd=folder, check=False).returncode


def start_estimates(folder: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """When Slurm would start each script if it were submitted now, in its own words."""
    found = {}
    for job in jobs:
        done = subprocess.run(
            ["sbatch", "--test-only", f"{job.name}.sbatch"], cwd=folder, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        lines = (done.stderr + done.stdout).strip().splitlines()
        found[job.name] = lines[-1].removeprefix("sbatch: ") if lines else "no answer"
    return found
