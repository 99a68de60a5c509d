"""What `open_cube` shows: cube, parts and live journals as one, damage named, never hidden."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import rlbhpc
from rlbhpc.errors import LeftOutWarning, UserError
from rlbhpc.stats import pass_at_k
from rlbhpc.store import seal
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, cells, journal, problem, sample, samples, shuffled

GROUP = f"{ARM}/{SET}"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "run").mkdir()
    return Layout(tmp_path / "run")


def group(layout: Layout) -> xr.Dataset:
    return rlbhpc.open_cube(layout.root)[GROUP].to_dataset()


def plan(layout: Layout, problems: range, n: int, steps: tuple[int, ...] = (0,)) -> Grid:
    grid = Grid("toy", provenance={"study": "toy", "study_seed": 0, "engine": "hf"})
    grid = grid.grown(cells(problems, n, steps))
    grid.save(layout.grid(ARM, SET))
    return grid


@pytest.mark.parametrize("planned", [True, False])
def test_the_view_is_what_compaction_will_make_of_it(layout: Layout, planned: bool) -> None:
    if planned:
        plan(layout, range(9), 12, (0, 5))
    rows = samples(range(6), 12, (0, 5))
    journal(layout, shuffled(rows[:70], 1), "a")
    live = group(layout)
    live.load()
    compact(layout)
    xr.testing.assert_identical(live, group(layout).load())

    journal(layout, [*shuffled(rows[60:], 2), *samples(range(6, 9), 3, (5,))], "b")
    live = group(layout).load()
    assert (live.verdict >= 0).sum() == len(rows) + 9
    compact(layout)
    xr.testing.assert_identical(live, group(layout).load())
    assert validate_cube(layout.root) == []


def test_what_is_not_needed_is_not_imported(layout: Layout) -> None:
    pytest.importorskip("dask")
    journal(layout, samples(range(3), 4), "a")
    code = (
        "import sys, rlbhpc.store.compact; assert 'zarr' not in sys.modules; "
        "rlbhpc.open_cube(sys.argv[1]); assert 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(layout.root)], check=True)


def test_sealing_and_clean_up_change_nothing_that_is_seen(layout: Layout) -> None:
    grid = plan(layout, range(5), 8, (0, 5))
    journal(layout, samples(range(5), 8, (0, 5)), "a")
    compact(layout)
    before = group(layout).load()
    store = layout.cube.resolve()
    sealing = seal.seal(layout, ARM, SET, grid, "all")
    assert (sealing.sealed, sealing.open) == (2, 0)
    xr.testing.assert_identical(before, group(layout).load())
    shutil.rmtree(layout.journals(ARM, SET))
    xr.testing.assert_identical(before, group(layout).load())
    shutil.rmtree(layout.cubes)
    xr.testing.assert_identical(before, group(layout).load())
    assert compact(layout).store != store
    xr.testing.assert_identical(before, group(layout).load())


def test_a_journal_is_seen_while_it_is_written(layout: Layout) -> None:
    with JournalWriter(layout.journals(ARM, SET), "live") as writer:
        for i in range(5):
            writer.append(sample(0, i))
            live = group(layout)
            assert live.sizes["sample"] == i + 1
            assert list(live.seed.values.ravel()) == [sample(0, j).seed for j in range(i + 1)]
        compact(layout)
        for i in range(5, 9):
            writer.append(sample(0, i))
            assert list(group(layout).seed.values.ravel()) == [
                sample(0, j).seed for j in range(i + 1)
            ]


def test_an_opened_tree_is_a_snapshot(layout: Layout) -> None:
    plan(layout, range(2), 4)
    rows = samples(range(4), 6)
    journal(layout, rows[:10], "a")
    compact(layout)
    opened = group(layout)
    journal(layout, rows[10:], "b")
    compact(layout)
    assert int((opened.verdict >= 0).sum()) == 10
    assert int((group(layout).verdict >= 0).sum()) == 24


def test_a_version_that_is_gone_is_an_error_and_not_missing_samples(layout: Layout) -> None:
    plan(layout, range(2), 4)
    journal(layout, samples(range(2), 3), "a")
    compact(layout)
    opened = group(layout)
    for i in range(2, 5):
        journal(layout, samples([i], 3), str(i))
        compact(layout)
    with pytest.raises(UserError, match=r"verdict/c/0/0/0 is not there any more; open the cube"):
        opened.verdict.load()


def test_an_opened_tree_needs_no_journal_any_more(layout: Layout) -> None:
    journal(layout, samples(range(2), 3), "a")
    opened = group(layout)
    shutil.rmtree(layout.journals(ARM, SET))
    assert (opened.verdict >= 0).all()
    assert (opened.answer.load() >= -1).all()


def test_every_kind_of_index(layout: Layout) -> None:
    plan(layout, range(2), 4)
    journal(layout, samples(range(7), 11, (0, 1, 2)), "a")
    compact(layout)
    journal(layout, samples(range(5, 9), 13, (1, 3)), "b")
    lazy, loaded = group(layout), group(layout).load()
    rng = np.random.default_rng(0)
    for _ in range(25):
        index = {
            dim: [
                int(rng.integers(-size, size)),
                slice(*sorted(rng.integers(0, size + 1, 2).tolist())),
                slice(None, None, -int(rng.integers(1, 4))),
                rng.integers(0, size, 3),
                slice(0, 0),
            ][rng.integers(0, 5)]
            for dim, size in lazy.sizes.items()
        }
        name = ["verdict", "logprob_sum", "answer", "n", "seed", "right"][rng.integers(0, 6)]
        index = {dim: i for dim, i in index.items() if dim in lazy[name].dims}
        xr.testing.assert_identical(lazy[name].isel(index), loaded[name].isel(index))


def test_a_retried_failure_counts_only_until_it_worked(layout: Layout) -> None:
    plan(layout, range(2), 4)
    failed = next(s for s in samples([0], 99) if s.verdict == 4)
    index = failed.key.sample
    worked = type(failed)(**{**failed.__dict__, "verdict": 1, "text": "at last"})
    journal(layout, [failed], "a")
    compact(layout)
    journal(layout, [worked], "b")
    assert int(group(layout).verdict[0, index, 0]) == 1
    compact(layout)
    assert int(group(layout).verdict[0, index, 0]) == 1
    # A zombie that fails once more afterwards changes nothing either.
    journal(layout, [type(failed)(**{**failed.__dict__, "error": "again"})], "c")
    assert int(group(layout).verdict[0, index, 0]) == 1
    compact(layout)
    assert int(group(layout).verdict[0, index, 0]) == 1


def test_counts_follow_the_selection(layout: Layout) -> None:
    plan(layout, range(2), 4)
    journal(layout, samples(range(5), 20, (0, 3)), "a")
    compact(layout)
    cube = group(layout)
    verdict = cube.verdict.to_numpy()
    some = cube.isel(sample=slice(3, 9)).rlb.counts()
    assert np.array_equal(some.c, (verdict[:, 3:9] == 1).sum(1))
    one = cube.sel(problem=problem(2), step=3).rlb.counts()
    assert one.n.shape == ()
    assert int(one.c) == (verdict[2, :, 1] == 1).sum()
    alone = cube.isel(sample=4).rlb.counts()
    assert np.array_equal(alone.c, verdict[:, 4] == 1)
    first, rest = (cube.isel(sample=part).rlb.counts() for part in (slice(7), slice(7, None)))
    mixed = cube.isel(sample=np.random.default_rng(0).permutation(20)).rlb.counts()
    every = cube.rlb.counts()
    xr.testing.assert_equal(first + rest, every)
    xr.testing.assert_equal(mixed, every)
    assert np.array_equal(every.n, cube.n)
    assert np.array_equal(every.c, cube.c)


def test_pass_at_k_of_datasets_and_trees(layout: Layout) -> None:
    plan(layout, range(2), 4)
    journal(layout, samples(range(5), 20, (0, 3)), "a")
    cube = rlbhpc.open_cube(layout.root)
    data = cube[GROUP].to_dataset()
    curve = data.rlb.pass_at_k([1, 4, 64])
    assert curve.dims == ("problem", "step", "k")
    n, c = data.n.values[..., None], data.c.values[..., None]
    assert np.array_equal(curve, pass_at_k(n, c, [1, 4, 64]), equal_nan=True)
    assert curve.sel(k=64).isnull().all()
    assert data.rlb.pass_at_k(4).dims == ("problem", "step")
    tree = cube.rlb.pass_at_k([1, 4, 64])
    xr.testing.assert_identical(tree[GROUP]["pass_at_k"].drop_attrs(), curve.drop_attrs())


def test_a_draw_is_of_whole_samples(layout: Layout) -> None:
    journal(layout, samples(range(2), 3), "a")
    for k in (2.5, 0, [1, -4]):
        with pytest.raises(UserError, match="allowed: whole numbers from 1"):
            group(layout).rlb.pass_at_k(k)
    whole, same = (group(layout).rlb.pass_at_k(k, ragged=True) for k in (2, 2.0))
    assert whole.sizes == same.sizes


def test_texts_come_from_parts_and_journals(layout: Layout) -> None:
    grid = plan(layout, range(2), 4)
    journal(layout, samples(range(2), 4), "a")
    seal.seal(layout, ARM, SET, grid, "none")
    shutil.rmtree(layout.journals(ARM, SET))
    journal(layout, samples([1], 2, (9,)), "b")
    cube = group(layout)
    assert cube.rlb.texts(problem(1), 3, step=0).item() == sample(1, 3).text
    both = cube.rlb.texts(problem(1), [0, 3])
    assert both.dims == ("sample", "step")
    assert both.sel(sample=0, step=9).item() == sample(1, 0, 9).text
    assert both.sel(sample=3, step=9).item() == ""
    assert cube.rlb.texts(problem(0)).shape == (4, 2)


def test_texts_of_a_selection_are_its_own(layout: Layout) -> None:
    journal(layout, samples(range(2), 8, (0, 50)), "a")
    dataset = rlbhpc.open_cube(layout.root)[f"{ARM}/{SET}"].to_dataset()
    first = dataset.isel(sample=slice(4)).transpose("step", ...).rlb.texts(problem(1))
    assert first[3].values.tolist() == [sample(1, 3).text, sample(1, 3, 50).text]
    assert dataset.isel(sample=0, step=1).rlb.texts(problem(1)).item() == sample(1, 0, 50).text
    for selection in ({"sample": slice(4, 8)}, {"sample": 4}, {"sample": 4, "step": 1}):
        its_own = dataset.isel(selection).rlb.texts(problem(1))
        assert its_own.sel(sample=4, step=50).item() == sample(1, 4, 50).text
        texts = dataset.isel(selection).rlb.texts(problem(1), [5])
        assert texts.values[0, -1] == sample(1, 5, 50).text


def test_stray_files_are_no_groups(layout: Layout) -> None:
    journal(layout, samples(range(2), 3), "a")
    for folder in (layout.root / "journals", layout.root / "journals" / ARM):
        (folder / ".DS_Store").write_text("")
    assert layout.groups() == [(ARM, SET)]
    compact(layout)
    assert {*rlbhpc.open_cube(layout.root).children} == {ARM, "answers"}


def test_a_bare_cube_opens_and_says_that_it_has_no_texts(tmp_path: Path, layout: Layout) -> None:
    journal(layout, samples(range(2), 3), "a")
    compact(layout)
    shutil.copytree(layout.cube, tmp_path / "published.zarr")
    cube = rlbhpc.open_cube(tmp_path / "published.zarr")[GROUP].to_dataset()
    assert (cube.verdict >= 0).all()
    with pytest.raises(UserError, match="in the folder of the run"):
        cube.rlb.texts(problem(0), 0)


def test_what_is_no_cube_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    with pytest.raises(UserError, match="not a cube of rlbhpc"):
        rlbhpc.open_cube(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        rlbhpc.open_cube(tmp_path / "absent")
    for elsewhere in (f"file://{tmp_path}", "http://host/cube.zarr", zarr.storage.MemoryStore()):
        with pytest.raises(UserError, match=r"xarray\.open_datatree"):
            rlbhpc.open_cube(elsewhere)  # type: ignore[arg-type]


def test_what_cannot_be_read_is_said(layout: Layout) -> None:
    journal(layout, samples(range(2), 3), "a")
    (layout.journals(ARM, SET) / "torn.journal").write_bytes(b"")
    with pytest.warns(LeftOutWarning, match=r"torn.journal: .* empty file"):
        assert (group(layout).verdict >= 0).all()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_flipped_bit_is_found_or_harmless(tmp_path: Path, layout: Layout, soak: bool) -> None:
    """Flips in every kind of file of a cube: an error, a finding, or the same values."""
    plan(layout, range(2), 4)
    journal(layout, samples(range(6), 9, (0, 1)), "a")
    compact(layout)
    truth = group(layout).load()
    store = layout.cube.resolve()
    files = sorted(path for path in store.parent.rglob("*") if path.is_file())
    rng = random.Random(0)
    flips = [rng.choice(files) for _ in range(1000 - len(files))]
    for path in [*files, *flips][:: 1 if soak else 10]:
        whole = path.read_bytes()
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LeftOutWarning)
                seen = group(layout).load()
            xr.testing.assert_identical(seen, truth)
        except UserError:
            pass
        if path.name != "sources.json":
            assert validate_cube(layout.root), path
        path.write_bytes(whole)
    assert validate_cube(layout.root) == []


def test_truncated_and_lost_files_are_found(layout: Layout) -> None:
    plan(layout, range(2), 4)
    journal(layout, samples(range(3), 4), "a")
    compact(layout)
    store = layout.cube.resolve()
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], b""):
            path.write_bytes(damaged)
            assert validate_cube(layout.root), path
        path.unlink()
        assert validate_cube(layout.root), path
        path.write_bytes(whole)
    assert validate_cube(layout.root) == []


def _compact_often(root: Path) -> None:
    for i in range(4):
        journal(Layout(root), samples([i + 2], 5), f"more-{i}")
        compact(Layout(root))


def test_a_reader_during_compaction_sees_whole_states(layout: Layout) -> None:
    plan(layout, range(6), 5)
    journal(layout, samples(range(2), 5), "a")
    compact(layout)
    worker = multiprocessing.get_context("spawn").Process(
        target=_compact_often, args=(layout.root,)
    )
    worker.start()
    last = 0
    while worker.is_alive():
        try:
            seen = group(layout).load()
        except UserError as error:
            # Two versions went by between opening and reading.
            assert "open the cube again" in str(error) or error.code == 75
            continue
        present = int((seen.verdict >= 0).sum())
        assert present >= last
        assert np.array_equal(seen.n, seen.rlb.counts().n)
        assert ((seen.verdict >= 0) == (seen.seed >= 0)).all()
        last = present
    worker.join()
    assert worker.exitcode == 0
    assert int((group(layout).verdict >= 0).sum()) == 30
