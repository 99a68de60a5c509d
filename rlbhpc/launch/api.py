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
from typing import Any, Final, Literal

import submitit
from submitit import LocalExecutor, SlurmExecutor

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import HERE, Resources, choose
from rlbhpc.launch.container import expand_path
from rlbhpc.launch.jobs import SNAPSHOT, Job
from rlbhpc.launch.launches import RECORD, LaunchFolder, layout_of, list_launches, open_launch
from rlbhpc.launch.prepare import Prepared, prepare
from rlbhpc.launch.script import (
    Draft,
    merge_options,
    read_options,
    resource_options,
    rlbhpc_words,
    sbatch_options,
    script_of,
)
from rlbhpc.launch.send import run_here, send
from rlbhpc.study.layout import Layout
from rlbhpc.study.plugin_check import self_contained

SUBMIT_SCRIPT: Final = """\
#!/bin/bash
# Submits the jobs of this launch, each after those that it waits for. Run it again and it goes on
# with what was not submitted: the ids of what was are in the file `submitted`.
cd "$(dirname "$0")" && exec {python} -m rlbhpc.launch.send
"""
EXECUTABLE: Final = 0o755


@dataclass(frozen=True)
class Launch:
    """A launch whose scripts lie in ``folder``."""

    folder: Path

    def submit(self, say: Callable[[str], None] = print) -> dict[str, list[submitit.Job[str]]]:
        """Submit what was not submitted; submitit's jobs by the name of the script.

        On the cluster ``local`` the jobs have ended when this returns.
        """
        if open_launch(self.folder).record["cluster"] == HERE:
            return run_here(self.folder, say)
        return {name: list(jobs) for name, jobs in send(self.folder, say).items()}

    def jobs(self) -> dict[str, list[submitit.Job[str]]]:
        """What was submitted, in this session or another, as submitit's jobs."""
        submitted_jobs = open_launch(self.folder).submitted_jobs()
        return {name: list(jobs) for name, jobs in submitted_jobs.items()}


def write(
    study: str | Path, cluster: str | None = None, sbatch: Sequence[str] = (), **settings: Any
) -> Launch:
    """Write the scripts of what is missing of a study; nothing is submitted.

    ``cluster`` is a name of the cluster table, a path of one of its files, or ``local``;
    ``sbatch`` are options such as ``["-p", "gpu"]``; ``settings`` are ``overrides``, ``only``,
    ``width``, ``throttle``, ``shard_tokens`` and ``retry_failed``, as of `rlbhpc launch`.
    """
    prepared = prepare(Path(study), cluster=cluster, options=read_options(sbatch), **settings)
    if not prepared.jobs:
        raise UserError("; ".join(prepared.notes) or f"{study}: nothing is missing")
    return write_prepared(prepared)


def write_prepared(prepared: Prepared) -> Launch:
    """Write what was prepared."""
    return Launch(write_launch(prepared.draft, prepared.jobs))


def find(run: str | Path, number: int | None = None) -> Launch:
    """A launch of a run or study file: the newest, or that of a number.

    ``run`` is the folder of results, or the study file that names it. A launch is one numbered
    folder of batch scripts, such as `launches/0003`, so its number is the name of its folder.
    """
    layout = layout_of(Path(run))
    launches = list_launches(layout)
    if number is not None:
        launches = [launch for launch in launches if int(launch.path.name) == number]
    if not launches:
        reason = "nothing was launched" if number is None else f"there is no launch {number}"
        raise UserError(f"{layout.root}: {reason}")
    return Launch(launches[-1].path)


class SiteExecutor(SlurmExecutor):
    """submitit's executor with a site filled in, over which wins what its user sets."""

    def update_parameters(self, **parameters: Any) -> None:
        """Set parameters; what the site says of the same options, or of rivals, goes.

        ``additional_parameters`` are options of sbatch by their long names; the other parameters
        are submitit's. Rivals say the same in two ways, such as mem and mem-per-cpu, of which Slurm
        refuses some pairs. `merge_options` drops the rivals of the names that it is given, so the
        names alone are merged here, with empty values that are taken out again.
        """
        site_options = self.parameters.get("additional_parameters", {})
        own_options = parameters.pop("additional_parameters", {})
        set_names = {*own_options, *(name.replace("_", "-") for name in parameters)}
        merged = merge_options(site_options, dict.fromkeys(set_names, ""))
        kept = {name: value for name, value in merged.items() if name not in set_names}
        super().update_parameters(**parameters, additional_parameters={**kept, **own_options})


def executor(
    cluster: str | None = None,
    kind: Literal["sample", "train", "light"] = "light",
    folder: str | Path = "submitit",
) -> submitit.Executor:
    """A submitit executor with the site filled in, for any function of yours.

    What you set with ``update_parameters`` wins over the site's values. Functions and results are
    pickled, and run in this very environment outside any container.

    ``cluster`` is as in `write`; without one, the host's name decides. ``kind`` says which of the
    site's requests for time and hardware the jobs make, and ``folder`` keeps submitit's files.
    """
    name, site = choose(cluster)
    if name == HERE:
        return LocalExecutor(folder)
    resources: Resources = getattr(site, kind)
    exports = [
        f"export {variable}={shlex.quote(value)}"
        for variable, value in sorted(site.environment.items())
    ]
    parameters = {
        "additional_parameters": merge_options(
            resource_options(site, resources), resources.options
        ),
        "signal_delay_s": site.warning,
        "setup": [*site.setup, *exports],
        "array_parallelism": site.throttle,
    }
    site_executor = SiteExecutor(folder)
    site_executor.update_parameters(**{key: value for key, value in parameters.items() if value})
    return site_executor


# The folder of a launch, written whole: scripts, submit.sh, record, the parent of its jobs.


def write_launch(draft: Draft, jobs: Sequence[Job]) -> Path:
    """Write all files of a launch into the next free folder and return the folder.

    What is there may be read, edited and submitted by hand; nothing is submitted here. A launch
    that was written before, not submitted, and would be written the same now, is that launch; what
    somebody has edited in its scripts stays.

    ``draft`` is what all scripts share: study, plan, cluster and options. The texts are the files
    that follow from it alone: scripts, submit.sh and the study. Their digests go into the record.
    "counted" names the scripts of other launches whose jobs were taken into account when this one
    was planned.
    """
    image = describe_image(draft)
    # Mail about the whole launch is sent by its last job.
    draft = replace(draft, image=image, last=jobs[-1].name)
    unsubmitted = _find_unsubmitted(draft.study.layout)
    if unsubmitted is not None:
        texts = make_texts(replace(draft, folder=unsubmitted.path), jobs)
        if _digest_texts(texts) == unsubmitted.record["texts"]:
            # What was submitted meanwhile has been counted this time.
            _write_record(unsubmitted.path, {**unsubmitted.record, "counted": draft.counted})
            return unsubmitted.path
    draft = replace(draft, folder=make_next_folder(draft.study.layout))
    texts = make_texts(draft, jobs)
    for name, text in texts.items():
        (draft.folder / name).write_text(text)
    (draft.folder / "submit.sh").chmod(EXECUTABLE)
    (draft.folder / "logs").mkdir()
    write_host(draft.folder / "host")
    record = {
        "launch": draft.number,
        "prefix": draft.prefix,
        "plan": draft.plan,
        "cluster": draft.cluster_name,
        "user": getpass.getuser(),
        "image": image,
        "clusters": sbatch_options(draft, jobs[0]).get("clusters", ""),
        "dependency": draft.options.get("dependency", ""),
        "throttle": draft.cluster.throttle,
        "counted": draft.counted,
        "jobs": {job.name: _job_record(draft, job) for job in jobs},
        "texts": _digest_texts(texts),
    }
    _write_record(draft.folder, record)
    return draft.folder


def _job_record(draft: Draft, job: Job) -> dict[str, Any]:
    """What the launch's record says of one job."""
    words = rlbhpc_words(draft, job)
    return {"kind": job.kind, "after": job.after, "tasks": job.tasks, "words": words}


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    files.put(folder / RECORD, f"{json.dumps(record, indent=1)}\n".encode())


def make_texts(draft: Draft, jobs: Sequence[Job]) -> dict[str, str]:
    """Every text of a launch by the name of its file; the same whenever it is written.

    The texts are a batch script for each job, submit.sh, and the study as it is now (`SNAPSHOT`),
    with all that it refers to, so that a later edit of the study file changes no job.
    """
    if "\n" in str(draft.folder):
        raise UserError(
            f"{str(draft.folder)!r}: no batch script can name a folder with a line break; choose"
            " another `output`"
        )
    texts = {f"{job.name}.sbatch": script_of(draft, job) for job in jobs}
    texts["submit.sh"] = SUBMIT_SCRIPT.format(python=shlex.quote(sys.executable))
    texts[SNAPSHOT] = self_contained(draft.study).to_json()
    return texts


def _digest_texts(texts: dict[str, str]) -> dict[str, str]:
    """Digest of each text by the name of its file."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def _find_unsubmitted(layout: Layout) -> LaunchFolder | None:
    """The newest launch, if this user wrote it, nothing of it was submitted and it may still be.

    The file `submitted` in a launch's folder lists what was handed to sbatch.
    """
    launches = list_launches(layout)
    if not launches:
        return None
    newest = launches[-1]
    is_over = newest.is_cancelled or (newest.path / "submitted").exists()
    return None if is_over or newest.user != getpass.getuser() else newest


def write_host(folder: Path) -> None:
    """Copy the program that is the parent of each job's work."""
    folder.mkdir()
    for source in resources.files("rlbhpc.launch.host").iterdir():
        if source.name.endswith(".py"):
            (folder / source.name).write_text(source.read_text())


def describe_image(draft: Draft) -> dict[str, Any]:
    """Path, size, time and SHA-256 of the image that jobs run in; empty without a container.

    The image is the container's one file. It has gigabytes: one that an earlier launch has read,
    and whose size and time are the same since, is not read again. Where the file is not on this
    machine, only its path is known.
    """
    if draft.cluster.container is None:
        return {}
    path = expand_path(draft.cluster.container.image)
    if not path.is_file():
        return {"path": str(path)}
    status = path.stat()
    file_state = {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    for launch in reversed(list_launches(draft.study.layout)):
        image = launch.record.get("image", {})
        is_same_file = all(image.get(name) == value for name, value in file_state.items())
        if is_same_file and image.get("sha256"):
            return dict(image)
    return {**file_state, "sha256": files.sha256_of(path)}


def make_next_folder(layout: Layout) -> Path:
    """Make the next numbered folder of a study's launches, such as 0004, and return it.

    Two launches at the same moment get two: the one that finds a number taken tries the next.
    """
    try:
        layout.launches.mkdir(parents=True, exist_ok=True)
        numbers = [int(path.name) for path in layout.launches.iterdir() if path.name.isdigit()]
        for number in itertools.count(max(numbers, default=0) + 1):
            folder = layout.launches.absolute() / f"{number:04d}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"{layout.launches}: {error.strerror}; choose another `output`") from None
    return folder
