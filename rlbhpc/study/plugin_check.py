"""A first look at the plugins that a study names, in a child: one may hang, or end it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.study.expand import expand
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study
from rlbhpc.study.tree import load_tree

# For all of them; importing PyTorch alone takes a few seconds.
TIMEOUT_SECONDS: Final = 120


def brought(study: Path, overrides: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return what each plugin of a study defines, by the plugin's place.

    ``study`` is the study file. Of a Python file it is the names that it defines, of an installed
    plugin its module and name. They are imported in a child process; one that raises, exits or
    outlasts :data:`TIMEOUT_SECONDS` is refused. The child prints a line of JSON for each, in order.
    """
    if study.suffix == ".json":
        return {}
    references = plugins.references(expand(load_tree(study, overrides)).plain())
    sources = list(dict.fromkeys(place(reference) for reference in references))
    if not sources:
        return {}
    output, ending = in_child(__name__, *sources)
    answers = [json.loads(line) for line in output.splitlines()]
    for answer in answers:
        if "error" in answer:
            raise UserError(answer["error"])
    if len(answers) < len(sources):
        # The child ended while it imported the source behind the last that it answered for.
        raise UserError(f"{sources[len(answers)]}: importing it {ending}")
    return {source: answer["names"] for source, answer in zip(sources, answers, strict=True)}


def place(reference: str) -> str:
    """What a complaint about a plugin begins with: its file, or the reference itself."""
    return str(plugins.path_of(reference)) if plugins.is_file(reference) else reference


def in_child(module: str, *arguments: str, data: bytes = b"") -> tuple[str, str]:
    """Run a module of this package in a child process: what it printed, and how it ended, in words.

    The option ``-P`` keeps the current folder off the import path, so that a user's file finds no
    neighbours, as in a job. ``data`` goes to the child's standard input.
    """
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            input=data, stdout=subprocess.PIPE, check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        code = child.returncode
        ending = f"ended with signal {-code}" if code < 0 else f"ended with exit code {code}"
        output = child.stdout
    except subprocess.TimeoutExpired as late:
        output, ending = late.stdout or b"", f"took more than {TIMEOUT_SECONDS} s"
    return output.decode(errors="replace"), ending


def first_call(call: Callable[[], None], place: str) -> None:
    """Call what a study brings, in a child, and refuse it as the call does, or as it ended."""
    output, ending = in_child(__name__, data=pickle.dumps(call))
    complaint = json.loads(output) if output else f"{place} {ending}"
    if complaint:
        raise UserError(complaint)


def _run_pickled_call() -> str:
    """Run the function that the parent has pickled to standard input.

    The result is the message with which it refuses its input, empty if it does not.
    """
    call = pickle.loads(sys.stdin.buffer.read())  # noqa: S301, from the parent alone
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


def _import_source(source: str) -> dict[str, object]:
    """Import one plugin: the names it defines under ``names``, or under ``error`` why it fails.

    ``source`` is a Python file, or ``kind:name`` of an installed plugin.
    """
    try:
        if plugins.is_file(source):
            with plugins.isolated_copy(Path(source)) as copy:
                return {"names": plugins.names(copy)}
        kind, _, name = source.partition(":")
        plugins.find(kind, name)
        return {"names": [entry.value for entry in plugins.installed(kind)[name]]}
    except UserError as error:
        return {"error": str(error)}


def _take_over_stdout() -> TextIO:
    """The stream that the parent reads; what plugins print goes to the error stream from here."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


if __name__ == "__main__":
    parent = _take_over_stdout()
    for name in sys.argv[1:]:
        print(json.dumps(_import_source(name)), file=parent, flush=True)
    if not sys.argv[1:]:
        print(json.dumps(_run_pickled_call()), file=parent, flush=True)


# Copies of the Python files that a study brings, named by content, for its jobs.


def self_contained(study: Study) -> Study:
    """The study with copies of the files that it brings, in its folder.

    Jobs read those copies, so that nothing moves under them when the user edits a file, and an
    image needs no folder beside the study's own.
    """
    copies = {name: _copied(study, name) for name in study.plugins if plugins.is_file(name)}
    record = plugins.replace_references(study.file.model_dump(mode="json", by_alias=True), copies)
    identities = {copies.get(name, name): identity for name, identity in study.plugins.items()}
    return replace(study, file=StudyFile.model_validate(record), plugins=identities)


def _copied(study: Study, reference: str) -> str:
    """Copy a plugin's file into the study's folder, and return a reference to the copy.

    The copy lies under the digest of the content that the study recorded, so jobs read what was
    checked. A file that has changed since is refused. ``reference`` is a path, perhaps with
    ``:name``.
    """
    original = plugins.path_of(reference)
    copy = study.layout.plugin(study.plugins[reference].rpartition("@")[2], original.name)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{uuid.uuid4().hex}.partial.py")
        partial.write_bytes(original.read_bytes())
        if plugins.identity(str(partial)).rpartition("@")[2] != copy.parent.name:
            partial.unlink()
            raise UserError(f"{original} was changed just now; run the same command again")
        partial.rename(copy)
    return str(copy) + reference.removeprefix(str(original))
