"""Copies of the Python files that a study brings, named by content, for its jobs."""

from __future__ import annotations

import uuid
from dataclasses import replace

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study


def self_contained(study: Study) -> Study:
    """The study with copies of the files that it brings, in its folder.

    Jobs read those copies, so that nothing moves under them when the user edits a file, and an
    image needs no folder beside the study's own.
    """
    copies = {name: _copied(study, name) for name in study.plugins if plugins.is_file(name)}
    record = plugins.replaced(study.file.model_dump(mode="json", by_alias=True), copies)
    identities = {copies.get(name, name): identity for name, identity in study.plugins.items()}
    return replace(study, file=StudyFile.model_validate(record), plugins=identities)


def _copied(study: Study, reference: str) -> str:
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
