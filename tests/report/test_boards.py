"""TensorBoard and W&B are given what the step logs say, each step once."""

from __future__ import annotations

import importlib.util
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rlbhpc.cli.curves import curves
from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.boards import BOARDS, Copy
from rlbhpc.study.layout import Layout

Curves = dict[str, dict[int, float]]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(curves, arguments, standalone_mode=False)


def write(folder: Path, dynamics: range, timings: range | None) -> None:
    """Step logs as training leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"step": s, "actor/entropy": 1 / s, "critic/score/mean": s / 8} for s in dynamics]
    times = [{"step": s, "timing_s/gen": 2.0 * s} for s in timings or ()]
    for name, written in (("dynamics", rows), ("timings", times)):
        if written or (name == "timings" and timings is not None):
            text = "".join(json.dumps(row) + "\n" for row in written)
            (folder / f"{name}.jsonl").write_text(text)


def expected(last: int, timed: bool) -> Curves:
    every = range(1, last + 1)
    found = {
        "actor/entropy": {s: 1 / s for s in every},
        "critic/score/mean": {s: s / 8 for s in every},
    }
    return found | ({"timing_s/gen": {s: 2.0 * s for s in every}} if timed else {})


def drawn(folder: Path, board: str, model: str) -> Curves:
    points = (
        event_points(folder / model) if board == "tensorboard" else offline_points(folder, model)
    )
    curves: Curves = {}
    for name, step, value in points:
        assert step not in curves.setdefault(name, {}), f"{name} has step {step} twice"
        curves[name][step] = value
    return curves


def event_points(folder: Path) -> Iterator[tuple[str, int, float]]:
    """What TensorBoard draws."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(folder))
    seen.Reload()
    for tag in seen.Tags()["scalars"]:
        for point in seen.Scalars(tag):
            yield tag, point.step, point.value


def offline_points(folder: Path, model: str) -> Iterator[tuple[str, int, float]]:
    """What W&B would be sent."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # as at the end of a process: its helper may still be writing
    for path in (folder / "wandb").glob("offline-run-*/*.wandb"):
        found = [Record.FromString(record) for record in records(path)]
        if not any(record.run.display_name == model for record in found):
            continue
        for record in found:
            for item in record.history.item:
                name = "/".join(item.nested_key) or item.key
                if not name.startswith("_"):
                    yield name, record.history.step.num, json.loads(item.value_json)


def records(path: Path) -> Iterator[bytes]:
    """Records of a W&B file: a LevelDB log, in blocks of 32 KiB, after 7 bytes of its own."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield record
            record = b""


def agree(found: Curves, wanted: Curves) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name] == pytest.approx(wanted[name]) for name in wanted
    )


@pytest.mark.parametrize("board", BOARDS)
def test_a_board_has_the_curves_of_the_logs(tmp_path: Path, board: str) -> None:
    training = tmp_path / "training"
    write(training / "base", range(1, 4), None)  # supervised: no times
    write(training / "rl", range(1, 7), range(1, 6))  # its sixth step has no times yet
    write(training / "begun", range(1, 2), range(0))
    for _ in range(2):  # a second copy takes the place of the first
        done = call(str(tmp_path), "--to", board)
        assert done.output.endswith("base to step 3, rl to step 5\n") and done.return_value == 0
    folder = tmp_path / "boards" / board
    assert agree(drawn(folder, board, "base"), expected(3, timed=False))
    assert agree(drawn(folder, board, "rl"), expected(5, timed=True))


@pytest.mark.parametrize("board", BOARDS)
def test_a_watched_run_that_is_killed_and_goes_on_shows_every_step_once(
    tmp_path: Path, board: str
) -> None:
    rl = tmp_path / "training" / "rl"
    write(rl, range(1, 5), range(1, 5))
    with Copy(Layout(tmp_path), board) as copy:
        assert [copy.look(), copy.look()] == [4, 0]
        write(rl, range(1, 3), range(1, 3))  # killed; its state was that of step 2
        assert copy.look() == 0
        write(rl, range(1, 7), range(1, 7))
        with (rl / "dynamics.jsonl").open("a") as log:
            log.write('{"step": 7, "actor/ent')  # being written at this moment
        assert copy.look() == 2
    assert agree(drawn(copy.folder, board, "rl"), expected(6, timed=True))


def test_a_last_step_that_was_saved_and_never_timed_is_shown(tmp_path: Path) -> None:
    rl = tmp_path / "training" / "rl"
    write(rl, range(1, 5), range(1, 4))
    for name in ("step-00000003", "step-00000004", "step-00000005.partial"):
        (rl / "state" / name).mkdir(parents=True)
    with Copy(Layout(tmp_path), "tensorboard") as copy:
        assert copy.look() == 4
    assert drawn(copy.folder, "tensorboard", "rl")["timing_s/gen"].keys() == {1, 2, 3}


def test_watching_copies_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rl = tmp_path / "training" / "rl"
    asked: list[float] = []

    def pause(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 4:
            raise KeyboardInterrupt
        write(rl, range(1, len(asked) + 1), None)

    monkeypatch.setattr(time, "sleep", pause)
    done = call(str(tmp_path), "--to", "tensorboard", "--watch", "30")
    assert isinstance(done.exception, click.Abort) and asked == [30] * 4
    assert [line.split(": ")[1] for line in done.output.splitlines() if line] == [
        "rl to step 1", "rl to step 2", "rl to step 3",
    ]  # fmt: skip
    folder = tmp_path / "boards" / "tensorboard"
    assert agree(drawn(folder, "tensorboard", "rl"), expected(3, timed=False))


def test_a_run_without_training_has_no_curves(tmp_path: Path) -> None:
    done = call(str(tmp_path), "--to", "tensorboard")
    assert done.return_value == NOTHING_TO_DO and "no training step is logged" in done.output
    assert not (tmp_path / "boards").exists()


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = call(str(tmp_path / "gone"), "--to", "wandb")
    assert isinstance(gone.exception, UserError) and "neither a study file nor" in str(
        gone.exception
    )
    assert "'tensorboard', 'wandb'" in str(call(str(tmp_path), "--to", "mlflow").exception)
    write(tmp_path / "training" / "rl", range(1, 5), None)
    for name, value in (("HOME", str(tmp_path)), ("WANDB_BASE_URL", "http://127.0.0.1:9")):
        monkeypatch.setenv(name, value)
    for mode in ("online", "bogus"):
        monkeypatch.setenv("WANDB_MODE", mode)
        refused = call(str(tmp_path), "--to", "wandb").exception
        assert isinstance(refused, UserError) and "W&B does not begin a run" in str(refused)
    write(tmp_path / "other" / "training" / "rl", range(1, 5), None)
    (tmp_path / "other" / "boards").write_text("")
    for board in BOARDS:
        monkeypatch.setenv("WANDB_MODE", "offline")
        refused = call(str(tmp_path / "other"), "--to", board).exception
        assert isinstance(refused, UserError) and "cannot be written" in str(refused)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else found(name)
    )
    with pytest.raises(UserError, match=r"wandb .*'\.\[boards\]'"):
        Copy(Layout(tmp_path), "wandb")
