"""The verifier's side of the sandbox: start supervisors, hand out runs, collect bytes.

:class:`Sandbox` is what the rest of the project uses. It belongs to one process and serves one run
at a time; work in parallel has one sandbox per worker process.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import marshal
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox.job import CHUNK, STDERR_TAIL, Cause, Job, Limits, Mode, Outcome, Tier
from rlbhpc.verify.sandbox.supervisor import LEAN_MODULES
from rlbhpc.verify.sandbox.syscalls import memory_file

# --- the verifier's ends of a run's descriptors --------------------------------------------------

# Input is a file, as under a judge: programs ask for its size, map it, go back in it. Output goes
# into pipes, so that a flood stops at the pipe's size while it is being cut off.


class Pump:
    """Descriptors of one run; a context manager that closes them all."""

    def __init__(self, job: int, stdin: int, limits: Limits, takes_result: bool) -> None:
        """Open the pipes. ``job`` and ``stdin`` are descriptors that this object takes over."""
        self._caps: dict[int, int] = {}
        self._buffers: dict[int, bytearray] = {}
        self._out, out_end = os.pipe2(os.O_CLOEXEC)
        self._err, err_end = os.pipe2(os.O_CLOEXEC)
        self._result, result_end = os.pipe2(os.O_CLOEXEC)
        self.child_ends = [job, stdin, out_end, err_end, result_end]
        for descriptor, cap in (
            (self._out, limits.output),
            (self._err, limits.output),
            (self._result, limits.result if takes_result else 0),
        ):
            self._caps[descriptor] = cap
            self._buffers[descriptor] = bytearray()
        self._open = {self._out, self._err, self._result}
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close_child_ends()
        for descriptor in self._open:
            os.close(descriptor)

    def close_child_ends(self) -> None:
        """Close what the child has received, so that its end is seen."""
        for descriptor in self.child_ends:
            os.close(descriptor)
        self.child_ends = []

    @property
    def collected(self) -> tuple[bytes, bytes, bytes]:
        """Standard output, the tail of standard error, and the result."""
        out, err, result = (self._buffers[d] for d in (self._out, self._err, self._result))
        return bytes(out), bytes(err[-STDERR_TAIL:]), bytes(result)

    def collect(self, channel: socket.socket, run: int, patience: float) -> dict[str, Any]:
        """Move bytes until the supervisor reports the run's end; its report.

        A run that writes past a cap is ended; ``OSError`` when the supervisor itself falls silent.
        """
        stopped = False
        deadline = time.monotonic() + patience
        while True:
            ready = _ready([channel.fileno(), *self._open], deadline - time.monotonic())
            if not ready:
                raise TimeoutError("silent for longer than any run may take")
            for descriptor in self._open.intersection(ready):
                self._read(descriptor)
            if self._over and not stopped:
                stopped = True
                channel.send(marshal.dumps({"run": run, "stop": Cause.OUTPUT.value}))
            if channel.fileno() in ready:
                report = _report(channel)
                # The child is gone; what outlives it and writes on fills each pipe's cap at most.
                while rest := _ready(self._unfilled(), 0.0):
                    for descriptor in rest:
                        self._read(descriptor)
                if self._over:
                    report["cause"] = Cause.OUTPUT
                return report

    def _unfilled(self) -> list[int]:
        """Pipes of which more may be read: all, until one passes its cap."""
        return [d for d in self._open if not self._over or len(self._buffers[d]) < self._caps[d]]

    def _read(self, descriptor: int) -> None:
        """Take one chunk, of which what is past the cap is dropped."""
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            self._open.remove(descriptor)
            os.close(descriptor)
        buffer = self._buffers[descriptor]
        room = self._caps[descriptor] - len(buffer)
        buffer += chunk[:room]
        self._over |= len(chunk) > room


def input_pipe(content: bytes) -> int | None:
    """Return a pipe that holds all of ``content`` and ends after it; None where it doesn't fit.

    For programs that wait for events of standard input, which files have none of.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    with suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, max(len(content), CHUNK))
    written = os.write(writer, content)
    os.close(writer)
    if written == len(content):
        return reader
    os.close(reader)
    return None


def _ready(descriptors: list[int], timeout: float) -> list[int]:
    """Wait like :func:`select.select`, whose sets end at descriptor 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(max(0.0, timeout) * 1000)]


def _report(channel: socket.socket) -> dict[str, Any]:
    message = channel.recv(CHUNK)
    if not message:
        raise ConnectionError("the supervisor ended")
    report: dict[str, Any] = json.loads(message)
    return report


# --- supervisors and the sandbox -----------------------------------------------------------------

# Seconds for a supervisor to load NumPy from a cold shared file system, and past a run's own limit
# after which it counts as stuck.
_PATIENCE: Final = 120
_FROM: Final = re.compile(r"\bfrom\s+([\w.]+)\s+import\b")
_IMPORT: Final = re.compile(r"\bimport\s+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)")
# Imports by a computed name, and `import a as b, c`, of which the pattern above reads half.
_DYNAMIC: Final = re.compile(r"__import__|importlib|runpy|\bas\s+\w+\s*,")
# What is done to a pipe and can't be done to a file.
_WAITS: Final = re.compile(r"connect_read_pipe|selectors|epoll")


class SandboxError(Exception):
    """The sandbox itself failed; nothing is known about the program."""


class NodeTooBusyError(SandboxError):
    """A program had too little processor time for any verdict."""


def _needs_all(program: str) -> bool:
    """Whether a program's text may import more than a lean supervisor has loaded."""
    if _DYNAMIC.search(program):
        return True
    names = _FROM.findall(program)
    for imported in _IMPORT.findall(_FROM.sub("", program)):
        names += [name.strip() for name in imported.split(",")]
    return not set(LEAN_MODULES).issuperset(names)


class Supervisor:
    """One supervisor process (:mod:`rlbhpc.verify.sandbox.supervisor`) and the channel to it."""

    def __init__(self, tier: Tier, wide: bool, preload: str = "") -> None:
        """Start one; ``wide`` with every module of the library and NumPy. Raises SandboxError."""
        self._channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = Path(__file__).parents[3]
        start = (
            f"import sys; sys.path.append({str(root)!r}); "
            f"from rlbhpc.verify.sandbox.supervisor import main; main({inner.fileno()})"
        )
        with inner:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", "-c", start],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                cwd="/",
                pass_fds=(inner.fileno(),),
            )
        self._runs = count()
        self._group = self._scratch = ""
        numpy = importlib.util.find_spec("numpy")
        folders = [str(Path(numpy.origin).parent)] if numpy and numpy.origin else []
        settings = {
            "wide": wide,
            "packages": folders,
            "preload": preload,
            "path": [entry for entry in sys.path if entry] if preload else [],
            "local": [os.environ.get("TMPDIR", ""), "/tmp", "/dev/shm"],
            "seccomp": tier.seccomp,
            "landlock": bool(tier.landlock),
            "namespaces": tier.namespaces,
            "cgroup": tier.cgroup,
        }
        self._channel.settimeout(_PATIENCE)
        hello = self._ask(json.dumps(settings).encode())
        if "failed" in hello:
            self.close()
            raise SandboxError(hello["failed"])
        self._group = hello["group"]
        self._scratch = hello["scratch"]

    @property
    def in_group(self) -> bool:
        """Whether it runs in a control group of its own."""
        return bool(self._group)

    def _ask(self, message: bytes) -> dict[str, Any]:
        answer = b""
        with suppress(OSError):
            self._channel.send(message)
            answer = self._channel.recv(CHUNK)
        if not answer:
            raise SandboxError(f"the supervisor ended: {self._last_words()}")
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def run(self, job: Job, stdin: bytes, limits: Limits) -> Outcome:
        """Run one job to its end."""
        run = next(self._runs)
        takes_result = job.mode is not Mode.MAIN
        pipe = input_pipe(stdin) if _WAITS.search(job.program) else None
        source = memory_file([stdin]) if pipe is None else pipe
        with Pump(memory_file([job.encode()]), source, limits, takes_result) as pump:
            request = {
                "run": run, "cpu": limits.cpu, "wall": limits.wall,
                "longest_wall": limits.longest_wall, "memory": limits.memory,
                "threads": limits.threads,
            }  # fmt: skip
            try:
                socket.send_fds(self._channel, [marshal.dumps(request)], pump.child_ends)
                pump.close_child_ends()
                report = pump.collect(self._channel, run, limits.longest_wall + _PATIENCE)
            except OSError as error:
                self.close()
                raise SandboxError(f"supervisor: {error}") from None
            if "failed" in report:
                raise SandboxError(report["failed"])
            cause = Cause(report["cause"])
            if cause is Cause.STARVED:
                raise NodeTooBusyError(
                    f"the node is too busy: {report['cpu']:.1f} s of processor time in "
                    f"{report['wall']:.0f} s"
                )
            return Outcome(cause, report["status"], *pump.collected, report["cpu"], report["wall"])

    def _last_words(self) -> str:
        """End it, and read what it had to complain of."""
        self._process.kill()
        assert self._process.stderr is not None
        text = self._process.stderr.read().decode("utf-8", "replace")
        self.close()
        return text.strip().rpartition("\n")[2] or f"exit {self._process.returncode}"

    def close(self) -> None:
        """End the supervisor and, through it, whatever it runs."""
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        with suppress(OSError):
            if self._group:
                Path(self._group).rmdir()
            # A supervisor that was killed could not clean up after itself.
            if self._scratch:
                confine.empty_scratch(self._scratch)
                Path(self._scratch).rmdir()


def _environment() -> dict[str, str]:
    """Environment of a supervisor: what the interpreter needs to start, and no secret."""
    environment = {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }  # fmt: skip
    # Interpreters of environment modules find their libraries through this.
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment


class Sandbox:
    """Runs programs at one tier; starts supervisors as they are needed and replaces dead ones."""

    def __init__(self, tier: Tier, preload: str = "") -> None:
        """Start nothing yet.

        ``tier``: how it confines. ``preload``: module of trusted code that programs may import,
        with all that it imports.
        """
        self.tier = tier
        self._preload = preload
        self._supervisors: dict[bool, Supervisor] = {}
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def run(self, job: Job, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Run a job; once more if the sandbox itself fails, or if the node was too busy.

        Time is processor time, and waiting for a processor counts as nobody's. A run that the wall
        clock ended has slept, or was held up in a way that the kernel doesn't count (a throttled
        group, a stolen processor), so it gets a second chance.

        Raises :class:`SandboxError` when the second try fails too, or at once when the node is too
        busy.
        """
        wide = (
            job.mode is Mode.SHIM
            or bool(self._preload)
            or _needs_all(job.before)
            or _needs_all(job.program)
        )
        with self._lock:
            if os.getpid() != self._owner:
                # After a fork the channels belong to the parent as well.
                self._supervisors, self._owner = {}, os.getpid()
            try:
                outcome = self._supervisor(wide).run(job, stdin, limits or Limits())
                if outcome.cause is not Cause.WALL:
                    return outcome
            except NodeTooBusyError:
                raise
            except SandboxError:
                self._discard(wide)
            try:
                return self._supervisor(wide).run(job, stdin, limits or Limits())
            except SandboxError:
                self._discard(wide)
                raise

    def _supervisor(self, wide: bool) -> Supervisor:
        if wide not in self._supervisors:
            self._supervisors[wide] = Supervisor(self.tier, wide, self._preload)
        return self._supervisors[wide]

    @property
    def in_group(self) -> bool:
        """Whether the supervisors that have started run in control groups."""
        return all(supervisor.in_group for supervisor in self._supervisors.values())

    def _discard(self, wide: bool) -> None:
        supervisor = self._supervisors.pop(wide, None)
        if supervisor is not None:
            supervisor.close()

    def close(self) -> None:
        """End all supervisors."""
        with self._lock:
            if os.getpid() == self._owner:
                for wide in list(self._supervisors):
                    self._discard(wide)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
