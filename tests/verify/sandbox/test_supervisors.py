"""What a sandbox does with its supervisors: one for all runs, replaced when it dies."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlbhpc.verify.sandbox import box
from rlbhpc.verify.sandbox.box import RunPipes, Sandbox, SandboxError
from rlbhpc.verify.sandbox.job import CHUNK_BYTES, Cause, Job, Limits, Tier
from rlbhpc.verify.sandbox.syscalls import memory_file
from tests.verify.conftest import PARENT, TIERS


@pytest.fixture
def own() -> Iterator[Sandbox]:
    """A sandbox at the floor, for tests that break it."""
    with Sandbox(Tier()) as sandbox:
        yield sandbox


def test_what_is_written_past_a_cap_is_not_waited_for() -> None:
    """Whoever outlives its program and writes for ever would hold the verifier."""
    ours, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (
        ours,
        supervisor,
        RunPipes(memory_file([]), memory_file([]), Limits(output=1000), True) as pipes,
    ):
        out = pipes.child_ends[2]
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 16 * CHUNK_BYTES)
        os.write(out, b"y" * 16 * CHUNK_BYTES)
        supervisor.send(json.dumps({"cause": Cause.EXIT}).encode())
        assert pipes.collect(ours, 1, 30)["cause"] == Cause.OUTPUT
        assert pipes.stdout.content == b"y" * 1000
        assert not pipes.stderr.content and not pipes.result.content
        assert len(os.read(pipes.stdout.reader, 16 * CHUNK_BYTES)) == 15 * CHUNK_BYTES


def test_a_dead_supervisor_is_replaced(own: Sandbox) -> None:
    assert own.run(Job("print(1)")).stdout == b"1\n"
    process = own._supervisors[False]._process
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert own.run(Job("print(2)")).stdout == b"2\n"
    # Also one that dies under a run.
    death = threading.Timer(0.1, own._supervisors[False]._process.kill)
    death.start()
    assert own.run(Job("import time\ntime.sleep(0.3)\nprint(3)")).stdout == b"3\n"
    death.join()


@pytest.mark.slow
def test_a_silent_supervisor_is_replaced(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    own.run(Job("print(1)"))
    monkeypatch.setattr(Limits, "longest_wall", 0.2)
    monkeypatch.setattr(box, "_SUPERVISOR_SECONDS", 4.0)
    silent = own._supervisors[False]._process
    silent.send_signal(signal.SIGSTOP)
    assert own.run(Job("print(2)")).stdout == b"2\n"
    assert silent.returncode == -signal.SIGKILL


def test_one_supervisor_serves_all_runs(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = own.run(Job(PARENT)).stdout
    for _ in range(20):
        # The order to stop may cross the report of the end.
        own.run(Job("import os\nos.write(1, b'x' * 5000)\nos._exit(0)"), limits=Limits(output=1000))
    assert own.run(Job(PARENT)).stdout == supervisor
    # What has slept gets a second chance, and no third.
    monkeypatch.setattr(Limits, "wall", 1.0)
    start = time.monotonic()
    asleep = own.run(Job("import time\ntime.sleep(99)"))
    assert (asleep.cause, int(asleep.wall)) == (Cause.WALL, 1)
    assert 2.0 <= time.monotonic() - start < 3.0
    assert own.run(Job(PARENT)).stdout == supervisor
    with pytest.raises(SandboxError, match="the child could not be confined"):
        own.run(Job(PARENT), limits=Limits(memory=1 << 70))
    assert own.run(Job(PARENT)).stdout not in (supervisor, b"")


def test_a_supervisor_gives_up_root(own: Sandbox) -> None:
    program = (
        "import os, resource as r\nprint(os.getppid(), os.getuid(), *r.getrlimit(r.RLIMIT_NPROC))"
    )
    supervisor, user, *threads = map(int, own.run(Job(program)).stdout.split())
    if os.geteuid() == 0:
        assert user == 0x70000000 + supervisor
        assert threads == [256, 256]
    # Nobody but root may look into it.
    assert Path(f"/proc/{supervisor}/status").stat().st_uid == 0


VERIFIER = f"""
import sys
from rlbhpc.verify.sandbox.box import Job, Sandbox
from rlbhpc.verify.sandbox.syscalls import memory_file
from rlbhpc.verify.sandbox.job import Tier
with Sandbox(eval(sys.argv[1])) as sandbox:
    print(sandbox.run(Job({PARENT!r})).stdout.decode(), flush=True)
    sandbox.run(Job("import time; time.sleep(99)"))
"""


@pytest.mark.slow
def test_programs_end_with_the_verifier() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        tier = TIERS["T2"] if TIERS["T2"].landlock else TIERS["T1"]
        with subprocess.Popen(
            [sys.executable, "-c", VERIFIER, repr(tier)], stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": folder},
        ) as verifier:  # fmt: skip
            assert verifier.stdout is not None
            supervisor = Path("/proc", verifier.stdout.readline().decode().strip())
            children = supervisor / "task" / supervisor.name / "children"
            wait_for(lambda: bool(children.read_text()))
            scratch_folders = list(Path(folder).iterdir())
            verifier.kill()
            wait_for(lambda: not supervisor.exists())
        assert len(scratch_folders) == bool(tier.landlock)
        assert list(Path(folder).iterdir()) == []


def wait_for(condition: Callable[[], bool]) -> None:
    """Look until something holds."""
    while not condition():
        time.sleep(0.01)


def test_a_supervisor_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "_supervisor_environment", lambda: {"PYTHONHOME": "/nowhere"})
    with Sandbox(Tier()) as sandbox, pytest.raises(SandboxError, match=r"the supervisor ended: .+"):
        sandbox.run(Job("print(1)"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise OSError('no licence')", "no licence"),
        ("raise ValueError('no licence')", "the supervisor ended: ValueError: no licence"),
        ("import os\nos._exit(3)", "the supervisor ended: exit 3"),
    ],
)
def test_what_is_preloaded_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    (tmp_path / "preloaded.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with Sandbox(Tier(), "preloaded") as sandbox, pytest.raises(SandboxError) as raised:
        sandbox.run(Job("print(1)"))
    assert str(raised.value) == complaint


def test_a_program_imports_what_is_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brought").mkdir()
    (tmp_path / "brought" / "__init__.py").write_text("import plain, csv")
    (tmp_path / "brought" / "later.py").write_text("import plain\nname = __name__")
    (tmp_path / "plain.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with Sandbox(Tier(), "brought") as sandbox:
        job = Job("import sys, brought.later, csv, plain\nprint(brought.later.name)")
        assert sandbox.run(job).stdout == b"brought.later\n"
        absent = "import sys\nprint(sys.modules.keys() & {'_curses', '_dbm', 'readline'})"
        assert sandbox.run(Job(absent)).stdout == b"set()\n"


def test_a_fork_of_the_verifier_has_supervisors_of_its_own(own: Sandbox) -> None:
    supervisor = own.run(Job(PARENT)).stdout
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        own.close()
        os.write(writer, own.run(Job("print('child')")).stdout)
        own.close()
        os._exit(0)
    outputs = [own.run(Job(f"print({n})")).stdout for n in range(20)]
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"child\n"
    assert outputs == [b"%d\n" % n for n in range(20)]
    assert own.run(Job(PARENT)).stdout == supervisor


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
