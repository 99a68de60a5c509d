"""What a reader must know of where samples and their verdicts are from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlbhpc import plugins
from rlbhpc.store import samples
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.study.study import Study


def same_files(
    provenance: Mapping[str, Mapping[str, Any]], pairs: Sequence[tuple[str, str]]
) -> list[str]:
    """Tell of pairs of different arms that hold samples of one imported file."""
    notes = []
    for base, trained in pairs:
        files = [provenance[group].get("imported", {}) for group in (base, trained)]
        digests = {origin["sha256"] for origin in files[0].values()}
        shared = [name for name, origin in files[1].items() if origin["sha256"] in digests]
        if shared and base != trained:
            notes.append(
                f"{trained} and {base} hold samples of the same file, {', '.join(shared)}: what "
                "they are compared on cannot differ there."
            )
    return notes


def other_verdicts(
    study: Study, layout: Layout, provenance: dict[str, dict[str, Any]]
) -> list[str]:
    """Tell of verdicts that the study's own verifier of today did not give.

    Adds the graders of each such set to the provenance.
    """
    notes = []
    for name, stored in provenance.items():
        group = Group(*name.split("/", 1))
        entry = study.problem_sets.get(group.problem_set)
        own = plugins.of(study.plugins, "verifiers", (entry and entry.verifier) or "")
        if own is None or group not in layout.groups():
            continue
        graders = samples.graders(layout, group)
        stored["graders"] = sorted(graders)
        if others := sorted({*graders} - {own}):
            notes.append(
                f"{group.arm} on {group.problem_set}: {graders.total() - graders[own]:,} of "
                f"{graders.total():,} verdicts are of {', '.join(others)} and not of {own}, the "
                "study's verifier; `rlbhpc verify RUN --again --into NEW` judges all of them with "
                "it."
            )
    return notes
