"""Stores of one study become one, and whatever contradicts stops the merge before it begins."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.store import checked, merge, sample_rows, seal
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.layout import Layout
from tests.store import made, reading
from tests.store.made import ARM, SET
from tests.store.test_scan import damage_part, grid, right

N = 4


@pytest.fixture
def here(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "there")


def files(layout: Layout) -> dict[str, bytes]:
    return {
        path.relative_to(layout.root).as_posix(): path.read_bytes()
        for path in sorted(layout.root.rglob("*"))
        if path.is_file()
    }


def keys(layout: Layout) -> list[tuple[str, int]]:
    rows = reading.rows(layout, ARM, SET, ["problem", "sample"]).table.to_pylist()
    return [(row["problem"], row["sample"]) for row in rows]


def long(number: int, index: int, text: str, n_tokens: int = 32) -> Sample:
    sample = right(number, index)
    return dataclasses.replace(sample, text=text, n_tokens=n_tokens, logprob_sum=-3.5)


def test_parts_journals_attempts_and_plans_come_over(here: Layout, there: Layout) -> None:
    made.journal(here, [right(0, i) for i in range(N)], "here")
    grid(1).save(here.grid(ARM, SET))
    seal.seal(here, ARM, SET, grid(1), "all")
    made.journal(there, [right(1, i) for i in range(N)], "there-1")
    seal.seal(there, ARM, SET, grid(2), "all")
    made.journal(there, [right(0, 1), right(2, 0)], "there-2")
    grid(3).save(there.grid(ARM, SET))
    checked.write(there.attempts / "attempt.json", {"shard": 4})
    before = files(there)
    done = merge.merge(here, there)
    assert done.added == N + 1
    assert keys(here) == [(made.problem(p), i) for p in (0, 1) for i in range(N)] + [("math/2", 0)]
    assert (here.attempts / "attempt.json").exists()
    assert Grid.load(here.grid(ARM, SET)) == grid(1).grown(grid(3).cells(ARM))
    assert files(there) == before
    after = files(here)
    assert not merge.merge(here, there).copied
    assert files(here) == after


def test_an_empty_folder_takes_everything(here: Layout, there: Layout) -> None:
    made.journal(there, [right(0, i) for i in range(N)], "one")
    grid(1).save(there.grid(ARM, SET))
    assert merge.merge(here, there).added == N
    assert files(here) == files(there)


def test_nothing_to_merge(here: Layout, there: Layout) -> None:
    with pytest.raises(UserError, match="there: holds no samples; give the folder of a run"):
        merge.merge(here, there)


def test_two_different_samples_of_one_key_stop_the_merge(here: Layout, there: Layout) -> None:
    made.journal(here, [right(0, 0), right(0, 1)], "one")
    seal.seal(here, ARM, SET, grid(1, 2), "all")
    made.journal(there, [long(0, 0, "other"), long(0, 1, "other")], "two")
    before = files(here)
    with pytest.raises(UserError) as refused:
        merge.merge(here, there)
    told = str(refused.value)
    assert "two different samples of math/0 no. 0 (arm base, step 0)" in told
    assert str(here.root) in told
    assert str(there.journals(ARM, SET) / "two.journal") in told
    assert "more sample" in told
    assert files(here) == before


@pytest.mark.parametrize("count", [1, 2, 3])
def test_how_many_contradict_is_told(here: Layout, there: Layout, count: int) -> None:
    more = ["", ", and 1 more {}", ", and 2 more {}s"][count - 1]
    made.journal(here, [right(i, i) for i in range(count)], "one")
    made.journal(there, [long(i, i, "other") for i in range(count)], "two")
    with pytest.raises(UserError, match=rf"does not{more.format('sample')}\. Nothing was copied"):
        merge.merge(here, there)
    shutil.rmtree(there.root)
    made.journal(there, [made.sample(i, 9, fingerprint=8) for i in range(count)], "two")
    before = keys(here)
    what = rf"math/0 \(arm base, step 0{more.format('problem')}\) was asked in another way than in"
    with pytest.raises(UserError, match=what):
        merge.merge(here, there)
    assert keys(here) == before


def test_a_journal_that_grew_is_copied_again(
    here: Layout, there: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_COPY_BYTES", 50)
    out = JournalWriter(there.journals(ARM, SET), "grows")
    out.append(right(0, 0))
    merge.merge(here, there)
    out.append(right(0, 1))
    out.close()
    assert merge.merge(here, there).added == 1
    assert files(here) == files(there)
    shutil.copytree(here.root, here.root.with_name("older"))
    assert not merge.merge(there, here).copied


def test_a_damaged_part_stays_where_it_is(here: Layout, there: Layout) -> None:
    made.journal(here, [right(0, 0)], "one")
    made.journal(there, [right(1, i) for i in range(N)], "two")
    asked = Grid("model").grown(made.cells([1], N))
    (part,) = seal.seal(there, ARM, SET, asked, "all").made
    (there.journals(ARM, SET) / "two.journal").unlink()
    damage_part(part)
    # The first never began: a kill leaves such a one.
    for name, size in (("began", 24), ("unreadable", 25)):
        (there.journals(ARM, SET) / f"{name}.journal").write_bytes(bytes(size))
    done = merge.merge(here, there)
    assert (done.added, done.copied) == (0, ())
    assert {part, there.journals(ARM, SET) / "unreadable.journal"} <= {
        skipped.path for skipped in done.skipped
    }
    assert keys(here) == [("math/0", 0)]
    assert reading.scan(here, ARM, SET, grid(2)).missing.sum() == 2 * N - 1


def test_a_copy_that_is_not_the_original_is_told(
    here: Layout, there: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.journal(there, [right(0, i) for i in range(N)], "one")
    (part,) = seal.seal(there, ARM, SET, grid(1), "all").made
    path, size = there.journals(ARM, SET) / "one.journal", part.stat().st_size
    with pytest.raises(UserError, match=f"{part} became shorter while it was copied; when the f"):
        merge._copy(part, here.root / "copy", size + 1)
    path.unlink()
    real = os.fsync

    def rot(fd: int) -> None:
        with contextlib.suppress(OSError):  # a folder
            os.pwrite(fd, b"\xff", 50)
        real(fd)

    monkeypatch.setattr(os, "fsync", rot)
    with pytest.raises(UserError, match="; copy it again"):
        merge.merge(here, there)
    assert not list(here.parts(ARM, SET).iterdir())


def test_a_damaged_part_is_replaced_by_an_intact_one(here: Layout, there: Layout) -> None:
    for layout in (here, there):
        made.journal(layout, [right(0, i) for i in range(N)], "one")
        (part,) = seal.seal(layout, ARM, SET, grid(1), "all").made
        (layout.journals(ARM, SET) / "one.journal").unlink()
    damaged = here.parts(ARM, SET) / part.name
    damage_part(damaged)
    seal.seal(here, ARM, SET, grid(1), "all", verify=True)
    assert reading.rows(here, ARM, SET).table.num_rows == 0
    assert merge.merge(here, there).copied == (damaged,)
    rows = reading.rows(here, ARM, SET)
    assert (rows.table.num_rows, list(rows.skipped)) == (N, [])


def test_what_is_merged_reads_as_what_was_drawn(here: Layout, there: Layout) -> None:
    wanted = made.samples(range(5), N)
    made.journal(here, wanted[::2], "one")
    made.journal(there, wanted[1::2], "two")
    merge.merge(here, there)
    rows = sample_rows.to_samples(reading.rows(here, ARM, SET).table)
    assert {s.key: s.text for s in rows} == {s.key: s.text for s in wanted}


def test_cells_of_both_plans_are_asked_for(here: Layout, there: Layout) -> None:
    grid(2).save(here.grid(ARM, SET))
    theirs = grid(1).grown(made.cells([5], 2, (40,)))
    theirs.save(there.grid(ARM, SET))
    made.journal(there, [right(0, 0)], "one")
    merge.merge(here, there)
    joined = Grid.load(here.grid(ARM, SET))
    assert joined is not None
    assert joined.problems == ("math/0", "math/1", "math/5")
    assert joined.counts == {(0, "math/0"): N, (0, "math/1"): N, (40, "math/5"): 2}
