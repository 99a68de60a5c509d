"""Seal a run as its study says: which per-token values are kept is the study's to decide."""

from __future__ import annotations

import logging

from rlbhpc.store.parts import TokenPolicy
from rlbhpc.store.seal import Sealing, gc, seal
from rlbhpc.store.sources import Group, Rows, of_run
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.schema import Storage

log = logging.getLogger(__name__)


def token_policy(layout: Layout) -> TokenPolicy:
    """Whose per-token values the study of a run keeps; the default where samples were imported."""
    study = study_of(layout)
    return study.file.storage.tokens if study else Storage().tokens


def seal_run(
    layout: Layout, tokens: TokenPolicy | None = None, *, verify: bool = False
) -> dict[Group, Sealing]:
    """Seal what is complete of every arm and problem set; ``tokens`` overrides the study."""
    policy = tokens or token_policy(layout)
    return {
        group: seal(layout, *group, Rows(layout, group).grid, policy, verify=verify)
        for group in of_run(layout)
    }


def seal_and_clean(layout: Layout) -> None:
    """Seal what is complete and remove the journals that hold nothing else."""
    for group, sealed in seal_run(layout).items():
        log.debug("%s: %d parts sealed, %d left open", group, len(sealed.made), sealed.open)
    for group in of_run(layout):
        gc(layout, *group)
