"""kill -9 at every step of a compaction: the old cube or the new one, and the same bytes after."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.store import cube
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store import kill_tasks
from tests.store.kill import Kill, every_step, run
from tests.store.made import contents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


def empty(folders: Iterator[Path]) -> Path:
    folder = next(folders)
    folder.mkdir()
    return folder


def test_a_compaction_that_is_killed_leaves_the_old_cube_or_the_new_one(
    folders: Iterator[Path], soak: bool
) -> None:
    """From a cube of one half of the samples to that of all, killed at every step between."""
    prepared = empty(folders)
    kill_tasks.grid().save(Layout(prepared).grid("base", "math"))
    half = run(kill_tasks.produce, prepared, next(folders), Kill(60))
    assert half.killed
    run(kill_tasks.derive, prepared, next(folders))
    old = contents(Layout(prepared).cube)
    run(kill_tasks.produce, prepared, next(folders))

    def copy() -> Path:
        return Path(shutil.copytree(prepared, next(folders), symlinks=True))

    untouched = copy()
    run(kill_tasks.derive, untouched, next(folders))
    new = contents(Layout(untouched).cube)
    assert new != old

    kills = list(every_step(kill_tasks.derive, copy, lambda: next(folders)))
    for kill in kills if soak else random.Random(1).sample(kills, len(kills) // 30):
        root = copy()
        assert run(kill_tasks.derive, root, next(folders), kill).as_told(kill), kill
        assert contents(Layout(root).cube) in (old, new), kill
        assert validate_cube(root) == []
        run(kill_tasks.derive, root, next(folders))
        assert contents(Layout(root).cube) == new, kill
        shutil.rmtree(root)


def test_a_run_that_is_killed_anywhere_ends_with_the_same_cube(
    folders: Iterator[Path], soak: bool
) -> None:
    untouched = empty(folders)
    run(kill_tasks.whole_with_cube, untouched, next(folders))
    final = contents(Layout(untouched).cube)
    task = kill_tasks.whole_with_cube
    kills = list(every_step(task, lambda: empty(folders), lambda: next(folders)))
    for kill in random.Random(2).sample(kills, len(kills) if soak else 5):
        root = empty(folders)
        assert run(task, root, next(folders), kill).as_told(kill), kill
        # What a kill of a kill leaves is looked at too.
        run(task, root, next(folders), random.Random(kill.step).choice(kills))
        run(task, root, next(folders))
        assert contents(Layout(root).cube) == final, kill
        assert cube.current_version(Layout(root))
        shutil.rmtree(root)
