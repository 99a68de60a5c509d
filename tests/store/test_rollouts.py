"""Rows of a training's rollouts: parts that survive any kill, and their group of the cube."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rlbhpc
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import tables
from rlbhpc.store.compact import compact
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store.made import contents, journal, put_training, samples


def rows(steps: range, offset: int = 0) -> pa.Table:
    """Two problems a step, of ten, with three rollouts each; a few were not learnt from."""
    made = [
        {
            "train_step": step, "problem": f"math/{(step + p) % 10}", "rollout": r,
            "group": 2 * step + p, "verdict": (step + p + r + offset) % 2, "answer": r or -1,
            "n_tokens": 5 + r, "logprob_sum": -1.5, "entropy_sum": 0.5, "reward": float(r == 0),
            "advantage": 0.25 if r else float("nan"),
        }
        for step in steps for p in range(2) for r in range(3)
    ]  # fmt: skip
    return pa.Table.from_pylist(made, schema=tables.ROLLOUT_ROWS)


def same(a: pa.Table, b: pa.Table) -> bool:
    """Whether two tables are the same, NaN and all."""
    return repr(a.to_pydict()) == repr(b.to_pydict())


def steps_in(folder: Path) -> list[int]:
    return sorted(set(tables.read_rollouts(folder)["train_step"].to_pylist()))


def test_parts_grow_into_one(tmp_path: Path) -> None:
    for first in (1, 4, 7):
        tables.add_rollouts(tmp_path, rows(range(first, first + 3)))
        tables.settle_rollouts(tmp_path, first + 2)
    assert len(list(tmp_path.iterdir())) == 1
    assert same(tables.read_rollouts(tmp_path), rows(range(1, 10)))


def test_a_large_part_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PART_ROWS", 12)
    for step in range(1, 8):
        tables.add_rollouts(tmp_path, rows(range(step, step + 1)))
        tables.settle_rollouts(tmp_path, step)
    assert len(list(tmp_path.iterdir())) == 4
    assert same(tables.read_rollouts(tmp_path), rows(range(1, 8)))


@pytest.mark.parametrize("saved", [True, False])
def test_a_kill_around_the_save_loses_and_doubles_nothing(tmp_path: Path, saved: bool) -> None:
    """Killed after the part was written: with the state it counts, without it is made again."""
    tables.add_rollouts(tmp_path, rows(range(1, 4)))
    tables.settle_rollouts(tmp_path, 3)
    tables.add_rollouts(tmp_path, rows(range(4, 7)))
    assert steps_in(tmp_path) == [*range(1, 7)], "a reader sees each row once"
    assert tables.read_rollouts(tmp_path).num_rows == 36
    tables.settle_rollouts(tmp_path, 6 if saved else 3)
    assert len(list(tmp_path.iterdir())) == 1
    if not saved:  # the other rows of an engine that does not repeat itself
        tables.add_rollouts(tmp_path, rows(range(4, 8), offset=1))
        tables.settle_rollouts(tmp_path, 7)
        assert tables.read_rollouts(tmp_path)["verdict"].to_pylist()[18:] == (
            rows(range(4, 8), offset=1)["verdict"].to_pylist()
        )


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    tables.add_rollouts(tmp_path, rows(range(1, 3)))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="training needs none of it"):
        tables.read_rollouts(tmp_path)


@pytest.mark.parametrize("changes", [4, 5])
def test_rollouts_that_keep_changing_are_read_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    tables.add_rollouts(tmp_path, rows(range(1, 3)))
    real, listed = tables.rollout_parts, iter([[tmp_path / "gone.parquet"]] * changes)
    monkeypatch.setattr(tables, "rollout_parts", lambda folder: next(listed, None) or real(folder))
    if changes < 5:
        assert steps_in(tmp_path) == [1, 2]
        return
    with pytest.raises(UserError, match="keep vanishing") as told:
        tables.read_rollouts(tmp_path)
    assert told.value.code == TRY_AGAIN


def test_files_of_other_names_are_no_parts(tmp_path: Path) -> None:
    tables.add_rollouts(tmp_path, rows(range(1, 3)))
    (tmp_path / "notes.parquet").write_bytes(b"of a colleague")
    tables.settle_rollouts(tmp_path, 2)
    assert steps_in(tmp_path) == [1, 2]
    assert (tmp_path / "notes.parquet").exists()


def test_rollouts_are_a_group_of_the_cube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path)
    journal(layout, samples(range(2), 2), "a")
    put_training(layout, "rl", range(1, 8), {"critic/rewards/mean": np.arange(7.0)})
    tables.add_rollouts(layout.rollouts("rl"), rows(range(1, 8)))
    monkeypatch.setattr(tables, "_CHUNK_CELLS", 3 * 8 * 3)  # three steps a chunk
    live = rlbhpc.open_cube(layout.root)["rollouts/rl"].to_dataset().load()
    compact(layout)
    cube = rlbhpc.open_cube(layout.root)
    stored = cube["rollouts/rl"].to_dataset()
    assert live.identical(stored.load())
    assert stored.verdict.dims == ("problem", "rollout", "train_step")
    assert dict(stored.sizes) == {"problem": 8, "rollout": 3, "train_step": 7}
    assert int((stored.verdict >= 0).sum()) == 42
    assert stored.verdict.encoding["preferred_chunks"]["train_step"] == 3
    curve = cube["training/rl"].ds["critic.rewards.mean"]
    assert curve.encoding["preferred_chunks"] == {"train_step": 65_536}
    one = stored.sel(problem="math/4", train_step=3)
    assert one.verdict.values.tolist() == [0, 1, 0]
    assert one.group.values.tolist() == [7, 7, 7]
    assert one.reward.values.tolist() == [1, 0, 0]
    assert np.isnan(one.advantage.values).tolist() == [True, False, False]
    assert cube["training/rl"].ds["critic.rewards.mean"].values.tolist() == [*range(7)]
    assert validate_cube(layout.root) == []
    before = contents(layout.cube)
    compact(layout, rebuild=True)
    assert contents(layout.cube) == before
    tables.add_rollouts(layout.rollouts("rl"), rows(range(8, 9)))
    assert compact(layout).new, "a grown training is a new version"


def test_several_trainings_are_read_before_they_are_compacted(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for model in ("ppo", "grpo"):
        put_training(layout, model, range(1, 3), {"critic/rewards/mean": np.arange(2.0)})
        tables.add_rollouts(layout.rollouts(model), rows(range(1, 3)))
    put_training(layout, "began", [], {})
    live = rlbhpc.open_cube(layout.root)
    assert set(live["rollouts"]) == set(live["training"]) == {"ppo", "grpo"}
    compact(layout)
    assert live.identical(rlbhpc.open_cube(layout.root))
