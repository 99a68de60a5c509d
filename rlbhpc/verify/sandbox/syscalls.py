"""System call numbers of the two architectures, and the few calls that Python doesn't offer.

Numbers: the Linux tables for x86-64 (``arch/x86/entry/syscalls/syscall_64.tbl``) and the generic
one that aarch64 uses (``include/uapi/asm-generic/unistd.h``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
from collections.abc import Iterable
from typing import Final

MACHINE: Final = platform.machine()
# AUDIT_ARCH_* of linux/audit.h: what seccomp reports as the architecture of a call.
AUDIT_ARCH: Final[dict[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN: Final[dict[str, int]] = {"x86_64": 0, "aarch64": 1}

# Numbers on x86-64 and aarch64; None where an architecture lacks the call.
Numbers = tuple[int | None, int | None]

# Harmless with any argument: own memory, own descriptors, own threads, clocks, questions. The ones
# that a Python program makes most often stand first, since the filter tries them in turn.
HARMLESS_CALLS: Final[dict[str, Numbers]] = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "mmap": (9, 222), "munmap": (11, 215),
    "brk": (12, 214), "madvise": (28, 233), "mprotect": (10, 226), "close": (3, 57),
    "fstat": (5, 80), "newfstatat": (262, 79), "stat": (4, None), "lseek": (8, 62),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "poll": (7, None), "clock_gettime": (228, 113), "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101), "getpid": (39, 172), "gettid": (186, 178), "exit_group": (231, 94),
    "exit": (60, 93), "sched_yield": (24, 124), "rseq": (334, 293), "set_robust_list": (273, 99),
    "sigaltstack": (131, 132), "mremap": (25, 216), "getrandom": (318, 278), "getcwd": (79, 17),
    "access": (21, None), "arch_prctl": (158, None), "alarm": (37, None),
    "clock_getres": (229, 114), "close_range": (436, 436), "copy_file_range": (326, 285),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441), "epoll_wait": (232, None), "eventfd": (284, None),
    "eventfd2": (290, 19), "faccessat": (269, 48), "faccessat2": (439, 439),
    "fadvise64": (221, 223), "fallocate": (285, 47), "fchdir": (81, 50), "chdir": (80, 49),
    "fdatasync": (75, 83), "flock": (73, 32), "fstatfs": (138, 44), "fsync": (74, 82),
    "ftruncate": (77, 46), "get_robust_list": (274, 100), "getcpu": (309, 168),
    "getdents": (78, None), "getdents64": (217, 61), "getegid": (108, 177), "geteuid": (107, 175),
    "getgid": (104, 176), "getgroups": (115, 158), "getitimer": (36, 102), "getpeername": (52, 205),
    "getpgid": (121, 155), "getpgrp": (111, None), "getppid": (110, 173), "getpriority": (140, 141),
    "getresgid": (120, 150), "getresuid": (118, 148), "getrlimit": (97, 163),
    "getrusage": (98, 165), "getsid": (124, 156), "getsockname": (51, 204), "getsockopt": (55, 209),
    "gettimeofday": (96, 169), "getuid": (102, 174), "lstat": (6, None), "membarrier": (324, 283),
    "mincore": (27, 232), "msync": (26, 227), "pause": (34, None), "pipe": (22, None),
    "pipe2": (293, 59), "ppoll": (271, 73), "pread64": (17, 67), "preadv": (295, 69),
    "preadv2": (327, 286), "pselect6": (270, 72), "pwrite64": (18, 68), "pwritev": (296, 70),
    "pwritev2": (328, 287), "readlink": (89, None), "readlinkat": (267, 78), "readv": (19, 65),
    "recvfrom": (45, 207), "recvmsg": (47, 212), "restart_syscall": (219, 128),
    "rt_sigpending": (127, 136), "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "select": (23, None), "sendfile": (40, 71), "sendmsg": (46, 211), "set_tid_address": (218, 96),
    "setitimer": (38, 103), "setrlimit": (160, 164), "setsockopt": (54, 208), "shutdown": (48, 210),
    "signalfd": (282, None), "signalfd4": (289, 74), "statfs": (137, 43), "statx": (332, 291),
    "sysinfo": (99, 179), "time": (201, None), "timer_create": (222, 107),
    "timer_delete": (226, 111), "timer_getoverrun": (225, 109), "timer_gettime": (224, 108),
    "timer_settime": (223, 110), "timerfd_create": (283, 85), "timerfd_gettime": (287, 87),
    "timerfd_settime": (286, 86), "times": (100, 153), "umask": (95, 166), "uname": (63, 160),
    "wait4": (61, 260), "waitid": (247, 95), "writev": (20, 66),
}  # fmt: skip
# What makes and removes names below a folder. Harmless if something else decides which folder.
FILE_NAME_CALLS: Final[dict[str, Numbers]] = {
    "mkdir": (83, None), "mkdirat": (258, 34), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "rmdir": (84, None), "symlink": (88, None), "symlinkat": (266, 36),
    "unlink": (87, None), "unlinkat": (263, 35),
}  # fmt: skip
# What the supervisor does besides: start, kill and clean up after programs.
SUPERVISOR_CALLS: Final[dict[str, Numbers]] = {
    "openat": (257, 56), "open": (2, None), "fcntl": (72, 25), "ioctl": (16, 29), "kill": (62, 129),
    "tgkill": (234, 131), "prlimit64": (302, 261), "prctl": (157, 167), "socketpair": (53, 199),
    "sendto": (44, 206), "setsid": (112, 157), "chmod": (90, None), "fchmodat": (268, 53),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
_OTHER_CALLS: Final[dict[str, Numbers]] = {
    "capset": (126, 91), "clone": (56, 220), "clone3": (435, 435), "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444), "memfd_create": (319, 279), "mount": (165, 40),
    "openat2": (437, 437), "pivot_root": (155, 41), "umount2": (166, 39), "unshare": (272, 97),
}  # fmt: skip
_NUMBERS: Final = HARMLESS_CALLS | FILE_NAME_CALLS | SUPERVISOR_CALLS | _OTHER_CALLS

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def number(name: str, machine: str = MACHINE) -> int | None:
    """Return the number of a system call; ``None`` where an architecture lacks it."""
    return _NUMBERS[name][_COLUMN[machine]]


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call that Python has no function for, and return its result.

    ``name``: a key of the tables of call numbers. Integers are passed as 64-bit words, bytes as
    pointers. Raises :class:`OSError` on failure.
    """
    call_number = number(name) if MACHINE in _COLUMN else None
    if call_number is None:
        raise OSError(errno.ENOSYS, f"no system call {name} on {MACHINE}")
    words = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    result = int(_libc.syscall(ctypes.c_long(call_number), *words))
    if result < 0:
        error_code = ctypes.get_errno()
        raise OSError(error_code, f"{name}: {os.strerror(error_code)}")
    return result


def memory_file(pieces: Iterable[bytes]) -> int:
    """Return a descriptor of an unnamed file in memory that holds ``pieces``, one behind another.

    It is sealed, so that nobody can change it, and opened for reading alone.
    """
    close_on_exec = 1
    allow_sealing = 2
    descriptor = syscall("memfd_create", b"rlbhpc", close_on_exec | allow_sealing)
    try:
        for piece in pieces:
            unwritten = memoryview(piece)
            while unwritten:
                unwritten = unwritten[os.write(descriptor, unwritten) :]
        add_seals = 1033
        all_seals = 0b1111
        fcntl.fcntl(descriptor, add_seals, all_seals)
        # Opened anew for reading alone: older kernels map no sealed file that might be written.
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(descriptor)
