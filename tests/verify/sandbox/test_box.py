"""What a sandbox promises besides holding hostile programs."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import box, probe, self_test
from rlbhpc.verify.sandbox.box import Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import Cause, Job, Limits
from rlbhpc.verify.sandbox.tier import Tier
from tests.verify.busy import busy_processes, one_processor
from tests.verify.conftest import TIERS, RecordingSandbox, open_sandbox

MIB = 1 << 20


@pytest.fixture
def own() -> Iterator[Sandbox]:
    """A sandbox at the floor, for tests that break it."""
    with Sandbox(Tier()) as sandbox:
        yield sandbox


def test_what_the_kernel_allows_is_reached() -> None:
    """Asked without the package: a tier that no longer starts is skipped by every other test."""
    libc = ctypes.CDLL(None, use_errno=True)
    has_landlock = libc.syscall(444, None, 0, 1) > 0
    spaces = "--user --map-root-user --pid --mount --net --ipc --uts --fork".split()
    unshare = shutil.which("unshare") or "false"
    has_spaces = subprocess.run([unshare, *spaces, "true"], capture_output=True).returncode == 0
    allowed = {"T1": True, "T2": has_landlock, "T3 without Landlock": has_spaces}
    for name, tier in TIERS.items():
        if allowed.get(name, has_landlock and has_spaces):
            with Sandbox(tier) as sandbox:
                assert sandbox.run(Job("print(1)")).stdout == b"1\n", name


def test_outcomes(best: RecordingSandbox) -> None:
    fine = best.run(Job("import sys\nprint(input())\nsys.exit(3)"), b"hello\n")
    assert (fine.cause, fine.status, fine.stdout) == (Cause.EXIT, 3, b"hello\n")
    crash = best.run(Job("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"))
    assert (crash.cause, crash.status) == (Cause.SIGNAL, signal.SIGSEGV)
    error = best.run(Job("def f(): raise KeyError('k')\nf()"))
    assert error.status == 1
    assert error.stderr.endswith(b"KeyError: 'k'\n")
    assert b"raise KeyError('k')" in error.stderr


def test_processor_time_decides(best: RecordingSandbox) -> None:
    limits = Limits(cpu=0.3)
    loop = best.run(Job("while True: pass"), limits=limits)
    assert loop.cause is Cause.CPU
    assert 0.3 <= loop.cpu < 0.6
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


@pytest.mark.slow
def test_a_hopelessly_busy_node_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "longest_wall", 1.0)
    busy = pytest.raises(SandboxError, match=r"the node is too busy: 0\.\d s of processor time")
    with one_processor(), open_sandbox("T1") as sandbox, busy_processes(40), busy:
        sandbox.run(Job(ONE_THREAD), limits=Limits(cpu=0.2))
    # Once the neighbours have gone, the same run ends well.
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


def test_a_dead_supervisor_is_replaced(own: Sandbox) -> None:
    assert own.run(Job("print(1)")).stdout == b"1\n"
    process = own._supervisors[False]._process
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert own.run(Job("print(2)")).stdout == b"2\n"


def test_a_supervisor_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "_environment", lambda: {"PYTHONHOME": "/nowhere"})
    with Sandbox(Tier()) as sandbox, pytest.raises(SandboxError, match=r"the supervisor ended: .+"):
        sandbox.run(Job("print(1)"))


def test_a_fork_of_the_verifier_has_supervisors_of_its_own(own: Sandbox) -> None:
    own.run(Job("print(1)"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, own.run(Job("print('child')")).stdout)
        own.close()
        os._exit(0)
    mine = [own.run(Job(f"print({n})")).stdout for n in range(20)]
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"child\n"
    assert mine == [b"%d\n" % n for n in range(20)]


def test_descriptors_are_not_leaked(own: Sandbox) -> None:
    own.run(Job("print(1)"))
    gc.collect()  # what earlier tests left may be closed at any moment
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        own.run(Job("while True: print(1)"), limits=Limits(output=1000))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_threads_take_turns(own: Sandbox) -> None:
    outputs: dict[int, bytes] = {}

    def run(number: int) -> None:
        outputs[number] = own.run(Job(f"print({number})")).stdout

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {n: b"%d\n" % n for n in range(8)}


def test_lean_supervisors_serve_only_what_they_have_loaded(best: RecordingSandbox) -> None:
    assert best.run(Job("import sys\nprint('numpy' in sys.modules)")).stdout == b"False\n"
    common = "import math, heapq as h\nfrom collections import deque, Counter\nimport re"
    assert not box._needs_all(common)
    for text in (
        "import numpy as np", "from a.b import c", "import os, numpy", "if 1: import csv",
        "import functools\nimport csv", "import math as m, numpy", "__import__('csv')",
        "x = 'import asyncio'",
    ):  # fmt: skip
        assert box._needs_all(text), text


@pytest.mark.slow
def test_the_self_test_passes_here_and_fails_where_nothing_holds() -> None:
    before = os.times()
    report = self_test()
    assert report.passed, report
    # Processor time, of the programs too, so that a busy node doesn't matter.
    assert sum(os.times()[:4]) - sum(before[:4]) < 30
    assert {p.name for p in report.probes} >= {"read a file", "start a process", "connect"}
    below = self_test(Tier(seccomp=False))
    assert not below.passed
    assert "T0-unsafe" in below.reason


def test_no_tier_is_claimed_that_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_tiers", lambda: [Tier(namespaces=True), Tier()])
    monkeypatch.setattr(
        Sandbox, "run", lambda self, *a: (_ for _ in ()).throw(SandboxError("not here"))
    )
    report = self_test()
    assert not report.passed
    assert report.reason == "T3: not here; T1: not here"
