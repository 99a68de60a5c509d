"""Launching from Python: what `rlbhpc launch` does, with submitit's jobs as the answer."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import submitit
from submitit.local.local import LocalExecutor
from submitit.slurm.slurm import SlurmExecutor

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import HERE, Resources, choose
from rlbhpc.launch.container import expanded
from rlbhpc.launch.jobs import SNAPSHOT, Job
from rlbhpc.launch.launches import RECORD, LaunchFolder, launch_in, launches, layout_of
from rlbhpc.launch.prepare import Prepared, prepare
from rlbhpc.launch.script import (
    Draft,
    call,
    directives,
    head,
    merge_options,
    read_options,
    resource_options,
    script_text,
    set_up,
    words_of,
)
from rlbhpc.launch.send import run_here, send
from rlbhpc.study.layout import Layout
from rlbhpc.study.plugin_check import self_contained

# The folder of a launch, written whole: scripts, submit.sh, record, the parent of its jobs.


SUBMIT = """\
#!/bin/bash
# Submits the jobs of this launch, each after those that it waits for. Run it again and it goes on
# with what was not submitted: the ids of what was are in the file `submitted`.
cd "$(dirname "$0")" && exec {python} -m rlbhpc.launch.send
"""


def write_launch(draft: Draft, jobs: Sequence[Job]) -> Path:
    """Write all files of a launch into the next free folder and return the folder.

    What is there may be read, edited and submitted by hand; nothing is submitted here. A launch
    that was written before, not submitted, and would have the same bytes now, is that launch.
    """
    image = image_of(draft)
    draft = replace(draft, image=image, last=jobs[-1].name)
    before = _unsubmitted_launch(draft.study.layout)
    if before is not None:
        _refuse_edited(before)
        if texts_of(replace(draft, folder=before.path), jobs) == _texts_in(before):
            # What was submitted meanwhile has been counted this time.
            _write_record(before.path, {**before.record, "counted": draft.counted})
            return before.path
    draft = replace(draft, folder=next_folder(draft.study.layout))
    texts = texts_of(draft, jobs)
    for name, text in texts.items():
        (draft.folder / name).write_text(text)
    (draft.folder / "submit.sh").chmod(0o755)
    (draft.folder / "logs").mkdir()
    write_host(draft.folder / "host")
    record = {
        "launch": draft.number,
        "prefix": draft.prefix,
        "plan": draft.plan,
        "cluster": draft.cluster_name,
        "user": getpass.getuser(),
        "image": image,
        "clusters": directives(draft, jobs[0]).get("clusters", ""),
        "dependency": draft.options.get("dependency", ""),
        "throttle": draft.cluster.throttle,
        "counted": draft.counted,
        "jobs": {
            job.name: {
                "kind": job.kind,
                "after": job.after,
                "tasks": job.tasks,
                "words": words_of(draft, job),
            }
            for job in jobs
        },
        "texts": {name: _digest_of(text) for name, text in texts.items()},
    }
    _write_record(draft.folder, record)
    return draft.folder


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    files.put(folder / RECORD, f"{json.dumps(record, indent=1)}\n".encode())


def texts_of(draft: Draft, jobs: Sequence[Job]) -> dict[str, str]:
    """Every text of a launch by the name of its file; the same whenever it is written."""
    if "\n" in str(draft.folder):
        raise UserError(
            f"{str(draft.folder)!r}: no batch script can name a folder with a line break; choose"
            " another `output`"
        )
    texts = {}
    for job in jobs:
        texts[f"{job.name}.sbatch"] = script_text(
            head(draft, job), directives(draft, job), set_up(draft, job), call(draft, job)
        )
    texts["submit.sh"] = SUBMIT.format(python=shlex.quote(sys.executable))
    texts[SNAPSHOT] = self_contained(draft.study).to_json()
    return texts


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _texts_in(launch: LaunchFolder) -> dict[str, str]:
    paths = [launch.path / name for name in launch.record["texts"]]
    return {path.name: path.read_text() for path in paths if path.is_file()}


def _unsubmitted_launch(layout: Layout) -> LaunchFolder | None:
    """The newest launch, if this user wrote it, nothing of it was submitted and it may still be."""
    written = launches(layout)
    newest = written[-1] if written else None
    if newest is None or newest.is_cancelled or (newest.path / "submitted").exists():
        return None
    return newest if newest.record["user"] == getpass.getuser() else None


def _refuse_edited(launch: LaunchFolder) -> None:
    """What somebody wrote into a script is theirs: another launch would drop it without a word."""
    for name, text in _texts_in(launch).items():
        if _digest_of(text) != launch.record["texts"][name]:
            raise UserError(
                f"{launch.path / name} was edited and not submitted: submit it with"
                f" {launch.path / 'submit.sh'}, or remove {launch.path} to write it anew"
            )


def write_host(folder: Path) -> None:
    """Copy the parent of the jobs."""
    folder.mkdir()
    for source in resources.files("rlbhpc.launch.host").iterdir():
        if source.name.endswith(".py"):
            (folder / source.name).write_text(source.read_text())


def image_of(draft: Draft) -> dict[str, Any]:
    """Path, size, time and SHA-256 of the image that jobs run in; empty without a container.

    Images have gigabytes: one that an earlier launch has read is not read again.
    """
    if draft.cluster.container is None:
        return {}
    path = expanded(draft.cluster.container.image)
    if not path.is_file():
        return {"path": str(path)}
    status = path.stat()
    file_state = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    for launch in reversed(launches(draft.study.layout)):
        image = launch.record.get("image", {})
        if image.get("sha256") and file_state.items() <= image.items():
            return dict(image)
    return {**file_state, "sha256": files.sha256_of(path)}


def next_folder(layout: Layout) -> Path:
    """Make the next numbered folder; two launches at the same moment get two."""
    try:
        layout.launches.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in layout.launches.iterdir() if path.name.isdigit()]
        for number in itertools.count(max(map(int, names), default=0) + 1):
            folder = layout.launches.absolute() / f"{number:04d}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"{layout.launches}: {error.strerror}; choose another `output`") from None
    return folder


@dataclass(frozen=True)
class Launch:
    """A launch whose scripts lie in ``folder``."""

    folder: Path

    def submit(
        self, width: int | None = None, say: Callable[[str], None] = print
    ) -> dict[str, list[submitit.Job[str]]]:
        """Submit what was not submitted; submitit's jobs by the name of the script.

        On the cluster ``local`` the jobs have ended when this returns; ``width`` is how many tasks
        run at once.
        """
        if launch_in(self.folder).record["cluster"] == HERE:
            return run_here(self.folder, width, say)
        return {name: list(jobs) for name, jobs in send(self.folder, say).items()}

    def jobs(self) -> dict[str, list[submitit.Job[str]]]:
        """What was submitted, in this session or another, as submitit's jobs."""
        return {name: list(jobs) for name, jobs in launch_in(self.folder).submitted_jobs().items()}


def write(
    study: str | Path, cluster: str | None = None, sbatch: Sequence[str] = (), **more: Any
) -> Launch:
    """Write the scripts of what is missing of a study; nothing is submitted.

    ``cluster`` is a name of the cluster table, a path of one of its files, or ``local``;
    ``sbatch`` are options such as ``["-p", "gpu"]``; ``more`` are ``overrides``, ``only``,
    ``width``, ``throttle``, ``shard_tokens`` and ``retry_failed``, as of `rlbhpc launch`.
    """
    prepared = prepare(Path(study), cluster=cluster, options=read_options(sbatch), **more)
    if not prepared.jobs:
        raise UserError("; ".join(prepared.notes) or f"{study}: nothing is missing")
    return write_prepared(prepared)


def write_prepared(prepared: Prepared) -> Launch:
    """Write what was prepared."""
    return Launch(write_launch(prepared.draft, prepared.jobs))


def find(run: str | Path, number: int | None = None) -> Launch:
    """A launch of a run or study file: the newest, or that of a number."""
    layout = layout_of(Path(run))
    folders = launches(layout)
    named = [folder for folder in folders if number is None or int(folder.path.name) == number]
    if not named:
        what = "nothing was launched" if number is None else f"there is no launch {number}"
        raise UserError(f"{layout.root}: {what}")
    return Launch(named[-1].path)


class SiteExecutor(SlurmExecutor):
    """submitit's executor with a site filled in, over which wins what its user sets."""

    def update_parameters(self, **kwargs: Any) -> None:
        """Drop what the site says of the same things, or of rivals such as --gres."""
        site = self.parameters.get("additional_parameters", {})
        own = kwargs.pop("additional_parameters", {})
        names = dict.fromkeys((*own, *(name.replace("_", "-") for name in kwargs)), "")
        left = {
            name: text for name, text in merge_options(site, names).items() if name not in names
        }
        super().update_parameters(**kwargs, additional_parameters={**left, **own})


def executor(
    cluster: str | None = None,
    kind: Literal["sample", "train", "light"] = "light",
    folder: str | Path = "submitit",
) -> submitit.Executor:
    """A submitit executor with the site filled in, for any function.

    What you set with ``update_parameters`` wins over the site's values.
    Functions and results are pickled, and run in this very environment outside any container.
    """
    name, entry = choose(cluster)
    if name == HERE:
        return LocalExecutor(folder)
    resources: Resources = getattr(entry, kind)
    plain = SiteExecutor(folder)
    variables = sorted(entry.environment.items())
    exports = [f"export {name}={shlex.quote(text)}" for name, text in variables]
    parameters = {
        # By their long names, options of the site rival nothing else.
        "additional_parameters": merge_options(
            resource_options(entry, resources), resources.options
        ),
        "signal_delay_s": entry.warning,
        "setup": [*entry.setup, *exports],
        "array_parallelism": entry.throttle,
    }
    plain.update_parameters(**{name: value for name, value in parameters.items() if value})
    return plain
