"""Journals go when their samples are sealed, read back, and nobody writes them any more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.store import seal, snapshot
from rlbhpc.store.journal import JournalWriter
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status
from tests.store import made, reading
from tests.store.made import ARM, SET
from tests.store.test_scan import as_verdict, damage_part, grid, right

N = 4


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def clean(layout: Layout, idle_hours: float = seal.IDLE_HOURS) -> seal.Cleaning:
    return seal.gc(layout, ARM, SET, idle_hours=idle_hours)


def journals(layout: Layout) -> list[str]:
    return sorted(path.stem for path in layout.journals(ARM, SET).iterdir())


def sealed(layout: Layout) -> Path:
    """A part of four samples whose journal is still there."""
    made.journal(layout, [right(0, i) for i in range(N)], "one")
    (part,) = seal.seal(layout, ARM, SET, grid(1), "all").made
    return part


def test_a_sealed_journal_goes(layout: Layout) -> None:
    sealed(layout)
    size = (layout.journals(ARM, SET) / "one.journal").stat().st_size
    done = clean(layout)
    assert journals(layout) == []
    assert (len(done.removed), done.freed, done.kept) == (1, size, ())
    assert reading.rows(layout, ARM, SET).table.num_rows == N


def test_a_journal_with_one_sample_that_is_not_sealed_stays(layout: Layout) -> None:
    sealed(layout)
    made.journal(layout, [right(0, 0), right(1, 0)], "two")
    (kept,) = clean(layout).kept
    assert str(kept).endswith("two.journal stays: it holds samples that are not sealed")
    assert journals(layout) == ["two"]


def test_copies_that_do_not_count_need_not_be_sealed(layout: Layout) -> None:
    made.journal(layout, [as_verdict(right(0, 0), Status.FAILED, "a failure")], "failed")
    sealed(layout)
    assert clean(layout).kept == ()
    assert journals(layout) == []


def test_journals_stay_while_their_part_is_damaged(layout: Layout) -> None:
    damage_part(sealed(layout))
    done = clean(layout)
    assert journals(layout) == ["one"]
    assert done.skipped
    assert done.kept[0].reason == "it holds samples that are not sealed"


def test_a_journal_that_may_have_a_writer_stays(layout: Layout) -> None:
    sealed(layout)
    out = JournalWriter(layout.journals(ARM, SET), "live")
    out.append(right(0, 0))
    assert clean(layout).kept[0].reason == "it was not closed, and its writer may still live"
    yesterday = out.path.stat().st_mtime - seal.IDLE_HOURS * 3600 - 60
    os.utime(out.path, (yesterday, yesterday))
    assert clean(layout).kept == ()
    assert journals(layout) == []


def test_a_writer_that_slept_too_long_does_not_write_into_nothing(layout: Layout) -> None:
    sealed(layout)
    out = JournalWriter(layout.journals(ARM, SET), "live", sync_seconds=0)
    out.append(right(0, 0))
    assert clean(layout, idle_hours=0).kept == ()
    with pytest.raises(UserError, match="was removed while it was open; what came since is not"):
        out.append(right(0, 1))
    out.close()


def test_a_writer_whose_journal_went_says_so_when_it_is_closed(layout: Layout) -> None:
    out = JournalWriter(layout.journals(ARM, SET), "live")
    out.append(right(0, 0))
    out.path.unlink()
    out.append(right(0, 1))
    with pytest.raises(UserError, match="was removed while it was open"):
        out.close()


@pytest.mark.parametrize(("seconds", "stays"), [(0, False), (1, True)])
def test_a_file_without_a_writer_goes_after_a_day(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, seconds: int, stays: bool
) -> None:
    remnant = sealed(layout).with_name("0123.partial")
    remnant.touch()
    out = JournalWriter(layout.journals(ARM, SET), "live")
    out.append(right(0, 0))
    changed = 1_000_000_000
    for path in (out.path, remnant):
        os.utime(path, (changed, changed))
    now = changed + 24 * 3600 - seconds
    monkeypatch.setattr(seal, "time", SimpleNamespace(time=lambda: now))
    done = clean(layout)
    assert [(path in done.removed, path.exists()) for path in (out.path, remnant)] == [
        (not stays, stays)
    ] * 2
    assert len(done.kept) == stays


@pytest.mark.parametrize("goes", [True, False])
def test_a_journal_that_changes_while_it_is_judged(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """Another job cleans up, or the writer of a journal that had slept for long goes on."""
    sealed(layout)
    out = JournalWriter(layout.journals(ARM, SET), "live")
    out.append(right(0, 0))
    real = seal.take_snapshot

    def then_changes(*args: Any, **options: Any) -> snapshot.Snapshot:
        now = real(*args, **options)
        if goes:
            out.path.unlink()
        else:
            out.append(right(1, 0))
        return now

    monkeypatch.setattr(seal, "take_snapshot", then_changes)
    kept = clean(layout, idle_hours=0).kept
    assert [k.reason for k in kept] == ([] if goes else ["it is being written"])


@pytest.mark.parametrize("data", [b"", b"rlbhpcJ1", bytes(24)])
def test_journals_that_never_began_go(layout: Layout, data: bytes) -> None:
    layout.journals(ARM, SET).mkdir(parents=True)
    (layout.journals(ARM, SET) / "x.journal").write_bytes(data)
    assert len(clean(layout).kept) == 1
    assert clean(layout, idle_hours=0).kept == ()
    assert journals(layout) == []


def test_an_unreadable_journal_is_left_for_people(layout: Layout) -> None:
    layout.journals(ARM, SET).mkdir(parents=True)
    (layout.journals(ARM, SET) / "x.journal").write_bytes(b"\0" * 4096)
    assert "unreadable" in clean(layout, idle_hours=0).kept[0].reason


def test_what_killed_processes_left_goes_when_it_is_old(layout: Layout) -> None:
    part = sealed(layout)
    folders = [part.parent, layout.root, layout.root / "contents", layout.training("rl")]
    remnants = [folder / "0123.partial" for folder in folders]
    for remnant in remnants:
        remnant.parent.mkdir(parents=True, exist_ok=True)
        remnant.write_bytes(b"half a file")
    link = layout.root / "4567.partial"
    link.symlink_to("cubes/nowhere/cube.zarr")
    remnants.append(link)
    clean(layout)
    assert all(remnant.is_symlink() or remnant.exists() for remnant in remnants)
    assert {*remnants} <= {*clean(layout, idle_hours=0).removed}
    assert not any(remnant.is_symlink() or remnant.exists() for remnant in remnants)
    assert part.exists()


def test_a_checkpoint_that_was_never_whole_goes_when_nothing_in_it_is_new(layout: Layout) -> None:
    part = sealed(layout)
    drafts = [
        layout.checkpoint("rl", 8).with_name("step-8.partial"),
        layout.states("rl") / "step-00000008.partial",
    ]
    remnants = [draft / "model.safetensors" for draft in drafts]
    remnants.append(layout.checkpoint("rl", 4) / "0123.partial")
    for remnant in remnants:
        remnant.parent.mkdir(parents=True)
        remnant.write_bytes(b"half a file")
    changed = time.time() - seal.IDLE_HOURS * 3600 - 60
    for draft in drafts:
        os.utime(draft, (changed, changed))
    clean(layout)
    assert all(remnant.exists() for remnant in remnants)
    for remnant in remnants:
        os.utime(remnant, (changed, changed))
    done = clean(layout)
    assert {*done.removed} == {*drafts, remnants[-1]}
    assert done.freed == 3 * len(b"half a file")
    assert not any(draft.exists() for draft in drafts)
    assert [*layout.checkpoint("rl", 4).iterdir()] == []
    assert part.exists()
