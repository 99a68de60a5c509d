"""kill -9 at every step and at random moments: nothing acknowledged is lost, nothing doubled.

`make soak` kills about 500 times, `make test-all` a seeded tenth of that.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlbhpc.store import sample_rows
from rlbhpc.store.journal import JournalWriter
from rlbhpc.study.layout import Layout
from tests.store import kill_tasks, made, reading
from tests.store.kill import Kill, Outcome, every_step, run
from tests.store.kill_tasks import PROBLEMS, STEPS, N

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

KEYS = list(itertools.product(STEPS, range(PROBLEMS), range(N)))


class Bench:
    """Runs tasks in folders of their own and compares what they leave with an untouched run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = itertools.count()

    def fresh(self, prepared: Path | None = None) -> Path:
        root = self._folder / f"run-{next(self._number)}"
        if prepared:
            shutil.copytree(prepared, root)
        else:
            root.mkdir()
        return root

    def notes(self) -> Path:
        return self._folder / f"notes-{next(self._number)}"

    def run(self, task: Callable[..., object], root: Path, kill: Kill | None = None) -> Outcome:
        return run(task, root, self.notes(), kill)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def files(root: Path) -> dict[str, bytes]:
    """Names and bytes of all that a finished run leaves."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def held(root: Path) -> list[tuple[int, int, int]]:
    """Keys that a reader finds; each row is compared with the sample that was meant."""
    rows = reading.rows(Layout(root), made.ARM, made.SET)
    assert not rows.conflicts
    found = []
    for sample in sample_rows.to_samples(rows.table):
        key = (sample.key.step, int(sample.key.problem.partition("/")[2]), sample.key.sample)
        meant = kill_tasks.sample(*key)
        assert (sample.text, sample.seed, sample.verdict) == (meant.text, meant.seed, meant.verdict)
        assert sample.logprob_sum == meant.logprob_sum
        found.append(key)
    return found


def acknowledged(outcome: Outcome) -> set[tuple[int, ...]]:
    return {tuple(map(int, word.split())) for word in outcome.acks}


def chosen(kills: Iterator[Kill], soak: bool) -> list[Kill]:
    every = list(kills)
    return every if soak else random.Random(4).sample(every, max(1, len(every) // 10))


def test_a_run_that_is_killed_once_ends_as_one_that_was_not(bench: Bench, soak: bool) -> None:
    untouched = bench.fresh()
    bench.run(kill_tasks.whole, untouched)
    assert sorted(held(untouched)) == KEYS
    final = files(untouched)
    assert [Path(name).suffix for name in final] == [".parquet"] * len(STEPS)

    for kill in chosen(every_step(kill_tasks.whole, bench.fresh, bench.notes), soak):
        root = bench.fresh()
        outcome = bench.run(kill_tasks.whole, root, kill)
        assert outcome.killed
        left = held(root)
        assert len(set(left)) == len(left)
        assert acknowledged(outcome) <= set(left), kill
        again = bench.run(kill_tasks.whole, root)
        assert not acknowledged(outcome) & acknowledged(again), "an acknowledged sample was redrawn"
        assert files(root) == final, kill
        shutil.rmtree(root)


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_was_not(
    bench: Bench, soak: bool
) -> None:
    lot = random.Random(5)
    untouched = bench.fresh()
    steps = len(bench.run(kill_tasks.whole, untouched).steps)
    for _ in range(8 if soak else 1):
        root = bench.fresh()
        safe: set[tuple[int, ...]] = set()
        kills = (
            Kill(lot.randrange(steps // 4), lot.choice(["before", "within", "after"]))
            for _ in range(20)
        )
        for kill in kills:
            outcome = bench.run(kill_tasks.whole, root, kill)
            assert not safe & acknowledged(outcome)
            safe |= acknowledged(outcome)
            assert safe <= set(held(root))
        bench.run(kill_tasks.whole, root)
        assert files(root) == files(untouched)


def test_a_run_that_is_killed_at_any_moment_ends_as_one_that_was_not(
    bench: Bench, soak: bool
) -> None:
    lot = random.Random(6)
    untouched = bench.fresh()
    bench.run(kill_tasks.whole, untouched)
    killed = 0
    for _ in range(1000):
        root = bench.fresh()
        outcome = bench.run(kill_tasks.whole, root, Kill(seconds=lot.uniform(0.01, 0.4)))
        killed += outcome.killed
        assert acknowledged(outcome) <= set(held(root))
        bench.run(kill_tasks.whole, root)
        assert files(root) == files(untouched)
        shutil.rmtree(root)
        if killed == (120 if soak else 12):
            return
    raise AssertionError(f"only {killed} children were still alive when they were to be killed")


def test_a_merge_that_is_killed_loses_nothing_on_either_side(bench: Bench, soak: bool) -> None:
    prepared = bench.fresh()
    for half in (0, 1):
        layout = Layout(prepared / ("here", "there")[half])
        with JournalWriter(layout.journals(made.ARM, made.SET), f"half-{half}") as writer:
            # One sample is on both sides.
            for key in KEYS[half * len(KEYS) // 2 - half : (half + 1) * len(KEYS) // 2]:
                writer.append(kill_tasks.sample(*key))
        kill_tasks.grid().save(layout.grid(made.ARM, made.SET))
    untouched = bench.fresh(prepared)
    bench.run(kill_tasks.join, untouched)
    assert sorted(held(untouched / "both")) == KEYS

    def fresh() -> Path:
        return bench.fresh(prepared)

    for kill in chosen(every_step(kill_tasks.join, fresh, bench.notes), soak):
        root = fresh()
        assert bench.run(kill_tasks.join, root, kill).killed
        for half in ("here", "there"):
            assert files(root / half) == files(prepared / half)
        bench.run(kill_tasks.join, root)
        assert files(root) == files(untouched), kill
        shutil.rmtree(root)
