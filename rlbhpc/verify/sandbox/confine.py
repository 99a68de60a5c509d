"""What a program loses before it runs: rights, files, the network, other processes, memory."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from rlbhpc.verify.sandbox.syscalls import syscall

# --- identity, capabilities, resource limits -----------------------------------------------------

MIB: Final = 1 << 20
# Ids above every directory service's range: nobody owns files or runs jobs as these.
_SPARE_IDS: Final = 0x70000000
_NOBODY: Final = 65534
# Most descriptors that a process may have open.
MAX_OPEN_FILES: Final = 256


def drop_root() -> bool:
    """Become a user that owns nothing, if this is root. Returns whether the user id changed.

    Each process takes an id of its own, so limits that the kernel counts per user count it alone.
    In a container that maps a single user there is no other id to take: root is then the user who
    started the container, and only the capabilities can be given up.
    """
    if os.geteuid() != 0:
        return False
    with suppress(PermissionError):
        os.setgroups([])
    for user_id in (_SPARE_IDS + os.getpid(), _NOBODY):
        with suppress(OSError):
            os.setresgid(user_id, user_id, user_id)
            os.setresuid(user_id, user_id, user_id)
            return True
    return False


def _prctl(option: int, argument: int) -> None:
    syscall("prctl", option, argument, 0, 0, 0)


def gain_nothing() -> None:
    """Forbid that any later step gains rights: no set-user-id programs, no capabilities.

    The header and the 24 zero bytes are the two structures that ``capset(2)`` takes: version and
    process, then three 32-bit sets of capabilities, twice.
    """
    set_no_new_privs = 38
    _prctl(set_no_new_privs, 1)
    capabilities_version = 0x20080522
    this_process = 0
    header = ctypes.create_string_buffer(struct.pack("=Ii", capabilities_version, this_process))
    no_capabilities = ctypes.create_string_buffer(24)
    syscall("capset", header, no_capabilities)


def set_traceable(traceable: bool) -> None:
    """Let other processes of the same user look into this one's memory and ``/proc``, or not."""
    set_dumpable = 4
    _prctl(set_dumpable, int(traceable))


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends."""
    set_death_signal = 1
    _prctl(set_death_signal, signal.SIGKILL)
    # The parent may have ended before.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def set_limits(limits: Mapping[int, int]) -> None:
    """Set hard and soft resource limits together, never above the hard limit in force."""
    for kind, limit in limits.items():
        _, hard_limit = resource.getrlimit(kind)
        if hard_limit != resource.RLIM_INFINITY:
            limit = min(limit, hard_limit)
        resource.setrlimit(kind, (limit, limit))


def program_limits(cpu_seconds: float, memory: int, threads: int | None) -> dict[int, int]:
    """Return the kernel's resource limits of one program under test, for :func:`set_limits`.

    ``cpu_seconds``: what the program may use. The kernel's own limit is two seconds later and only
    a last resort: it counts whole seconds, and the process that watches the program ends it first.
    ``memory``: bytes of address space. ``threads``: most threads of the program; None where the
    kernel doesn't count them for this program alone.
    """
    limits = {
        resource.RLIMIT_CPU: int(cpu_seconds) + 2,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: 16 * MIB,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 1024,
        # Honest programs recurse deeply. The kernel keeps this much room free below the stack.
        resource.RLIMIT_STACK: 128 * MIB,
    }
    if threads is not None:
        limits[resource.RLIMIT_NPROC] = threads
    return limits


# --- Landlock: which files a process may touch ---------------------------------------------------

# Structures and bits are those of linux/landlock.h. A version of the interface that knows
# less confines less, so the version is part of the tier report; what it lacks is refused
# by the seccomp filter (truncation by path, sockets, signals).

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


def landlock_version() -> int:
    """Version of the kernel's Landlock interface, 0 where there is none."""
    ask_version = 1
    try:
        return syscall("landlock_create_ruleset", None, 0, ask_version)
    except OSError:
        return 0


def ruleset_fields(version: int) -> list[int]:
    """Return the fields of ``struct landlock_ruleset_attr`` that a version of Landlock knows.

    Landlock is the kernel's way to restrict a process's own access to files. Each field is a bit
    mask of what the rules refuse unless they allow it: first rights on files, where each version
    knows some more; from version 4 on rights on TCP ports; from version 6 on scopes (other
    processes' sockets and signals).
    """
    right_count = _FILE_RIGHTS.get(version, _NEWEST_FILE_RIGHTS)
    fields = [(1 << right_count) - 1]
    if version >= 4:
        fields.append(_TCP)
    if version >= 6:
        fields.append(_SCOPES)
    return fields


def landlock_ruleset(allowed: Mapping[Path, int]) -> int:
    """Make a Landlock rule set that refuses every file but the allowed ones.

    ``allowed``: for each path the bit mask of rights on it; those on a folder hold for all below
    it. Paths that don't exist are left out, and so are rights that this kernel doesn't know.
    Returns the descriptor of the rule set, which :func:`restrict_files` puts in force.
    """
    fields = ruleset_fields(landlock_version())
    known_rights = fields[0]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = syscall("landlock_create_ruleset", buffer, len(attributes), 0)
    for path, rights in allowed.items():
        if path.exists():
            _allow_below(ruleset, path, rights & known_rights)
    return ruleset


def _allow_below(ruleset: int, path: Path, rights: int) -> None:
    """Allow ``rights``, a bit mask, on a path and all below it, in a Landlock rule set.

    ``ruleset``: descriptor of the rule set. The rule is a ``struct landlock_path_beneath_attr``:
    the rights (64 bits) and a descriptor of the path (32 bits).
    """
    path_beneath = 1
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        attribute = struct.pack("=Qi", rights, target)
        buffer = ctypes.create_string_buffer(attribute, len(attribute))
        syscall("landlock_add_rule", ruleset, path_beneath, buffer, 0)
    finally:
        os.close(target)


def restrict_files(ruleset: int) -> None:
    """Put the calling thread under a rule set, for good."""
    syscall("landlock_restrict_self", ruleset, 0)


# --- namespaces and a private root ---------------------------------------------------------------

# Everything here works without privileges where the site allows user namespaces. Any failure is an
# :class:`OSError`, which the caller takes as "not available here". Flags are those of
# linux/sched.h and linux/mount.h.

# CLONE_NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_NEW_NAMESPACES: Final = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _MOVE, _RECURSIVE, _PRIVATE = 4096, 8192, 16384, 1 << 18
_DETACH: Final = 2
# User and group id of programs, as they see it.
_INNER_ID: Final = 1000

SCRATCH: Final = Path("/tmp")
DEVICES: Final = tuple(Path("/dev") / name for name in ("null", "zero", "random", "urandom"))


def _mount(source: str, target: Path, file_system: str, flags: int, options: str = "") -> None:
    """Call ``mount(2)``; source and file system are "none" where they don't matter."""
    syscall("mount", source.encode(), bytes(target), file_system.encode(), flags, options.encode())


def enter_namespaces() -> None:
    """Move the calling process into namespaces of its own.

    The process id namespace takes effect for the next child, which becomes its first process: when
    that one ends, the kernel kills all others in it.
    """
    user, group = os.geteuid(), os.getegid()
    syscall("unshare", _NEW_NAMESPACES)
    # The kernel takes a map of groups only once setgroups() is denied.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_INNER_ID} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{_INNER_ID} {group} 1")


def private_root(scratch_bytes: int, scratch_files: int) -> None:
    """Replace the file system by an empty read-only one with a scratch folder and four devices.

    The scratch folder is ``/tmp``, the one place that programs may write to. ``scratch_bytes``,
    ``scratch_files``: what fits into it. The process must have mounts of its own already (a
    namespace). The new root is built over ``/tmp`` of the old one and then becomes ``/``; the
    devices are opened before, since their paths are hidden then.
    """
    # From here on no change of a mount spreads to other namespaces.
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
        f"size={scratch_bytes},nr_inodes={scratch_files},mode=700",
    )  # fmt: skip
    _change_root()
    _mount("none", Path("/"), "none", _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEV)
    os.chdir(SCRATCH)


def _bind_devices(devices: Iterable[tuple[Path, int]]) -> None:
    """Mount devices, given by path and open descriptor, below the folder ``dev``."""
    for path, descriptor in devices:
        mount_point = Path("dev") / path.name
        mount_point.touch()
        _mount(f"/proc/self/fd/{descriptor}", mount_point, "none", _BIND)
        os.close(descriptor)


def _change_root() -> None:
    """Make the working folder the root of the file system, and let go of the old root."""
    try:
        # With one folder as both arguments the old root comes to lie over the new one, and goes.
        syscall("pivot_root", b".", b".")
        syscall("umount2", b".", _DETACH)
    except OSError:
        # A root that is itself an initial RAM file system can't be pivoted away from, only covered.
        _mount(".", Path("/"), "none", _MOVE)
        os.chroot(".")
    os.chdir("/")


# --- the folder that a program may write to ------------------------------------------------------

MAX_SCRATCH_BYTES: Final = 64 << 20
MAX_SCRATCH_FILES: Final = 1000
# f_type of statfs(2): NFS, SMB, SMB2, CIFS, AFS, CEPH, LUSTRE, GPFS, PANFS, BeeGFS, FUSE, 9P
_NETWORK_FILE_SYSTEMS: Final = {
    0x6969, 0x517B, 0xFE534D42, 0xFF534D42, 0x5346414F, 0x00C36400, 0x0BD00BD0, 0x47504653,
    0xAAD7AAEA, 0x19830326, 0x65735546, 0x01021997,
}  # fmt: skip


def is_on_network(folder: str) -> bool:
    """Return whether a folder is on a shared file system, where many small writes hurt others."""
    libc = ctypes.CDLL(None)
    # struct statfs begins with the type of the file system.
    buffer = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(folder), buffer):
        return True
    return ctypes.c_uint32.from_buffer(buffer).value in _NETWORK_FILE_SYSTEMS


def make_scratch(parent_folders: Sequence[str]) -> str:
    """Make a new folder for programs to write to, below the first suitable parent, and return it.

    A parent is suitable if it is on a local disk and can be written to. Raises ``OSError`` if none
    is.
    """
    for parent in parent_folders:
        with suppress(OSError):
            if not is_on_network(parent):
                folder = Path(parent, f"rlbhpc-run-{os.urandom(8).hex()}")
                folder.mkdir(mode=stat.S_IRWXU)
                return str(folder)
    tried = ", ".join(filter(None, parent_folders))
    raise OSError(errno.EROFS, f"no local folder to write to among {tried}")


def scratch_fits(folder: str) -> bool:
    """Return whether the content of a folder keeps to the size and number of files allowed.

    Called for the scratch folder while a program that writes to it runs. The size is what the files
    take on the disk, which the kernel counts in blocks of 512 bytes.
    """
    block_bytes = 512
    total_bytes = file_count = 0
    pending = [folder]
    # The program is still running, so a folder may vanish.
    with suppress(OSError):
        while pending:
            for entry in os.scandir(pending.pop()):
                file_count += 1
                if file_count > MAX_SCRATCH_FILES:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    total_bytes += entry.stat(follow_symlinks=False).st_blocks * block_bytes
    return total_bytes <= MAX_SCRATCH_BYTES


def empty_scratch(folder: str) -> None:
    """Remove everything below a folder, whatever a program has put there; raise if anything stays.

    Folders may be nested deeper than any path is long, and may forbid looking inside. So each
    folder is made accessible, its sub-folders are moved to the top, and then it is removed. Links
    are removed and never followed: nobody else changes the folder meanwhile.
    """
    new_names = (Path(folder, f"\r{number}") for number in count())
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_folder(entry.path, new_names)
            else:
                Path(entry.path).unlink()


def _remove_folder(folder: str, new_names: Iterator[Path]) -> None:
    """Remove a folder and its files, after moving its sub-folders away to the next ``new_names``.

    The rights are set first, since a program may have taken away those to look inside.
    """
    Path(folder).chmod(stat.S_IRWXU)
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            path.chmod(stat.S_IRWXU)
            path.rename(next(new_names))
        else:
            path.unlink()
    Path(folder).rmdir()
