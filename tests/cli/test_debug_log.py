"""What a call leaves behind for whoever looks for the cause of a trouble."""

from __future__ import annotations

import errno
import io
import logging
import os
import threading
from pathlib import Path

import click
import pytest

from rlbhpc.cli.main import VERBOSE, cli, main
from rlbhpc.debug_log import MAX_BYTES, DebugLog, keep
from rlbhpc.engines.endpoint import Client, RefusedError
from rlbhpc.errors import UserError
from rlbhpc.study.layout import Layout
from tests.launch.made import study_in
from tests.store import made
from tests.store.made import ARM, SET
from tests.store.test_scan import grid, right


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A run with samples that no cube holds yet."""
    monkeypatch.setenv(VERBOSE, "")
    layout = Layout(tmp_path / "run")
    grid(1).save(layout.grid(ARM, SET))
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    return layout


class Full(io.StringIO):
    """A stream to a disk without space."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(map(str, words)))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_call_that_writes_keeps_its_lines(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["rlbhpc", "compact", "a b"])
    assert call("compact", layout.root) == 0
    (path,) = layout.logs.iterdir()
    assert path.name.startswith("compact-")
    lines = path.read_text().splitlines()
    assert "Python" in lines[0]
    assert lines[0].endswith(f", in {os.environ.get('PWD')}: compact 'a b'")
    assert lines[-1].endswith("exit code 0")
    path.unlink()
    assert call("compact", layout.root) == 4
    assert list(layout.logs.iterdir()) == [], "nothing happened"


@pytest.mark.parametrize("words", [("report", "--compare", "no:such"), ("verify",)])
def test_a_refused_look_keeps_its_lines_too(layout: Layout, words: tuple[str, ...]) -> None:
    """The arms are not there, and neither is the study with its problems."""
    assert call("compact", layout.root) == 0
    assert call(*words, layout.root) == 64
    (path,) = layout.logs.glob(f"{words[0]}-*.log")
    assert "Traceback" in path.read_text()


def test_a_launch_that_cannot_be_prepared_keeps_its_lines(tmp_path: Path) -> None:
    path, study = study_in(tmp_path / "study")
    assert call("launch", path, "--cluster", "nowhere") == 64
    (log,) = study.layout.logs.glob("launch-*.log")
    assert "nowhere" in log.read_text()


def test_staging_keeps_its_lines_beside_the_sets(tmp_path: Path) -> None:
    assert call("stage", "countdown", "--to", tmp_path / "data") == 64
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    assert call("stage", "countdown", "--to", tmp_path / "data") == 64
    (path,) = (tmp_path / "data/logs").iterdir()
    assert "there is nothing to fetch" in path.read_text()
    assert call("stage", "--to", tmp_path / "data", "--check") == 64


@pytest.mark.parametrize("place", [0, 1, 2])
def test_verbose_goes_before_the_verb_or_behind_it(
    layout: Layout, capsys: pytest.CaptureFixture[str], place: int
) -> None:
    words = ["compact", str(layout.root)]
    words.insert(place, "--verbose")
    assert call(*words) == 0
    assert "rlbhpc.store.compact: cube of" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_ends_no_work(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Full())
    assert call("--verbose", "compact", layout.root) == 0
    monkeypatch.undo()
    monkeypatch.setenv(VERBOSE, "")
    for path in layout.logs.iterdir():
        path.unlink()
    layout.logs.rmdir()
    layout.logs.write_text("a file where the folder should be")
    assert call("compact", layout.root) == 4


def test_without_it_nothing_more_is_shown(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compact", layout.root) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_no_run_stays_as_it_is(tmp_path: Path) -> None:
    assert call("compact", tmp_path) == 64
    assert call("seal", tmp_path / "absent") == 64
    assert list(tmp_path.iterdir()) == []


def test_where_no_log_can_be_kept_the_work_goes_on(layout: Layout) -> None:
    layout.logs.write_text("in the way")
    assert call("compact", layout.root) == 0
    assert layout.logs.read_text() == "in the way"


@pytest.mark.parametrize(
    ("error", "ends_with"),
    [
        (UserError("no such arm"), SystemExit),
        (OSError(errno.ENOSPC, "No space left on device"), SystemExit),
        (ModuleNotFoundError("no torch here", name="torch"), SystemExit),
        (ZeroDivisionError("by zero"), ZeroDivisionError),
    ],
)
def test_the_traceback_of_what_ended_a_call_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ends_with: type
) -> None:
    def work() -> None:
        keep(tmp_path / "logs", "verb")
        raise error

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: click.Command("x", callback=work))
    with pytest.raises(ends_with):
        main(["x"])
    (path,) = (tmp_path / "logs").iterdir()
    assert f"{type(error).__name__}: {error}\n" in path.read_text()


def test_a_log_has_an_end(tmp_path: Path) -> None:
    with DebugLog():
        keep(tmp_path / "logs", "verb")
        for _ in range(300):
            logging.getLogger("rlbhpc.store").debug("x" * 5_000)
    (path,) = (tmp_path / "logs").iterdir()
    assert MAX_BYTES - 10_000 < path.stat().st_size < MAX_BYTES + 100
    assert path.read_text().endswith("no more is kept\n")


def test_a_log_on_a_full_disk_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("rlbhpc.store")

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with DebugLog():
        keep(tmp_path / "logs", "verb")
        log.debug("first")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            log.debug("second")
        log.debug("third")
    (path,) = (tmp_path / "logs").iterdir()
    assert path.read_text().endswith("rlbhpc.store: first\n")


def test_a_key_is_never_logged(tmp_path: Path) -> None:
    with DebugLog():
        keep(tmp_path / "logs", "verb")
        client = Client("http://localhost:9/v1", "sk-secret", 2, 5.0, threading.Event())
        with pytest.raises(RefusedError):
            client.post("/completions", {})
    (path,) = (tmp_path / "logs").iterdir()
    assert "try 1: ConnectionRefusedError" in path.read_text()
    assert "sk-secret" not in path.read_text()
