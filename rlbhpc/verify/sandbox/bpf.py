"""A very small assembler for the classic BPF programs that seccomp runs on every system call.

An instruction is ``struct sock_filter`` of linux/filter.h: code, jump if true, jump if false, and
a constant; jumps count instructions and go forward only. The data it reads is ``struct
seccomp_data``: the call's number at byte 0, the architecture at 4, six 64-bit arguments from 16.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

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
