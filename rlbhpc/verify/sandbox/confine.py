"""What a program loses before it runs: rights, files, the network, other processes, memory."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
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
# Descriptors of a process.
MOST_OPEN: Final = 256


def drop_root() -> bool:
    """Become a user that owns nothing, if this is root; whether the identity changed.

    Each process takes an id of its own, so limits that the kernel counts per user count it alone.
    In a container that maps a single user there is no other id to take: root is then the user who
    started the container, and only the capabilities can be given up.
    """
    if os.geteuid() != 0:
        return False
    with suppress(PermissionError):
        os.setgroups([])
    for identity in (_SPARE_IDS + os.getpid(), _NOBODY):
        with suppress(OSError):
            os.setresgid(identity, identity, identity)
            os.setresuid(identity, identity, identity)
            return True
    return False


def _prctl(option: int, argument: int) -> None:
    syscall("prctl", option, argument, 0, 0, 0)


def gain_nothing() -> None:
    """Forbid that any later step gains rights: no set-user-id programs, no capabilities."""
    set_no_new_privs, capabilities_version = 38, 0x20080522
    _prctl(set_no_new_privs, 1)
    header = ctypes.create_string_buffer(struct.pack("=Ii", capabilities_version, 0))
    syscall("capset", header, ctypes.create_string_buffer(24))


def set_traceable(traceable: bool) -> None:
    """Let other processes of the same user look into this one's memory and ``/proc``, or not."""
    set_dumpable = 4
    _prctl(set_dumpable, int(traceable))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends, however it ends."""
    set_death_signal = 1
    _prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def set_limits(limits: Mapping[int, int]) -> None:
    """Set hard and soft resource limits together, never above the hard limit in force."""
    for which, wanted in limits.items():
        _, hard = resource.getrlimit(which)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (value, value))


def program_limits(cpu: float, memory: int, threads: int | None) -> dict[int, int]:
    """Resource limits of one program under test.

    ``cpu``: seconds of processor time. The kernel counts whole seconds, so this is the second line:
    the supervisor's own clock comes first. ``memory``: bytes of address space. ``threads``: most
    threads of the program, where the kernel counts them for this program alone.
    """
    limits = {
        resource.RLIMIT_CPU: int(cpu) + 2,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: 16 * MIB,
        resource.RLIMIT_NOFILE: MOST_OPEN,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 1024,
        # Deep recursion is honest. The kernel leaves at least this much room below the stack.
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


def handled(abi: int) -> list[int]:
    """Fields of ``struct landlock_ruleset_attr`` that a version of the interface knows."""
    fields = [(1 << _FILE_RIGHTS.get(abi, _NEWEST_FILE_RIGHTS)) - 1]
    if abi >= 4:
        fields.append(_TCP)
    if abi >= 6:
        fields.append(_SCOPES)
    return fields


def landlock_ruleset(allowed: Mapping[Path, int]) -> int:
    """Make a rule set that refuses every file but the allowed ones.

    ``allowed``: rights by path; those on a folder hold for all below it. Paths that don't exist are
    left out. Gives the descriptor of the rule set, for :func:`restrict_files`.
    """
    fields = handled(landlock_version())
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    rules = syscall("landlock_create_ruleset", buffer, len(attributes), 0)
    for path, rights in allowed.items():
        if path.exists():
            _allow_below(rules, path, rights & fields[0])
    return rules


def _allow_below(rules: int, path: Path, rights: int) -> None:
    """Add one ``struct landlock_path_beneath_attr`` to a rule set."""
    path_beneath = 1
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        attribute = struct.pack("=Qi", rights, target)
        buffer = ctypes.create_string_buffer(attribute, len(attribute))
        syscall("landlock_add_rule", rules, path_beneath, buffer, 0)
    finally:
        os.close(target)


def restrict_files(rules: int) -> None:
    """Put the calling thread under a rule set, for good."""
    syscall("landlock_restrict_self", rules, 0)


# --- namespaces and a private root ---------------------------------------------------------------

# Everything here works without privileges where the site allows user namespaces. Any failure is an
# :class:`OSError`, which the caller takes as "not available here". Flags are those of
# linux/sched.h and linux/mount.h.

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


def enter_namespaces() -> None:
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


# --- a control group, where the site lends one ---------------------------------------------------

# Slurm and systemd own the tree; a job step is rarely given a part of it. So this tries, and takes
# any refusal as "not here".

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def join_new_control_group() -> Path | None:
    """Move the calling process into a new group with limits; the group, or ``None``.

    The memory is that of all processes together, files in memory and kernel memory included.
    """
    try:
        own = Path("/proc/self/cgroup").read_text().partition("0::/")[2].partition("\n")[0]
        parent = _CONTROL_GROUPS / own
        lent = (parent / "cgroup.subtree_control").read_text().split()
        if not {"memory", "pids"}.issubset(lent):
            return None
        group = parent / f"rlbhpc-{os.getpid()}"
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "memory.max").write_text("5G")
        (group / "pids.max").write_text("512")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group


# --- the folder that a program may write to ------------------------------------------------------

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


def make_scratch(candidates: Sequence[str]) -> str:
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


def scratch_fits(folder: str) -> bool:
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


def empty_scratch(folder: str) -> None:
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
