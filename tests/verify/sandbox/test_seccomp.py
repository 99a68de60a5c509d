"""The filters, run by a little interpreter, so that both architectures are checked on either."""

from __future__ import annotations

import errno
import struct

import pytest

from rlbhpc.verify.sandbox import seccomp
from rlbhpc.verify.sandbox.syscalls import AUDIT_ARCH, number

PID = 4242
ALLOW = "allow"
KILL = "kill"


def verdict(program: bytes, arch: int, call: int, *arguments: int) -> str | int:
    """Run a filter on one call: ``allow``, ``kill`` or the error number it gives."""
    program = program.replace((0x5EC0C0DE).to_bytes(4, "little"), PID.to_bytes(4, "little"))
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", call & 0xFFFFFFFF, arch, 0, *(w & (1 << 64) - 1 for w in words))
    loaded = at = 0
    while True:
        code, if_true, if_false, constant = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("<I", data, constant)
        elif code == 0x54:
            loaded &= constant
        elif code == 0x06:
            kind = constant & 0xFFFF0000
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(kind, constant & 0xFFFF)
        else:
            held = {0x15: loaded == constant, 0x35: loaded >= constant, 0x45: loaded & constant}
            at += if_true if held[code] else if_false


@pytest.fixture(params=AUDIT_ARCH)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def judged(machine: str, files: bool, name: str | int, *arguments: int) -> str | int:
    """What both filters say together: the stricter wins."""
    call = name if isinstance(name, int) else number(name, machine)
    assert call is not None
    arch = AUDIT_ARCH[machine]
    outer = verdict(seccomp.supervisor_filter(machine), arch, call, *arguments)
    inner = verdict(seccomp.program_filter(files, machine), arch, call, *arguments)
    return inner if outer == ALLOW else outer


# Of both tables, by number: none of these has any business in a program under test.
FORBIDDEN = {
    "x86_64": {
        "socket": 41, "connect": 42, "bind": 49, "listen": 50, "fork": 57, "vfork": 58,
        "execve": 59, "shmget": 29, "semget": 64, "msgget": 68, "truncate": 76, "creat": 85,
        "link": 86, "chmod": 90, "fchmod": 91, "chown": 92, "ptrace": 101, "syslog": 103,
        "setuid": 105, "setpgid": 109, "setsid": 112, "capset": 126, "rt_sigqueueinfo": 129,
        "utime": 132, "mknod": 133, "personality": 135, "setpriority": 141,
        "sched_setscheduler": 144, "mlock": 149, "pivot_root": 155, "chroot": 161, "mount": 165,
        "umount2": 166, "reboot": 169, "sethostname": 170, "init_module": 175, "setxattr": 188,
        "tkill": 200, "sched_setaffinity": 203, "io_setup": 206, "mq_open": 240,
        "kexec_load": 246, "add_key": 248, "keyctl": 250, "ioprio_set": 251, "inotify_init": 253,
        "migrate_pages": 256, "mknodat": 259, "linkat": 265, "unshare": 272, "splice": 275,
        "tee": 276, "vmsplice": 278, "move_pages": 279, "utimensat": 280, "accept4": 288,
        "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305, "sendmmsg": 307,
        "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "seccomp": 317, "memfd_create": 319, "bpf": 321, "execveat": 322,
        "userfaultfd": 323, "pkey_alloc": 330, "pidfd_send_signal": 424, "io_uring_setup": 425,
        "open_tree": 428, "fsopen": 430, "pidfd_open": 434, "pidfd_getfd": 438,
        "process_madvise": 440, "mount_setattr": 442,
    },
    "aarch64": {
        "io_setup": 0, "setxattr": 5, "inotify_init1": 26, "ioprio_set": 30, "mknodat": 33,
        "linkat": 37, "umount2": 39, "mount": 40, "pivot_root": 41, "truncate": 45, "chroot": 51,
        "fchmod": 52, "fchmodat": 53, "fchownat": 54, "vmsplice": 75, "splice": 76,
        "utimensat": 88, "capset": 91, "personality": 92, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "syslog": 116, "ptrace": 117, "sched_setaffinity": 122, "tkill": 130,
        "rt_sigqueueinfo": 138, "setpriority": 140, "reboot": 142, "setuid": 146, "setpgid": 154,
        "setsid": 157, "sethostname": 161, "mq_open": 180, "msgget": 186, "semget": 190,
        "shmget": 194, "socket": 198, "bind": 200, "connect": 203, "add_key": 217, "keyctl": 219,
        "execve": 221, "mlock": 228, "migrate_pages": 238, "perf_event_open": 241,
        "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "kcmp": 272, "seccomp": 277, "memfd_create": 279, "bpf": 280,
        "execveat": 281, "userfaultfd": 282, "io_uring_setup": 425, "pidfd_open": 434,
    },
}  # fmt: skip


def test_what_reaches_beyond_the_process_is_refused(machine: str) -> None:
    for name, call in FORBIDDEN[machine].items():
        assert judged(machine, True, call) in (errno.EPERM, errno.ENOSYS), name


def test_every_call_that_is_not_named_is_refused(machine: str) -> None:
    named = {number(name, machine) for name in seccomp.HARMLESS_CALLS | seccomp.FILE_NAME_CALLS}
    judged_by_argument = {number(name, machine) for name in seccomp.argument_rules(True)}
    for call in range(1024):
        if call not in named | judged_by_argument:
            assert judged(machine, True, call) != ALLOW, call


@pytest.mark.parametrize("call", [0, 1, 39, 56, 59])
def test_other_architectures_and_x32_are_killed(machine: str, call: int) -> None:
    program = seccomp.supervisor_filter(machine)
    i386, arm = 0x40000003, 0x40000028
    for other in (i386, arm, *(a for m, a in AUDIT_ARCH.items() if m != machine)):
        assert verdict(program, other, call) == KILL
    assert verdict(program, AUDIT_ARCH[machine], 0x40000000 + call) == KILL


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("kill", (PID, 9), ALLOW),
        ("kill", (PID + 1, 9), errno.EPERM),
        ("kill", (-1, 9), errno.EPERM),
        ("kill", (0, 9), errno.EPERM),
        ("kill", (-PID, 9), errno.EPERM),
        ("tgkill", (PID, PID + 1, 9), ALLOW),
        ("tgkill", (1, 1, 9), errno.EPERM),
        ("prlimit64", (0, 1), ALLOW),
        ("prlimit64", (1, 1), errno.EPERM),
        ("clone", (0x3D0F00,), ALLOW),  # pthread_create of glibc
        ("clone", (17,), errno.EPERM),  # fork
        ("clone", (0x4111,), errno.EPERM),  # vfork
        ("clone", (0x10000 | 0x10000000,), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("openat2", (), errno.ENOSYS),
        ("fcntl", (0, 3), ALLOW),
        ("fcntl", (0, 8, 1), errno.EPERM),  # F_SETOWN
        ("fcntl", (0, 10, 9), errno.EPERM),  # F_SETSIG
        ("fcntl", (0, 15, 1), errno.EPERM),  # F_SETOWN_EX
        ("fcntl", (0, 1024), errno.EPERM),  # F_SETLEASE
        ("fcntl", (0, 1033), errno.EPERM),  # F_ADD_SEALS
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI
        ("ioctl", (0, 0x8901), errno.ENOTTY),  # FIOSETOWN
        ("prctl", (15,), ALLOW),
        ("prctl", (22, 2), errno.EPERM),  # another filter
        ("prctl", (4, 1), errno.EPERM),  # PR_SET_DUMPABLE
        ("prctl", (1, 0), errno.EPERM),  # PR_SET_PDEATHSIG
        ("socketpair", (1, 1), ALLOW),
        ("socketpair", (1, 1 | 0o2000000), ALLOW),
        ("socketpair", (1, 2), errno.EPERM),  # datagrams take an address
        ("socketpair", (1, 5), errno.EPERM),
        ("socketpair", (2, 1), errno.EPERM),
        ("sendto", (3, 0, 0, 0, 0), ALLOW),
        ("sendto", (3, 0, 0, 0, 0x1000), errno.EPERM),
        ("sendto", (3, 0, 0, 0, 1 << 40), errno.EPERM),
    ],
)
def test_arguments(
    machine: str, name: str, arguments: tuple[int, ...], expected: str | int
) -> None:
    assert judged(machine, True, name, *arguments) == expected


def test_paths_are_opened_only_where_something_judges_them(machine: str) -> None:
    read, write, empty = 0, 0o1101, 0o1000
    assert judged(machine, True, "openat", 0, 0, read) == ALLOW
    assert judged(machine, True, "openat", 0, 0, write) == ALLOW
    # Emptying a file that is opened for reading.
    assert judged(machine, True, "openat", 0, 0, empty) == errno.EPERM
    assert judged(machine, False, "openat", 0, 0, read) == errno.EACCES
    if machine == "x86_64":
        assert judged(machine, True, "open", 0, empty, write) == errno.EPERM
    for name in ("mkdirat", "unlinkat", "renameat2", "symlinkat"):
        assert judged(machine, True, name) == ALLOW
        assert judged(machine, False, name) == errno.EPERM


def test_calls_that_are_newer_than_the_table_are_absent(machine: str) -> None:
    process_madvise, mount_setattr = 440, 442
    assert judged(machine, True, process_madvise) == errno.EPERM
    assert judged(machine, True, mount_setattr) == errno.ENOSYS


def test_jumps_fit_their_byte() -> None:
    with pytest.raises(struct.error):
        seccomp.assemble(seccomp.when_equal(1, seccomp.LOAD_NUMBER * 256))
