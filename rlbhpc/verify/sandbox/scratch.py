"""The folder that a program may write to: where it is, whether it has grown too much, emptying."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 64 << 20
MOST_FILES: Final = 1000
# f_type of statfs(2): NFS, SMB, SMB2, CIFS, AFS, CEPH, LUSTRE, GPFS, PANFS, BeeGFS, FUSE, 9P
_ON_A_NETWORK: Final = {
    0x6969, 0x517B, 0xFE534D42, 0xFF534D42, 0x5346414F, 0x00C36400, 0x0BD00BD0, 0x47504653,
    0xAAD7AAEA, 0x19830326, 0x65735546, 0x01021997,
}  # fmt: skip


def _on_a_network(folder: str) -> bool:
    """Whether a folder is on a shared file system, where a million small writes hurt others."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(folder), buffer):
        return True
    return ctypes.c_uint32.from_buffer(buffer).value in _ON_A_NETWORK


def make(candidates: Sequence[str]) -> str:
    """Make a new folder below the first candidate that is local and can be written to."""
    for candidate in candidates:
        with suppress(OSError):
            if not _on_a_network(candidate):
                folder = Path(candidate, f"rlbhpc-run-{os.urandom(8).hex()}")
                folder.mkdir(mode=stat.S_IRWXU)
                return str(folder)
    raise OSError(
        errno.EROFS, f"no local folder to write to among {', '.join(filter(None, candidates))}"
    )


def fits(folder: str) -> bool:
    """Whether what lies below a folder keeps to the size and number of files allowed."""
    size = files = 0
    todo = [folder]
    with suppress(OSError):
        while todo:
            for entry in os.scandir(todo.pop()):
                files += 1
                if files > MOST_FILES:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size <= MOST_BYTES


def empty(folder: str) -> None:
    """Remove all below a folder, whatever a program has put there; raise if anything stays.

    Folders may be nested deeper than any path is long, and may forbid looking inside. So a folder
    is opened up, its sub-folders are moved to the top, and only then it goes. Links are removed
    and never followed: nobody else changes the folder meanwhile.
    """
    numbers = count()
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
                continue
            Path(entry.path).chmod(stat.S_IRWXU)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    Path(inner.path).chmod(stat.S_IRWXU)
                    Path(inner.path).rename(Path(folder, f"\r{next(numbers)}"))
                else:
                    Path(inner.path).unlink()
            Path(entry.path).rmdir()
