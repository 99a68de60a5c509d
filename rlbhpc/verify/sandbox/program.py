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
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from rlbhpc.verify.sandbox import confine, seccomp, wire
from rlbhpc.verify.sandbox.confine import MOST_OPEN, die_with_parent, program_limits, set_limits
from rlbhpc.verify.sandbox.library import code_of, contest_names
from rlbhpc.verify.sandbox.syscalls import memory_file

# --- what EvalPlus's sanitizer keeps of a program ------------------------------------------------

# It keeps the imports, and of the top-level functions, classes and plain assignments those that
# the entry function needs, directly or through others. Prints, tests and example uses go. A
# function without a ``return`` counts as no answer and goes too.


def _defined_name(statement: ast.stmt) -> str | None:
    """Name that a top-level statement defines, if it is of a kind that is kept."""
    if isinstance(statement, ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        returns = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        return statement.name if returns else None
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        return target.id if isinstance(target, ast.Name) else None
    return None


def _mentioned(statement: ast.stmt) -> Iterator[str]:
    """Every identifier in a statement, attribute names among them."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def pruned(text: str, entry: str) -> ast.Module:
    """Parse a program and keep the imports and what ``entry`` needs; a name's first definition."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    definitions: dict[str | None, ast.stmt] = {}
    for statement in tree.body:
        definitions.setdefault(_defined_name(statement), statement)
    needed: set[str] = set()
    open_names = [entry]
    while open_names:
        name = open_names.pop()
        if name in definitions and name not in needed:
            needed.add(name)
            open_names.extend(_mentioned(definitions[name]))
    kept = [statement for name, statement in definitions.items() if name in needed]
    return ast.Module(body=[*imports, *kept], type_ignores=[])


# --- calling a program's function ----------------------------------------------------------------

# A line says what a call returned or raised, and the processor time it took. Hostile code in this
# process may write such lines itself; that is no more than returning a value of its choice.

_MODULE: Final = "solution"
# A response that goes on after its program is cut back line by line, at most so often.
_MOST_CUTS: Final = 199


class TimeoutException(Exception):  # noqa: N818  the name that official harnesses give it
    """A call took longer than it may."""


def _interrupt(number: int, frame: object) -> None:
    raise TimeoutException


def run_calls(head: dict[str, Any], calls: list[bytes], descriptor: int) -> None:
    """Load a program and make its calls in turn."""
    signal.signal(signal.SIGPROF, _interrupt)
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    names = module.__dict__
    if not head["prune"]:
        sys.set_int_max_str_digits(0)
    if head["contest"]:
        names.update(contest_names(head["program"]))
    exec(code_of(head["before"], "before.py"), names)  # noqa: S102
    before = names.get(head["entry"])
    try:
        exec(_compiled(head["program"], head, _MOST_CUTS if head["forgiving"] else 0), names)  # noqa: S102  this process exists for it
    except BaseException:
        # Example uses below the function may fail; the function is what was asked for.
        if not head["forgiving"] or names.get(head["entry"]) in (None, before):
            raise
    function = _entry(names, head["entry"])
    for line in calls:
        _write_report(descriptor, _report_of_call(function, wire.loads(line, len(line)), head))


def _compiled(text: str, head: dict[str, Any], cuts: int) -> CodeType:
    """Compile a program, or its longest beginning that is one after at most so many cuts."""
    try:
        tree = pruned(text, head["entry"]) if head["prune"] else text
        return code_of(tree, f"{_MODULE}.py")
    except SyntaxError as error:
        lines = text.split("\n")
        if not cuts or len(lines) < 2:
            raise
        # What is broken stands at the line named or above it.
        sound = max(1, min(len(lines), error.lineno or 1) - 1)
    return _compiled("\n".join(lines[:sound]), head, cuts - 1)


def _entry(names: dict[str, Any], path: str) -> Any:
    """Find the function, making one object where it is a method."""
    owner, dot, method = path.partition(".")
    return getattr(names[owner](), method) if dot else names[owner]


def _report_of_call(function: Any, arguments: list[Any], head: dict[str, Any]) -> bytes:
    shape = head["shape"]
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_PROF, head["seconds"])
        value = function(*arguments)
        spent = time.process_time() - start
        if shape == "set":
            value = set(value)
        elif shape == "not_none":
            value = value if isinstance(value, bool) else value is not None
        report = b'{"returned":%b,"cpu":%.6f}' % (wire.dumps(value), spent)
    except BaseException as error:
        spent = time.process_time() - start
        report = b'{"raised":"%b","cpu":%.6f}' % (type(error).__name__[:100].encode(), spent)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return report


def _write_report(descriptor: int, report: bytes) -> None:
    view = memoryview(report + b"\n")
    while view:
        view = view[os.write(descriptor, view) :]


# --- confining this process and running the job --------------------------------------------------

FILE_NAME: Final = "main.py"
_STDIN, _STDOUT, _STDERR, _RESULT, _NULL = range(5)


@dataclass(frozen=True)
class Confinement:
    """What the supervisor has prepared, once for all programs."""

    filter: bytes | None
    rules: int | None
    scratch: str
    counted_threads: bool
    supervisor: int
    null: int
    proc: int


def enter(
    confinement: Confinement, descriptors: list[int], ready: int, limits: dict[str, Any]
) -> NoReturn:
    """Turn the forked child into a confined process and run the job in it.

    ``descriptors``: job, standard streams and result, as the supervisor received them. What is
    written to ``ready`` tells the supervisor that whatever happens from here on is the
    program's doing, and the child's number in the supervisor's ``/proc``; if it never comes, the
    sandbox itself has failed.
    """
    number_in_proc = os.readlink("self", dir_fd=confinement.proc)
    die_with_parent(confinement.supervisor)
    os.setsid()
    if confinement.rules is not None:
        confine.restrict_files(confinement.rules)
    job, *streams = descriptors
    # Two calls of C: each page of Python's that a child touches, the kernel must copy.
    head, calls = marshal.loads(os.read(job, os.fstat(job).st_size))
    ready = _place([*streams, confinement.null, ready])
    os.chdir(confinement.scratch)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    threads = limits["threads"] if confinement.counted_threads else None
    set_limits(program_limits(limits["cpu"], limits["memory"], threads))
    if confinement.filter is not None:
        seccomp.install(confinement.filter, os.getpid())
    os.write(ready, number_in_proc.encode())
    os.close(ready)
    finish(guarded(lambda: _RUNNERS[head["mode"]](head, calls)))


def _place(wanted: list[int]) -> int:
    """Put descriptors where a program expects them, close all others, and give the last one's."""
    # First out of each other's way: a source may stand where another one belongs.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(wanted)) for descriptor in wanted]
    for target, source in enumerate(high):
        os.dup2(source, target)
    os.closerange(len(wanted), MOST_OPEN)
    return len(wanted) - 1


def prepare_streams() -> None:
    """Make the standard streams that every program begins with, as an interpreter does.

    Done once in the supervisor: a stream remembers what kind of file it stands on, so for a moment
    the descriptors are a file and pipes.
    """
    source = memory_file([])
    reader, writer = os.pipe()
    saved = [os.dup(number) for number in (_STDIN, _STDOUT, _STDERR)]
    for number, end in enumerate((source, writer, writer)):
        os.dup2(end, number)
    streams = {
        "stdin": open(_STDIN, encoding="utf-8", closefd=False),  # noqa: SIM115
        "stdout": open(_STDOUT, "w", encoding="utf-8", closefd=False),  # noqa: SIM115
        "stderr": open(  # noqa: SIM115
            _STDERR, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        ),
    }
    for name, stream in streams.items():
        _set_stream(name, stream)
    for number, end in enumerate(saved):
        os.dup2(end, number)
        os.close(end)
    for end in (source, reader, writer):
        os.close(end)


def _set_stream(name: str, stream: io.TextIOWrapper) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _run_main(head: dict[str, Any], calls: list[bytes]) -> None:
    """Run a program as the main module."""
    module = types.ModuleType("__main__")
    names = module.__dict__
    program = head["program"]
    names.update(contest_names(program))
    # Judges print long numbers; an interpreter of today refuses past 4,300 digits by default.
    sys.set_int_max_str_digits(0)
    if stat.S_ISFIFO(os.fstat(_STDIN).st_mode):
        _set_stream("stdin", open(_STDIN, encoding="utf-8", closefd=False))  # noqa: SIM115
    names.update(__builtins__=builtins, __file__=FILE_NAME, __name__="__main__")
    sys.modules["__main__"] = module
    lines = program.splitlines(keepends=True)
    linecache.cache[FILE_NAME] = (len(program), None, lines, FILE_NAME)
    exec(code_of(program, FILE_NAME), names)  # noqa: S102


def guarded(run: Callable[[], object]) -> int:
    """Run, and turn what is raised into an exit status as the interpreter does."""
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
    except BaseException:
        _show(*sys.exc_info())
        return 1
    return 0


def _show(kind: Any, error: Any, trace: types.TracebackType | None) -> None:
    """Print what was raised, from the program's own first frame on."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        # The built-in hook looks for source lines on disk, this one in memory.
        traceback.print_exception(kind, error, trace)
    else:
        sys.excepthook(kind, error, trace)


def finish(status: int) -> NoReturn:
    """End as an interpreter ends, less the tearing down of a library that is shared anyway."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _flush()
        # Open files are flushed when they go, and they go with the main module. A stream that the
        # program has put in another's place goes with it; the first ones are flushed last.
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        sys.modules["__main__"].__dict__.clear()
        gc.collect()
        _flush()
    except BaseException:
        os._exit(status or 120)
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _run_shim(head: dict[str, Any], calls: list[bytes]) -> None:
    # Only a supervisor that has loaded it already is asked for it.
    from rlbhpc.verify.sandbox.shim import run_shim

    run_shim(head["program"], _STDIN, _RESULT)


_RUNNERS: Final[dict[str, Callable[[dict[str, Any], list[bytes]], None]]] = {
    "main": _run_main,
    "call": lambda head, calls: run_calls(head, calls, _RESULT),
    "shim": _run_shim,
}


def name_descriptors() -> None:
    """Teach :func:`open` the devices that a private root or the filter hides.

    ``/dev/stdin`` and its kin lead through ``/proc``; programs that are written for speed open
    them by name. What is opened is a copy of the process's own descriptor.
    """
    numbers = {"/dev/null": _NULL}
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        numbers |= {f"/dev/{name}": number, f"/dev/fd/{number}": number}
        numbers |= {f"/proc/self/fd/{number}": number}
    really_open = io.open

    def open_known(file: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(file, str | bytes | Path):
            with suppress(UnicodeDecodeError):
                number = numbers.get(os.fsdecode(file))
                if number is not None:
                    file = os.dup(number)
        return really_open(file, *arguments, **options)

    builtins.open = io.open = open_known
