"""The standard library (and NumPy's Python part) served from memory.

Programs under test import from here, not from a folder: nothing of the file system need be
readable to them, verdicts don't depend on what else is installed, and a million runs make no
million look-ups on a shared file system. The memory is a sealed file mapped privately, so one
program can't change what the next one imports.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import importlib.machinery
import importlib.util
import marshal
import mmap
import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple, cast

from rlbhpc.verify.sandbox.syscalls import memory_file

_LEFT_OUT: Final = {
    "__pycache__", "site-packages", "lib-dynload", "test", "tests", "idlelib", "ensurepip", "f2py",
    "tkinter", "turtledemo", "lib2to3", "config", "distutils", "pydoc_data", "_pyinstaller",
}  # fmt: skip
# Extension modules that are for tests, terminals or the network alone.
_NOT_PRELOADED: Final = ("_test", "_xx", "xx", "_tkinter", "_curses", "readline", "_ssl", "_dbm")


def code_of(source: str | bytes | ast.Module, file: str) -> CodeType:
    """Compile a module as it stands: nothing that this package imports from the future is in it."""
    code: CodeType = compile(source, file, "exec", dont_inherit=True)
    return code


class _Entry(NamedTuple):
    """Where one module stands in memory."""

    start: int
    end: int
    compiled: bool
    package: bool
    file: str


def _sources(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path, bool]]:
    """Name, file and kind of every Python module below a folder."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        stem, suffix = os.path.splitext(entry.name)  # noqa: PTH122  thousands of names
        if suffix == ".py" and stem != "__init__":
            yield prefix + stem, Path(entry.path), False
        elif not suffix and entry.name not in _LEFT_OUT and entry.is_dir():
            init = Path(entry.path, "__init__.py")
            if init.exists():
                yield prefix + stem, init, True
                yield from _sources(Path(entry.path), f"{prefix}{stem}.")


def _content(source: Path) -> tuple[bytes, bool]:
    """Compiled code of a module where a cache of this interpreter's lies beside it, else source."""
    try:
        cached = Path(importlib.util.cache_from_source(str(source))).read_bytes()
    except OSError:
        cached = b""
    if cached[:4] == importlib.util.MAGIC_NUMBER:
        return cached[16:], True
    return source.read_bytes(), False


class Library:
    """Finds and loads modules in memory: a finder and a loader of the import system."""

    def __init__(self, packages: Sequence[Path]) -> None:
        """Read the standard library and ``packages`` (folders of third-party packages)."""
        self._entries: dict[str, _Entry] = {}
        sources = list(_sources(Path(os.__file__).parent))
        for folder in packages:
            sources.append((folder.name, folder / "__init__.py", True))
            sources.extend(_sources(folder, f"{folder.name}."))
        # Written piece by piece: what this process keeps in its heap, every fork copies.
        descriptor = memory_file(self._contents(sources))
        try:
            self._memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def _contents(self, sources: Sequence[tuple[str, Path, bool]]) -> Iterator[bytes]:
        position = 0
        for name, file, package in sources:
            content, compiled = _content(file)
            end = position + len(content)
            self._entries[name] = _Entry(position, end, compiled, package, str(file))
            position = end
            yield content

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Say where a module is; the protocol of :data:`sys.meta_path`."""
        entry = self._entries.get(fullname)
        if entry is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname, cast(Any, self), origin=entry.file, is_package=entry.package
        )
        spec.has_location = True
        return spec

    def get_code(self, fullname: str) -> CodeType:
        """Code of a module."""
        entry = self._entries[fullname]
        content = self._memory[entry.start : entry.end]
        if entry.compiled:
            code: CodeType = marshal.loads(content)
            return code
        return code_of(content, entry.file)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Leave the making of modules to the import system."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's code."""
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102  the standard library

    def get_resource_reader(self, name: str) -> Any:
        """Offer no data files."""
        return None


def join_mappings() -> None:
    """Make the five mappings of a shared library two, so that each fork has fewer to copy.

    A supervisor with every extension module and NumPy has 560, and a third of a run's time goes
    into copying and removing them. The loader maps a file piece by piece, by what may be done to
    each; the kernel joins neighbours that allow the same. So constants become executable, and what
    is read-only after relocation becomes writable. A program gains nothing: its filter lets it
    change this itself. To be done before any fork, after which data can't be joined.
    """
    libc = ctypes.CDLL(None)
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    for (span, rights, *_, file), following in pairwise(lines):
        if rights == "r--p" and ".so" in file:
            # Constants lie before or behind code, relocated data before variables.
            relocated = following[1] == "rw-p" and following[-1] == file
            start, end = (int(address, 16) for address in span.split("-"))
            more = mmap.PROT_WRITE if relocated else mmap.PROT_EXEC
            size = ctypes.c_size_t(end - start)
            libc.mprotect(ctypes.c_void_p(start), size, mmap.PROT_READ | more)


def preload_extensions() -> None:
    """Import every extension module of the standard library: none can be opened later."""
    folder = Path(os.__file__).parent / "lib-dynload"
    for file in sorted(folder.glob("*.so")) if folder.is_dir() else ():
        name = file.name.partition(".")[0]
        if not name.startswith(_NOT_PRELOADED):
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # a library of the system that this node lacks


def serve_only(library: Library) -> None:
    """Import from memory from now on, and besides only from ``sys.path``."""
    path_finder = importlib.machinery.PathFinder
    others = [finder for finder in sys.meta_path if finder is not path_finder]
    sys.meta_path[:] = [*others, library, path_finder]
    sys.path_importer_cache.clear()


# --- the names that contest programs begin with --------------------------------------------------

# Its harness writes these statements above the program, so programs that forgot an import pass
# there, and sites such as LeetCode do likewise. The order matters: later names hide earlier ones,
# and the built-in names come back near the end. Here they are run once and the names are copied.

STARRED: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
PLAIN: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json",
)  # fmt: skip
RECURSION_LIMIT: Final = 50_000

CONTEST_IMPORTS: Final = "".join(
    [
        *(f"from {name} import *\n" for name in STARRED),
        *(f"import {name}\n" for name in PLAIN),
        f"sys.setrecursionlimit({RECURSION_LIMIT})\n",
    ]
)

# Filled by the supervisor before it forks; empty in every other process.
_WORD: Final = re.compile(r"\w+")
_NAMES: Final[dict[str, Any]] = {}


def prepare_contest_names() -> None:
    """Run the statements once, for all programs to come."""
    usual = sys.getrecursionlimit()
    exec(CONTEST_IMPORTS, _NAMES)  # noqa: S102  a constant
    sys.setrecursionlimit(usual)
    # A stream would be another process's by the time that a program looks at it.
    for name in ("stdin", "stdout", "stderr", "__builtins__"):
        _NAMES.pop(name, None)


def contest_names(program: str) -> dict[str, Any]:
    """Names for a program to begin with; sets the recursion limit as the statements do.

    Only those that its text mentions, since touching a thousand objects after a fork means copying
    their pages.
    """
    sys.setrecursionlimit(RECURSION_LIMIT)
    mentioned = set(_WORD.findall(program))
    return {name: _NAMES[name] for name in mentioned & _NAMES.keys()}
