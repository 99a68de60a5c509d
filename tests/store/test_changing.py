"""A store that changes while it is read or derived: looked at again, and at last given up."""

from __future__ import annotations

import errno
import re
import shutil
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlbhpc
from rlbhpc.errors import TRY_AGAIN, LeftOutWarning, UserError
from rlbhpc.store import compact as compaction
from rlbhpc.store import cube, reader, snapshot
from rlbhpc.store.compact import compact
from rlbhpc.store.derive import PurgedError
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.samples import find_samples
from rlbhpc.store.sources import Group, groups_of_run
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, journal, problem, samples

GROUP = Group(ARM, SET)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "run")
    journal(layout, samples(range(2), 3), "a")
    return layout


def failing(times: int, real: Callable[..., Any], error: OSError) -> Callable[..., Any]:
    """A function that fails so many times before it works."""
    errors = iter([error] * times)

    def function(*args: Any, **options: Any) -> Any:
        if met := next(errors, None):
            raise met
        return real(*args, **options)

    return function


@pytest.mark.parametrize("times", [4, 5])
def test_a_file_that_vanishes_is_looked_for_five_times(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(snapshot.time, "sleep", pauses.append)
    read = failing(times, lambda: "read", FileNotFoundError(errno.ENOENT, "gone", "run/a.journal"))
    if times < 5:
        assert snapshot.retry_while_changing(read) == "read"
        assert pauses == [0.01, 0.04, 0.16, 0.64]
        return
    with pytest.raises(UserError) as told:
        snapshot.retry_while_changing(read)
    assert str(told.value) == (
        "run/a.journal: files keep vanishing while the store is read; give the command again when "
        "nobody cleans up"
    )
    assert told.value.code == TRY_AGAIN


@pytest.mark.parametrize("times", [2, 3])
def test_a_cube_that_is_replaced_while_it_is_opened_is_opened_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    swept = FileNotFoundError(errno.ENOENT, "gone")
    monkeypatch.setattr(reader, "_open_run", failing(times, reader._open_run, swept))
    if times < 3:
        assert rlbhpc.open_cube(layout.root)[str(GROUP)].sizes["problem"] == 2
        return
    with pytest.raises(UserError) as told:
        rlbhpc.open_cube(layout.root)
    assert str(told.value) == (
        f"{layout.cube}: replaced again and again while it was opened; open it again"
    )
    assert told.value.code == TRY_AGAIN


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_compaction_that_always_comes_second_leaves_the_cube_to_the_first(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(compaction, "_MAX_ROUNDS", 2)
    real, others = cube.settle_version, iter(range(rounds))

    def settle(version: Path, old: Path | None) -> None:
        real(version, old)
        if next(others, None) is not None:
            other = cube.begin_version(layout)
            shutil.copytree(version, other / cube.STORE)
            cube.publish_version(layout, other, {})

    monkeypatch.setattr(cube, "settle_version", settle)
    if rounds < 2:
        assert compact(layout).new
        return
    with pytest.raises(UserError) as told:
        compact(layout)
    assert str(told.value) == (
        f"{layout.root}: other processes kept changing the store while its cube was derived; run "
        "`rlbhpc compact` again when they have finished"
    )
    assert told.value.code == TRY_AGAIN


def test_a_journal_that_goes_while_the_cube_is_derived_is_looked_for_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = FileNotFoundError(errno.ENOENT, "gone")
    monkeypatch.setattr(compaction, "_build", failing(1, compaction._build, gone))
    assert compact(layout).new
    assert not list(layout.cubes.glob("*.partial"))


def test_a_place_where_no_cube_can_be_is_named(layout: Layout) -> None:
    layout.cubes.write_text("in the way")
    with pytest.raises(UserError) as told:
        compact(layout)
    assert str(told.value) == (
        f"{layout.cubes}: Not a directory (ENOTDIR); the cube is as it was; give another path"
    )


def test_the_link_says_which_version_is_current(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert cube.current_version(layout) is None
    layout.cube.write_text("in the way")
    assert cube.current_version(layout) is None
    layout.cube.unlink()
    layout.cube.symlink_to("cubes/one/cube.zarr")
    assert cube.current_version(layout) is None
    (layout.cubes / "one" / "cube.zarr").mkdir(parents=True)
    assert cube.current_version(layout) == cube.Version(layout.cubes / "one", {})
    layout.cube.unlink()
    layout.cube.mkdir()
    assert cube.current_version(layout) == cube.Version(tmp_path, {})
    with pytest.raises(FileNotFoundError):
        cube.hard_link(tmp_path / "gone", tmp_path / "new")


def put(layout: Layout, problems: Iterable[int], n: int, attempt: str) -> None:
    """Samples of another arm, at two steps."""
    with JournalWriter(layout.journals("rl", SET), attempt) as writer:
        for row in samples(problems, n, (0, 50)):
            writer.append(replace(row, key=row.key._replace(arm="rl")))


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """A run of two arms, one of them in five journals, and its cube."""
    layout = Layout(tmp_path_factory.mktemp("compacted"))
    journal(layout, samples(range(2), 3), "a")
    for number in range(5):
        put(layout, [number], 3, f"j{number}")
    compact(layout)
    return layout


def remove(*numbers: int) -> Callable[[Layout], None]:
    def files(layout: Layout) -> None:
        for number in numbers:
            (layout.journals("rl", SET) / f"j{number}.journal").unlink()

    return files


def remove_arm(layout: Layout) -> None:
    shutil.rmtree(layout.journals("rl", SET).parent)


def remove_some(layout: Layout) -> None:
    remove(3)(layout)
    put(layout, [3], 2, "k")


def ask_otherwise(layout: Layout) -> None:
    remove(3)(layout)
    asked = {Cell("rl", step, problem(3), 8): 3 for step in (0, 50)}
    Grid("rl").grown(asked).save(layout.grid("rl", SET))


@pytest.mark.parametrize(
    ("spoil", "lost", "first", "gone"),
    [
        (remove_arm, 30, "all of math", "j0, j1, j2 and 2 more"),
        (remove(1, 2, 3), 18, "math/1", "j1, j2, j3"),
        (remove_some, 2, "math/3", "j3"),
        (ask_otherwise, 0, "", ""),
    ],
)
def test_samples_that_are_gone_are_told_with_their_files(
    tmp_path: Path,
    compacted: Layout,
    spoil: Callable[[Layout], None],
    lost: int,
    first: str,
    gone: str,
) -> None:
    layout = Layout(shutil.copytree(compacted.root, tmp_path / "run", symlinks=True))
    spoil(layout)
    if not lost:
        assert compact(layout).new
        return
    with pytest.raises(PurgedError) as told:
        compact(layout)
    assert told.value.samples == lost
    names = re.sub(r"j\d", rf"journals/rl/{SET}/\g<0>.journal", gone)
    assert str(told.value) == (
        f"{layout.cube}: {lost} samples of it are in no journal or part any more (the first: rl: "
        f"{first}); gone: {names}. The cube stays as it is. Put the files back, or let `rlbhpc "
        "sample` draw the samples again; to go on without them, remove this cube first"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_samples(layout, GROUP, {problem(0): [2]})
    with pytest.warns(LeftOutWarning, match=rf"left out \({lost} purged\)"):
        assert not find_samples(layout, Group("rl", SET), {problem(3): [2]})


def test_a_folder_without_a_run_is_named(tmp_path: Path, layout: Layout) -> None:
    assert groups_of_run(layout) == [GROUP]
    with pytest.raises(UserError, match=f"{tmp_path}: holds no samples; give the folder of a run"):
        groups_of_run(Layout(tmp_path))
