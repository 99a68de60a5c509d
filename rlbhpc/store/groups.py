"""The groups of a run, its arms on their problem sets, and what was planned of each."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.store.grid import Grid
from rlbhpc.store.sources import Group, Rows
from rlbhpc.study.layout import Layout


def of_run(layout: Layout) -> list[tuple[str, str]]:
    """List every arm and problem set of a run; a folder without any is an error."""
    groups = layout.groups()
    if not groups:
        raise UserError(f"{layout.root}: holds no samples; give the folder of a run")
    return groups


def planned(layout: Layout, arm: str, set_name: str) -> Grid:
    """Give the grid of an arm and problem set: what was planned, then what is there beside it."""
    return Rows(layout, Group(arm, set_name)).grid()
