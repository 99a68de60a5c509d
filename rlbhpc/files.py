"""File operations that hold on network file systems and through a kill at any instruction.

There are no locks anywhere: a file has one writer, a new name comes from an exclusive create, and
a whole file appears under its final name by a rename. A rename whose reply was lost reports
failure although it happened, and a handle may be stale for a moment (NFS), so "failed" is
believed only after looking at the target.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from rlbhpc.errors import TRY_AGAIN, USAGE, UserError

T = TypeVar("T")

#: Ending of a file that is still being written. Whoever finds an old one may ignore it.
PARTIAL: Final = ".partial"

_DISK_IS_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN: Final = {errno.EACCES, errno.EPERM}
_WRONG_PATH: Final = {
    errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
_MAY_PASS: Final = {errno.ESTALE, errno.ENOENT}
_MAX_TRIES: Final = 4
# Bytes that are collected before they are written.
_BUFFER_BYTES: Final = 4 << 20


def describe_error(error: OSError) -> str:
    """Describe an error of a file system in words and by its code."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} ({errno.errorcode.get(error.errno, '?')})"


def explain(error: OSError, path: Path, consequence: str = "") -> UserError:
    """Turn an error of a file system into one line for the user, with what to do next.

    ``consequence``: what the error means for the command, put behind the description. The exit code
    is ``TRY_AGAIN`` if the same command may work later, else ``USAGE``.
    """
    exit_code = TRY_AGAIN
    if error.errno in _DISK_IS_FULL:
        advice = "free space or raise the quota, then give the same command again"
    elif error.errno == errno.EROFS:
        advice = "make the folder writable, then give the same command again"
    elif error.errno in _FORBIDDEN:
        advice = "ask its owner for the right to use it, then give the same command again"
        exit_code = USAGE
    elif error.errno in _WRONG_PATH:
        advice = "give another path"
        exit_code = USAGE
    else:
        advice = "when the file system is well, give the same command again"
    return UserError(f"{path}: {describe_error(error)}{consequence}; {advice}", exit_code)


def create(path: Path) -> int:
    """Create a file that must not exist yet, and return its descriptor for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``; after any failure the file ends at ``offset`` again.

    A short write (a disk that fills up, a signal) is continued, which then either works or says
    why not.
    """
    try:
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, data[written:], offset + written)
    except BaseException:
        # Readers skip an incomplete end anyway, but a file without one is easier to look at.
        with suppress(OSError):
            os.ftruncate(fd, offset)
        raise


class Sink:
    """A new file, written from start to end in large pieces; synced when it is closed."""

    def __init__(self, path: Path) -> None:
        self._fd = create(path)
        self._buffer = bytearray()
        self._written = 0
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Take all of it or raise."""
        self._buffer += data
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()
        return len(data)

    def tell(self) -> int:
        """Bytes taken so far."""
        return self._written + len(self._buffer)

    def flush(self) -> None:
        """Write what is still in the buffer."""
        write_at(self._fd, bytes(self._buffer), self._written)
        self._written += len(self._buffer)
        self._buffer.clear()

    def close(self) -> None:
        """Write what is left, wait until the disk has it, and close the file; done once."""
        if not self.closed:
            self.closed = True
            try:
                self.flush()
                os.fsync(self._fd)
            finally:
                os.close(self._fd)  # on NFS, this may be the first to report a failed write

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk: they then survive the loss of the node."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network file systems do not sync folders; their server orders renames itself.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(fd)


def partial_path(folder: Path) -> Path:
    """Make up a name for a file that is still being written."""
    return folder / f"{uuid.uuid4().hex}{PARTIAL}"


@contextmanager
def temporary_path(folder: Path) -> Iterator[Path]:
    """Give a name for a file that is still being written; the file is removed at the end.

    One that was published has another name by then, so nothing is removed.
    """
    path = partial_path(folder)
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink()


@contextmanager
def atomic_writer(path: Path) -> Iterator[Sink]:
    """Write a file that appears under its name complete and synced, or not at all.

    Gives a :class:`Sink` to write to. It writes to a file under a temporary name, which is renamed
    at the end of the block. Errors of the file system are told to the user.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(path.parent) as unpublished:
            with Sink(unpublished) as sink:
                yield sink
            publish(unpublished, path)
    except OSError as error:
        raise explain(error, path) from error


def put(path: Path, data: bytes) -> None:
    """Write a file that appears under its name complete and synced."""
    with atomic_writer(path) as sink:
        sink.write(data)


def publish(unpublished: Path, final_path: Path) -> None:
    """Give a finished, synced file its final name, and make that name last.

    A failed rename counts as done if the target is the very file that was to be renamed (the same
    inode): only the file server's reply was lost. Errors that may pass are tried again, after a
    wait.
    """
    inode = unpublished.stat().st_ino
    for attempt in range(_MAX_TRIES):
        try:
            unpublished.rename(final_path)
            break
        except OSError as error:
            if _inode(final_path) == inode:
                break
            if error.errno not in _MAY_PASS or attempt == _MAX_TRIES - 1:
                raise explain(error, final_path) from error
            _wait_before_retry(attempt)
    sync_folder(final_path.parent)


def _wait_before_retry(attempt: int) -> None:
    """Wait longer after each attempt, of which the first is number 0: 0.1, 0.4, 1.6 seconds."""
    time.sleep(0.1 * 4**attempt)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def retry_stale(read: Callable[[], T]) -> T:
    """Call ``read`` and return its result; try again while the file's handle is stale.

    On NFS a handle is stale for a moment after another node has replaced the file.
    """
    for attempt in range(_MAX_TRIES):
        try:
            return read()
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _MAX_TRIES - 1:
                raise
            _wait_before_retry(attempt)
    raise AssertionError("unreachable")


@contextmanager
def open_descriptor(path: Path) -> Iterator[int]:
    """Open a file for reading, and give its descriptor for the length of the block.

    Raises :class:`FileNotFoundError` when another node removes or replaces the file meanwhile: the
    handle is then stale for good (NFS).
    """
    fd = retry_stale(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield fd
    except OSError as error:
        if error.errno != errno.ESTALE:
            error.filename = error.filename or str(path)
            raise
        raise FileNotFoundError(errno.ENOENT, "removed while it was read", str(path)) from error
    finally:
        os.close(fd)


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Return ``size`` bytes of an open file from ``offset`` on; fewer only at the end of the file.

    One call to the system may return less than is there, so it is repeated.
    """
    data = os.pread(fd, size, offset)
    while len(data) < size:
        next_bytes = os.pread(fd, size - len(data), offset + len(data))
        if not next_bytes:
            break
        data += next_bytes
    return data


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_names(folder: Path, ending: str) -> list[str]:
    """Sorted names in a folder with one ending; none if there is no folder."""
    try:
        names = retry_stale(lambda: [path.name for path in folder.iterdir()])
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(ending))
