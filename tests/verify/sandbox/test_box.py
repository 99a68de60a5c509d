"""What a sandbox promises besides holding hostile programs."""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.verify.sandbox import box, confine, probe
from rlbhpc.verify.sandbox.box import RunPipes, Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Cause, Job, Limits, Mode, Tier
from rlbhpc.verify.sandbox.probe import self_test
from tests.verify.busy import busy_processes, one_processor
from tests.verify.conftest import PARENT, TIERS, RecordingSandbox, open_sandbox

MIB = 1 << 20


def test_what_the_kernel_allows_is_reached() -> None:
    """Asked without the package: a tier that no longer starts is skipped by every other test."""
    libc = ctypes.CDLL(None, use_errno=True)
    has_landlock = libc.syscall(444, None, 0, 1) > 0
    spaces = "--user --map-root-user --pid --mount --net --ipc --uts --fork".split()
    unshare = shutil.which("unshare") or "false"
    has_spaces = subprocess.run([unshare, *spaces, "true"], capture_output=True).returncode == 0
    allowed = {"T1": True, "T2": has_landlock, "T3 without Landlock": has_spaces}
    assert confine.landlock_version() == max(0, libc.syscall(444, None, 0, 1))
    for name, tier in TIERS.items():
        if allowed.get(name, has_landlock and has_spaces):
            with Sandbox(tier) as sandbox:
                assert sandbox.run(Job("print(1)")).stdout == b"1\n", name


def test_outcomes(best: RecordingSandbox) -> None:
    fine = best.run(Job("import sys\nprint(input())\nsys.exit(3)"), b"hello\n")
    assert (fine.cause, fine.status, fine.stdout) == (Cause.EXIT, 3, b"hello\n")
    crash = best.run(Job("import os, sys\nprint('e', file=sys.stderr)\nos.kill(os.getpid(), 11)"))
    assert (crash.cause, crash.status, crash.stderr) == (Cause.SIGNAL, signal.SIGSEGV, b"e\n")
    error = best.run(Job("def f(): raise KeyError('k')\nf()"))
    assert error.status == 1
    assert error.stderr.startswith(
        b'Traceback (most recent call last):\n  File "main.py", line 2, in <module>\n'
    )
    assert error.stderr.endswith(b"KeyError: 'k'\n")
    assert b"raise KeyError('k')" in error.stderr


@pytest.mark.parametrize(
    ("program", "status", "stderr"),
    [
        ("sys.exit()", 0, b""), ("sys.exit(259)", 3, b""), ("sys.exit('bye')", 1, b"bye\n"),
        ("sys.excepthook = lambda *a: print('own', file=sys.stderr)\n1/0", 1, b"own\n"),
        # What cannot be printed any more is the interpreter's 120.
        ("print(1)\nos.close(1)", 120, b""), ("print(1)\nos.close(1)\nsys.exit(3)", 3, b""),
    ],
)  # fmt: skip
def test_exit_status(best: RecordingSandbox, program: str, status: int, stderr: bytes) -> None:
    outcome = best.run(Job(f"import os, sys\n{program}"))
    assert (outcome.cause, outcome.status, outcome.stderr) == (Cause.EXIT, status, stderr)


def test_what_a_run_may_use(best: RecordingSandbox) -> None:
    assert (Limits(cpu=2).wall, Limits(cpu=2).longest_wall, Limits.threads) == (8, 260, 256)
    flood = "import os\nwhile True: os.write({}, b'y' * 65536)"
    printed = best.run(Job(flood.format(1)))
    assert (printed.cause, len(printed.stdout)) == (Cause.OUTPUT, 8 * MIB)
    returned = best.run(Job(flood.format(3), Mode.CALL))
    assert (returned.cause, len(returned.result)) == (Cause.OUTPUT, 4 * MIB)
    # A run that is cut off is not waited for.
    assert printed.cpu < 2 and returned.cpu < 2
    # Only functions return something.
    unasked = best.run(Job("import os\nos.write(3, b'y')"))
    assert (unasked.cause, unasked.result) == (Cause.OUTPUT, b"")


@pytest.mark.parametrize("name", ["T1", "T2", "T3"])
def test_threads_are_counted(name: str) -> None:
    program = (
        "import threading, time\ngate = threading.Event()\nstarted = 0\ntry:\n    while True:\n"
        "        threading.Thread(target=gate.wait).start()\n        started += 1\n"
        "except RuntimeError:\n    print(started)\n    time.sleep(0.1)\n    gate.set()\n"
    )
    with open_sandbox(name) as sandbox:
        outcome = sandbox.run(Job(program), limits=Limits(threads=8))
        if os.geteuid() == 0 or sandbox.tier.namespaces:
            assert (outcome.cause, outcome.status) == (Cause.EXIT, 0)
            assert 5 <= int(outcome.stdout) < 8
        else:
            assert outcome.cause is Cause.THREADS


def test_processor_time_decides(best: RecordingSandbox) -> None:
    limits = Limits(cpu=0.3)
    loop = best.run(Job("while True: pass"), limits=limits)
    assert loop.cause is Cause.CPU
    assert 0.3 <= loop.cpu < 0.6
    # The kernel's time for it counts too, and what was used between two looks at it.
    kernel = best.run(Job("import os\nwhile True: os.urandom(1 << 20)"), limits=limits)
    assert kernel.cause is Cause.CPU
    assert kernel.cpu >= 0.3
    assert best.run(Job(""), limits=Limits(cpu=0.0001)).cause is Cause.CPU
    # Longer than the limit by the clock on the wall, but not by its own.
    assert best.run(Job("import time; time.sleep(0.6)"), limits=limits).cause is Cause.EXIT


# Loops until it has used a share of a second, as honest heavy programs do, in threads that end.
HEAVY = """
import threading, time
def work(until):
    while time.process_time() < until: pass
for until in THREADS:
    thread = threading.Thread(target=work, args=(until,))
    thread.start(); thread.join()
print("done")
"""
ONE_THREAD = HEAVY.replace("THREADS", "[0.1]")
# The kernel counts what a thread has waited only as long as it lives.
FIVE_THREADS = HEAVY.replace("THREADS", "[0.04, 0.06, 0.08, 0.1, 0.12]")


@pytest.mark.by_turns(2)
@pytest.mark.slow
@pytest.mark.parametrize("program", [ONE_THREAD, FIVE_THREADS], ids=["one", "five"])
@pytest.mark.parametrize("name", ["T1", "T3"])
def test_waiting_for_a_busy_processor_is_no_time_of_the_program(name: str, program: str) -> None:
    limits = Limits(cpu=0.2)
    with one_processor(), open_sandbox(name) as sandbox, busy_processes(40):
        outcome = sandbox.run(Job(program), limits=limits)
        assert outcome.wall > limits.wall, "the processor was not busy enough to tell"
        assert (outcome.cause, outcome.stdout) == (Cause.EXIT, b"done\n")
        # Sleep is the program's own even here.
        assert sandbox.run(Job("import time; time.sleep(99)"), limits=limits).cause is Cause.WALL


@pytest.mark.parametrize("name", ["T1", "T3"])
def test_waiting_for_a_verifier_that_does_not_read_is_no_time_of_the_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verifier that has no processor leaves the pipes full."""
    collect = RunPipes.collect

    def late(pipes: RunPipes, channel: socket.socket, run: int, patience: float) -> dict[str, Any]:
        select.select([channel], [], [], 1.0)
        return collect(pipes, channel, run, patience)

    monkeypatch.setattr(Limits, "wall", 0.3)
    with open_sandbox(name) as sandbox:
        assert sandbox.run(Job("print(1)")).stdout == b"1\n"
        monkeypatch.setattr(RunPipes, "collect", late)
        outcome = sandbox.run(Job("print('y' * 200_000)"))
        assert (outcome.cause, len(outcome.stdout)) == (Cause.EXIT, 200_001)


@pytest.mark.slow
def test_a_hopelessly_busy_node_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = open_sandbox("T1")
    supervisor = sandbox.run(Job(PARENT)).stdout
    busy = pytest.raises(SandboxError, match=r"the node is too busy: 0\.\d s of processor time")
    with sandbox:
        with monkeypatch.context() as patch, one_processor(), busy_processes(40), busy:
            patch.setattr(Limits, "longest_wall", 1.0)
            os.sched_setaffinity(int(supervisor), os.sched_getaffinity(0))
            sandbox.run(Job(ONE_THREAD), limits=Limits(cpu=0.2))
        os.sched_setaffinity(int(supervisor), os.sched_getaffinity(0))
        # It is no fault of the supervisor, and once the neighbours have gone, the run ends well.
        assert sandbox.run(Job(PARENT)).stdout == supervisor
        assert sandbox.run(Job(ONE_THREAD), limits=Limits(cpu=0.2)).stdout == b"done\n"


def test_large_input_and_output(best: RecordingSandbox) -> None:
    data = os.urandom(3 * MIB).hex().encode()
    copy = Job("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())")
    outcome = best.run(copy, data, Limits(output=len(data)))
    assert outcome.cause is Cause.EXIT
    assert outcome.stdout == data
    # One byte over the cap.
    assert best.run(copy, data, Limits(output=len(data) - 1)).cause is Cause.OUTPUT
    # A program need not read what it is given.
    assert best.run(Job("print(1)"), data).stdout == b"1\n"


@pytest.mark.parametrize("waits", ["", "import selectors\n"])
def test_input_ends_in_a_pipe_or_a_file(best: RecordingSandbox, waits: str) -> None:
    data = b"x" * 300_000
    program = f"{waits}import os, stat, sys\nprint(stat.S_ISFIFO(os.fstat(0).st_mode))"
    read = "\nprint(len(sys.stdin.read()))"
    assert best.run(Job(program + read), data).stdout == f"{bool(waits)}\n300000\n".encode()
    # More than a pipe may hold is a file all the same.
    assert best.run(Job(program + read), b"x" * (3 * MIB)).stdout == b"False\n3145728\n"


def test_stderr_keeps_its_tail(best: RecordingSandbox) -> None:
    outcome = best.run(Job("import sys\nfor n in range(5000): print(n, file=sys.stderr)"))
    assert len(outcome.stderr) == 4096
    assert outcome.stderr.endswith(b"4999\n")


def test_memory_is_bounded(best: RecordingSandbox) -> None:
    limits = Limits(memory=256 * MIB)
    assert b"MemoryError" in best.run(Job("bytearray(1 << 28)"), limits=limits).stderr
    assert best.run(Job("print(len(bytearray(1 << 26)))"), limits=limits).status == 0


def test_nothing_is_left_to_the_next_run(best: RecordingSandbox) -> None:
    first = Job(
        "import sys, builtins, random, json\nsys.setrecursionlimit(77777)\n"
        "builtins.print = json.loads = None\nopen('left', 'w').write('x')\nrandom.seed(1)"
    )
    second = Job(
        "import sys, json, os, random\n"
        "print(sys.getrecursionlimit(), json.loads('1'), os.listdir('.'), random.random())"
    )
    best.run(first)
    one, other = best.run(second).stdout.split(), best.run(second).stdout.split()
    assert one[:3] == other[:3] == [b"50000", b"1", b"[]"]
    assert one[3] != other[3]


def test_a_program_starts_with_a_clean_slate(
    best: RecordingSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = best.run(Job("import os, sys\nprint(sorted(os.environ), sys.argv, __name__, __file__)"))
    assert seen.stdout == (
        b"['HOME', 'LC_ALL', 'MKL_NUM_THREADS', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'PATH', "
        b"'PYTHONHASHSEED', 'PYTHONUTF8', 'TMPDIR', 'TZ'] ['main.py'] __main__ main.py\n"
    )


def test_what_is_not_confined_has_all_rights() -> None:
    with Sandbox(Tier(seccomp=False)) as sandbox:
        assert sandbox.run(Job("import socket\nsocket.socket()")).status == 0


def test_devices_that_landlock_leaves() -> None:
    program = (
        "import os\nfor name in ('null', 'zero', 'random'):\n"
        "    for how in (os.O_RDONLY, os.O_RDWR):\n"
        "        try: print(os.open(f'/dev/{name}', how) > 0, end=' ')\n"
        "        except OSError: print('no', end=' ')"
    )
    with open_sandbox("T2") as sandbox:
        assert sandbox.run(Job(program)).stdout == b"True True True no True no "
    os.close(confine.landlock_ruleset({Path("/no/such/file"): confine.READ_FILE}))


def test_lean_supervisors_serve_only_what_they_have_loaded(best: RecordingSandbox) -> None:
    assert best.run(Job("import sys\nprint('numpy' in sys.modules)")).stdout == b"False\n"
    common = "import math, heapq as h\nfrom collections import deque, Counter\nimport re"
    assert not box.needs_wide_supervisor(common)
    for text in (
        "import numpy as np", "from a.b import c", "import os, numpy", "if 1: import csv",
        "import functools\nimport csv", "import math as m, numpy", "__import__('csv')",
        "x = 'import asyncio'",
    ):  # fmt: skip
        assert box.needs_wide_supervisor(text), text


@pytest.mark.slow
def test_the_self_test_passes_here_and_fails_where_nothing_holds(best: RecordingSandbox) -> None:
    start = time.monotonic()
    before = os.times()
    report = self_test()
    assert report.passed, report
    assert (report.tier.namespaces, report.tier.landlock) == (
        best.tier.namespaces,
        best.tier.landlock,
    )
    assert 0 < report.seconds <= time.monotonic() - start
    # Processor time, of the programs too, so that a busy node doesn't matter.
    assert sum(os.times()[:4]) - sum(before[:4]) < 30
    assert {p.name for p in report.probes} >= {"read a file", "start a process", "connect"}
    below = self_test(Tier(seccomp=False))
    assert not below.passed
    assert "T0-unsafe" in below.reason
    # Until a program ends the supervisor.
    open_ways = {
        "read a file", "write a file", "list a folder", "start a process",
        "become another program",
    }  # fmt: skip
    assert open_ways <= {probe.name for probe in below.probes if not probe.passed}


def test_no_tier_is_claimed_that_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_available_tiers", lambda: [Tier(namespaces=True), Tier()])
    monkeypatch.setattr(
        Sandbox, "run", lambda self, *a: (_ for _ in ()).throw(SandboxError("not here"))
    )
    report = self_test()
    assert not report.passed
    assert report.reason == "T3: not here; T1: not here"
    assert report.tier == Tier()
