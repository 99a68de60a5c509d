"""The supervisor: a small process that holds no secret, forks one child per run and watches it.

It is started by :mod:`rlbhpc.verify.sandbox.box` as a fresh interpreter with an empty environment.
It loads the library, gives up all rights, enters the tier it was told to, says so, and then serves
runs one at a time. It never sees a program: the child reads that from a descriptor of its own, so
nothing of one run is left in memory that the next one inherits. It never sees an expected output
either; those stay with the verifier.
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
from rlbhpc.verify.sandbox.job import CHUNK, Cause
from rlbhpc.verify.sandbox.library import (
    Library,
    join_mappings,
    preload_extensions,
    prepare_contest_names,
    serve_only,
)
from rlbhpc.verify.sandbox.program import Confinement, enter, name_descriptors, prepare_streams

# --- how long a process has slept ----------------------------------------------------------------


class Sleep:
    """What one process has slept, by looks at what all its threads are doing.

    It sleeps while none of them runs, is ready to run or waits for a disk (``proc_pid_stat(5)``).
    What keeps a thread that is ready from its work (others that have the processor, a throttled
    group, a processor that the host took away) is never the program's. The kernel counts only some
    of that, so the sleep is counted instead: from one look to the next, if it slept at both.
    """

    def __init__(self, process: int | str, proc: int | None = None) -> None:
        """Begin with nothing seen.

        ``proc``: descriptor of the ``/proc`` that numbers it so; that of this process without it.
        """
        self._process = process
        self._proc = proc
        self._total = 0.0
        self._last_look: float | None = None

    def seconds(self, held_up: bool = False) -> float | None:
        """Look, and sum what it has slept; ``held_up``: it may wait for somebody else's work.

        None where the node hides it.
        """
        states = _states(self._process, self._proc)
        if not states:
            return None
        now = time.monotonic()
        asleep = not held_up and states.isdisjoint("RD")
        if asleep and self._last_look is not None:
            self._total += now - self._last_look
        self._last_look = now if asleep else None
        return self._total


def _states(process: int | str, proc: int | None) -> set[str]:
    """Letters of what the threads are doing: the third field of ``/proc/PID/task/TID/stat``."""
    states = set()
    with suppress(OSError):
        tasks = f"/proc/{process}/task" if proc is None else f"{process}/task"
        folder = os.open(tasks, os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
        try:
            for thread in os.scandir(folder):
                with suppress(OSError, IndexError):
                    states.add(_state(folder, thread.name))
        finally:
            os.close(folder)
    return states


def _state(folder: int, thread: str) -> str:
    descriptor = os.open(f"{thread}/stat", os.O_RDONLY, dir_fd=folder)
    try:
        # The name before it may hold anything.
        return os.read(descriptor, CHUNK).decode("ascii", "replace").rpartition(")")[2].split()[0]
    finally:
        os.close(descriptor)


# --- one run: fork, watch, kill, clean -----------------------------------------------------------

# Seconds between looks at a running program: often enough for a budget to be kept to a few
# hundredths, seldom enough to cost nothing.
_LOOK: Final = 0.02

_libc: Final = ctypes.PyDLL(None, use_errno=True)


def _fork() -> int:
    """Fork a process of one thread, without what :func:`os.fork` does about others.

    That touches some 50 pages, each of which the kernel must copy.
    """
    child = int(_libc.fork())
    if child < 0:
        raise OSError(ctypes.get_errno(), "no process for a program")
    return child


def _is_any_full(pipes: tuple[int, ...]) -> bool:
    """Whether a program that writes must wait for the verifier, which may have no processor."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLOUT)
    return len(poll.poll(0)) < len(pipes)


class Watch:
    """Runs programs one at a time."""

    def __init__(self, control: socket.socket, confinement: Confinement) -> None:
        """Remember what all runs share."""
        self._control = control
        self._confinement = confinement
        self._name = ""
        self._sleep = Sleep("")
        self._slept: float | None = None
        # What was preloaded may have started threads.
        self._fork = _fork if threading.active_count() == 1 else os.fork
        self._wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # For programs, which inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Without a handler of its own a signal wakes nobody.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer)

    def run(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run one program and report why it ended and what it used."""
        start = time.monotonic()
        ready, ready_writer = os.pipe2(os.O_CLOEXEC)
        child = self._fork()
        if child == 0:
            self._enter(request, descriptors, ready_writer)
        *inputs, out, err, result = descriptors
        for descriptor in (*inputs, ready_writer):
            os.close(descriptor)
        outputs = (out, err, result)  # kept, to see whether their reader keeps up
        try:
            # Waits until the child is confined, or dead.
            self._name = os.read(ready, CHUNK).decode()
            self._sleep = Sleep(self._name, self._confinement.proc)
            cause, status, usage = self._supervise(child, request, start, outputs)
            if not self._name:
                return {"run": request["run"], "failed": "the child could not be confined"}
        finally:
            for descriptor in (ready, *outputs):
                os.close(descriptor)
            if self._confinement.scratch != "/":
                confine.empty_scratch(self._confinement.scratch)
        return {
            "run": request["run"],
            "cause": cause,
            "status": status,
            "cpu": usage.ru_utime + usage.ru_stime,
            "wall": time.monotonic() - start,
        }

    def _enter(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            # Which os.fork does by a hook of the module.
            random.seed()
            enter(self._confinement, descriptors, ready, request)
        finally:
            os._exit(os.EX_OSERR)

    def _supervise(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> tuple[Cause, int, Any]:
        """Wait for the child's end, and bring it about when a limit is passed."""
        killed: Cause | None = None
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                return self._ending(killed, status, usage, request)
            events = dict(poll.poll(_LOOK * 1000))
            if self._wake in events:
                with suppress(BlockingIOError):
                    os.read(self._wake, CHUNK)
                continue
            if self._control.fileno() in events:
                reason = self._told_to_stop(request["run"])
            else:
                reason = self._over_limit(child, request, start, outputs)
            if reason is not None and killed is None:
                killed = reason
                os.kill(child, signal.SIGKILL)

    def _ending(
        self, killed: Cause | None, status: int, usage: Any, request: dict[str, Any]
    ) -> tuple[Cause, int, Any]:
        if killed is None and usage.ru_utime + usage.ru_stime > request["cpu"]:
            killed = Cause.CPU
        if killed is Cause.WALL and self._slept is None:
            # Where a site hides processes from each other: what others push from the processor
            # loses it more often than it gives it up to sleep.
            killed = Cause.STARVED if usage.ru_nivcsw > usage.ru_nvcsw + 10 else Cause.WALL
        code = os.waitstatus_to_exitcode(status)
        if killed is not None:
            return killed, code, usage
        return (Cause.EXIT, code, usage) if code >= 0 else (Cause.SIGNAL, -code, usage)

    def _told_to_stop(self, run: int) -> Cause | None:
        """Read an order of the verifier; its silence for good means that it has gone."""
        message = self._control.recv(CHUNK)
        if not message:
            return Cause.WALL
        order = marshal.loads(message)
        return Cause(order["stop"]) if order["run"] == run else None

    def _over_limit(
        self, child: int, request: dict[str, Any], start: float, outputs: tuple[int, ...]
    ) -> Cause | None:
        elapsed = time.monotonic() - start
        if elapsed > request["longest_wall"]:
            return Cause.STARVED
        self._slept = self._sleep.seconds(held_up=_is_any_full(outputs))
        if (elapsed if self._slept is None else self._slept) > request["wall"]:
            return Cause.WALL
        with suppress(OSError):
            # The clock of another process; see clock_getcpuclockid(3).
            if time.clock_gettime((~child << 3) | 2) > request["cpu"]:
                return Cause.CPU
        if self._threads() > request["threads"]:
            return Cause.THREADS
        if self._confinement.scratch != "/" and not confine.scratch_fits(self._confinement.scratch):
            return Cause.SCRATCH
        return None

    def _threads(self) -> int:
        """Count the child's threads, 0 where they can't be seen."""
        with suppress(OSError):
            folder = f"{self._name}/task"
            # Besides itself and its parent, a folder is linked to by its sub-folders.
            return os.stat(folder, dir_fd=self._confinement.proc).st_nlink - 2
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
_NUMPY_MODULES: Final = ("numpy", "numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial",
                         "numpy.random")  # fmt: skip
_COMMON_MODULES: Final = ("asyncio", "concurrent.futures", "hashlib", "tempfile", "uuid")


def _load(wide: bool, packages: list[Path], preload: str, path: list[str]) -> None:
    """Load what programs may import: common modules now, the rest into memory."""
    for name in LEAN_MODULES:
        importlib.import_module(name)
    if wide:
        preload_extensions()
        for folder in packages:
            sys.path.append(str(folder.parent))
        for name in (*_COMMON_MODULES, *_NUMPY_MODULES, "rlbhpc.verify.sandbox.shim"):
            importlib.import_module(name)
    if preload:
        before = set(sys.modules)
        sys.path.extend(path)
        importlib.import_module(preload)
        # What it imports later, with nothing of the file system left, comes from memory too.
        packages = packages + _packages(set(sys.modules) - before)
    serve_only(Library(packages if wide else []))
    # exit() and quit(), which an interpreter that starts without site lacks.
    site.setquit()
    name_descriptors()
    prepare_streams()
    prepare_contest_names()
    join_mappings()


def _packages(modules: set[str]) -> list[Path]:
    """Folders of the packages of which these are modules."""
    top = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    # A module that is no package was loaded whole.
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(top)]
    return [Path(file).parent for file in files if file and Path(file).name == "__init__.py"]


def _confine(settings: dict[str, Any], control: socket.socket) -> Confinement:
    """Enter the tier; the confinement of programs."""
    # Outlives the change of root, for this process alone: each child closes it.
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    group = confine.join_new_control_group() if settings["cgroup"] else None
    with suppress(OSError):
        # When memory runs out the kernel should take a program, not the job around it.
        Path("/proc/self/oom_score_adj").write_text("1000")
    alone = confine.drop_root()
    own_folder = ""
    if settings["namespaces"]:
        # Another user's process may not be looked into, not even by itself, unless told.
        confine.set_traceable(True)
        confine.enter_namespaces()
        confine.private_root(confine.MOST_BYTES, confine.MOST_FILES)
        _become_first_process(control)
        folder = str(confine.SCRATCH)
    else:
        own_folder = confine.make_scratch(settings["local"]) if settings["landlock"] else ""
        folder = own_folder or "/"
    confine.set_traceable(False)
    confine.gain_nothing()
    rules = None
    if settings["landlock"]:
        allowed = dict.fromkeys(confine.DEVICES, confine.READ_FILE)
        allowed[Path(os.devnull)] = confine.READ_WRITE_FILE
        allowed[Path(folder)] = confine.WHOLE_FOLDER
        rules = confine.landlock_ruleset(allowed)
    files = settings["namespaces"] or settings["landlock"]
    counted = alone or (settings["namespaces"] and counts_threads(os.uname().release))
    confinement = Confinement(
        filter=seccomp_filter.program_filter(files) if settings["seccomp"] else None,
        rules=rules,
        scratch=folder,
        counted_threads=counted,
        supervisor=os.getpid(),
        null=os.open("/dev/null", os.O_RDWR),
        proc=proc,
    )
    if settings["seccomp"]:
        seccomp_filter.install(seccomp_filter.supervisor_filter(), os.getpid())
    hello = {"group": str(group) if group else "", "scratch": own_folder}
    control.send(json.dumps(hello).encode())
    return confinement


def counts_threads(release: str) -> bool:
    """Whether a kernel counts RLIMIT_NPROC within a user namespace, as Linux 5.14 and later do."""
    major, minor = re.findall(r"\d+", release)[:2]
    return (int(major), int(minor)) >= (5, 14)


def _become_first_process(control: socket.socket) -> None:
    """Fork: the child goes on as process 1 of its namespace, the parent waits for its end."""
    child = os.fork()
    if child:
        control.close()
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    # Seen from inside, the parent has no number.
    confine.die_with_parent(0)


def _serve(control: socket.socket, watch: Watch) -> None:
    """Serve runs until the verifier goes away."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, CHUNK, 5)
        if not message:
            return
        request = marshal.loads(message)
        # An order to stop may cross the report of the run's own end.
        if "stop" not in request:
            control.send(json.dumps(watch.run(request, descriptors)).encode())


def main(channel: int) -> NoReturn:
    """Run the supervisor on an inherited socket."""
    control = socket.socket(fileno=channel)
    settings = json.loads(control.recv(CHUNK))
    os.setsid()
    confine.set_limits({resource.RLIMIT_NOFILE: confine.MOST_OPEN, resource.RLIMIT_CORE: 0})
    try:
        folders = [Path(folder) for folder in settings["packages"]]
        _load(settings["wide"], folders, settings["preload"], settings["path"])
        confinement = _confine(settings, control)
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        sys.exit()
    for name in ("HOME", "TMPDIR"):
        os.environ[name] = confinement.scratch
    os.environ.pop("LD_LIBRARY_PATH", None)
    sys.argv, sys.path[:] = ["main.py"], [confinement.scratch]
    gc.collect()
    gc.freeze()
    try:
        _serve(control, Watch(control, confinement))
    finally:
        with suppress(OSError):  # any other is a root or the place of a mount
            Path(confinement.scratch).rmdir()
    sys.exit()
