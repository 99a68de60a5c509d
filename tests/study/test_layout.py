"""Every path of a study's folder, and what is found in one."""

from __future__ import annotations

from pathlib import Path

from rlbhpc.study.layout import Layout, entries

HERE = Layout(Path("/s"))
# A change moves files of every run in the world.
PATHS = {
    "study.json": HERE.study,
    "studies/h.json": HERE.snapshot("h"),
    "looks.json": HERE.looks,
    "plans": HERE.plans,
    "launches": HERE.launches,
    "claims": HERE.claims,
    "attempts": HERE.attempts,
    "logs": HERE.logs,
    "models/m": HERE.checkpoints("m"),
    "models/m/step-7": HERE.checkpoint("m", 7),
    "converted/d": HERE.converted("d"),
    "plugins/d/mine.py": HERE.plugin("d", "mine.py"),
    "contents/d.json": HERE.contents("d"),
    "training/m": HERE.training("m"),
    "training/m/state": HERE.states("m"),
    "training/m/rollouts": HERE.rollouts("m"),
    "journals/a/s": HERE.journals("a", "s"),
    "parts/a/s": HERE.parts("a", "s"),
    "cube.zarr": HERE.cube,
    "cubes": HERE.cubes,
    "grids/a/s.json": HERE.grid("a", "s"),
    "questions/s/d.json": HERE.questions("s", "d"),
    "tables/k": HERE.tables("k"),
    "regraded.json": HERE.regraded,
    "audit": HERE.audit,
    "audit/sample.json": HERE.audit_sample,
    "audit/judgements.jsonl": HERE.judgements,
    "audit/second_readings.jsonl": HERE.second_readings,
    "report": HERE.report,
}


def test_where_everything_is() -> None:
    assert {path.relative_to("/s").as_posix() for path in PATHS.values()} == set(PATHS)
    assert {name: Path("/s", name) for name in PATHS} == PATHS


def test_what_has_a_plan_journals_or_parts_is_found(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert (layout.groups(), layout.dynamics()) == ([], {})
    for folder in (layout.journals("b", "s"), layout.parts("a", "s"), layout.parts("b", "s")):
        folder.mkdir(parents=True)
    for file in (layout.parts("a", ".DS_Store"), layout.grid("a", "t"), layout.grid("c", "s")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    layout.grid("c", "s").with_suffix(".partial").touch()
    layout.grid("c", "s").with_name("half.partial").touch()
    assert layout.groups() == [("a", "s"), ("a", "t"), ("b", "s"), ("c", "s")]
    for model in ("rl", "begun"):
        layout.training(model).mkdir(parents=True)
    (layout.training("rl") / "dynamics.jsonl").touch()
    assert layout.dynamics() == {"rl": layout.training("rl") / "dynamics.jsonl"}
    assert entries(tmp_path / "none") == entries(layout.grid("c", "s")) == []
