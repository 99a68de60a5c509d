"""The system calls that a program under test may make: a list of what is allowed.

Everything that isn't named here fails: a call that reaches another process, the network, other
users of the node, the terminal, the scheduler or the kernel's less trodden parts is refused
without anyone having had to think of it. Where a call is harmless with some arguments only, its
arguments are looked at; a filter sees numbers but can't follow pointers, so nothing is decided by
a path here (that is the work of Landlock and of the private root).

A filter stays for the life of the process, is inherited, and can only be narrowed. There are two:
the long list of names is laid on the supervisor once, since the kernel takes a millisecond to
compile it, and each program adds the short list of arguments, which holds its own process id.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from rlbhpc.verify.sandbox.syscalls import AUDIT_ARCH, MACHINE, number, syscall

# --- an assembler for classic BPF, which seccomp runs on every call ------------------------------

# An instruction is ``struct sock_filter`` of linux/filter.h: code, jump if true, jump if false,
# and a constant; jumps count instructions and go forward only. The data it reads is ``struct
# seccomp_data``: the call's number at byte 0, the architecture at 4, six 64-bit arguments from 16.

ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000


def refuse(errno: int) -> int:
    """Return value of a filter that makes the call fail with ``errno``."""
    return 0x00050000 | errno


class Instruction(NamedTuple):
    """One ``struct sock_filter``."""

    code: int
    constant: int
    jump_true: int = 0
    jump_false: int = 0


_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

Code = list[Instruction]


#: Load the number of the call, or the architecture it was made for.
LOAD_NUMBER: Final = [Instruction(_LOAD, 0)]
LOAD_ARCHITECTURE: Final = [Instruction(_LOAD, 4)]


def load_argument(index: int, high: bool = False) -> Code:
    """Load the lower (or upper) half of an argument; both architectures are little-endian."""
    return [Instruction(_LOAD, 16 + 8 * index + (4 if high else 0))]


def keep_bits(mask: int) -> Code:
    """Clear all loaded bits outside of ``mask``."""
    return [Instruction(_AND, mask)]


def give(verdict: int) -> Code:
    """Return ``verdict`` for the call."""
    return [Instruction(_RETURN, verdict)]


def when_equal(constant: int, then: Code) -> Code:
    """Run ``then`` if what is loaded equals ``constant``, else skip it."""
    return [Instruction(_EQUAL, constant, jump_false=len(then)), *then]


def when_at_least(constant: int, then: Code) -> Code:
    """Run ``then`` if what is loaded is at least ``constant``, unsigned, else skip it."""
    return [Instruction(_AT_LEAST, constant, jump_false=len(then)), *then]


def when_any_bit(mask: int, then: Code) -> Code:
    """Run ``then`` if what is loaded has a bit of ``mask``, else skip it."""
    return [Instruction(_ANY_BIT, mask, jump_false=len(then)), *then]


def when_no_bit(mask: int, then: Code) -> Code:
    """Run ``then`` if what is loaded has no bit of ``mask``, else skip it."""
    return [Instruction(_ANY_BIT, mask, jump_true=len(then)), *then]


def assemble(code: Code) -> bytes:
    """Lay a program out as the kernel reads it."""
    return b"".join(
        struct.pack("=HBBI", step.code, step.jump_true, step.jump_false, step.constant)
        for step in code
    )


# --- the list of what is allowed -----------------------------------------------------------------

# Harmless with any argument: own memory, own descriptors, own threads, clocks, questions.
# The ones a Python program makes most often stand first, since the filter tries them in turn.
_ALLOWED: Final = (
    "read", "write", "futex", "mmap", "munmap", "brk", "madvise", "mprotect", "close", "fstat",
    "newfstatat", "stat", "lseek", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "poll",
    "clock_gettime", "clock_nanosleep", "nanosleep", "getpid", "gettid", "exit_group", "exit",
    "sched_yield", "rseq", "set_robust_list", "sigaltstack", "mremap", "getrandom", "getcwd",
    "access", "arch_prctl", "alarm", "clock_getres", "close_range", "copy_file_range", "dup",
    "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "eventfd", "eventfd2", "faccessat", "faccessat2", "fadvise64", "fallocate",
    "fchdir", "chdir", "fdatasync", "flock", "fstatfs", "fsync", "ftruncate", "get_robust_list",
    "getcpu", "getdents", "getdents64", "getegid", "geteuid", "getgid", "getgroups", "getitimer",
    "getpeername", "getpgid", "getpgrp", "getppid", "getpriority", "getresgid", "getresuid",
    "getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettimeofday", "getuid",
    "lstat", "membarrier", "mincore", "msync", "pause", "pipe", "pipe2", "ppoll", "pread64",
    "preadv", "preadv2", "pselect6", "pwrite64", "pwritev", "pwritev2", "readlink", "readlinkat",
    "readv", "recvfrom", "recvmsg", "restart_syscall", "rt_sigpending", "rt_sigsuspend",
    "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getparam", "sched_getscheduler", "select", "sendfile", "sendmsg", "set_tid_address",
    "setitimer", "setrlimit", "setsockopt", "shutdown", "signalfd", "signalfd4", "statfs", "statx",
    "sysinfo", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
    "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "umask",
    "uname", "wait4", "waitid", "writev",
)  # fmt: skip

# What makes and removes names below a folder. Needs something else that decides which folder.
_NAMES: Final = (
    "mkdir", "mkdirat", "rename", "renameat", "renameat2", "rmdir", "symlink", "symlinkat",
    "unlink", "unlinkat",
)  # fmt: skip

# What the supervisor does besides: start, kill and clean up after programs.
_SUPERVISION: Final = (
    "openat", "open", "fcntl", "ioctl", "kill", "tgkill", "prlimit64", "prctl", "socketpair",
    "sendto", "setsid", "chmod", "fchmodat", "landlock_restrict_self",
)  # fmt: skip
_NOT_FOR_PROGRAMS: Final = ("setsid", "chmod", "fchmodat", "landlock_restrict_self")

# The C library asks for these and falls back to an older call that the filter can judge.
_ABSENT: Final = ("clone3", "openat2")
# Calls newer than this table: unknown to the filter, so unknown to the program.
_NEWER: Final = 442

_CLONE_THREAD = 0x10000
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_CLONE_NAMESPACES = 0x7E020000
# Descriptor copies, flags, file locks, sizes. Not F_SETOWN, F_SETSIG, F_SETLEASE and F_NOTIFY:
# they make the kernel send a signal of one's choice to a process of one's choice.
_FCNTL: Final = (0, 1, 2, 3, 4, 5, 6, 7, 9, 36, 37, 38, 1030, 1032, 1034)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, GET_TIMERSLACK,
# GET_NO_NEW_PRIVS, SET_VMA (names a mapping; newer allocators do it)
_PRCTL: Final = (2, 3, 15, 16, 21, 23, 30, 39, 0x53564D41)
_SOCK_TYPE_MASK: Final = 0xF

_PERMIT: Final = give(ALLOW)
_FORBID: Final = give(refuse(errno.EPERM))
_PID_PLACEHOLDER: Final = 0x5EC0C0DE


def _one_of(argument: int, allowed: tuple[int, ...], otherwise: int) -> Code:
    """Allow the call if an argument is one of a list."""
    code = load_argument(argument)
    for value in allowed:
        code += when_equal(value, _PERMIT)
    return code + give(refuse(otherwise))


def _open(flags: int) -> Code:
    """Allow opening, where something else judges the path.

    Reading with O_TRUNC empties a file without opening it for writing, which the first versions
    of Landlock overlook.
    """
    return (
        load_argument(flags)
        + when_no_bit(os.O_TRUNC, _PERMIT)
        + when_any_bit(os.O_ACCMODE, _PERMIT)
        + _FORBID
    )


def _rules(files: bool) -> dict[str, Code]:
    """Judge calls by their arguments."""
    own_process = (_PID_PLACEHOLDER,)
    no_open = give(refuse(errno.EACCES))
    return {
        "openat": _open(2) if files else no_open,
        "open": _open(1) if files else no_open,
        "fcntl": _one_of(1, _FCNTL, errno.EPERM),
        "ioctl": _one_of(1, _IOCTL, errno.ENOTTY),
        "clone": load_argument(0)
        + when_any_bit(_CLONE_NAMESPACES, _FORBID)
        + when_any_bit(_CLONE_THREAD, _PERMIT)
        + _FORBID,
        "kill": _one_of(0, own_process, errno.EPERM),
        "tgkill": _one_of(0, own_process, errno.EPERM),
        "prlimit64": _one_of(0, (0, *own_process), errno.EPERM),
        "prctl": _one_of(0, _PRCTL, errno.EPERM),
        # A stream pair has no way out; a datagram socket can be sent to any address.
        "socketpair": load_argument(0)
        + when_equal(
            socket.AF_UNIX,
            load_argument(1) + keep_bits(_SOCK_TYPE_MASK) + when_equal(socket.SOCK_STREAM, _PERMIT),
        )
        + _FORBID,
        # send() is sendto() without an address.
        "sendto": load_argument(4)
        + when_equal(0, load_argument(4, high=True) + when_equal(0, _PERMIT))
        + _FORBID,
    }


def _judge(machine: str, rules: Iterable[tuple[str, Code]], otherwise: Code) -> bytes:
    """Compile a filter that applies rules by name and treats every other call alike."""
    code = LOAD_ARCHITECTURE + when_equal(AUDIT_ARCH[machine], LOAD_NUMBER)
    # After another architecture's call the architecture is still what is loaded; no call number
    # is that high, so the same comparison stops it and the x32 calls of x86-64 (bit 30).
    code += when_at_least(0x40000000, give(KILL_PROCESS))
    for name, rule in rules:
        if (call := number(name, machine)) is not None:
            code += when_equal(call, rule)
    return assemble(code + otherwise)


def supervisor_filter(machine: str = MACHINE) -> bytes:
    """Compile the list of calls that a supervisor and its programs may make at all."""
    absent = give(refuse(errno.ENOSYS))
    own_child = load_argument(0) + when_no_bit(_CLONE_NAMESPACES, _PERMIT) + _FORBID
    rules = [(name, _PERMIT) for name in (*_ALLOWED, *_NAMES, *_SUPERVISION)]
    rules += [("clone", own_child), *((name, absent) for name in _ABSENT)]
    return _judge(machine, rules, when_at_least(_NEWER, absent) + _FORBID)


def program_filter(files: bool, machine: str = MACHINE) -> bytes:
    """Compile what a program is denied of that, with a placeholder for its process id.

    ``files``: whether paths may be opened at all. Only where Landlock or a private root confines
    them. ``machine``: as ``platform.machine()`` names it.
    """
    denied = _NOT_FOR_PROGRAMS + (() if files else _NAMES)
    rules = [*_rules(files).items(), *((name, _FORBID) for name in denied)]
    return _judge(machine, rules, _PERMIT)


class _Program(ctypes.Structure):
    """``struct sock_fprog`` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: bytes, pid: int) -> None:
    """Put the calling process under a compiled filter, for good.

    Under a program's filter, signals may afterwards be sent to ``pid`` alone.
    """
    set_seccomp, filter_mode = 22, 2
    program = program.replace(_PID_PLACEHOLDER.to_bytes(4, "little"), pid.to_bytes(4, "little"))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(buffer))
    syscall("prctl", set_seccomp, filter_mode, ctypes.addressof(header), 0, 0)
