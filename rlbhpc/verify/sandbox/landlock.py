"""Landlock: which files a process may touch, where the kernel has it (5.13 and later, if enabled).

Structures and bits are those of linux/landlock.h. A version of the interface that knows less
confines less, so the version is part of the tier report; what it lacks is refused by the seccomp
filter (truncation by path, sockets, signals).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rlbhpc.verify.sandbox.syscalls import syscall

_EXECUTE, _WRITE, _READ, _READ_FOLDER, _REMOVE_FOLDER, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_FOLDER, _MAKE_FILE, _MAKE_LINK = 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14
# Number of file rights that a version of the interface knows.
_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FILE_RIGHTS: Final = 16
_TCP: Final = 0b11  # bind, connect
_SCOPES: Final = 0b11  # abstract Unix sockets, signals

READ_FILE: Final = _READ
READ_WRITE_FILE: Final = _READ | _WRITE
WHOLE_FOLDER: Final = (
    _READ | _WRITE | _READ_FOLDER | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE_FOLDER | _MAKE_FILE
    | _MAKE_LINK | _REFER | _TRUNCATE
)  # fmt: skip


def version() -> int:
    """Version of the kernel's Landlock interface, 0 where there is none."""
    ask_version = 1
    try:
        return syscall("landlock_create_ruleset", None, 0, ask_version)
    except OSError:
        return 0


def handled(abi: int) -> list[int]:
    """Fields of ``struct landlock_ruleset_attr`` that a version of the interface knows."""
    fields = [(1 << _FILE_RIGHTS.get(abi, _NEWEST_FILE_RIGHTS)) - 1]
    if abi >= 4:
        fields.append(_TCP)
    if abi >= 6:
        fields.append(_SCOPES)
    return fields


def ruleset(allowed: Mapping[Path, int]) -> int:
    """Make a rule set that refuses every file but the allowed ones.

    ``allowed``: rights by path; those on a folder hold for all below it. Paths that don't exist are
    left out. Gives the descriptor of the rule set, for :func:`restrict`.
    """
    fields = handled(version())
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    rules = syscall("landlock_create_ruleset", buffer, len(attributes), 0)
    for path, rights in allowed.items():
        if path.exists():
            _allow(rules, path, rights & fields[0])
    return rules


def _allow(rules: int, path: Path, rights: int) -> None:
    """Add one ``struct landlock_path_beneath_attr`` to a rule set."""
    path_beneath = 1
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        attribute = struct.pack("=Qi", rights, target)
        buffer = ctypes.create_string_buffer(attribute, len(attribute))
        syscall("landlock_add_rule", rules, path_beneath, buffer, 0)
    finally:
        os.close(target)


def restrict(rules: int) -> None:
    """Put the calling thread under a rule set, for good."""
    syscall("landlock_restrict_self", rules, 0)
