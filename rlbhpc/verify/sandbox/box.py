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
from rlbhpc.verify.sandbox.job import (
    CHUNK_BYTES,
    STDERR_TAIL,
    Cause,
    Job,
    Limits,
    Mode,
    Outcome,
    Tier,
)
from rlbhpc.verify.sandbox.supervisor import LEAN_MODULES
from rlbhpc.verify.sandbox.syscalls import memory_file

# --- the verifier's ends of a run's descriptors --------------------------------------------------

# Input is a file, as under a judge: programs ask for its size, map it, go back in it. Output goes
# into pipes, so that a flood stops at the pipe's size while it is being cut off.


class OutputPipe:
    """The verifier's end of a pipe that a program writes to, and the bytes read so far.

    ``max_bytes``: what is kept; the rest is dropped. ``child_end``: descriptor for the program.
    """

    def __init__(self, max_bytes: int) -> None:
        self.reader, self.child_end = os.pipe2(os.O_CLOEXEC)
        self.max_bytes = max_bytes
        self.content = bytearray()
        self.is_open = True
        self.has_overflowed = False

    @property
    def is_full(self) -> bool:
        """Whether as many bytes have been read as are kept."""
        return len(self.content) >= self.max_bytes

    def read_chunk(self) -> None:
        """Read what has arrived, without waiting for more; at the end of the output close the pipe.

        Only the first ``max_bytes`` bytes are kept. A program that writes more sets
        ``has_overflowed``, for which its run is then ended.
        """
        chunk = os.read(self.reader, CHUNK_BYTES)
        if not chunk:
            self.close()
        free = self.max_bytes - len(self.content)
        self.content += chunk[:free]
        if len(chunk) > free:
            self.has_overflowed = True

    def close(self) -> None:
        """Close our end, once."""
        if self.is_open:
            os.close(self.reader)
            self.is_open = False


class RunPipes:
    """Descriptors of one run; a context manager that closes them all."""

    def __init__(self, job: int, stdin: int, limits: Limits, takes_result: bool) -> None:
        """Open a pipe for each output of one run; the descriptors given are taken over.

        ``job``: descriptor of a file with the program and what to do with it. ``stdin``: descriptor
        of its standard input. ``takes_result``: whether a *result* is expected, the returned values
        that are written to a pipe of its own beside stdout; without it one byte there is too many.
        ``child_ends``: what the child gets, in the order in which it expects them.
        """
        self.stdout = OutputPipe(limits.output)
        self.stderr = OutputPipe(limits.output)
        self.result = OutputPipe(limits.result if takes_result else 0)
        self._outputs = (self.stdout, self.stderr, self.result)
        self.child_ends = [job, stdin, *(output.child_end for output in self._outputs)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close_child_ends()
        for output in self._outputs:
            output.close()

    def close_child_ends(self) -> None:
        """Close the ends that the child has received; only then can the end of output be seen."""
        for descriptor in self.child_ends:
            os.close(descriptor)
        self.child_ends = []

    def collect(self, channel: socket.socket, run: int, timeout_seconds: float) -> dict[str, Any]:
        """Read output until the supervisor reports the run's end, and return its report.

        The supervisor is the process that started the program and watches it. ``channel``: the
        socket to it. ``run``: the run's number. ``timeout_seconds``: longer than any run may take;
        past it :class:`TimeoutError` (an ``OSError``) says that the supervisor itself hangs. When
        the program writes past a limit, the supervisor is told once to stop the run, and its report
        still follows.
        """
        stop_sent = False
        deadline = time.monotonic() + timeout_seconds
        while True:
            readers = [output.reader for output in self._outputs if output.is_open]
            remaining = deadline - time.monotonic()
            readable = _wait_readable([channel.fileno(), *readers], remaining)
            if not readable:
                raise TimeoutError("silent for longer than any run may take")
            self._read_outputs(readable)
            if self._has_overflowed() and not stop_sent:
                stop_sent = True
                channel.send(marshal.dumps({"run": run, "stop": Cause.OUTPUT.value}))
            if channel.fileno() in readable:
                report = _receive_report(channel)
                self._read_remaining()
                if self._has_overflowed():
                    report["cause"] = Cause.OUTPUT
                return report

    def _has_overflowed(self) -> bool:
        return any(output.has_overflowed for output in self._outputs)

    def _read_outputs(self, readable: list[int]) -> None:
        for output in self._outputs:
            if output.is_open and output.reader in readable:
                output.read_chunk()

    def _read_remaining(self) -> None:
        """Read what a run that has ended left in its pipes.

        A process that outlives the run may go on writing. So once one pipe has overflowed, each is
        read only up to its limit, and the loop comes to an end.
        """
        while True:
            stop_when_full = self._has_overflowed()
            readers = [
                output.reader
                for output in self._outputs
                if output.is_open and not (stop_when_full and output.is_full)
            ]
            readable = _wait_readable(readers, 0.0)
            if not readable:
                return
            self._read_outputs(readable)


def fill_pipe(content: bytes) -> int | None:
    """Return the reading end of a pipe that holds all of ``content``; None where it doesn't fit.

    The writing end is closed already, so the reader sees the end of the input. Standard input is
    otherwise a file. Programs that wait for events of it need a pipe, since a file has none.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    # Users other than root can make a pipe only so large.
    with suppress(OSError):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, max(len(content), CHUNK_BYTES))
    written = os.write(writer, content)
    os.close(writer)
    if written == len(content):
        return reader
    os.close(reader)
    return None


def _wait_readable(descriptors: list[int], timeout_seconds: float) -> list[int]:
    """Wait like :func:`select.select`, which takes no descriptor above 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    events = poll.poll(max(0.0, timeout_seconds) * 1000)
    return [descriptor for descriptor, _ in events]


def _receive_report(channel: socket.socket) -> dict[str, Any]:
    message = channel.recv(CHUNK_BYTES)
    if not message:
        raise ConnectionError("the supervisor ended")
    report: dict[str, Any] = json.loads(message)
    return report


# --- supervisors and the sandbox -----------------------------------------------------------------

# Seconds for a supervisor to load NumPy from a cold shared file system. So long after a run's own
# limit, too, a supervisor counts as stuck.
_SUPERVISOR_SECONDS: Final = 120
_FROM_IMPORT: Final = re.compile(r"\bfrom\s+([\w.]+)\s+import\b")
_PLAIN_IMPORT: Final = re.compile(r"\bimport\s+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)")
# Imports by a computed name, and `import a as b, c`, of which the pattern above reads half.
_UNREADABLE_IMPORT: Final = re.compile(r"__import__|importlib|runpy|\bas\s+\w+\s*,")
# Names in programs that wait for events of standard input: a pipe has them, a file hasn't.
_WAITS_FOR_INPUT: Final = re.compile(r"connect_read_pipe|selectors|epoll")


class SandboxError(Exception):
    """The sandbox itself failed; nothing is known about the program."""


class NodeTooBusyError(SandboxError):
    """A program had too little processor time for any verdict."""


def needs_wide_supervisor(program: str) -> bool:
    """Return whether a program may import more than a lean supervisor has loaded.

    A supervisor is the process that programs are forked from. A *lean* one has loaded the common
    modules of the standard library (``LEAN_MODULES``) and forks fast; a *wide* one has all of them,
    and NumPy. Imports are read off the text, so when in doubt the answer is yes.
    """
    if _UNREADABLE_IMPORT.search(program):
        return True
    imported = set(_FROM_IMPORT.findall(program))
    for names in _PLAIN_IMPORT.findall(_FROM_IMPORT.sub("", program)):
        imported.update(name.strip() for name in names.split(","))
    return not imported.issubset(LEAN_MODULES)


class Supervisor:
    """One supervisor process (:mod:`rlbhpc.verify.sandbox.supervisor`) and the channel to it."""

    def __init__(self, tier: Tier, wide: bool, preload: str = "", *, nursery: bool = False) -> None:
        """Start a supervisor process and wait until it is ready; else raise :class:`SandboxError`.

        A supervisor forks, confines and watches one child per program. ``tier``: how tightly it
        confines them (system call filter, Landlock, namespaces). ``wide``: whether it loads every
        module of the standard library and NumPy. ``preload``: name of a module of trusted code that
        it loads, too. The interpreter starts without the user's and the site's packages (``-s
        -S``), without its own folder on the path (``-P``), and writes no bytecode (``-B``).
        """
        self._channel, supervisor_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._runs = count()
        self._temporary_scratch = ""
        # The folder that holds the package rlbhpc.
        package_root = Path(__file__).parents[3]
        program = (
            f"import sys; sys.path.append({str(package_root)!r}); "
            "from rlbhpc.verify.sandbox.supervisor import main; "
            f"main({supervisor_end.fileno()})"
        )
        with supervisor_end:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_supervisor_environment(),
                cwd="/",
                pass_fds=(supervisor_end.fileno(),),
            )
        numpy = importlib.util.find_spec("numpy")
        settings = {
            "wide": wide,
            "packages": [str(Path(numpy.origin).parent)] if numpy and numpy.origin else [],
            "preload": preload,
            "nursery": nursery,
            "path": [entry for entry in sys.path if entry] if preload else [],
            "temporary_folders": [os.environ.get("TMPDIR", ""), "/tmp", "/dev/shm"],
            "seccomp": tier.seccomp,
            "landlock": bool(tier.landlock),
            "namespaces": tier.namespaces,
        }
        self._channel.settimeout(_SUPERVISOR_SECONDS)
        answer = self._send_settings(json.dumps(settings).encode())
        if "failed" in answer:
            self.close()
            raise SandboxError(answer["failed"])
        self._temporary_scratch = answer["scratch"]

    def _send_settings(self, settings: bytes) -> dict[str, Any]:
        """Send the settings to the new supervisor process, and return its first answer.

        The answer holds ``failed`` with the reason, or ``scratch``, the temporary folder that
        programs may write to (empty if it has none). No answer means that the process has ended.
        """
        answer = b""
        with suppress(OSError):
            self._channel.send(settings)
            answer = self._channel.recv(CHUNK_BYTES)
        if not answer:
            raise SandboxError(f"the supervisor ended: {self._kill_and_read_error()}")
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def run(self, job: Job, stdin: bytes, limits: Limits) -> Outcome:
        """Run one program to its end, and return how it ended and what it wrote.

        A *job* is a program and what to do with it. Each run has a number (``run``), so that an
        order to stop one is never taken for another. The child receives descriptors only: job,
        stdin, and the pipes of stdout, stderr and result (the values that its function returned).
        Raises :class:`SandboxError` if the sandbox failed, and :class:`NodeTooBusyError` if the
        program got too little processor time (cause ``STARVED``).
        """
        run = next(self._runs)
        stdin_pipe = fill_pipe(stdin) if _WAITS_FOR_INPUT.search(job.program) else None
        stdin_file = memory_file([stdin]) if stdin_pipe is None else stdin_pipe
        job_file = memory_file([job.encode()])
        request = {
            "run": run, "cpu": limits.cpu, "wall": limits.wall,
            "longest_wall": limits.longest_wall, "memory": limits.memory,
            "threads": limits.threads, "is_session": False,
        }  # fmt: skip
        takes_result = job.mode is not Mode.MAIN
        with RunPipes(job_file, stdin_file, limits, takes_result) as pipes:
            try:
                socket.send_fds(self._channel, [marshal.dumps(request)], pipes.child_ends)
                pipes.close_child_ends()
                timeout_seconds = limits.longest_wall + _SUPERVISOR_SECONDS
                report = pipes.collect(self._channel, run, timeout_seconds)
            except OSError as error:
                self.close()
                raise SandboxError(f"supervisor: {error}") from None
        if "failed" in report:
            raise SandboxError(report["failed"])
        if report["cause"] == Cause.STARVED:
            raise NodeTooBusyError(
                f"the node is too busy: {report['cpu']:.1f} s of processor time in "
                f"{report['wall']:.0f} s"
            )
        return Outcome(
            cause=Cause(report["cause"]),
            status=report["status"],
            stdout=bytes(pipes.stdout.content),
            stderr=bytes(pipes.stderr.content[-STDERR_TAIL:]),
            result=bytes(pipes.result.content),
            cpu=report["cpu"],
            wall=report["wall"],
        )

    def _kill_and_read_error(self) -> str:
        """Kill the supervisor, and return the last line of its standard error, or its exit code."""
        self._process.kill()
        assert self._process.stderr is not None
        text = self._process.stderr.read().decode("utf-8", "replace")
        self.close()
        last_line = text.strip().rpartition("\n")[2]
        return last_line or f"exit {self._process.returncode}"

    def close(self) -> None:
        """End the supervisor and, through it, whatever it runs.

        Closing the channel asks it to end. After half a second it is killed, and then its scratch
        folder, to which programs could write, is emptied and removed here.
        """
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        # A supervisor that was killed could not clean up after itself.
        if self._temporary_scratch:
            with suppress(OSError):
                confine.empty_scratch(self._temporary_scratch)
                Path(self._temporary_scratch).rmdir()


def _supervisor_environment() -> dict[str, str]:
    """Return the environment of a supervisor: what its interpreter needs to start, and no secret.

    A supervisor is the process that programs under test are forked from, so they inherit this. The
    libraries of linear algebra get one thread, and hashes are the same in each run.
    """
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
        # The wide supervisor under True, the lean one under False.
        self._supervisors: dict[bool, Supervisor] = {}
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()

    def run(self, job: Job, stdin: bytes = b"", limits: Limits | None = None) -> Outcome:
        """Run a job; a second time if the sandbox itself fails, or if the run slept too long.

        A *job* is a program and what to do with it. It runs in a child of a supervisor process; a
        *wide* supervisor has loaded all modules of the standard library, a lean one the common
        ones. A run that slept too long (cause ``WALL``) may have been held up in a way that the
        kernel doesn't count (a throttled group, a stolen processor), so it gets a second chance.

        Raises :class:`SandboxError` when the second try fails too, and :class:`NodeTooBusyError`
        when a try had too little processor time.
        """
        limits = limits or Limits()
        # Any of these may need more modules than a lean supervisor has loaded.
        wide = (
            bool(self._preload)
            or needs_wide_supervisor(job.before)
            or needs_wide_supervisor(job.program)
        )
        with self._lock:
            if os.getpid() != self._owner_pid:
                # After a fork the channels belong to the parent as well.
                self._supervisors = {}
                self._owner_pid = os.getpid()
            try:
                outcome = self._get_supervisor(wide).run(job, stdin, limits)
                if outcome.cause is not Cause.WALL:
                    return outcome
            except NodeTooBusyError:
                raise
            except SandboxError:
                self._close_supervisor(wide)
            try:
                return self._get_supervisor(wide).run(job, stdin, limits)
            except SandboxError:
                self._close_supervisor(wide)
                raise

    def _get_supervisor(self, wide: bool) -> Supervisor:
        if wide not in self._supervisors:
            self._supervisors[wide] = Supervisor(self.tier, wide, self._preload)
        return self._supervisors[wide]

    def _close_supervisor(self, wide: bool) -> None:
        supervisor = self._supervisors.pop(wide, None)
        if supervisor is not None:
            supervisor.close()

    def close(self) -> None:
        """End all supervisors."""
        with self._lock:
            if os.getpid() == self._owner_pid:
                for wide in list(self._supervisors):
                    self._close_supervisor(wide)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
