"""The grid: what was asked for keeps its place, whatever is asked for next."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.store.grid import CHUNK_CELLS, Chunk, Grid, natural_order, request_samples
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout


def cells(
    problems: Iterable[int], n: int, steps: tuple[int, ...] = (0,), fingerprint: int = 1
) -> dict[Cell, int]:
    return {Cell("arm", s, f"set/{p}", fingerprint): n for s in steps for p in problems}


@pytest.mark.parametrize(
    ("problems", "n", "chunk"),
    [(500, 2048, (500, 2048)), (10_000, 10_000, (1024, 1024)), (30, 100_000, (30, 34952)),
     (1, 1, (1, 1)), (100_000, 1, (100_000, 1)), (100_000, 64, (16_384, 64))],
)  # fmt: skip
def test_a_chunk_has_about_a_million_cells(problems: int, n: int, chunk: tuple[int, int]) -> None:
    grid = Grid("m").grown(cells(range(problems), n))
    assert grid.chunk == chunk
    assert grid.chunk.problems * grid.chunk.samples <= CHUNK_CELLS


requests = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 5, 10]), st.integers(1, 50)
    ),
    min_size=1,
    max_size=6,
)


@given(requests)
def test_growth_moves_nothing(asked: list[tuple[int, int, int, int]]) -> None:
    grid: Grid | None = None
    for first, more, step, n in asked:
        new = cells(range(first, first + more + 1), n, (step,))
        grown = (grid or Grid("m")).grown(new)
        if grid:
            assert grown.problems[: len(grid.problems)] == grid.problems
            assert grown.steps[: len(grid.steps)] == grid.steps
            assert grown.chunk == Grid("m").grown(grown.cells("arm")).chunk
            assert all(grown.counts[key] >= count for key, count in grid.counts.items())
        assert all(grown.counts[cell.step, cell.problem] >= n for cell in new)
        assert grown.n == max(grown.counts.values())
        grid = grown


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a" / "grid.json"
    assert Grid.load(path) is None
    grid = Grid("m", provenance={"prompt": "ünï", "versions": {"vllm": "1"}})
    grid = grid.grown(cells(range(5), 7, (0, 10))).grown(cells(range(3, 9), 9, (10,)))
    grid.save(path)
    assert Grid.load(path) == grid


def test_a_damaged_grid_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    Grid("m").grown(cells(range(3), 7)).save(path)
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(200):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if data.split() == whole.split():
            continue
        try:
            grid = Grid.load(path)
        except UserError as error:
            assert "damaged" in str(error)
        else:
            assert grid == Grid("m").grown(cells(range(3), 7))


def test_asking_again_keeps_the_order(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = cells(range(4), 8)
    assert asked(layout, first, {"code": "1", "words": "a"}).chunk == Chunk(4, 8)
    # Two problems are topped up, one is new, the code is newer.
    second = cells(range(1, 3), 32) | cells([9], 8)
    grid = asked(layout, second, {"code": "2"}, keep=["words", "other"])
    assert grid.problems == ("set/0", "set/1", "set/2", "set/3", "set/9")
    assert [grid.counts[0, p] for p in grid.problems] == [8, 32, 32, 8, 8]
    assert grid.chunk == Chunk(5, 32)
    assert grid.provenance == {"code": "2", "words": "a"}
    assert asked(layout, second, {"code": "3"}).provenance == {"code": "3"}
    written = layout.grid("arm", "set").stat().st_ino
    asked(layout, second, {"code": "3"})
    assert layout.grid("arm", "set").stat().st_ino == written
    assert asked(layout, {}, {"code": "4"}).provenance == {"code": "4"}


def test_who_asks_nothing_plans_nothing(tmp_path: Path) -> None:
    request_samples(Layout(tmp_path), "arm", "set", "m", {}, {})
    assert not Layout(tmp_path).grid("arm", "set").exists()


def asked(
    layout: Layout, cells: dict[Cell, int], provenance: dict[str, str], keep: Sequence[str] = ()
) -> Grid:
    request_samples(layout, "arm", "set", "m", cells, provenance, keep)
    grid = Grid.load(layout.grid("arm", "set"))
    assert grid is not None
    return grid


def test_what_nobody_planned_stands_behind_in_natural_order() -> None:
    planned = Grid("m").grown(cells(range(5, 7), 4))
    present = cells((10, 9, 5), 2) | cells([5], 6, (3,))
    grid = planned.covering(present)
    assert grid.problems == ("set/5", "set/6", "set/9", "set/10")
    assert grid.steps == (0, 3)
    assert grid.n == 7
    assert Grid("m").covering({}) == Grid("m", n=0)
    # Samples of an older request neither count nor stretch the axes.
    assert planned.covering(cells([5], 500, fingerprint=99)) == planned


def test_natural_order() -> None:
    names = ["s/2", "s/10", "s/a10b2", "s/a9", "s/a10b10", "s/"]
    assert sorted(names, key=natural_order) == ["s/", "s/2", "s/10", "s/a9", "s/a10b2", "s/a10b10"]
