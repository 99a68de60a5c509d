"""The noun *Layout*: the one place that knows every path of a study's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted; nothing where there is none.

    A folder that may not be read is an error. ``Path.glob`` takes it for an empty one.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


class _Fixed:
    """A path of one name below the folder of a study."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, layout: Layout, _: type[Layout]) -> Path:
        return layout.root / self._name


@dataclass(frozen=True)
class Layout:
    """Paths under the folder in which one study keeps all it writes.

    ``root`` is shared storage. Nothing else in the project joins path names below it.
    """

    root: Path

    study = _Fixed("study.json")
    """The resolved study as it was last run."""

    def snapshot(self, study_hash: str) -> Path:
        """One resolved study by its hash, for the plans that were made from it."""
        return self.root / "studies" / f"{study_hash}.json"

    looks = _Fixed("looks.json")
    """What looks at the growing study decided, and the samples that they ask for."""

    searches = _Fixed("searches.json")
    """Which prompts were chosen where an arm searched for its own."""

    plans = _Fixed("plans")
    """Immutable plans, named by content."""

    launches = _Fixed("launches")
    """One numbered folder of batch scripts per launch."""

    claims = _Fixed("claims")
    """Who works which shard, one file each; jobs write them."""

    grids = _Fixed("grids")
    """What is asked of each arm and problem set; every run with samples has them."""

    attempts = _Fixed("attempts")
    """What differs from run to run: one record per attempt (host, times, versions)."""

    logs = _Fixed("logs")
    """Debug lines, one file per call of a verb that writes; can be deleted at any time."""

    def checkpoints(self, model: str) -> Path:
        """Return the folder of all checkpoints of a model that the study trains."""
        return self.root / "models" / model

    def checkpoint(self, model: str, step: int) -> Path:
        """Return a checkpoint of a model that the study trains, in Hugging Face format."""
        return self.checkpoints(model) / f"step-{step}"

    def converted(self, digest: str) -> Path:
        """Return a model folder made of a checkpoint that is none; can be deleted at any time."""
        return self.root / "converted" / digest

    def plugin(self, digest: str, name: str) -> Path:
        """Return the copy of a Python file that the study brings, for its jobs."""
        return self.root / "plugins" / digest / name

    def contents(self, digest: str) -> Path:
        """Return what the files of a model were that the study found, so that a change is seen."""
        return self.root / "contents" / f"{digest}.json"

    def training(self, model: str) -> Path:
        """Return the training state and dynamics of a model that the study trains."""
        return self.root / "training" / model

    def states(self, model: str) -> Path:
        """One folder per saved step of a training, to go on from."""
        return self.training(model) / "state"

    def rollouts(self, model: str) -> Path:
        """Parts with a row for every response that a training sampled."""
        return self.training(model) / "rollouts"

    def dynamics(self) -> dict[str, Path]:
        """Find the recorded training curve of every model that has one."""
        logs = {model.name: model / "dynamics.jsonl" for model in entries(self.root / "training")}
        return {model: path for model, path in logs.items() if path.exists()}

    def journals(self, arm: str, set_name: str) -> Path:
        """Append-only journals of one arm and problem set, one file per attempt."""
        return self.root / "journals" / arm / set_name

    def parts(self, arm: str, set_name: str) -> Path:
        """Sealed Parquet parts of one arm and problem set."""
        return self.root / "parts" / arm / set_name

    cube = _Fixed("cube.zarr")
    """The Zarr cube, derived from parts and journals: a link to its current version."""

    cubes = _Fixed("cubes")
    """Versions of the cube."""

    def grid(self, arm: str, set_name: str) -> Path:
        """Find what was asked of one arm on one problem set, in the order it was asked."""
        return self.grids / arm / f"{set_name}.json"

    def questions(self, set_name: str, digest: str) -> Path:
        """Find what some problems of a set ask, and their reference answers, by content."""
        return self.root / "questions" / set_name / f"{digest}.json"

    def tables(self, kind: str) -> Path:
        """Small tables by kind: imported counts, scored texts."""
        return self.root / "tables" / kind

    def groups(self) -> list[tuple[str, str]]:
        """Return every pair of arm and problem set of which the run holds anything.

        That is a grid (the file that lists what is asked of the pair), journals (samples as they
        come) or parts (finished Parquet files). Their paths are ``grids/<arm>/<set>.json`` and
        ``journals/<arm>/<set>/`` and ``parts/<arm>/<set>/``.
        """
        groups: set[tuple[str, str]] = set()
        for kind in ("journals", "parts"):
            for arm in entries(self.root / kind):
                # Beside the folders may lie what a file manager leaves.
                groups |= {(arm.name, path.name) for path in entries(arm) if path.is_dir()}
        # A writer that was killed leaves a grid under another ending than its own.
        for arm in entries(self.grids):
            groups |= {(arm.name, path.stem) for path in entries(arm) if path.suffix == ".json"}
        return sorted(groups)

    """Verdicts of distinct (problem, answer) pairs, by grader fingerprint."""

    regraded = _Fixed("regraded.json")
    """Where the samples of a run come from that was judged again, and whether all are there."""

    audit = _Fixed("audit")
    """What an audit drew, what was said of it, and what second readers say of answers."""

    @property
    def audit_sample(self) -> Path:
        """Which responses an audit drew, and out of how many."""
        return self.audit / "sample.json"

    @property
    def judgements(self) -> Path:
        """What people say of single responses, one line each."""
        return self.audit / "judgements.jsonl"

    @property
    def second_readings(self) -> Path:
        """What Math-Verify and a judge say of distinct answers, one line each."""
        return self.audit / "second_readings.jsonl"

    report = _Fixed("report")
    """Figures, tables and the HTML report."""
