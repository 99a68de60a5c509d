"""The supervisor: a small process that holds no secret, forks one child per run and watches it.

:mod:`rlbhpc.verify.sandbox.box` starts it as a fresh interpreter with an empty environment. It
loads the library, gives up all rights, enters the tier that it was told to, reports that it is
ready, and then serves runs one at a time. It never sees a program: the child reads that from a
descriptor of its own, so nothing of one run is left in memory that the next one inherits. It never
sees an expected output either; those stay with the verifier.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import marshal
import os
import random
import re
import resource
import select
import signal
import site
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from rlbhpc.verify.sandbox import confine
from rlbhpc.verify.sandbox import seccomp as seccomp_filter
from rlbhpc.verify.sandbox.job import CHUNK_BYTES, Cause
from rlbhpc.verify.sandbox.library import (
    Library,
    join_mappings,
    preload_extensions,
    prepare_contest_names,
    serve_only,
)
from rlbhpc.verify.sandbox.program import (
    Confinement,
    name_descriptors,
    prepare_streams,
    run_confined,
)

# --- how long a process has slept ----------------------------------------------------------------


class SleepClock:
    """Sums up how long one process has slept, by looks at what all its threads are doing.

    It sleeps while none of them runs, is ready to run or waits for a disk (``proc_pid_stat(5)``).
    A thread that is ready may be kept from its work by other processes, a throttled group, or a
    host that took the processor away. That is never the program's fault, and the kernel counts only
    some of it, so the sleep is counted instead: the time between two looks at both of which the
    process slept.
    """

    def __init__(self, process: int | str, proc_folder: int | None = None) -> None:
        """Watch the process with this id.

        ``proc_folder``: descriptor of the ``/proc`` in which it has that id; None for our own.
        """
        self._process = process
        self._proc_folder = proc_folder
        self._slept = 0.0
        self._asleep_since_look: float | None = None

    def seconds(self, is_held_up: bool = False) -> float | None:
        """Look at the process, and return how many seconds it has slept; None if hidden.

        It sleeps while none of its threads is in state R (runs or is ready to) or D (waits for a
        disk). The time between two looks counts if it slept at both. ``is_held_up``: whether it may
        be waiting for work of ours, which is no sleep.
        """
        states = _thread_states(self._process, self._proc_folder)
        if not states:
            return None
        now = time.monotonic()
        is_asleep = not is_held_up and states.isdisjoint("RD")
        if is_asleep and self._asleep_since_look is not None:
            self._slept += now - self._asleep_since_look
        self._asleep_since_look = now if is_asleep else None
        return self._slept


def _thread_states(process: int | str, proc_folder: int | None) -> set[str]:
    """Return the state letters (R, S, D, …) of all threads of a process; empty if hidden.

    ``proc_folder``: descriptor of the ``/proc`` to look in, None for our own. A thread that ends
    meanwhile is left out.
    """
    states = set()
    tasks_path = f"/proc/{process}/task" if proc_folder is None else f"{process}/task"
    with suppress(OSError):
        tasks = os.open(tasks_path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc_folder)
        try:
            for thread in os.scandir(tasks):
                with suppress(OSError, IndexError):
                    states.add(_thread_state(tasks, thread.name))
        finally:
            os.close(tasks)
    return states


def _thread_state(tasks: int, thread: str) -> str:
    """Return the state letter of one thread, such as R for running and S for sleeping.

    It is the third field of ``/proc/PID/task/TID/stat``. ``tasks``: descriptor of the ``task``
    folder. ``thread``: its id.
    """
    descriptor = os.open(f"{thread}/stat", os.O_RDONLY, dir_fd=tasks)
    try:
        line = os.read(descriptor, CHUNK_BYTES).decode("ascii", "replace")
    finally:
        os.close(descriptor)
    # The second field is a name in parentheses, which may hold anything.
    after_name = line.rpartition(")")[2]
    return after_name.split()[0]


# --- one run: fork, watch, kill, clean -----------------------------------------------------------

# Seconds between looks at a running program: often enough to keep a budget to a few hundredths,
# seldom enough to cost nothing.
_LOOK_SECONDS: Final = 0.02
# In a session, which mostly waits for its next call, and of which hundreds are open.
_SESSION_LOOK_SECONDS: Final = 0.5
# On a node that hides processes, a run that was pushed off the processor so many times more often
# than it gave it up was starved rather than asleep.
_STARVED_SWITCHES: Final = 10

_libc: Final = ctypes.PyDLL(None, use_errno=True)


def _fork_single_threaded() -> int:
    """Fork a process of one thread, without what :func:`os.fork` does about other threads.

    That touches some 50 pages, each of which the kernel must copy.
    """
    child = int(_libc.fork())
    if child < 0:
        raise OSError(ctypes.get_errno(), "no process for a program")
    return child


def _is_any_full(pipes: tuple[int, ...]) -> bool:
    """Return whether a program that writes must wait for the verifier to read."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLOUT)
    writable = poll.poll(0)
    return len(writable) < len(pipes)


class Watch:
    """Runs programs one at a time."""

    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        """Serve the verifier at the other end of ``control``; confine all programs alike.

        ``confinement``: the filter, rules and descriptors that each program gets. ``_wake`` is a
        pipe that can be read as soon as a child has ended.
        """
        self._control = control
        self._confinement = confinement
        self._child_name = ""
        self._sleep_clock = SleepClock("")
        self._slept: float | None = None
        # A module that was preloaded may have started threads.
        self._fork = _fork_single_threaded if threading.active_count() == 1 else os.fork
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Programs inherit this handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Python writes to the wake-up descriptor only for signals that have a handler.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer)

    def run(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run one program in a forked child, and report why it ended and what it used.

        ``request``: the run's number and its limits. ``descriptors``: job, stdin, stdout, stderr
        and result of the child. The child writes its own id to ``ready`` once it is confined; if it
        dies before, the sandbox has failed and not the program. ``cpu`` and ``wall`` of the report
        are in seconds.
        """
        start = time.monotonic()
        ready, ready_writer = os.pipe2(os.O_CLOEXEC)
        child = self._fork()
        if child == 0:
            self._become_program(request, descriptors, ready_writer)
        *inputs, stdout, stderr, result = descriptors
        for descriptor in (*inputs, ready_writer):
            os.close(descriptor)
        # These stay open, to see whether the verifier keeps up with reading them.
        outputs = (stdout, stderr, result)
        try:
            # Waits until the child is confined, or dead.
            self._child_name = os.read(ready, CHUNK_BYTES).decode()
            self._sleep_clock = SleepClock(self._child_name, self._confinement.proc_folder)
            cause, status, usage = self._supervise(child, request, start, outputs)
        finally:
            for descriptor in (ready, *outputs):
                os.close(descriptor)
            if self._confinement.has_scratch:
                confine.empty_scratch(self._confinement.scratch)
        if not self._child_name:
            return {"run": request["run"], "failed": "the child could not be confined"}
        return {
            "run": request["run"],
            "cause": cause,
            "status": status,
            "cpu": usage.ru_utime + usage.ru_stime,
            "wall": time.monotonic() - start,
        }

    def _become_program(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        """Confine the forked child and run the job in it; it never returns from here.

        ``descriptors``: job, stdin, stdout, stderr, result. ``ready``: the pipe on which the child
        tells that it is confined. Whatever fails before ends the child with an error status.
        """
        try:
            signal.set_wakeup_fd(-1)
            # os.fork() has a hook that does this; the bare fork hasn't.
            random.seed()
            run_confined(self._confinement, descriptors, ready, request)
        finally:
            os._exit(os.EX_OSERR)

    def _supervise(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> tuple[Cause, int, resource.struct_rusage]:
        """Wait for the child's end, and kill it when it passes a limit.

        Wakes up when the child ends (``_wake``), when the verifier sends an order to stop
        (``_control``), or after a moment, to look at the limits. ``request``: the run's number and
        its limits. ``outputs``: pipes that the child writes to. Returns the cause, the exit status
        or signal, and the resources that it used.
        """
        kill_cause: Cause | None = None
        look_seconds = _SESSION_LOOK_SECONDS if request["is_session"] else _LOOK_SECONDS
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            pid, wait_status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(wait_status)
                cause = self._ending_cause(kill_cause, code, usage, request)
                return cause, (-code if cause is Cause.SIGNAL else code), usage
            events = dict(poll.poll(look_seconds * 1000))
            if self._wake in events:
                with suppress(BlockingIOError):
                    os.read(self._wake, CHUNK_BYTES)
                continue
            if self._control.fileno() in events:
                exceeded = self._read_stop_order(request["run"])
            else:
                exceeded = self._exceeded_limit(child, request, start, outputs)
            if exceeded is not None and kill_cause is None:
                kill_cause = exceeded
                os.kill(child, signal.SIGKILL)

    def _ending_cause(
        self, kill_cause: Cause | None, code: int, usage: Any, request: dict[str, Any]
    ) -> Cause:
        """Return why a run ended, which had exit code ``code`` (negative for a signal).

        ``kill_cause``: the limit for which it was killed; None if it ended by itself. ``usage``:
        resources that it used. A run that was killed for sleeping counts as ``STARVED``, with no
        verdict, if its sleep could not be seen (``_slept`` is None) and others kept the processor
        from it.
        """
        if kill_cause is None and usage.ru_utime + usage.ru_stime > request["cpu"]:
            return Cause.CPU
        # Where a site hides processes from each other, sleep can't be seen. A process that others
        # push off the processor loses it more often than it gives it up to sleep.
        lost_processor = usage.ru_nivcsw > usage.ru_nvcsw + _STARVED_SWITCHES
        if kill_cause is Cause.WALL and self._slept is None and lost_processor:
            return Cause.STARVED
        if kill_cause is not None:
            return kill_cause
        return Cause.EXIT if code >= 0 else Cause.SIGNAL

    def _read_stop_order(self, run: int) -> Cause | None:
        """Read an order of the verifier to stop a run; without a message it has gone for good."""
        message = self._control.recv(CHUNK_BYTES)
        if not message:
            return Cause.WALL
        order = marshal.loads(message)
        return Cause(order["stop"]) if order["run"] == run else None

    def _exceeded_limit(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> Cause | None:
        """Return which limit the running child has passed; None if it has passed none.

        ``request``: the limits. ``wall`` is seconds of sleep, ``longest_wall`` seconds in all,
        after which the node counts as too busy to tell. ``outputs``: the pipes that the child
        writes to; while one is full, the child may be waiting for us, which is no sleep. Where
        sleep can't be seen, all time counts as sleep.
        """
        elapsed = time.monotonic() - start
        if elapsed > request["longest_wall"]:
            return Cause.STARVED
        self._slept = self._sleep_clock.seconds(is_held_up=_is_any_full(outputs))
        idle_seconds = elapsed if self._slept is None else self._slept
        if idle_seconds > request["wall"]:
            return Cause.WALL
        # The processor clock of another process; see clock_getcpuclockid(3).
        child_clock = (~child << 3) | 2
        with suppress(OSError):
            if time.clock_gettime(child_clock) > request["cpu"]:
                return Cause.CPU
        if self._count_threads() > request["threads"]:
            return Cause.THREADS
        scratch = self._confinement.scratch
        if self._confinement.has_scratch and not confine.scratch_fits(scratch):
            return Cause.SCRATCH
        return None

    def _count_threads(self) -> int:
        """Count the child's threads; 0 where they can't be seen."""
        with suppress(OSError):
            tasks = f"{self._child_name}/task"
            links = os.stat(tasks, dir_fd=self._confinement.proc_folder).st_nlink
            # A folder has a link from itself, one from its parent, and one from each sub-folder.
            return links - 2
        return 0


# --- the process itself --------------------------------------------------------------------------

LEAN_MODULES: Final = (
    "abc", "array", "ast", "bisect", "calendar", "cmath", "collections", "collections.abc",
    "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "gc", "heapq", "io", "itertools", "json", "keyword", "linecache", "math", "numbers",
    "operator", "os", "os.path", "pprint", "queue", "random", "re", "select", "signal", "stat",
    "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "traceback", "types",
    "typing", "warnings", "weakref", "builtins", "__future__",
)  # fmt: skip
_WIDE_MODULES: Final = (
    "asyncio", "concurrent.futures", "hashlib", "tempfile", "uuid", "numpy", "numpy.fft",
    "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random",
)  # fmt: skip


def _load_library(settings: dict[str, Any]) -> None:
    """Load what programs may import: common modules now, the rest into memory.

    ``settings``: ``packages`` are folders of third-party packages, ``wide`` says whether all
    modules are loaded, ``preload`` names a module of trusted code (found on ``path``). Programs are
    forked from this process, so what is loaded here they have at once. The last calls prepare what
    each program begins with, and make forks cheaper.
    """
    packages = [Path(folder) for folder in settings["packages"]]
    for name in LEAN_MODULES:
        importlib.import_module(name)
    if settings["wide"]:
        preload_extensions()
        for folder in packages:
            sys.path.append(str(folder.parent))
        for name in _WIDE_MODULES:
            importlib.import_module(name)
    if settings["preload"]:
        loaded_before = set(sys.modules)
        sys.path.extend(settings["path"])
        importlib.import_module(settings["preload"])
        # It may import more once nothing of the file system is left, so its packages come too.
        packages += _package_folders(set(sys.modules) - loaded_before)
    serve_only(Library(packages if settings["wide"] else []))
    # Defines exit() and quit(), which an interpreter that starts without site lacks.
    site.setquit()
    name_descriptors()
    prepare_streams()
    prepare_contest_names()
    join_mappings()


def _package_folders(modules: set[str]) -> list[Path]:
    """Return the folders of the third-party packages that these modules belong to."""
    top_level = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    folders = []
    for name in sorted(top_level):
        file = getattr(sys.modules.get(name), "__file__", None)
        # A module that is no package has no folder of its own, and was loaded completely.
        if file and Path(file).name == "__init__.py":
            folders.append(Path(file).parent)
    return folders


def _enter_tier(settings: dict[str, Any], control: socket.socket) -> Confinement:
    """Enter the tier of the settings, tell the verifier, and return how programs are confined.

    A *tier* is how tightly programs are confined: by a system call filter, by Landlock (rules on
    files), by namespaces with a root of their own. ``scratch`` is the one folder that programs may
    write to; a temporary one is reported, so that the verifier can remove it if this process is
    killed. ``control``: the socket to the verifier.
    """
    # Outlives the change of root, for this process alone: each child closes it.
    proc_folder = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):
        # When memory runs out the kernel should take a program, not the job around it.
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Limits that the kernel counts per user then count this sandbox alone.
    has_own_id = confine.drop_root()
    temporary_scratch = ""
    if settings["namespaces"]:
        # The processes of another user can't be inspected, not even by themselves, unless told.
        confine.set_traceable(True)
        confine.enter_namespaces()
        confine.private_root(confine.MAX_SCRATCH_BYTES, confine.MAX_SCRATCH_FILES)
        _become_first_process(control)
        scratch = str(confine.SCRATCH)
    elif settings["landlock"]:
        scratch = temporary_scratch = confine.make_scratch(settings["temporary_folders"])
    else:
        scratch = "/"
    confine.set_traceable(False)
    confine.gain_nothing()
    may_open_files = settings["namespaces"] or settings["landlock"]
    confinement = Confinement(
        filter=seccomp_filter.program_filter(may_open_files) if settings["seccomp"] else None,
        landlock_rules=_landlock_rules(scratch) if settings["landlock"] else None,
        scratch=scratch,
        kernel_counts_threads=has_own_id
        or (settings["namespaces"] and counts_threads(os.uname().release)),
        supervisor_pid=os.getpid(),
        null_device=os.open("/dev/null", os.O_RDWR),
        proc_folder=proc_folder,
    )
    if settings["seccomp"]:
        seccomp_filter.install(seccomp_filter.supervisor_filter(), os.getpid())
    control.send(json.dumps({"scratch": temporary_scratch}).encode())
    return confinement


def _landlock_rules(scratch: str) -> int:
    """Descriptor of the rules that let a program use the devices and its scratch folder alone."""
    allowed = dict.fromkeys(confine.DEVICES, confine.READ_FILE)
    allowed[Path(os.devnull)] = confine.READ_WRITE_FILE
    allowed[Path(scratch)] = confine.WHOLE_FOLDER
    return confine.landlock_ruleset(allowed)


def counts_threads(release: str) -> bool:
    """Return whether a kernel counts RLIMIT_NPROC within a user namespace, as from Linux 5.14."""
    major, minor = re.findall(r"\d+", release)[:2]
    return (int(major), int(minor)) >= (5, 14)


def _become_first_process(control: socket.socket) -> None:
    """Fork: the child goes on as process 1 of its namespace, the parent waits for its end.

    The parent then exits with the child's code, so nothing runs on in it. ``control``: the socket
    to the verifier, which only the child keeps.
    """
    child = os.fork()
    if child:
        control.close()
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    # Inside the namespace the parent has the id 0.
    confine.die_with_parent(0)


def _serve(control: socket.socket, watch: Watch) -> None:
    """Run one program per message of the verifier, and answer each with a report, until it leaves.

    ``control``: the socket to the verifier. A message comes with five descriptors: job, stdin,
    stdout, stderr and result of the program. An empty one means that the other end is closed.
    """
    descriptors_per_run = 5
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, CHUNK_BYTES, descriptors_per_run)
        if not message:
            return
        request = marshal.loads(message)
        # An order to stop a run may arrive after the run has ended by itself.
        if "stop" not in request:
            control.send(json.dumps(watch.run(request, descriptors)).encode())


def _fork_supervisors(control: socket.socket) -> socket.socket:
    """Fork a supervisor for each socket that the verifier sends, and return in these alone.

    They share the memory of the library that was loaded. Returns the socket to the verifier of the
    new supervisor. When the verifier goes away, this process ends.
    """
    gc.collect()
    gc.freeze()
    # The kernel buries supervisors that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control.send(json.dumps({"scratch": ""}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, CHUNK_BYTES, 1)
        if not message:
            sys.exit()
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return socket.socket(fileno=descriptors[0])
        os.close(descriptors[0])


def main(channel: int) -> NoReturn:
    """Run the supervisor on an inherited socket, given by its descriptor.

    The supervisor is a process that forks one confined child per program. Reads its settings, loads
    what programs may import, gives up its rights, and serves until the verifier goes away. The
    scratch folder, the one that programs may write to, is their home and temporary folder.
    """
    control = socket.socket(fileno=channel)
    settings = json.loads(control.recv(CHUNK_BYTES))
    os.setsid()
    confine.set_limits({resource.RLIMIT_NOFILE: confine.MAX_OPEN_FILES, resource.RLIMIT_CORE: 0})
    try:
        _load_library(settings)
        if settings["nursery"]:
            control = _fork_supervisors(control)
        confinement = _enter_tier(settings, control)
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        sys.exit()
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = confinement.scratch
    os.environ.pop("LD_LIBRARY_PATH", None)
    sys.argv = ["main.py"]
    sys.path[:] = [confinement.scratch]
    # Objects that the collector never touches stay in memory that forks share.
    gc.collect()
    gc.freeze()
    try:
        _serve(control, Watch(control, confinement))
    finally:
        # Only a temporary scratch folder can be removed; others are a root or a mount point.
        with suppress(OSError):
            Path(confinement.scratch).rmdir()
    sys.exit()
