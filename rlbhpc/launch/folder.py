"""The folder of a launch, written whole: scripts, submit.sh, record, the parent of its jobs."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import re
import shlex
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import resources, util
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.container import expanded
from rlbhpc.launch.jobs import SNAPSHOT, Job
from rlbhpc.launch.launches import RECORD, LaunchFolder, launches
from rlbhpc.launch.script import Draft, call, directives, head, set_up, words_of
from rlbhpc.launch.study_executor import StudyExecutor
from rlbhpc.study.layout import Layout
from rlbhpc.study.plugin_check import self_contained

# What the host's Python needs of ours; it is zipped for Pythons that have none of it.
HOST_PACKAGES = ("submitit", "cloudpickle", "typing_extensions")
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
    before = _unsent(draft.study.layout)
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
    number = re.search("%[Aajt]", str(draft.folder))
    if draft.cluster_name == HERE and number:
        raise UserError(
            f"{draft.folder}: submitit takes {number[0]} for a number of the job; choose another"
            " `output`"
        )
    texts = {}
    for job in jobs:
        executor = StudyExecutor(draft.folder, job.name, draft.prefix)
        texts[f"{job.name}.sbatch"] = executor.text(
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


def _unsent(layout: Layout) -> LaunchFolder | None:
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
    """Copy the parent of the jobs, with submitit in a zip that has the same bytes every time."""
    folder.mkdir()
    for source in resources.files("rlbhpc.launch.host").iterdir():
        if source.name.endswith(".py"):
            (folder / source.name).write_text(source.read_text())
    with zipfile.ZipFile(folder / "submitit.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, source in sorted(_sources()):
            packed.writestr(zipfile.ZipInfo(name), source.read_bytes(), zipfile.ZIP_DEFLATED)


def _sources() -> Iterable[tuple[str, Traversable | Path]]:
    """Every module of the packages that the host needs, by its name in the zip."""
    for package in HOST_PACKAGES:
        spec = util.find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin)
        if root.name != "__init__.py":
            yield root.name, root
            continue
        for path in root.parent.rglob("*.py"):
            if not path.name.startswith("test_"):
                yield str(path.relative_to(root.parents[1])), path


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
