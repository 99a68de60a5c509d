"""The plugins that a study brings: whether they load, and copies of their files for jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.files import put
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study


def import_alone(references: Iterable[str]) -> None:
    """Import plugins, of which one that raises is refused.

    A file is imported as in a job: a copy of it alone, in an empty folder.
    """
    for reference in references:
        if plugins.is_file(reference):
            with plugins.isolated_copy(plugins.path_of(reference)) as copy:
                plugins.names(copy)
        else:
            kind, _, name = reference.partition(":")
            plugins.find(kind, name)


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
        if plugins.identity(reference) != study.plugins[reference]:
            raise UserError(f"{original} was changed just now; run the same command again")
        copy.parent.mkdir(parents=True, exist_ok=True)
        put(copy, original.read_bytes())
    return str(copy) + reference.removeprefix(str(original))
