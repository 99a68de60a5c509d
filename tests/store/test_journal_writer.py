"""When a journal's blocks end, when it is synced, and what its writer says of a disk that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.store import journal
from rlbhpc.store.journal import JournalWriter
from tests.store.kill_tasks import sample
from tests.store.test_journal import COUNT, numbers, written


def test_a_block_ends_with_its_samples_or_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_block = journal.read_index(written(tmp_path / "whole"))
    sizes = np.diff([*one_block.records["offset"].tolist(), one_block.spans[0].stop]).tolist()
    for folder, most, most_bytes in (("samples", 7, 1 << 30), ("bytes", 100, sum(sizes[:3]))):
        monkeypatch.setattr(journal, "_BLOCK_SAMPLES", most)
        monkeypatch.setattr(journal, "_BLOCK_BYTES", most_bytes)
        blocks: list[list[int]] = [[]]
        for size in sizes:
            blocks[-1].append(size)
            if len(blocks[-1]) == most or sum(blocks[-1]) >= most_bytes:
                blocks.append([])
        listed = journal.read_index(written(tmp_path / folder))
        assert [span.stop - span.start for span in listed.spans] == [*map(sum, blocks)]
        assert listed.records["sample"].tolist() == list(range(COUNT))


def test_a_journal_is_synced_when_it_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, synced, real = [0.0], [], os.fsync
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or real(fd))
    out = JournalWriter(tmp_path, "attempt")
    out.sync_if_due()
    # A writer that waits, at 30, has nothing new to sync; it looks again five seconds later.
    for second, count in ((0, 0), (4.9, 0), (5, 1), (9.9, 1), (10, 2), (30, 2), (34, 2), (35, 3)):
        now[0] = second
        if second != 30:
            out.append(sample(0, 0, int(second * 10)))
        out.sync_if_due()
        assert synced.count(out.path.stat().st_ino) == count, second
    out.close()


def test_an_error_that_shows_when_a_journal_is_closed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)  # no salt is 0, which damaged headers have
    path = written(tmp_path, 3, close=False)
    assert numbers(path) == [0, 1, 2]
    out = JournalWriter(tmp_path, "closed")
    out.append(sample(0, 0, 0))
    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match="safe on disk up to byte 0; give"),
    ):
        patch.setattr(os, "fsync", os.fchdir)  # fails: a journal is no folder
        out.sync()
    out = JournalWriter(tmp_path, "other")
    out.append(sample(0, 0, 0))
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, pytest.raises(UserError) as told:
        patch.setattr(os, "close", close)
        out.close()
    assert str(told.value).startswith(f"{out.path}: Input/output error (EIO); 1 samples were writ")
