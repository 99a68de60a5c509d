"""The mark of guessable problems: what decides it, where it stands, what leaves them out."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlbhpc
from rlbhpc.store import tables
from rlbhpc.store.compact import compact
from rlbhpc.store.cube_schema import NO_THINK
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.reader import guessable
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

SET = "math"
N = 100
# Right answers of 100 without reasoning: guessed, known, never, guessed, at the limit.
RIGHT = (3, 40, 0, 1, 5)
MARKS = [1, 0, 0, 1, 0]


def put(
    layout: Layout, arm: str, right: tuple[int, ...], *, guessing: bool = False, attempt: str = "a",
    n: int = N, step: int = 0, stop_after: int = 0,
) -> None:  # fmt: skip
    """Plan and journal an arm with so many right answers of ``n`` to each problem."""
    ids = [f"{SET}/{i}" for i in range(len(right))]
    provenance = {NO_THINK: True} if guessing else {}
    provenance |= {"stop_after": stop_after} if stop_after else {}
    grid = Grid("base", provenance=provenance)
    grid.grown({Cell(arm, step, problem, 7): n for problem in ids}).save(layout.grid(arm, SET))
    with JournalWriter(layout.journals(arm, SET), attempt) as writer:
        for problem, hits in zip(ids, right, strict=True):
            for j in range(n):
                verdict = Status.RIGHT if j < hits else Status.WRONG
                key = SampleKey(arm, step, problem, j)
                writer.append(Sample(key, 7, sample_seed(1, key), verdict, 0, 3, -1.0, 1.0))


def marks(tree: xr.DataTree, group: str) -> list[int]:
    found: list[int] = tree[group].to_dataset()["guessable"].values.tolist()
    return found


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "run").mkdir()
    return Layout(tmp_path / "run")


def test_of_problems_that_stop_only_what_counts_marks_them(layout: Layout) -> None:
    # Right at once, and never again in what was drawn beyond the stop; and so rarely at all.
    put(layout, "guess", (2, 0), guessing=True, stop_after=2)
    put(layout, "base", (0, 0))
    assert marks(rlbhpc.open_cube(layout.root), "base/math") == [0, 0]


def test_marks_stand_in_every_group_of_the_set_whoever_opens_it(layout: Layout) -> None:
    put(layout, "base", (9, 50, 0, 2, 7))
    put(layout, "quick", RIGHT, guessing=True)
    tables.put_counts(layout, "paper", SET, "other", {(0, f"{SET}/0"): (8, 1)})
    live = rlbhpc.open_cube(layout.root)
    compact(layout)
    assert validate_cube(layout.root) == []
    plain = xr.open_datatree(layout.cube, engine="zarr")
    for tree in (live, rlbhpc.open_cube(layout.root), rlbhpc.open_cube(layout.cube), plain):
        assert marks(tree, f"base/{SET}") == marks(tree, f"quick/{SET}") == MARKS
        assert marks(tree, f"paper/{SET}") == MARKS[:1]
        assert "guessable" in tree[f"base/{SET}"].to_dataset().coords


def test_statistics_select_by_it(layout: Layout) -> None:
    put(layout, "base", (9, 50, 0, 2, 7))
    put(layout, "quick", RIGHT, guessing=True)
    tree = rlbhpc.open_cube(layout.root)
    data = tree[f"base/{SET}"].to_dataset()
    kept = data.rlb.unguessable()
    assert kept["problem"].values.tolist() == [f"{SET}/{i}" for i in (1, 2, 4)]
    whole = tree.rlb.unguessable()[f"base/{SET}"].to_dataset()
    assert np.array_equal(whole.rlb.counts()["c"].values[:, 0], [50, 0, 7])
    counted = data.rlb.counts()
    assert np.array_equal(counted.rlb.unguessable()["c"].values[:, 0], [50, 0, 7])
    by_mark = counted.rlb.pass_at_k(64).groupby("guessable").mean()
    expected = counted.rlb.pass_at_k(64).values[[0, 3]].mean()
    assert by_mark.sel(guessable=1).item() == pytest.approx(expected)


def test_unknown_is_neither_yes_nor_no(layout: Layout) -> None:
    put(layout, "base", (1, 1))
    compact(layout)
    tree = rlbhpc.open_cube(layout.root)
    assert marks(tree, f"base/{SET}") == [-1, -1]
    assert tree[f"base/{SET}"].to_dataset().rlb.unguessable().sizes["problem"] == 2
    # Nor does a problem without a sample.
    put(layout, "fresh", (0,), guessing=True)
    asked = {Cell("fresh", 0, f"{SET}/{i}", 7): N for i in range(2)}
    Grid("base", provenance={NO_THINK: True}).grown(asked).save(layout.grid("fresh", SET))
    assert marks(rlbhpc.open_cube(layout.root), f"base/{SET}") == [0, -1]
    shutil.rmtree(layout.journals("fresh", SET))
    layout.grid("fresh", SET).unlink()
    # A trained step says nothing about what the untrained model can guess.
    put(layout, "trained", (1, 1), guessing=True, step=50)
    assert marks(rlbhpc.open_cube(layout.root), f"base/{SET}") == [-1, -1]
    compact(layout)
    assert marks(rlbhpc.open_cube(layout.root), f"base/{SET}") == [-1, -1]


def test_one_model_that_guesses_is_enough(layout: Layout) -> None:
    put(layout, "quick", RIGHT, guessing=True)
    put(layout, "other", (0, 40, 2, 0, 0), guessing=True)
    assert marks(rlbhpc.open_cube(layout.root), f"quick/{SET}") == [1, 0, 1, 1, 0]


def test_marks_follow_new_samples_and_the_cube_is_that_of_all(
    tmp_path: Path, layout: Layout
) -> None:
    put(layout, "base", (9, 50, 0, 2, 7))
    compact(layout)
    put(layout, "quick", RIGHT, guessing=True)
    assert marks(rlbhpc.open_cube(layout.root), f"base/{SET}") == MARKS
    compact(layout)
    once = Layout(tmp_path / "once")
    once.root.mkdir()
    put(once, "quick", RIGHT, guessing=True)
    put(once, "base", (9, 50, 0, 2, 7))
    compact(once)
    name = "base/math/guessable/c/0"
    assert (layout.cube / name).read_bytes() == (once.cube / name).read_bytes()
    assert marks(rlbhpc.open_cube(layout.cube), f"base/{SET}") == MARKS


def test_a_problem_is_guessed_at_a_low_rate_above_none() -> None:
    n = np.array([100, 100, 100, 100, 0, 1000])
    right = np.array([0, 1, 4, 5, 0, 1])
    assert guessable(n, right).tolist() == [False, True, True, False, False, True]
