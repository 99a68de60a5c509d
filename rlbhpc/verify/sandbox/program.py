"""The child's side: confine this process, then run one program in it. Never returns.

Everything after the confinement shares its process with hostile code, so nothing here is trusted
by the parent: not the exit status, not what is written to the result descriptor.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import fcntl
import gc
import io
import linecache
import marshal
import os
import signal
import stat
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from rlbhpc.verify.sandbox import confine, seccomp, wire
from rlbhpc.verify.sandbox.library import compile_module, contest_names
from rlbhpc.verify.sandbox.syscalls import memory_file

# --- calling a program's function ----------------------------------------------------------------

# For each call one line is written: what it returned or raised, and the processor time it took.
# Hostile code in this process may write such lines itself; that is no more than returning a value
# of its choice.

_MODULE: Final = "solution"
_FILE_OF_MODULE: Final = "solution.py"
# A response that goes on after its program is cut back line by line, at most so often.
_MAX_CUTS: Final = 199


def run_calls(job: dict[str, Any], calls: list[bytes], result: int) -> None:
    """Load a program and call its function in turn, writing a line about each call to ``result``.

    ``job``: what to do, as :meth:`Job.encode` wrote it. ``before`` is a program that is run first
    for its names, ``entry`` the function to call, ``forgiving`` whether the program may be cut
    short or fail below the function. ``calls``: the encoded arguments of each call. ``result``: a
    descriptor.
    """
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    namespace = module.__dict__
    sys.set_int_max_str_digits(0)
    if job["contest"]:
        namespace.update(contest_names(job["program"]))
    exec(compile_module(job["before"], "before.py"), namespace)  # noqa: S102
    entry_before = namespace.get(job["entry"])
    max_cuts = _MAX_CUTS if job["forgiving"] else 0
    try:
        # This process exists to run the program.
        exec(_compile_program(job["program"], max_cuts), namespace)  # noqa: S102
    except BaseException:
        # Example uses below the function may fail; only the function matters.
        has_new_entry = namespace.get(job["entry"]) not in (None, entry_before)
        if not job["forgiving"] or not has_new_entry:
            raise
    function = _find_entry(namespace, job["entry"])
    for encoded_arguments in calls:
        arguments = wire.loads(encoded_arguments, len(encoded_arguments))
        _write_line(result, _report_call(function, arguments, job["shape"]))


def _compile_program(program: str, max_cuts: int) -> CodeType:
    """Compile a program, or the longest beginning of it that can be compiled.

    Prose or a broken line behind a program is a syntax error. The program is then cut above the
    line that Python names and tried again, at most ``max_cuts`` times; after those the error is
    raised.
    """
    for _ in range(max_cuts):
        try:
            return compile_module(program, _FILE_OF_MODULE)
        except SyntaxError as error:
            lines = program.split("\n")
            if len(lines) < 2:
                raise
            # The error lies in the line that Python names, or above it.
            valid_lines = min(len(lines), error.lineno or 1) - 1
            program = "\n".join(lines[: max(1, valid_lines)])
    return compile_module(program, _FILE_OF_MODULE)


def _find_entry(namespace: dict[str, Any], path: str) -> Any:
    """Return the function that ``path`` names; of ``Class.method``, that of a new object."""
    owner, dot, method = path.partition(".")
    if dot:
        instance = namespace[owner]()
        return getattr(instance, method)
    return namespace[owner]


def _report_call(function: Any, arguments: list[Any], shape: str) -> bytes:
    """Call the function, and return a line of JSON: its value or exception, and its time.

    ``arguments``: of this one call. ``shape``: what is told of the value: all of it, the set of its
    items, or only whether it is not None. What can't be encoded counts as raised.
    """
    start = time.process_time()
    try:
        value = function(*arguments)
        cpu_seconds = time.process_time() - start
        if shape == "set":
            value = set(value)
        elif shape == "not_none" and not isinstance(value, bool):
            value = value is not None
        report = b'{"returned":%b,"cpu":%.6f}' % (wire.dumps(value), cpu_seconds)
    except BaseException as error:
        cpu_seconds = time.process_time() - start
        exception_name = type(error).__name__[:100].encode()
        report = b'{"raised":"%b","cpu":%.6f}' % (exception_name, cpu_seconds)
    return report


def _write_line(descriptor: int, line: bytes) -> None:
    unwritten = memoryview(line + b"\n")
    while unwritten:
        written = os.write(descriptor, unwritten)
        unwritten = unwritten[written:]


# --- confining this process and running the job --------------------------------------------------

FILE_NAME: Final = "main.py"
# Descriptors of a program.
_STDIN, _STDOUT, _STDERR, _RESULT, _NULL = range(5)
# Exit status of an interpreter that can't flush its streams.
_FLUSH_FAILED: Final = 120


@dataclass(frozen=True)
class Confinement:
    """What the supervisor has prepared once, and what confines every program.

    ``filter``: compiled seccomp filter. ``landlock_rules``, ``null_device``, ``proc_folder``: open
    descriptors. ``scratch``: folder that programs may write to, ``/`` where there is none.
    ``kernel_counts_threads``: whether the kernel counts the threads of a program for it alone.
    """

    filter: bytes | None
    landlock_rules: int | None
    scratch: str
    kernel_counts_threads: bool
    supervisor_pid: int
    null_device: int
    proc_folder: int

    @property
    def has_scratch(self) -> bool:
        """Whether programs have a folder to write to."""
        return self.scratch != "/"


def run_confined(
    confinement: Confinement, descriptors: list[int], ready: int, limits: dict[str, Any]
) -> NoReturn:
    """Turn the forked child into a confined process and run the job in it.

    ``descriptors``: job, standard streams and result, as the supervisor received them; the
    supervisor is the parent, which watches this process. ``limits``: processor seconds, bytes of
    memory, threads. The child's id in the supervisor's ``/proc`` is written to ``ready``. It tells
    the supervisor that whatever happens from here on is the program's doing; if it never comes, the
    sandbox itself has failed.
    """
    id_in_proc = os.readlink("self", dir_fd=confinement.proc_folder)
    confine.die_with_parent(confinement.supervisor_pid)
    os.setsid()
    if confinement.landlock_rules is not None:
        confine.restrict_files(confinement.landlock_rules)
    job_file, *streams = descriptors
    # Reading in one call and decoding in C touches few of Python's pages. Each page that a child
    # touches, the kernel must copy.
    job, calls = marshal.loads(os.read(job_file, os.fstat(job_file).st_size))
    ready = _arrange_descriptors([*streams, confinement.null_device, ready])
    os.chdir(confinement.scratch)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    max_threads = limits["threads"] if confinement.kernel_counts_threads else None
    confine.set_limits(confine.program_limits(limits["cpu"], limits["memory"], max_threads))
    if confinement.filter is not None:
        seccomp.install(confinement.filter, os.getpid())
    os.write(ready, id_in_proc.encode())
    os.close(ready)
    run_job = _RUNNERS[job["mode"]]
    exit_like_interpreter(run_to_status(lambda: run_job(job, calls)))


def _arrange_descriptors(descriptors: list[int]) -> int:
    """Give descriptors the numbers from 0 on, close all others, and return the last number."""
    # First they move out of the way: one may have a number that another one is to get.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(descriptors)) for descriptor in descriptors]
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    os.closerange(len(descriptors), confine.MAX_OPEN_FILES)
    return len(descriptors) - 1


def prepare_streams() -> None:
    """Make the standard streams that every program begins with, as an interpreter does.

    Done once in the supervisor. A stream remembers what kind of file it was opened on, so for a
    moment the descriptors are a file and a pipe, as they are in a program.
    """
    empty_file = memory_file([])
    pipe_reader, pipe_writer = os.pipe()
    standard = (_STDIN, _STDOUT, _STDERR)
    saved = [os.dup(number) for number in standard]
    os.dup2(empty_file, _STDIN)
    os.dup2(pipe_writer, _STDOUT)
    os.dup2(pipe_writer, _STDERR)
    _set_stream("stdin", open(_STDIN, encoding="utf-8", closefd=False))  # noqa: SIM115
    _set_stream("stdout", open(_STDOUT, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    stderr = open(  # noqa: SIM115
        _STDERR, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    _set_stream("stderr", stderr)
    for number, original in zip(standard, saved, strict=True):
        os.dup2(original, number)
    for descriptor in (*saved, empty_file, pipe_reader, pipe_writer):
        os.close(descriptor)


def _set_stream(name: str, stream: io.TextIOWrapper) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _run_main(job: dict[str, Any], calls: list[bytes]) -> None:
    """Run a program as the main module of this process.

    ``contest_names`` gives the names that contest sites import above a program (``sys``, ``math``,
    ``deque``, …). ``calls`` is for the other ways to run a program.
    """
    program = job["program"]
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace.update(contest_names(program))
    namespace.update(__builtins__=builtins, __file__=FILE_NAME, __name__="__main__")
    sys.modules["__main__"] = module
    # Judges print long numbers; an interpreter of today refuses past 4,300 digits by default.
    sys.set_int_max_str_digits(0)
    if stat.S_ISFIFO(os.fstat(_STDIN).st_mode):
        # The prepared stream takes standard input for a file.
        _set_stream("stdin", open(_STDIN, encoding="utf-8", closefd=False))  # noqa: SIM115
    # Tracebacks show source lines from this cache, since there is no file.
    lines = program.splitlines(keepends=True)
    linecache.cache[FILE_NAME] = (len(program), None, lines, FILE_NAME)
    exec(compile_module(program, FILE_NAME), namespace)  # noqa: S102


def run_to_status(run: Callable[[], object]) -> int:
    """Run a function, and return the exit status that an interpreter would end with.

    0 if it returns, the status of :class:`SystemExit` (a message is printed and means 1), and 1 for
    anything else that it raises, whose traceback is printed.
    """
    try:
        run()
    except SystemExit as ending:
        if ending.code is None:
            return 0
        if isinstance(ending.code, int):
            return ending.code & 0xFF
        with suppress(Exception):
            print(ending.code, file=sys.stderr)
        return 1
    except BaseException as error:
        _print_exception(type(error), error, error.__traceback__)
        return 1
    return 0


def _print_exception(kind: Any, error: Any, trace: types.TracebackType | None) -> None:
    """Print what a program raised, with the traceback from the program's own first frame on.

    The frames before it are of this file and mean nothing to the program. A hook that the program
    has set is used, as the interpreter does.
    """
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        # The built-in hook looks for source lines on disk, this function in memory.
        traceback.print_exception(kind, error, trace)
    else:
        sys.excepthook(kind, error, trace)


def exit_like_interpreter(status: int) -> NoReturn:
    """End the process as an interpreter does: threads, exit functions, open files, streams.

    The standard library isn't torn down, since every program shares it.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _flush_streams()
        # Files that are still open are flushed when they are collected. The program's names hold
        # them, and ``sys.stdout`` may be one of them, so both let go first.
        sys.stdout = sys.__stdout__
        sys.stderr = sys.__stderr__
        sys.modules["__main__"].__dict__.clear()
        gc.collect()
        _flush_streams()
    except BaseException:
        os._exit(status or _FLUSH_FAILED)
    os._exit(status)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


#: What stands before a block of a session: its length, and its processor seconds.
BLOCK_HEAD: Final = struct.Struct("<If")


def _run_session(job: dict[str, Any], calls: list[bytes]) -> None:
    """Run blocks of code as they come, each with the names that those before have left.

    A block comes on standard input, behind :data:`BLOCK_HEAD`, its length and the processor seconds
    after which it is interrupted; programs see an empty input. When it has run, the result gets a
    byte: 0, or 1 if it failed, in which case its output has the traceback.
    """
    blocks = os.fdopen(os.dup(_STDIN), "rb")
    os.dup2(_NULL, _STDIN)
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace.update(__builtins__=builtins, __file__=FILE_NAME, __name__="__main__")
    sys.modules["__main__"] = module
    signal.signal(signal.SIGPROF, _raise_timeout)
    while head := blocks.read(BLOCK_HEAD.size):
        length, seconds = BLOCK_HEAD.unpack(head)
        code = blocks.read(length).decode()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        succeeded = _run_block(code, namespace)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _flush_streams()
        os.write(_RESULT, b"0" if succeeded else b"1")


class _OutOfTime(BaseException):
    """A block took too much processor time. No ``except Exception`` of it catches this."""


def _raise_timeout(signal_number: int, frame: object) -> None:
    raise _OutOfTime


def _run_block(code: str, namespace: dict[str, Any]) -> bool:
    """Run a block, and print the value of its last statement if that is an expression.

    What it raises is printed with the lines of the block alone, so that the output is the same on
    every machine. Returns whether it raised nothing.
    """
    lines = code.splitlines(keepends=True)
    linecache.cache[FILE_NAME] = (len(code), None, lines, FILE_NAME)
    try:
        tree = ast.parse(code, FILE_NAME)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, FILE_NAME, "exec"), namespace)  # noqa: S102
        if isinstance(last, ast.Expr):
            expression = compile(ast.Expression(last.value), FILE_NAME, "eval")
            value = eval(expression, namespace)  # noqa: S307
            if value is not None:
                print(repr(value))
        return True
    except _OutOfTime:
        print("TimeoutError: the code takes too much processor time", file=sys.stderr)
    except BaseException as error:
        report = traceback.TracebackException.from_exception(error)
        own_frames = [frame for frame in report.stack if frame.filename == FILE_NAME]
        report.stack = traceback.StackSummary.from_list(own_frames)
        print("".join(report.format(chain=False)), end="", file=sys.stderr)
    return False


_RUNNERS: Final[dict[str, Callable[[dict[str, Any], list[bytes]], None]]] = {
    "main": _run_main,
    "call": lambda job, calls: run_calls(job, calls, _RESULT),
    "session": _run_session,
}


def name_descriptors() -> None:
    """Replace :func:`open` by one that knows devices which a private root or the filter hides.

    ``/dev/stdin`` and its kin lead through ``/proc``; programs that are written for speed open them
    by name. They get a copy of the process's own descriptor.
    """
    descriptors = {"/dev/null": _NULL}
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        for path in (f"/dev/{name}", f"/dev/fd/{descriptor}", f"/proc/self/fd/{descriptor}"):
            descriptors[path] = descriptor
    original_open = io.open

    def open_device_or_file(file: Any, *arguments: Any, **options: Any) -> Any:
        """Open a file as :func:`open` does; for a known device, a copy of its descriptor."""
        if isinstance(file, str | bytes | Path):
            with suppress(UnicodeDecodeError):
                descriptor = descriptors.get(os.fsdecode(file))
                if descriptor is not None:
                    file = os.dup(descriptor)
        return original_open(file, *arguments, **options)

    builtins.open = io.open = open_device_or_file
