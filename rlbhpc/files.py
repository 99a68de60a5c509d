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

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN: Final = {errno.EACCES, errno.EPERM}
_NO_SUCH_PLACE: Final = {
    errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
_PASSING: Final = {errno.ESTALE, errno.ENOENT}
_TRIES: Final = 4
_PIECE: Final = 4 << 20


def cause(error: OSError) -> str:
    """What a file system says, in words and by its code."""
    if error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} ({errno.errorcode.get(error.errno, '?')})"


def explain(error: OSError, path: Path, after: str = "") -> UserError:
    """One clear line for what a file system refuses, and an exit code: come again, or change it."""
    code = TRY_AGAIN
    if error.errno in _FULL:
        do = "free space or raise the quota, then give the same command again"
    elif error.errno == errno.EROFS:
        do = "make the folder writable, then give the same command again"
    elif error.errno in _FORBIDDEN:
        do = "ask its owner for the right to use it, then give the same command again"
        code = USAGE
    elif error.errno in _NO_SUCH_PLACE:
        do = "give another path"
        code = USAGE
    else:
        do = "when the file system is well, give the same command again"
    return UserError(f"{path}: {cause(error)}{after}; {do}", code)


def create(path: Path) -> int:
    """Create a file that must not exist yet, for reading and writing; its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at ``offset``; after any failure the file ends at ``offset`` again.

    A short write (a disk that fills up, a signal) is continued, which then either works or says
    why not.
    """
    try:
        done = os.pwrite(fd, data, offset)
        while done < len(data):
            done += os.pwrite(fd, data[done:], offset + done)
    except BaseException:
        # Cutting off the torn tail is a courtesy: a reader finds its end in any case.
        with suppress(OSError):
            os.ftruncate(fd, offset)
        raise


class Sink:
    """A new file, written from start to end in large pieces; synced when it is closed."""

    def __init__(self, path: Path) -> None:
        self._fd = create(path)
        self._held = bytearray()
        self._written = 0
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Take all of it or raise."""
        self._held += data
        if len(self._held) >= _PIECE:
            self.flush()
        return len(data)

    def tell(self) -> int:
        """Bytes taken so far."""
        return self._written + len(self._held)

    def flush(self) -> None:
        """Write what is held back."""
        write_at(self._fd, bytes(self._held), self._written)
        self._written += len(self._held)
        self._held.clear()

    def close(self) -> None:
        """Write the rest, sync and close, once."""
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
    """Make the names in a folder survive the loss of the node."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network file systems do not sync folders; their server orders renames itself.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(fd)


def partial(folder: Path) -> Path:
    """Invent a name for a file in the making."""
    return folder / f"{uuid.uuid4().hex}{PARTIAL}"


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Name a file in the making; if it was not published, it is removed where that is possible."""
    path = partial(folder)
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[Sink]:
    """Write a file whole: synced, under its name in one step, or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with making(path.parent) as partial_path:
            with Sink(partial_path) as sink:
                yield sink
            publish(partial_path, path)
    except OSError as error:
        raise explain(error, path) from error


def put(path: Path, data: bytes) -> None:
    """Write a file whole: synced, under its name in one step."""
    with writing(path) as sink:
        sink.write(data)


def publish(partial_path: Path, final: Path) -> None:
    """Give a finished, synced file its final name.

    A failed rename counts as done if the target is the very file that was to be renamed: its
    reply was lost on the way.
    """
    inode = partial_path.stat().st_ino
    for attempt in range(_TRIES):
        try:
            partial_path.rename(final)
            break
        except OSError as error:
            if _inode(final) == inode:
                break
            if error.errno not in _PASSING or attempt == _TRIES - 1:
                raise explain(error, final) from error
            time.sleep(0.1 * 4**attempt)
    sync_folder(final.parent)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def retrying(read: Callable[[], T]) -> T:
    """Read, and try again while the handle is stale (NFS, after the file was replaced)."""
    for attempt in range(_TRIES):
        try:
            return read()
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _TRIES - 1:
                raise
            time.sleep(0.1 * 4**attempt)
    raise AssertionError("unreachable")


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """Descriptor of a file for reading.

    Raises :class:`FileNotFoundError` when another node removes or replaces the file meanwhile: the
    handle is then stale for good (NFS).
    """
    fd = retrying(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
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
    """Bytes at an offset, fewer only at the end of the file."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def names(folder: Path, ending: str) -> list[str]:
    """Sorted names in a folder with one ending; none if there is no folder."""
    try:
        entries = retrying(lambda: [path.name for path in folder.iterdir()])
        return sorted(name for name in entries if name.endswith(ending))
    except FileNotFoundError:
        return []
