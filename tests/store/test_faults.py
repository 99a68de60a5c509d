"""Disks that fill up, file systems that fail or lie, and readers in the middle of it all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import checked, seal
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout
from tests.store import kill_tasks, made, reading
from tests.store.made import ARM, SET
from tests.store.test_journal import plain
from tests.store.test_scan import grid, right

_CONTEXT = multiprocessing.get_context("forkserver")


def child(work: Callable[..., None], *args: object) -> None:
    """Run in a process of its own, which may spoil its limits."""
    process = _CONTEXT.Process(target=work, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0


# --- the disk is full --------------------------------------------------------------------------


def _append_until_full(root: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    _fill(Layout(root), "EFBIG")


def _fill(layout: Layout, code: str) -> None:
    """Append until it fails; everything acknowledged is there, and the message says how far."""
    out = JournalWriter(layout.journals(ARM, SET), "one")
    done = 0
    with pytest.raises(UserError) as refused:
        for i in range(100_000):
            out.append(kill_tasks.sample(0, 0, i))
            done += 1
    told = str(refused.value)
    size = out.path.stat().st_size
    assert f"({code}); {done} samples are stored, good up to byte {size}; free space" in told
    assert refused.value.code == TRY_AGAIN
    with pytest.raises(UserError, match="samples are stored"):
        out.append(kill_tasks.sample(0, 0, 0))
    out.close()
    found = reading.read_journal(out.path)
    assert found.table["sample"].to_pylist() == list(range(done))
    assert not found.skipped
    assert done > 100


@pytest.mark.slow
def test_a_file_size_limit_stops_the_writer_with_the_last_good_byte(tmp_path: Path) -> None:
    child(_append_until_full, tmp_path, 200_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    made_it = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False
    )
    if made_it.returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_stops_writer_and_sealer_and_loses_nothing(small_disk: Path) -> None:
    layout = Layout(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    _fill(layout, "ENOSPC")
    rows = reading.rows(layout, ARM, SET).table
    asked = grid(1, rows.num_rows)
    before = {path: path.read_bytes() for path in layout.journals(ARM, SET).iterdir()}
    with pytest.raises(UserError, match=r"No space left on device \(ENOSPC\).*free space"):
        seal.seal(layout, ARM, SET, asked, "all")
    assert not list(layout.parts(ARM, SET).iterdir())
    assert {path: path.read_bytes() for path in layout.journals(ARM, SET).iterdir()} == before
    ballast.unlink()
    seal.seal(layout, ARM, SET, asked, "none")
    seal.gc(layout, ARM, SET, idle_hours=0)
    assert reading.rows(layout, ARM, SET).table.num_rows == rows.num_rows


def test_a_read_only_disk_is_read_and_refused(small_disk: Path) -> None:
    layout = Layout(small_disk)
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    seal.seal(layout, ARM, SET, grid(1), "all")
    made.journal(layout, [right(1, i) for i in range(4)], "two")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for write in (
        lambda: made.journal(layout, [right(0, 0)], "three"),
        lambda: seal.seal(layout, ARM, SET, grid(2), "all"),
        lambda: seal.gc(layout, ARM, SET),
        lambda: checked.write(layout.attempts / "a.json", {}),
    ):
        with pytest.raises(UserError, match=r"Read-only file system \(EROFS\); make the folder"):
            write()
    assert reading.rows(layout, ARM, SET).table.num_rows == 8


# --- the file system lies ----------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that were asked for; none is made."""
    asked: list[float] = []
    monkeypatch.setattr(files.time, "sleep", asked.append)
    return asked


def two_files(folder: Path) -> tuple[Path, Path]:
    (folder / "new").write_bytes(b"new")
    (folder / "final").write_bytes(b"old")
    return folder / "new", folder / "final"


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.ESTALE])
def test_a_rename_whose_reply_was_lost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    new, final = two_files(tmp_path)
    real = os.rename

    def lossy(a: Path, b: Path) -> None:
        real(a, b)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "rename", lossy)
    files.publish(new, final)
    assert final.read_bytes() == b"new"


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_a_passing_failure_of_a_rename_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], code: int
) -> None:
    new, final = two_files(tmp_path)
    real, failures = os.rename, iter([1, 1])

    def moody(a: Path, b: Path) -> None:
        if next(failures, 0):
            raise OSError(code, os.strerror(code))
        real(a, b)

    monkeypatch.setattr(os, "rename", moody)
    files.publish(new, final)
    assert final.read_bytes() == b"new"
    assert len(waits) == 2


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ENOSPC])
def test_a_lasting_failure_of_a_rename_is_told_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], code: int
) -> None:
    made.journal(Layout(tmp_path), [right(0, i) for i in range(4)], "one")

    def broken(a: Path, b: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(UserError, match=f"{errno.errorcode[code]}.*give the same command again"):
        seal.seal(Layout(tmp_path), ARM, SET, grid(1), "all")
    assert not list(Layout(tmp_path).parts(ARM, SET).iterdir())


def test_a_stale_handle_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    made.journal(Layout(tmp_path), [right(0, 0)], "one")
    real, failures = os.open, iter([1, 0, 1])

    def stale(*args: object, **kwargs: object) -> int:
        if next(failures, 0):
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", stale)
    assert reading.rows(Layout(tmp_path), ARM, SET).table.num_rows == 1
    assert len(waits) == 2


def test_a_journal_that_another_node_removes_is_found_among_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """On NFS its open handle is stale from then on, however often it is read."""
    layout = Layout(tmp_path)
    made.journal(layout, [right(0, i) for i in range(4)], "one")
    seal.seal(layout, ARM, SET, grid(1), "none")
    path = layout.journals(ARM, SET) / "one.journal"
    inode, real = path.stat().st_ino, os.pread

    def stale(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino != inode:
            return real(fd, size, offset)
        path.unlink(missing_ok=True)
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    tree = open_cube(tmp_path)
    assert int((tree[f"{ARM}/{SET}"].verdict >= 0).sum()) == 4


def test_a_failed_sync_is_told_with_what_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = JournalWriter(tmp_path, "one")
    out.append(right(0, 0))
    out.sync()
    safe = out.path.stat().st_size
    out.append(right(0, 1))

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(UserError, match=rf"\(EIO\); safe on disk up to byte {safe};"):
        out.sync()
    with pytest.raises(UserError, match="EIO"):
        out.append(right(0, 2))


def test_a_signal_in_the_middle_of_a_write_leaves_a_good_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = JournalWriter(tmp_path, "one")
    out.append(right(0, 0))
    real = os.pwrite

    def interrupted(fd: int, data: bytes, offset: int) -> int:
        real(fd, data[:30], offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "pwrite", interrupted)
        out.append(right(0, 1))
    with pytest.raises(UserError, match="an append was interrupted; start a new attempt"):
        out.append(right(0, 1))
    out.close()
    found = reading.read_journal(out.path, ["sample"])
    assert found.table["sample"].to_pylist() == [0]
    assert not found.skipped


def test_a_write_that_is_cut_short_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:100], at))
    wanted = made.samples(range(3), 4)
    made.journal(Layout(tmp_path), wanted, "one")
    found = reading.read_journal(Layout(tmp_path).journals(ARM, SET) / "one.journal")
    assert found.table["text"].to_pylist() == [sample.text for sample in wanted]


# --- bits flip ---------------------------------------------------------------------------------


def test_a_flipped_bit_in_any_file_is_found_or_harmless(tmp_path: Path, soak: bool) -> None:
    """A store with a part, a closed and a killed journal, a plan and an attempt's record."""
    layout = Layout(tmp_path)
    checked.write(layout.attempts / "attempt.json", {"shard": 1})
    grid(2).save(layout.grid(ARM, SET))
    made.journal(layout, made.samples([0], 4), "attempt")
    seal.seal(layout, ARM, SET, grid(1), "all")
    (layout.journals(ARM, SET) / "attempt.journal").unlink()
    made.journal(layout, made.samples([1], 4), "closed")
    killed = JournalWriter(layout.journals(ARM, SET), "killed")
    for i in range(4):
        killed.append(made.sample(2, i))
    whole = plain(reading.rows(layout, ARM, SET).table)
    key = {(row["problem"], row["sample"]): row for row in whole.to_pylist()}
    lot = random.Random(8)
    paths = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert {path.suffix for path in paths} == {".parquet", ".journal", ".json"}
    for _ in range(1000 if soak else 100):
        path = lot.choice(paths)
        data = path.read_bytes()
        flipped = bytearray(data)
        flipped[lot.randrange(len(data))] ^= 1 << lot.randrange(8)
        path.write_bytes(flipped)
        rows = reading.rows(layout, ARM, SET)
        found = plain(rows.table)
        assert rows.skipped or found.equals(whole), path
        for row in found.to_pylist():
            assert row == key[row["problem"], row["sample"]], path
        if path == layout.grid(ARM, SET):
            with pytest.raises(UserError, match="damaged"):
                Grid.load(path)
        path.write_bytes(data)


# --- readers beside writers, sealers and cleaners ----------------------------------------------


def _live(root: Path) -> None:
    kill_tasks.whole(root, lambda word: None)


def test_a_reader_never_sees_less_than_before(tmp_path: Path) -> None:
    """While a run appends, seals and cleans up, what was seen once stays to be seen."""
    process = _CONTEXT.Process(target=_live, args=(tmp_path,))
    process.start()
    seen = 0
    while process.is_alive():
        rows = reading.rows(Layout(tmp_path), ARM, SET, ["problem", "text"])
        assert rows.table.num_rows >= seen
        assert not rows.conflicts
        seen = rows.table.num_rows
    process.join()
    assert process.exitcode == 0
    total = kill_tasks.PROBLEMS * kill_tasks.N * len(kill_tasks.STEPS)
    assert reading.rows(Layout(tmp_path), ARM, SET).table.num_rows == total
