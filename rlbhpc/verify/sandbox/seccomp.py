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

from rlbhpc.verify.sandbox.syscalls import (
    AUDIT_ARCH,
    FILE_NAME_CALLS,
    HARMLESS_CALLS,
    MACHINE,
    SUPERVISOR_CALLS,
    number,
    syscall,
)

# --- an assembler for classic BPF, which seccomp runs on every call ------------------------------

# An instruction is ``struct sock_filter`` of linux/filter.h: code, jump if true, jump if false,
# and a constant; jumps count instructions and go forward only. The data it reads is ``struct
# seccomp_data``: the call's number at byte 0, the architecture at 4, six 64-bit arguments from 16.

ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000


def error_action(error_code: int) -> int:
    """Action of a filter that makes the call fail with an error code."""
    return 0x00050000 | error_code


_INSTRUCTION_FORMAT: Final = "=HBBI"
_INSTRUCTION_BYTES: Final = struct.calcsize(_INSTRUCTION_FORMAT)


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


# Offset of the first argument in ``struct seccomp_data``.
_FIRST_ARGUMENT: Final = 16

#: Load the number of the call, or the architecture it was made for.
LOAD_NUMBER: Final = [Instruction(_LOAD, 0)]
LOAD_ARCHITECTURE: Final = [Instruction(_LOAD, 4)]


def load_argument(index: int, high: bool = False) -> Code:
    """Load the lower (or upper) half of an argument; both architectures are little-endian."""
    offset = _FIRST_ARGUMENT + 8 * index
    if high:
        offset += 4
    return [Instruction(_LOAD, offset)]


def keep_bits(mask: int) -> Code:
    """Clear all loaded bits outside of ``mask``."""
    return [Instruction(_AND, mask)]


def return_action(action: int) -> Code:
    """Decide what becomes of the call, and leave the filter."""
    return [Instruction(_RETURN, action)]


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
        struct.pack(_INSTRUCTION_FORMAT, step.code, step.jump_true, step.jump_false, step.constant)
        for step in code
    )


# --- the list of what is allowed -----------------------------------------------------------------

_SUPERVISOR_ONLY_CALLS: Final = ("setsid", "chmod", "fchmodat", "landlock_restrict_self")

# The C library asks for these and falls back to an older call that the filter can judge.
_UNKNOWN_CALLS: Final = ("clone3", "openat2")
# Calls newer than this table: unknown to the filter, so unknown to the program.
_FIRST_NEWER_CALL: Final = 442

_CLONE_THREAD = 0x10000
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_CLONE_NAMESPACES = 0x7E020000
# Descriptor copies, flags, file locks, sizes. Not F_SETOWN, F_SETSIG, F_SETLEASE and F_NOTIFY:
# they make the kernel send a signal of one's choice to a process of one's choice.
_FCNTL_COMMANDS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 9, 36, 37, 38, 1030, 1032, 1034)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL_REQUESTS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_GET_PDEATHSIG, GET_DUMPABLE, SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, GET_TIMERSLACK,
# GET_NO_NEW_PRIVS, SET_VMA (names a mapping; newer allocators do it)
_PRCTL_OPTIONS: Final = (2, 3, 15, 16, 21, 23, 30, 39, 0x53564D41)
_SOCK_TYPE_MASK: Final = 0xF

_ALLOW_CALL: Final = return_action(ALLOW)
_REFUSE_CALL: Final = return_action(error_action(errno.EPERM))
_CALL_IS_UNKNOWN: Final = return_action(error_action(errno.ENOSYS))
# Stands for the program's process id, which is known only when the filter is installed.
_PID_PLACEHOLDER: Final = 0x5EC0C0DE


def _allow_values(argument: int, allowed: tuple[int, ...], error_code: int = errno.EPERM) -> Code:
    """Allow a call if one argument, given by its index, has one of the allowed values."""
    code = load_argument(argument)
    for value in allowed:
        code += when_equal(value, _ALLOW_CALL)
    return code + return_action(error_action(error_code))


def _allow_open(flags_argument: int) -> Code:
    """Allow opening files, which Landlock or a private root confines, but not reading with O_TRUNC.

    That empties a file without opening it for writing, which the first versions of Landlock
    overlook.
    """
    code = load_argument(flags_argument)
    code += when_no_bit(os.O_TRUNC, _ALLOW_CALL)
    code += when_any_bit(os.O_ACCMODE, _ALLOW_CALL)
    return code + _REFUSE_CALL


def _allow_new_threads() -> Code:
    """Allow ``clone`` for a thread, and neither for a process nor with new namespaces."""
    code = load_argument(0)
    code += when_any_bit(_CLONE_NAMESPACES, _REFUSE_CALL)
    code += when_any_bit(_CLONE_THREAD, _ALLOW_CALL)
    return code + _REFUSE_CALL


def _allow_stream_pairs() -> Code:
    """Allow ``socketpair`` for streams: a datagram socket can send to any address."""
    type_is_stream = load_argument(1) + keep_bits(_SOCK_TYPE_MASK)
    type_is_stream += when_equal(socket.SOCK_STREAM, _ALLOW_CALL)
    return load_argument(0) + when_equal(socket.AF_UNIX, type_is_stream) + _REFUSE_CALL


def _allow_send_without_address() -> Code:
    """Allow ``sendto`` without an address, which is how the C library sends on a pair."""
    high_half_is_zero = load_argument(4, high=True) + when_equal(0, _ALLOW_CALL)
    return load_argument(4) + when_equal(0, high_half_is_zero) + _REFUSE_CALL


def argument_rules(may_open_files: bool) -> dict[str, Code]:
    """Return the filter rules of the calls that depend on their arguments, by name of the call.

    A rule is a piece of filter code that decides on the call. ``_allow_values(i, values)`` allows
    it if argument ``i``, counted from 0, is one of the values. The program's own process id is not
    known yet; a placeholder stands for it. ``may_open_files``: whether files can be opened at all;
    something else, Landlock or a private root, must then decide which.
    """
    own_process = _PID_PLACEHOLDER
    # prlimit64() takes 0 for the calling process.
    calling_process = 0
    no_open = return_action(error_action(errno.EACCES))
    return {
        "openat": _allow_open(flags_argument=2) if may_open_files else no_open,
        "open": _allow_open(flags_argument=1) if may_open_files else no_open,
        "fcntl": _allow_values(1, _FCNTL_COMMANDS),
        "ioctl": _allow_values(1, _IOCTL_REQUESTS, errno.ENOTTY),
        "clone": _allow_new_threads(),
        "kill": _allow_values(0, (own_process,)),
        "tgkill": _allow_values(0, (own_process,)),
        "prlimit64": _allow_values(0, (calling_process, own_process)),
        "prctl": _allow_values(0, _PRCTL_OPTIONS),
        "socketpair": _allow_stream_pairs(),
        "sendto": _allow_send_without_address(),
    }


def _compile_filter(machine: str, rules: Iterable[tuple[str, Code]], other_calls: Code) -> bytes:
    """Compile a seccomp filter: the code that the kernel runs on each system call.

    ``machine``: the architecture, as ``platform.machine()`` names it. ``rules``: for each call by
    name the code that decides on it. ``other_calls``: the code for calls without a rule.
    """
    code = LOAD_ARCHITECTURE + when_equal(AUDIT_ARCH[machine], LOAD_NUMBER)
    # Where the architecture is another one, it is still what is loaded. It is higher than any call
    # number, so the same comparison stops its calls and the x32 calls of x86-64 (bit 30).
    x32_bit = 0x40000000
    code += when_at_least(x32_bit, return_action(KILL_PROCESS))
    for name, rule in rules:
        call_number = number(name, machine)
        if call_number is not None:
            code += when_equal(call_number, rule)
    return assemble(code + other_calls)


def supervisor_filter(machine: str = MACHINE) -> bytes:
    """Compile the list of calls that a supervisor and the programs it starts may make at all.

    The filter tries rules in order, each the name of a call and code that decides on it: allow it,
    refuse it (EPERM), or say that the kernel has no such call (ENOSYS), upon which the C library
    falls back to an older one. ``clone`` is allowed if its flags (argument 0) ask for no new
    namespaces. Calls with a number from ``_FIRST_NEWER_CALL`` on are newer than the list.
    """
    clone_rule = load_argument(0) + when_no_bit(_CLONE_NAMESPACES, _ALLOW_CALL) + _REFUSE_CALL
    allowed = (*HARMLESS_CALLS, *FILE_NAME_CALLS, *SUPERVISOR_CALLS)
    rules = [(name, _ALLOW_CALL) for name in allowed]
    rules.append(("clone", clone_rule))
    rules += [(name, _CALL_IS_UNKNOWN) for name in _UNKNOWN_CALLS]
    other_calls = when_at_least(_FIRST_NEWER_CALL, _CALL_IS_UNKNOWN) + _REFUSE_CALL
    return _compile_filter(machine, rules, other_calls)


def program_filter(may_open_files: bool, machine: str = MACHINE) -> bytes:
    """Compile which of those calls a program is denied, with a placeholder for its process id.

    ``may_open_files``: only where Landlock or a private root confines them. ``machine``: as
    ``platform.machine()`` names it.
    """
    rules = list(argument_rules(may_open_files).items())
    rules += [(name, _REFUSE_CALL) for name in _SUPERVISOR_ONLY_CALLS]
    if not may_open_files:
        rules += [(name, _REFUSE_CALL) for name in FILE_NAME_CALLS]
    return _compile_filter(machine, rules, _ALLOW_CALL)


class _FilterProgram(ctypes.Structure):
    """``struct sock_fprog`` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: bytes, pid: int) -> None:
    """Put the calling process under a compiled filter, for good.

    ``program``: the filter, 8 bytes per instruction. ``pid``: this process. It takes the place of
    the placeholder in the filter, so that under a program's filter signals can be sent to it alone.
    """
    set_seccomp = 22
    filter_mode = 2
    placeholder = _PID_PLACEHOLDER.to_bytes(4, "little")
    program = program.replace(placeholder, pid.to_bytes(4, "little"))
    buffer = ctypes.create_string_buffer(program, len(program))
    instruction_count = len(program) // _INSTRUCTION_BYTES
    header = _FilterProgram(instruction_count, ctypes.addressof(buffer))
    syscall("prctl", set_seccomp, filter_mode, ctypes.addressof(header), 0, 0)
