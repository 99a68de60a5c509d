"""Fewer mappings for each fork to copy: the five of a shared library made two.

A supervisor with every extension module and NumPy has 560, and a third of a run's time goes into
copying and removing them. The loader maps a file piece by piece, by what may be done to each; the
kernel joins neighbours that allow the same. So constants become executable, and what is read-only
after relocation becomes writable. A program gains nothing: its filter lets it change this itself.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from pathlib import Path
from typing import Final

_READ, _WRITE, _EXECUTE = 1, 2, 4
_libc: Final = ctypes.CDLL(None)


def join() -> None:
    """Join what is mapped of each library; before any fork, after which data can't be joined."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    for (span, rights, *_, file), following in pairwise(lines):
        if rights == "r--p" and ".so" in file:
            # Constants lie before or behind code, relocated data before variables.
            relocated = following[1] == "rw-p" and following[-1] == file
            start, end = (int(address, 16) for address in span.split("-"))
            more = _WRITE if relocated else _EXECUTE
            _libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _READ | more)
