"""The cube is a function of what is stored: whatever the order, the interruptions, the growth."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from rlbhpc import files
from rlbhpc.errors import UserError
from rlbhpc.store import checked, cube, grid, tables
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Chunk, Grid
from rlbhpc.store.reader import open_cube
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.samples import find_samples
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, cells, contents, journal, problem, sample, samples, shuffled


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "run").mkdir()
    return Layout(tmp_path / "run")


def plan(layout: Layout, problems: range, n: int, steps: tuple[int, ...] = (0,)) -> None:
    """Plan, or extend the plan, as a launch does."""
    grid = Grid.load(layout.grid(ARM, SET)) or Grid("toy")
    grid.grown(cells(problems, n, steps)).save(layout.grid(ARM, SET))


def cube_of(folder: Path, rows: list[Sample]) -> dict[str, bytes]:
    """The cube of rows that came in one piece and were compacted once."""
    folder.mkdir()
    journal(Layout(folder), rows, "only")
    compact(Layout(folder))
    return contents(Layout(folder).cube)


def values(layout: Layout) -> xr.Dataset:
    tree = xr.open_datatree(layout.cube, engine="zarr")
    return tree[f"{ARM}/{SET}"].to_dataset().load()


def table(layout: Layout) -> Counter[tuple[object, ...]]:
    """How often each answer to a problem was given at a step."""
    rows = open_cube(layout.root)[f"answers/{ARM}/{SET}"].to_dataset().to_dataframe()
    keys = zip(rows["step"], rows["problem"], rows["answer"], rows["text"], strict=True)
    return Counter(dict(zip(keys, rows["count"], strict=True)))


def test_every_sample_stands_in_its_cell(layout: Layout) -> None:
    rows = shuffled([s for s in samples(range(11), 9, (0, 50)) if s.key.sample % 4], 1)
    journal(layout, rows, "a")
    compact(layout)
    cube = values(layout)
    assert list(cube.problem.values) == [problem(i) for i in range(11)]
    left = cube.verdict.to_numpy().copy()
    answers: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        at = (
            cube.get_index("problem").get_loc(row.key.problem),
            row.key.sample,
            cube.get_index("step").get_loc(row.key.step),
        )
        assert left[at] == row.verdict
        left[at] = -1
        assert cube.finish.values[at] == row.finish
        assert cube.n_tokens.values[at] == row.n_tokens
        assert cube.seed.values[at] == row.seed
        assert cube.logprob_sum.values[at] == np.float32(row.logprob_sum)
        assert cube.entropy_sum.values[at] == np.float32(row.entropy_sum)
        answer = cube.answer.values[at]
        if row.answer:
            answers[row.key.step, row.key.problem, answer, row.answer] += 1
        else:
            assert answer == -1
        assert cube.right.values[at] == {0: 0, 1: 1, 2: 0, 3: 0}.get(
            row.verdict, pytest.approx(np.nan, nan_ok=True)
        )
    assert (left == -1).all()
    assert table(layout) == answers
    missing = cube.isel(sample=[0, 4])
    for name in ("verdict", "finish", "n_tokens", "answer", "seed"):
        assert (missing[name] == -1).all()
    for name in ("logprob_sum", "entropy_sum", "right"):
        assert missing[name].isnull().all()
    assert validate_cube(layout.root) == []


def test_cut_metadata_of_an_array_makes_a_new_version(layout: Layout) -> None:
    journal(layout, samples(range(2), 4), "a")
    metadata = compact(layout).store / ARM / SET / "verdict" / "zarr.json"
    assert not compact(layout).new
    metadata.write_bytes(metadata.read_bytes()[:100])
    assert compact(layout).new
    assert validate_cube(layout.root) == []
    assert not compact(layout).new


def test_the_lenient_graders_verdicts_count_beside_the_sound_ones(layout: Layout) -> None:
    rows = [
        replace(row, paper=(-1, 0, 1)[row.key.sample % 3], verdict=row.key.sample % 2)
        for row in samples(range(5), 12)
    ]
    journal(layout, rows[:30], "a")
    live = open_cube(layout.root)[f"{ARM}/{SET}"].to_dataset()
    assert live.sizes["problem"] == 3
    compact(layout)
    journal(layout, rows[30:], "b")
    over = open_cube(layout.root)
    compact(layout)
    for tree in (over, open_cube(layout.root), open_cube(layout.cube)):
        data = tree[f"{ARM}/{SET}"].to_dataset()
        assert (data.rlb.counts("paper")["n"] == 8).all()
        assert (data.rlb.counts("paper")["c"] == 4).all()
        assert (data.rlb.counts()["n"] == 12).all()
        assert (data.rlb.counts()["c"] == 6).all()
        by_tree = tree.rlb.pass_at_k(8, "paper")[f"{ARM}/{SET}"].to_dataset()["pass_at_k"]
        assert (by_tree == 1).all()
        assert (data.rlb.pass_at_k(1, "paper") == 0.5).all()
    assert validate_cube(layout.root) == []
    rows = find_samples(layout, Group(ARM, SET), {problem(1): None})
    assert [row.paper for row, _ in rows] == [-1, 0, 1] * 4


def test_counts_leave_out_what_says_nothing_about_the_model(layout: Layout) -> None:
    journal(layout, samples(range(6), 40), "a")
    compact(layout)
    cube = values(layout)
    verdict = cube.verdict.to_numpy()
    assert set(np.unique(verdict)) == {0, 1, 2, 3, 4, 5}
    assert np.array_equal(cube.n, ((verdict >= 0) & (verdict <= 3)).sum(1))
    assert np.array_equal(cube.c, (verdict == 1).sum(1))


@pytest.mark.parametrize("seed", range(2))
def test_same_bytes_whatever_the_order_and_however_often_compacted(
    tmp_path: Path, layout: Layout, seed: int
) -> None:
    rows = samples(range(7), 12, (0, 20))
    expected = cube_of(tmp_path / "whole", rows)
    rng = random.Random(seed)
    rows = shuffled(rows, seed)
    at = 0
    while at < len(rows):
        size = rng.randrange(1, 120)
        # Some samples come twice, as after a requeue.
        journal(layout, rows[max(0, at - rng.randrange(5)) : at + size], f"attempt-{at}")
        at += size
        if rng.random() < 0.5:
            compact(layout)
    compact(layout)
    assert contents(layout.cube) == expected
    compact(layout, rebuild=True)
    assert contents(layout.cube) == expected
    shutil.rmtree(layout.cubes)
    compact(layout)
    assert contents(layout.cube) == expected


def test_nothing_new_changes_nothing(layout: Layout) -> None:
    journal(layout, samples(range(3), 4), "a")
    first = compact(layout)
    again = compact(layout)
    assert first.bands == 1
    assert checked.read(first.store.with_name(cube.SOURCES))["left_out"] == {f"{ARM}/{SET}": {}}
    assert (again.store, again.bands, again.linked) == (first.store, 0, 0)


@pytest.mark.parametrize(
    "first", [{"problems": range(500), "n": 2}, {"problems": range(5), "n": 2048}]
)
def test_a_small_first_try_leaves_no_trace_in_the_layout(
    layout: Layout, first: dict[str, Any]
) -> None:
    """500 problems x 2,048 samples had 9,246 files after `sampling.n=2`; rebuilding kept them."""
    plan(layout, first["problems"], first["n"])
    journal(layout, samples(range(3), 2), "try")
    compact(layout)
    plan(layout, range(500), 2048)
    journal(layout, samples(range(3), 4), "more")
    compact(layout)
    grown = contents(layout.cube)
    assert len(grown) <= 60
    compact(layout, rebuild=True)
    assert contents(layout.cube) == grown


def test_growth_never_touches_a_chunk_file_that_is_there(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a step has more than a chunk; one that is smaller is derived anew as it grows."""
    monkeypatch.setattr(grid, "CHUNK_CELLS", 40)
    monkeypatch.setattr(grid, "UNPLANNED", Chunk(5, 5))

    def chunks() -> dict[str, tuple[int, bytes]]:
        store = layout.cube.resolve()
        return {
            path.relative_to(store).as_posix(): (path.stat().st_ino, path.read_bytes())
            for path in store.rglob("*")
            if path.is_file()
            and path.name != "zarr.json"
            # Totals change with n, in any layout.
            and path.relative_to(store).parts[2] not in {"n", "c", "n_answers"}
            and path.relative_to(store).parts[0] != "answers"
        }

    plan(layout, range(5), 8)
    journal(layout, samples(range(5), 8), "a")
    compact(layout)
    for attempt, (problems, n, steps) in enumerate(
        [
            (range(5), 24, (0,)),
            (range(5), 24, (0, 10)),
            (range(15), 24, (0, 10)),
            (range(15), 40, (0, 10, 5)),
        ]
    ):
        before = chunks()
        plan(layout, problems, n, steps)
        journal(layout, samples(problems, n, steps), f"grown-{attempt}")
        compact(layout)
        after = chunks()
        assert len(after) > len(before)
        assert {name: after[name] for name in before} == before
    cube = values(layout)
    assert cube.verdict.shape == (15, 40, 3)
    assert (cube.verdict >= 0).all()
    assert list(cube.step) == [0, 10, 5]
    whole = contents(layout.cube)
    compact(layout, rebuild=True)
    assert contents(layout.cube) == whole


def test_only_bands_with_something_new_are_derived(layout: Layout) -> None:
    plan(layout, range(4), 6, (0, 1, 2))
    journal(layout, samples(range(4), 6, (0, 1)), "a")
    compact(layout)
    journal(layout, samples(range(4), 6, (2,)), "b")
    done = compact(layout)
    assert (done.bands, done.linked) == (1, 2)
    plan(layout, range(4), 6, (0, 1, 2, 3))
    done = compact(layout)
    assert (done.bands, done.linked) == (1, 3)
    sources = layout.cube.resolve().with_name(cube.SOURCES)
    checked.write(sources, checked.read(sources) | {"schema_version": 1})
    done = compact(layout)
    assert (done.new, done.bands, done.linked) == (True, 4, 0)


def test_unequal_n_leaves_the_rest_missing(layout: Layout) -> None:
    journal(layout, [*samples(range(3), 4), *(sample(1, i) for i in range(4, 2100))], "a")
    compact(layout)
    cube = values(layout)
    assert cube.verdict.shape == (3, 2100, 1)
    assert (cube.verdict[[0, 2], 4:] == -1).all()
    assert (cube.verdict[1] >= 0).all()
    assert cube.to_dataframe().shape[0] == 3 * 2100, "a sample stands there once"
    assert validate_cube(layout.root) == []
    journal(layout, [sample(1, 0, 5)], "b")
    done = compact(layout)
    assert (done.bands, done.linked) == (1, 1)
    assert values(layout).fingerprint.values.tolist() == [[7, -1], [7, 7], [7, -1]]


def test_samples_of_an_older_request_no_longer_count(layout: Layout) -> None:
    plan(layout, range(3), 4)
    journal(layout, samples(range(3), 4), "a")
    compact(layout)
    grid = Grid.load(layout.grid(ARM, SET))
    assert grid
    grid.grown(cells([1], 4, fingerprint=8)).save(layout.grid(ARM, SET))
    compact(layout)
    assert list((values(layout).verdict[..., 0] >= 0).all("sample")) == [True, False, True]
    journal(layout, [sample(1, i, fingerprint=8) for i in range(4)], "b")
    compact(layout)
    cube = values(layout)
    assert list(cube.seed[1, :, 0]) == [sample(1, i, fingerprint=8).seed for i in range(4)]
    assert list(cube.seed[0, :, 0]) == [sample(0, i).seed for i in range(4)]
    assert validate_cube(layout.root) == []


def test_two_requests_without_a_plan_are_refused(layout: Layout) -> None:
    journal(layout, [sample(1, 0), sample(1, 0, fingerprint=8)], "a")
    with pytest.raises(UserError, match=r"math/1 at step 0 has samples of two different requests"):
        compact(layout)


def test_an_empty_folder_is_a_clear_error(layout: Layout) -> None:
    with pytest.raises(UserError, match="holds no samples"):
        compact(layout)
    with pytest.raises(UserError, match="no such folder"):
        compact(Layout(layout.root / "absent"))


def test_an_arm_may_not_take_the_name_of_a_group(layout: Layout) -> None:
    layout.journals("scores", SET).mkdir(parents=True)
    with pytest.raises(UserError, match="an arm may not be called 'scores'"):
        compact(layout)


def test_a_damaged_chunk_is_not_taken_over(layout: Layout) -> None:
    plan(layout, range(4), 6, (0, 1))
    journal(layout, samples(range(4), 6, (0,)), "a")
    compact(layout)
    chunk = layout.cube.resolve() / f"{ARM}/{SET}/verdict/c/0/0/0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 4
    chunk.write_bytes(data)
    assert "fails its checksum" in validate_cube(layout.root)[0]
    journal(layout, samples(range(4), 6, (1,)), "b")
    compact(layout)
    assert validate_cube(layout.root) == []
    assert (values(layout).verdict >= 0).all()


@pytest.mark.parametrize("lost", ["verdict/c/0/0/0", "verdict/c/0/0", "verdict/c/0", "n/c/0/0"])
def test_a_lost_chunk_is_derived_anew(layout: Layout, lost: str) -> None:
    plan(layout, range(4), 6, (0, 1))
    journal(layout, samples(range(4), 6, (0,)), "a")
    compact(layout)
    path = layout.cube.resolve() / ARM / SET / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    journal(layout, samples(range(4), 6, (1,)), "b")
    compact(layout)
    assert validate_cube(layout.root) == []
    assert (values(layout).verdict >= 0).all()


def test_a_table_that_is_replaced_while_it_is_listed_is_listed_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(layout, samples(range(3), 4), "a")
    replaced = layout.tables(tables.COUNTS) / "other" / f"{SET}.json"
    tables.put_counts(layout, "other", SET, "toy", {(0, problem(0)): (4, 2)})
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path == replaced:
            path.unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert compact(layout).new


def test_debris_and_damaged_bookkeeping_do_not_stop_it(tmp_path: Path, layout: Layout) -> None:
    rows = samples(range(3), 5)
    expected = cube_of(tmp_path / "whole", rows)
    journal(layout, rows[:7], "a")
    first = compact(layout)
    journal(layout, rows[7:], "b")
    (layout.cubes / "0123.partial").mkdir()
    made_by_others = (layout.cubes / "0123.partial",)
    for debris in made_by_others:
        hours_ago = time.time() - 23.9 * 3600
        os.utime(debris, (hours_ago, hours_ago), follow_symlinks=False)
    # Bookkeeping that claims that the cube holds all of it, and is therefore not believed.
    sources = first.store.parent / cube.SOURCES
    sources.write_bytes(sources.read_bytes().replace(b'": 7', b'": 7, "journals/base/math/b.j": 8'))
    compact(layout)
    assert contents(layout.cube) == expected
    assert all(os.path.lexists(debris) for debris in made_by_others)
    day = time.time() - 24.1 * 3600
    for debris in made_by_others:
        os.utime(debris, (day, day), follow_symlinks=False)
    journal(layout, [sample(2, 5)], "c")
    compact(layout)
    assert not list(layout.cubes.glob("*.partial"))


def test_the_current_version_and_the_one_before_stay(layout: Layout) -> None:
    stores = []
    for i in range(4):
        journal(layout, samples([i], 2), str(i))
        stores.append(compact(layout).store)
    assert [store.exists() for store in stores] == [False, False, True, True]


def test_a_cube_that_was_copied_without_its_versions_is_replaced(
    tmp_path: Path, layout: Layout
) -> None:
    rows = samples(range(3), 5)
    journal(layout, rows[:7], "a")
    compact(layout)
    copy = tmp_path / "copy"
    shutil.copytree(layout.root, copy)  # follows the link
    shutil.rmtree(copy / "cubes")
    assert not (copy / "cube.zarr").is_symlink()
    journal(Layout(copy), rows[7:], "b")
    compact(Layout(copy))
    assert contents(Layout(copy).cube) == cube_of(tmp_path / "whole", rows)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EPERM, "the file system has no symbolic links"),
        (errno.ENOSPC, r"\(ENOSPC\); the cube is as it was; free space"),
    ],
)
def test_a_link_that_cannot_be_made_leaves_the_cube_as_it_was(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    rows = samples(range(3), 5)
    journal(layout, rows[:7], "a")
    compact(layout)
    copy = Layout(tmp_path / "copy")
    shutil.copytree(layout.root, copy.root)  # follows the link
    shutil.rmtree(copy.cubes)
    before = contents(copy.cube)
    journal(copy, rows[7:], "b")

    def refuse(*where: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, pytest.raises(UserError, match=words):
        patch.setattr(os, "symlink", refuse)
        compact(copy)
    assert contents(copy.cube) == before
    assert not list(copy.root.glob("*.partial"))


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM])
def test_what_could_not_be_linked_is_synced(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """Some cluster file systems refuse links from one folder to another, and others all."""
    plan(layout, range(4), 6, (0, 1))
    journal(layout, samples(range(4), 6, (0,)), "a")
    compact(layout)
    journal(layout, samples(range(4), 6, (1,)), "b")
    synced: set[int] = set()
    real_link, real_sync = os.link, os.fsync

    def link(a: Path, b: Path) -> None:
        if not Path(b).exists() and (refusal == errno.EPERM or Path(a).parent != Path(b).parent):
            raise OSError(refusal, os.strerror(refusal))
        real_link(a, b)

    def sync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        real_sync(fd)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "fsync", sync)
    compact(layout, rebuild=refusal == errno.EPERM)
    paths = [path for path in layout.cube.resolve().rglob("*") if path.is_file()]
    assert [path for path in paths if path.stat().st_ino not in synced] == []


def test_an_old_version_that_may_not_be_removed_stays(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2):
        journal(layout, samples([i], 2), str(i))
        first = compact(layout)
    real = os.rename

    def rename(a: Path, b: Path) -> None:
        if Path(a).parent == layout.cubes and Path(a).suffix != files.PARTIAL:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        real(a, b)

    monkeypatch.setattr(os, "rename", rename)
    for i in range(2, 4):
        journal(layout, samples([i], 2), str(i))
        assert compact(layout).new
    assert first.store.exists()


def _compact_in_a_loop(root: Path, rounds: int) -> None:
    for _ in range(rounds):
        try:
            compact(Layout(root))
        except UserError as error:
            assert error.code == 75, error


def test_several_compactors_at_once(tmp_path: Path, layout: Layout) -> None:
    rows = samples(range(4), 10, (0, 1))
    expected = cube_of(tmp_path / "whole", rows)
    journal(layout, rows[:20], "first")
    compact(layout)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_compact_in_a_loop, args=(layout.root, 4)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for i in range(20, len(rows), 20):
        journal(layout, rows[i : i + 20], f"a{i}")
        # Whichever version is current now is sound, and stays while it is looked at.
        assert validate_cube(layout.root) == []
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    compact(layout)
    assert contents(layout.cube) == expected
    assert validate_cube(layout.root) == []


def _compact_on_a_full_disk(root: Path, limit: int, told: multiprocessing.SimpleQueue[str]) -> None:
    import zarr  # noqa: F401 - loads before the limit, as bytecode may have to be written

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        compact(Layout(root))
    except UserError as error:
        told.put(f"{error.code} {error}")
    except OSError as error:
        told.put(repr(error))
    else:
        told.put("done")


def test_a_full_disk_leaves_the_cube_as_it_was(layout: Layout) -> None:
    journal(layout, samples(range(4), 30), "a")
    compact(layout)
    before = contents(layout.cube)
    journal(layout, samples(range(4, 40), 30), "b")
    context = multiprocessing.get_context("spawn")
    for limit in (100, 1500, 5000):
        told = context.SimpleQueue()
        child = context.Process(target=_compact_on_a_full_disk, args=(layout.root, limit, told))
        child.start()
        message = told.get()
        child.join()
        assert message.startswith("75 ")
        assert "File too large (EFBIG); the cube is as it was; free space" in message
        assert contents(layout.cube) == before
        assert not list(layout.cubes.glob("*.partial"))
    compact(layout)
    assert validate_cube(layout.root) == []
    assert len(values(layout).problem) == 40
