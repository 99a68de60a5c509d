"""User, process, network, mount, IPC and host-name namespaces, and a private root.

Everything here works without privileges where the site allows user namespaces. Any failure is an
:class:`OSError`, which the caller takes as "not available here". Flags are those of linux/sched.h
and linux/mount.h.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rlbhpc.verify.sandbox.syscalls import syscall

# CLONE_NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_ALL: Final = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _MOVE, _RECURSIVE, _PRIVATE = 4096, 8192, 16384, 1 << 18
_DETACH: Final = 2
_INNER_ID: Final = 1000

SCRATCH: Final = Path("/tmp")
DEVICES: Final = tuple(Path("/dev") / name for name in ("null", "zero", "random", "urandom"))


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    syscall("mount", source.encode(), bytes(target), kind.encode(), flags, options.encode())


def enter() -> None:
    """Move the calling process into namespaces of its own.

    The process id namespace takes effect for the next child, which becomes its first process: when
    that one ends, the kernel kills all others in it.
    """
    user, group = os.geteuid(), os.getegid()
    syscall("unshare", _ALL)
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{_INNER_ID} {user} 1"),
        ("gid_map", f"{_INNER_ID} {group} 1"),
    ):
        Path("/proc/self", name).write_text(line)


def private_root(size: int, files: int) -> None:
    """Replace the file system by an empty read-only one with a scratch folder and four devices.

    ``size, files``: bytes and number of files that fit into the scratch folder.
    """
    _mount("none", Path("/"), "none", _RECURSIVE | _PRIVATE)
    devices = [(path, os.open(path, os.O_PATH)) for path in DEVICES if path.exists()]
    root = SCRATCH
    _mount("none", root, "tmpfs", _NO_SUID | _NO_DEV, "size=64k,nr_inodes=32,mode=755")
    os.chdir(root)
    Path("dev").mkdir()
    Path("tmp").mkdir()
    _bind_devices(devices)
    _mount(
        "none", Path("tmp"), "tmpfs", _NO_SUID | _NO_DEV | _NO_EXEC,
        f"size={size},nr_inodes={files},mode=700",
    )  # fmt: skip
    _change_root()
    _mount("none", Path("/"), "none", _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEV)
    os.chdir(SCRATCH)


def _bind_devices(devices: Iterable[tuple[Path, int]]) -> None:
    for path, descriptor in devices:
        place = Path("dev") / path.name
        place.touch()
        _mount(f"/proc/self/fd/{descriptor}", place, "none", _BIND)
        os.close(descriptor)


def _change_root() -> None:
    """Make the working folder the root and let go of the old one."""
    try:
        syscall("pivot_root", b".", b".")
        syscall("umount2", b".", _DETACH)
    except OSError:
        # A root that is itself an initial RAM file system can't be pivoted away from, only covered.
        _mount(".", Path("/"), "none", _MOVE)
        os.chroot(".")
    os.chdir("/")
