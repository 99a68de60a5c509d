"""A run as it was last planned: found from its folder or from the study file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.write import RECORD
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study


@dataclass(frozen=True)
class LaunchFolder:
    """One launch that was written: its record, and the ids of what of it was submitted."""

    path: Path
    plan: str
    jobs: dict[str, Any]
    submitted: dict[str, int]

    @property
    def tasks(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Shards by job id and array task."""
        return {
            (self.submitted[name], task): tuple(shards)
            for name, job in self.jobs.items()
            if name in self.submitted
            for task, shards in enumerate(job["tasks"])
        }


def layout_of(run: Path) -> Layout:
    """The results folder of a study file, or the folder itself."""
    layout = load_study(run).layout if run.is_file() else Layout(run)
    if not layout.study.is_file():
        raise UserError(f"{layout.root}: no run in it; give a study file or the folder of a run")
    return layout


def study_of(layout: Layout) -> Study:
    """The study as it was last planned."""
    return Study.from_json(layout.study.read_text())


def launches(layout: Layout) -> list[LaunchFolder]:
    """All launches of a run, oldest first; what a kill left half-written is passed over."""
    found = []
    for path in sorted(layout.launches.glob("[0-9]*")):
        try:
            record = json.loads((path / RECORD).read_text())
            found.append(LaunchFolder(path, record["plan"], record["jobs"], slurm.submitted(path)))
        except (OSError, ValueError, KeyError):
            continue
    return found
