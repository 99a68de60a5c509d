"""Giving up what the user may do: identity, capabilities, visibility, resource limits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from collections.abc import Mapping
from typing import Final

from rlbhpc.verify.sandbox.syscalls import syscall

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
    with contextlib.suppress(PermissionError):
        os.setgroups([])
    for identity in (_SPARE_IDS + os.getpid(), _NOBODY):
        with contextlib.suppress(OSError):
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
