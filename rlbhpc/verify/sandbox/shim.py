"""Run in the child: a program as LiveCodeBench's harness runs one that reads standard input.

The harness turns the program into the body of a function (its imports moved out, a last
``if __name__ == '__main__'`` opened), and replaces the standard streams by objects of its own.
That misjudges some honest programs: those that iterate over stdin, read its buffer by lines, read
or write the descriptors themselves, or declare a variable global. For verdicts that can be held
against published ones this does the same; nobody else should want it.
"""

from __future__ import annotations

import ast
import builtins
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from types import ModuleType
from typing import Any, Final
from unittest.mock import mock_open, patch

from rlbhpc.verify.sandbox.library import CONTEST_IMPORTS, compile_module

_FUNCTION: Final = "wrapped_function"
# The harness lets programs print integers of so many digits.
_MAX_DIGITS: Final = 50_000
# The harness sets these functions to None before it loads the program.
_REMOVED_FUNCTIONS: Final[dict[ModuleType, tuple[str, ...]]] = {
    builtins: ("quit", "help"),
    os: (
        "kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork",
        "forkpty", "killpg", "rename", "renames", "truncate", "replace", "unlink", "fchmod",
        "fchown", "chmod", "chown", "chroot", "getcwd", "chdir", "lchown",
    ),
    shutil: ("rmtree", "move", "chown"),
    subprocess: ("Popen",),
}  # fmt: skip
_UNIMPORTABLE_MODULES: Final = ("ipdb", "joblib", "resource", "psutil", "tkinter")


class _HarnessBuffer:
    """The harness's ``sys.stdin.buffer``: gives all input at once, or the first line for ever."""

    def __init__(self, text: str) -> None:
        self._content = text.encode()

    def read(self, *arguments: Any) -> bytes:
        return self._content

    def readline(self, *arguments: Any) -> bytes:
        return self._content.split(b"\n")[0] + b"\n"


class _HarnessStdin:
    """The harness's ``sys.stdin``: no iterator, and each reading method begins anew."""

    def __init__(self, text: str) -> None:
        """Give ``text`` as the input, with the quirks of LiveCodeBench's own stand-in for stdin.

        ``read`` and ``readlines`` give everything at every call; only ``readline`` moves on.
        """
        self._stream = StringIO(text)
        self.buffer = _HarnessBuffer(text)
        lines = iter(text.split("\n"))
        self.read = lambda *arguments: text
        self.readline = lambda *arguments: next(lines)
        self.readlines = lambda *arguments: text.split("\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_main_guard(tree: ast.Module) -> list[ast.stmt]:
    """Statements of a program, with a last ``if __name__ == '__main__'`` replaced by its body."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.If) and ast.unparse(last.test).strip() == "__name__ == '__main__'":
        return tree.body[:-1] + last.body
    return tree.body


def _wrap_in_function(program: str) -> str:
    """Rewrite a program as a function without parameters, as LiveCodeBench's harness does.

    The program's imports stand above the function, behind those that the harness adds. A program
    that can't be parsed stays as it is.
    """
    try:
        imports: list[ast.stmt] = []
        body: list[ast.stmt] = []
        for statement in _open_main_guard(ast.parse(program)):
            is_import = isinstance(statement, ast.Import | ast.ImportFrom)
            (imports if is_import else body).append(statement)
        function = ast.parse(f"def {_FUNCTION}(): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = body
        return "\n".join([CONTEST_IMPORTS, *map(ast.unparse, imports), ast.unparse(function)])
    except Exception:
        return program


def run_shim(program: str, stdin: int, result: int) -> None:
    """Run a program on the harness's streams, and write what it printed to ``result``.

    ``stdin, result``: descriptors. First the harness's own changes are made: some functions become
    None, some modules can't be imported. A program that raises anything but :class:`SystemExit` has
    failed, whatever it printed.
    """
    with os.fdopen(stdin, encoding="utf-8", closefd=False) as stream:
        input_text = stream.read()
    for module, names in _REMOVED_FUNCTIONS.items():
        for name in names:
            setattr(module, name, None)
    for name in _UNIMPORTABLE_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.set_int_max_str_digits(_MAX_DIGITS)
    module = ModuleType("tmp_sol")
    exec(compile_module(_wrap_in_function(program), "tmp_sol"), module.__dict__)  # noqa: S102
    function = getattr(module, _FUNCTION)
    printed = StringIO()
    with (
        patch("builtins.open", mock_open(read_data=input_text)),
        patch("sys.stdin", _HarnessStdin(input_text)),
        patch("sys.stdout", printed),
        suppress(SystemExit),
    ):
        function()
    unwritten = memoryview(printed.getvalue().encode("utf-8", "surrogateescape"))
    while unwritten:
        unwritten = unwritten[os.write(result, unwritten) :]
