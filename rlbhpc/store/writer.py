"""Append finished samples to a journal: one writer, one file, one write per sample.

``append`` returns when the kernel has the sample, so that it survives the death of the process.
The file is synced every few seconds and when the writer is closed, which bounds what the death
of a node can take. Format: :mod:`rlbhpc.store.frames`.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final, NoReturn, Self

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import body, frames
from rlbhpc.store.sample import Sample
from rlbhpc.study.keys import Cell

log = logging.getLogger(__name__)

#: Ending of a journal's name.
ENDING: Final = ".journal"

# Whichever comes first ends a block. More samples per block make the tail that a crash leaves
# without index longer; fewer make more blocks to collect. The bytes bound the search for the
# last block.
_BLOCK_SAMPLES: Final = 1024
_BLOCK_BYTES: Final = 32 << 20


class JournalWriter:
    """The one writer of ``<folder>/<attempt>.journal``.

    The file appears with the first sample. ``attempt`` must be new: a name that exists belongs
    to another writer and is refused.

    ``appended``: samples that were acknowledged.
    """

    def __init__(self, folder: Path, attempt: str, *, sync_seconds: float = 5.0) -> None:
        self.path = folder / f"{attempt}{ENDING}"
        self.appended = 0
        self._sync_seconds = sync_seconds
        self._fd = -1
        self._failed: UserError | None = None
        self._salt = int.from_bytes(os.urandom(4), "little") or 1
        self._offset = 0
        self._synced = 0
        self._due = 0.0
        self._cells: dict[Cell, int] = {}
        self._block = frames.Block(frames.FILE_HEADER_SIZE)
        self._last_index = 0

    def append(self, sample: Sample) -> None:
        """Write one finished sample. When this returns, a killed process cannot lose it.

        Raises :class:`UserError` when the disk is full or fails. The journal then stays good up to
        its last acknowledged sample and takes no more.
        """
        self._refuse_after_failure()
        canonical = body.encode(sample)
        try:
            self._append(sample, canonical)
        except UserError:
            raise
        except BaseException:
            # An exception from outside (a signal handler) may have hit between two lines below;
            # the file is good, but what this object thinks of it may not be.
            self._failed = UserError(f"{self.path}: an append was interrupted; start a new attempt")
            raise

    def _append(self, sample: Sample, canonical: bytes) -> None:
        digest = body.digest(canonical)
        if self._fd < 0:
            self._create()
        key = sample.key
        cell = Cell(key.arm, key.step, key.problem, sample.fingerprint)
        number = self._cells.get(cell, len(self._cells))
        data = frames.sample_frame(self._salt, canonical, digest)
        self._write(data)
        if number == len(self._cells):
            self._cells[cell] = number
            self._block.cells.append(cell)
        self._block.add(data, number, self._offset, sample, digest)
        self._offset += len(data)
        self.appended += 1
        if len(self._block) >= _BLOCK_SAMPLES or self._offset - self._block.start >= _BLOCK_BYTES:
            self._write_index(closed=False)
        self.tick()

    def tick(self) -> None:
        """Sync if it is time. For loops that wait long between two samples."""
        if time.monotonic() >= self._due and self._fd >= 0:
            self.sync()

    def sync(self) -> None:
        """Make everything appended so far survive the loss of the node.

        Refuses to go on with a file that somebody removed while this process slept.
        """
        self._refuse_after_failure()
        if self._synced < self._offset:
            try:
                os.fsync(self._fd)
                removed = os.fstat(self._fd).st_nlink == 0
            except OSError as error:
                # The kernel may have dropped the unsynced pages: what it says next is no proof.
                self._fail(error, f"; safe on disk up to byte {self._synced}")
            if removed:
                self._failed = UserError(
                    f"{self.path} was removed while it was open; what came since is not stored; "
                    "give the same command again",
                    TRY_AGAIN,
                )
                raise self._failed
            self._synced = self._offset
        self._due = time.monotonic() + self._sync_seconds

    def close(self) -> None:
        """Write the last index, sync and close. The journal is then marked complete."""
        if self._fd < 0:
            return
        if not self._failed:
            self._write_index(closed=True)
            self.sync()
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)  # on NFS an error of the last writes may show only here
        except OSError as error:
            self._fail(error, f"; {self.appended} samples were written")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _create(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = files.create(self.path)
            files.sync_folder(self.path.parent)
            log.debug("journal %s", self.path)
        except FileExistsError as error:
            raise UserError(
                f"{self.path} exists: an attempt's name may be used once; start a new attempt"
            ) from error
        except OSError as error:
            self._fail(error, "")
        self._write(frames.file_header(self._salt))
        self._offset = frames.FILE_HEADER_SIZE
        self._due = time.monotonic() + self._sync_seconds

    def _write(self, data: bytes) -> None:
        try:
            files.write_at(self._fd, data, self._offset)
        except OSError as error:
            self._fail(
                error, f"; {self.appended} samples are stored, good up to byte {self._offset}"
            )

    def _write_index(self, *, closed: bool) -> None:
        data = self._block.frame(
            self._salt, self._offset, self._last_index, len(self._cells), closed=closed
        )
        self._write(data)
        self._last_index = self._offset
        self._offset += len(data)
        self._block = frames.Block(self._offset)

    def _fail(self, error: OSError, after: str) -> NoReturn:
        self._failed = files.explain(error, self.path, after)
        raise self._failed from error

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise UserError(str(self._failed), self._failed.code)
