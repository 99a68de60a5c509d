"""Run in the child: define a program's function and call it, one line of data per call.

A line says what a call returned or raised, and the processor time it took. Hostile code in this
process may write such lines itself; that is no more than returning a value of its choice.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import CodeType, ModuleType
from typing import Any, Final

from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.library import code_of
from rlbhpc.verify.sandbox.preamble import contest_names
from rlbhpc.verify.sandbox.prune import pruned

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
        _write(descriptor, _called(function, wire.loads(line, len(line)), head))


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


def _called(function: Any, arguments: list[Any], head: dict[str, Any]) -> bytes:
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


def _write(descriptor: int, report: bytes) -> None:
    view = memoryview(report + b"\n")
    while view:
        view = view[os.write(descriptor, view) :]
