"""TensorBoard is given what the step logs say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rlbhpc.cli.main import EXTRAS
from rlbhpc.exchange.exports import export
from rlbhpc.study.layout import Layout

Curves = dict[str, dict[int, float]]


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


def drawn(folder: Path) -> Curves:
    """What TensorBoard draws."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(folder))
    seen.Reload()
    curves: Curves = {}
    for tag in seen.Tags()["scalars"]:
        points = seen.Scalars(tag)
        curves[tag] = {point.step: point.value for point in points}
        assert len(curves[tag]) == len(points), f"{tag} has a step twice"
    return curves


def agree(found: Curves, wanted: Curves) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name] == pytest.approx(wanted[name]) for name in wanted
    )


def test_event_files_have_the_curves_of_the_logs(tmp_path: Path) -> None:
    training = tmp_path / "training"
    write(training / "base", range(1, 4), None)  # supervised: no times
    write(training / "rl", range(1, 7), range(1, 6))  # its sixth step has no times yet
    out = tmp_path / "out.tensorboard"
    assert export(Layout(tmp_path), out) == "9 steps"
    assert agree(drawn(out / "base"), expected(3, timed=False))
    curves = drawn(out / "rl")
    assert curves.pop("timing_s/gen") == {step: 2.0 * step for step in range(1, 6)}
    assert agree(curves, expected(6, timed=False))


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    rl = tmp_path / "training" / "rl"
    write(rl, range(1, 7), range(1, 7))
    with (rl / "dynamics.jsonl").open("a") as log:
        log.write('{"step": 7, "actor/ent')
    export(Layout(tmp_path), tmp_path / "out.tensorboard")
    assert agree(drawn(tmp_path / "out.tensorboard/rl"), expected(6, timed=True))


def test_without_training_or_without_the_package_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    assert export(Layout(tmp_path / "run"), tmp_path / "none.tensorboard") == ""
    assert not (tmp_path / "none.tensorboard").exists()
    write(tmp_path / "run/training/rl", range(1, 5), None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="tensorboard") as caught:
        export(Layout(tmp_path / "run"), tmp_path / "out.tensorboard")
    assert "tensorboard" in (caught.value.name or "") and EXTRAS["tensorboard"] == "boards"
    assert not (tmp_path / "out.tensorboard").exists()
