"""A model is copied to the node once, whole, and makes room when nobody uses it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlbhpc.engines import folder
from rlbhpc.engines.folder import staged

# Stages a model, says where, and keeps it in use until its input ends.
HOLDER = """
import sys
from pathlib import Path
from rlbhpc.engines.folder import staged
print(staged(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLBHPC_STAGE", str(tmp_path / "node" / "stage"))
    monkeypatch.setattr(folder, "_in_use", {})
    return tmp_path / "node" / "stage"


def model(folder: Path, weights: bytes = b"w" * 1000) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "global_step1").mkdir(exist_ok=True)  # what no engine loads is not copied
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def holder(folder: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_without_a_place_the_model_is_read_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RLBHPC_STAGE", raising=False)
    assert staged(tmp_path) == tmp_path


def test_a_model_is_copied_once_and_anew_when_it_has_changed(stage: Path, tmp_path: Path) -> None:
    source = model(tmp_path / "m")
    first = staged(source)
    assert first.parent == stage
    modes = [path.stat().st_mode & 0o777 for path in (stage, first.with_suffix(".used"))]
    assert modes == [0o700, 0o600], "nobody else reads the models of a shared node"
    assert files(first) == {"config.json": b"{}", "model.safetensors": b"w" * 1000}
    marked = first / "config.json"
    marked.write_text("marked")
    assert staged(source) == first and marked.read_text() == "marked"
    changed = staged(model(source, b"x" * 1001))
    assert changed != first
    assert files(changed)["model.safetensors"] == b"x" * 1001


def test_tasks_that_start_together_copy_once(stage: Path, tmp_path: Path) -> None:
    source = model(tmp_path / "m")
    tasks = [holder(source) for _ in range(4)]
    assert {line(task) for task in tasks} == {str(staged(source))}
    for task in tasks:
        task.communicate("")
    assert sorted(path.suffix for path in stage.iterdir()) == ["", "", ".used"]


def test_a_copy_that_was_killed_is_not_taken_for_a_whole_one(stage: Path, tmp_path: Path) -> None:
    source = model(tmp_path / "m")
    partial = (stage / folder._copy_name(source)).with_suffix(".partial")
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"ha")
    assert files(staged(source))["model.safetensors"] == b"w" * 1000
    assert not partial.exists()


def test_only_copies_that_nobody_uses_make_room(
    stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, dead, wanted = (model(tmp_path / name) for name in ("used", "dead", "wanted"))
    in_use, killed = holder(used), holder(dead)
    kept, gone = Path(line(in_use)), Path(line(killed))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    without_lock, enough_by_then = stage / "0", stage / "x"
    without_lock.mkdir()
    enough_by_then.mkdir()

    def usage(_: Path) -> SimpleNamespace:
        copies = sum(1 for path in stage.iterdir() if path.is_dir())
        return SimpleNamespace(free=folder.SPARE + 1002 if copies < 3 else 0)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = staged(wanted)
    in_use.communicate("")
    assert found.parent == stage and kept.is_dir() and enough_by_then.is_dir()
    assert not gone.exists() and not without_lock.exists()


def test_without_room_the_model_is_read_where_it_lies_and_that_is_said(
    stage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    source = model(tmp_path / "m")
    with caplog.at_level(logging.WARNING):
        assert staged(source) == source
    assert "1.0 GB free, 2.1 GB needed" in caplog.text
    monkeypatch.setenv("RLBHPC_STAGE", "/proc/nothing/here")
    assert staged(source) == source
