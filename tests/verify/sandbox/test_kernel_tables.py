"""Numbers of the kernel's interfaces, against its own headers where they are installed."""

from __future__ import annotations

import fcntl
import os
import re
import termios
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import confine, seccomp, supervisor, syscalls

INCLUDE = Path("/usr/include")
TABLES = {
    "x86_64": INCLUDE / "x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": INCLUDE / "asm-generic/unistd.h",
}


def defined(header: Path, pattern: str) -> dict[str, int]:
    """What a header defines: names and numbers that a pattern finds."""
    if not header.exists():
        pytest.skip(f"no {header} here")
    found = re.findall(rf"^#define {pattern}", header.read_text(), re.MULTILINE)
    return {name: int(number, 0) for name, number in found}


@pytest.mark.parametrize("machine", TABLES)
def test_numbers_of_system_calls(machine: str) -> None:
    numbers = defined(TABLES[machine], r"__NR(?:3264)?_(\w+)\s+(\d+)$")
    if machine == "aarch64":
        numbers["newfstatat"] = numbers["fstatat"]
    table = {name: syscalls.number(name, machine) for name in syscalls._NUMBERS}
    assert table == {name: numbers.get(name) for name in table}


def test_architectures() -> None:
    machines = defined(INCLUDE / "linux/elf-em.h", r"EM_(\w+)\s+(\d+)")
    little_endian_64 = 0xC0000000
    for machine, number in syscalls.AUDIT_ARCH.items():
        assert number == little_endian_64 | machines[machine.upper()]


def test_rights_of_landlock() -> None:
    bits = defined(INCLUDE / "linux/landlock.h", r"LANDLOCK_ACCESS_FS_(\w+)\s+\(1ULL << (\d+)\)")
    whole = (
        "READ_FILE WRITE_FILE READ_DIR REMOVE_DIR REMOVE_FILE MAKE_DIR MAKE_REG MAKE_SYM REFER "
        "TRUNCATE"
    ).split()
    assert 1 << bits["READ_FILE"] == confine.READ_FILE
    assert 1 << bits["READ_FILE"] | 1 << bits["WRITE_FILE"] == confine.READ_WRITE_FILE
    # An older header knows fewer.
    known = (2 << max(bits.values())) - 1
    assert sum(1 << bits[name] for name in whole if name in bits) == confine.WHOLE_FOLDER & known
    assert confine.WHOLE_FOLDER >> 13 == 0b11  # REFER, TRUNCATE


@pytest.mark.parametrize(
    ("abi", "fields"),
    [
        (1, [0x1FFF]), (2, [0x3FFF]), (3, [0x7FFF]), (4, [0x7FFF, 3]), (5, [0xFFFF, 3]),
        (6, [0xFFFF, 3, 3]), (7, [0xFFFF, 3, 3]),
    ],
)  # fmt: skip
def test_fields_of_landlock_by_version(abi: int, fields: list[int]) -> None:
    """As its documentation lists them: REFER, TRUNCATE, TCP, IOCTL_DEV, scopes."""
    assert confine.ruleset_fields(abi) == fields


@pytest.mark.parametrize(
    ("release", "counts"),
    [
        ("4.18.0-553.el8_10.x86_64", False), ("5.4.0-150-generic", False), ("5.13.19", False),
        ("5.14.0-427.el9.x86_64", True), ("6.1.0", True),
    ],
)  # fmt: skip
def test_kernels_that_count_threads_by_namespace(release: str, counts: bool) -> None:
    assert supervisor.counts_threads(release) is counts


def test_a_call_that_fails_says_which() -> None:
    with pytest.raises(OSError, match="capset: Bad address"):
        syscalls.syscall("capset", None, None)


def test_a_file_in_memory_is_sealed() -> None:
    file = syscalls.memory_file([b"ab", b"c"])
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    assert (os.read(file, 9), fcntl.fcntl(file, fcntl.F_GET_SEALS)) == (b"abc", seals)
    os.close(file)


def test_arguments_of_calls_that_are_allowed() -> None:
    commands = (
        "DUPFD GETFD SETFD GETFL SETFL GETLK SETLK SETLKW OFD_GETLK OFD_SETLK OFD_SETLKW "
        "DUPFD_CLOEXEC GETPIPE_SZ GET_SEALS"
    ).split()
    f_getown = 9
    allowed = {getattr(fcntl, f"F_{command}") for command in commands}
    assert set(seccomp._FCNTL_COMMANDS) == {*allowed, f_getown}
    requests = "TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX".split()
    assert list(seccomp._IOCTL_REQUESTS) == [getattr(termios, request) for request in requests]
    options = defined(INCLUDE / "linux/prctl.h", r"PR_(\w+)\s+(\d+)\b")
    questions = (
        "GET_PDEATHSIG GET_DUMPABLE SET_NAME GET_NAME GET_SECCOMP CAPBSET_READ GET_TIMERSLACK "
        "GET_NO_NEW_PRIVS"
    ).split()
    assert list(seccomp._PRCTL_OPTIONS) == [*(options[name] for name in questions), 0x53564D41]


def test_flags_of_namespaces_and_mounts() -> None:
    clone = defined(INCLUDE / "linux/sched.h", r"CLONE_(\w+)\s+(0x[0-9a-f]+)")
    spaces = [clone[f"NEW{name}"] for name in ("NS", "UTS", "IPC", "USER", "PID", "NET")]
    assert sum(spaces) == confine._NEW_NAMESPACES
    assert confine._NEW_NAMESPACES | clone["NEWCGROUP"] == seccomp._CLONE_NAMESPACES
    assert clone["THREAD"] == seccomp._CLONE_THREAD
    mount = defined(INCLUDE / "linux/mount.h", r"MS_(\w+)\s+(\d+)")
    bits = defined(INCLUDE / "linux/mount.h", r"MS_(\w+)\s+\(1<<(\d+)\)")
    assert 1 << bits["PRIVATE"] == confine._PRIVATE
    flags = {
        "RDONLY": confine._READ_ONLY, "NOSUID": confine._NO_SUID,
        "NODEV": confine._NO_DEV, "NOEXEC": confine._NO_EXEC,
        "REMOUNT": confine._REMOUNT, "BIND": confine._BIND, "MOVE": confine._MOVE,
        "REC": confine._RECURSIVE,
    }  # fmt: skip
    assert flags == {name: mount[name] for name in flags}


def test_file_systems_on_a_network() -> None:
    magic = defined(INCLUDE / "linux/magic.h", r"(\w+)\s+(0x[0-9A-Fa-f]+)\b")
    names = (
        "NFS_SUPER_MAGIC SMB_SUPER_MAGIC SMB2_SUPER_MAGIC CIFS_SUPER_MAGIC AFS_SUPER_MAGIC "
        "CEPH_SUPER_MAGIC FUSE_SUPER_MAGIC V9FS_MAGIC"
    ).split()
    # Not of the kernel itself, as coreutils' stat has them: Lustre, GPFS, PanFS, BeeGFS.
    others = {0x0BD00BD0, 0x47504653, 0xAAD7AAEA, 0x19830326}
    assert {
        magic[name] for name in names if name in magic
    } | others <= confine._NETWORK_FILE_SYSTEMS
    assert len(confine._NETWORK_FILE_SYSTEMS) == len(names) + len(others)
    assert not confine.is_on_network("/proc")
    assert confine.is_on_network("/no/such/folder")
