"""The standard library (and NumPy's Python part) served from memory.

Programs under test import from here, not from a folder: nothing of the file system need be
readable to them, verdicts don't depend on what else is installed, and a million runs make no
million look-ups on a shared file system. The memory is a sealed file mapped privately, so one
program can't change what the next one imports.
"""

from __future__ import annotations

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
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple, cast

from rlbhpc.verify.sandbox.syscalls import memory_file

_SKIPPED_FOLDERS: Final = {
    "__pycache__", "site-packages", "lib-dynload", "test", "tests", "idlelib", "ensurepip", "f2py",
    "tkinter", "turtledemo", "lib2to3", "config", "distutils", "pydoc_data", "_pyinstaller",
}  # fmt: skip
# Extension modules that are for tests, terminals or the network alone.
_NOT_PRELOADED: Final = ("_test", "_xx", "xx", "_tkinter", "_curses", "readline", "_ssl", "_dbm")
# A file of compiled code begins with a magic number, flags, and time and size of its source.
_COMPILED_HEADER_BYTES: Final = 16


def compile_module(source: str | bytes, file: str) -> CodeType:
    """Compile a module without the ``from __future__`` imports of this one."""
    code: CodeType = compile(source, file, "exec", dont_inherit=True)
    return code


class _ModuleFile(NamedTuple):
    """A Python module on disk."""

    name: str
    file: Path
    is_package: bool


class _StoredModule(NamedTuple):
    """Where in memory one module stands: bytes of its compiled code, or of its source."""

    start: int
    end: int
    is_compiled: bool
    is_package: bool
    file: str


def _find_modules(folder: Path, prefix: str = "") -> Iterator[_ModuleFile]:
    """Find all Python modules below a folder, packages and their modules included.

    ``prefix``: what the names of modules begin with, ``package.`` with its dot or nothing. A folder
    counts as a package if it has an ``__init__.py``.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        stem, suffix = os.path.splitext(entry.name)  # noqa: PTH122  thousands of names
        if suffix == ".py" and stem != "__init__":
            yield _ModuleFile(prefix + stem, Path(entry.path), is_package=False)
        elif not suffix and entry.name not in _SKIPPED_FOLDERS and entry.is_dir():
            init = Path(entry.path, "__init__.py")
            if init.exists():
                yield _ModuleFile(prefix + stem, init, is_package=True)
                yield from _find_modules(Path(entry.path), f"{prefix}{stem}.")


def _read_module(source: Path) -> tuple[bytes, bool]:
    """Read a module's compiled code where this interpreter has cached it, else its source.

    The second value is whether the bytes are compiled code. A cache file begins with the
    interpreter's magic number; one of another version is ignored. Its header is cut off.
    """
    cache_file = Path(importlib.util.cache_from_source(str(source)))
    cached = b""
    with suppress(OSError):
        cached = cache_file.read_bytes()
    if cached.startswith(importlib.util.MAGIC_NUMBER):
        return cached[_COMPILED_HEADER_BYTES:], True
    return source.read_bytes(), False


class Library:
    """Finds and loads modules in memory: a finder and a loader of the import system."""

    def __init__(self, packages: Sequence[Path]) -> None:
        """Read the standard library and ``packages`` (folders of third-party packages) into memory.

        All modules stand one behind another in one sealed file in memory. ``_modules`` says where:
        for each module's full name its first and last byte and what those bytes are.
        """
        self._modules: dict[str, _StoredModule] = {}
        module_files = list(_find_modules(Path(os.__file__).parent))
        for folder in packages:
            module_files.append(_ModuleFile(folder.name, folder / "__init__.py", is_package=True))
            module_files.extend(_find_modules(folder, f"{folder.name}."))
        # Written piece by piece: every fork copies what this process keeps in its heap.
        descriptor = memory_file(self._read_modules(module_files))
        try:
            self._memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def _read_modules(self, module_files: Sequence[_ModuleFile]) -> Iterator[bytes]:
        """Yield the content of each module, and note in ``_modules`` where in memory it will stand.

        The caller writes the pieces one behind another, so a module starts where the one before
        ends.
        """
        start = 0
        for name, file, is_package in module_files:
            content, is_compiled = _read_module(file)
            end = start + len(content)
            self._modules[name] = _StoredModule(start, end, is_compiled, is_package, str(file))
            start = end
            yield content

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Say whether and where this library has a module; None leaves it to the next finder.

        This is the protocol of :data:`sys.meta_path`: ``fullname`` is the module's name with its
        package, and the spec names this object as the loader.
        """
        module = self._modules.get(fullname)
        if module is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname, cast(Any, self), origin=module.file, is_package=module.is_package
        )
        spec.has_location = True
        return spec

    def get_code(self, fullname: str) -> CodeType:
        """Return the code object of a module, from the bytes that are kept in memory.

        ``start`` and ``end`` are the place of those bytes. They are compiled code, or source that
        is compiled now.
        """
        module = self._modules[fullname]
        content = self._memory[module.start : module.end]
        if module.is_compiled:
            code: CodeType = marshal.loads(content)
            return code
        return compile_module(content, module.file)

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

    A supervisor with every extension module and NumPy has 560 mappings, and a third of a run's time
    goes into copying and removing them. The loader maps a file piece by piece, by what may be done
    to each piece; the kernel joins neighbours that allow the same. So constants become executable,
    and data that is read-only after relocation becomes writable. A program gains nothing: its
    filter lets it change this itself. Must be called before any fork, after which the kernel no
    longer joins data.
    """
    libc = ctypes.CDLL(None)
    mappings = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    for (addresses, rights, *_, file), following in pairwise(mappings):
        if rights != "r--p" or ".so" not in file:
            continue
        # Constants lie before or behind code, relocated data before variables.
        is_before_variables = following[1] == "rw-p" and following[-1] == file
        added_right = mmap.PROT_WRITE if is_before_variables else mmap.PROT_EXEC
        start, end = (int(address, 16) for address in addresses.split("-"))
        size = ctypes.c_size_t(end - start)
        libc.mprotect(ctypes.c_void_p(start), size, mmap.PROT_READ | added_right)


def preload_extensions() -> None:
    """Import every extension module of the standard library: a confined program can open none.

    Those for tests, terminals or the network alone (``_NOT_PRELOADED``) are left out.
    """
    folder = Path(os.__file__).parent / "lib-dynload"
    for file in sorted(folder.glob("*.so")):
        name = file.name.partition(".")[0]
        if name.startswith(_NOT_PRELOADED):
            continue
        # This node may lack a library of the system that the module needs.
        with suppress(ImportError):
            importlib.import_module(name)


def serve_only(library: Library) -> None:
    """Import from memory from now on, and otherwise only from ``sys.path``."""
    path_finder = importlib.machinery.PathFinder
    other_finders = [finder for finder in sys.meta_path if finder is not path_finder]
    sys.meta_path[:] = [*other_finders, library, path_finder]
    sys.path_importer_cache.clear()


# --- the names that contest programs begin with --------------------------------------------------

# LiveCodeBench's harness writes these statements above a program, so that one that forgot an
# import passes there, and sites such as LeetCode do likewise. The order matters: later names hide
# earlier ones, and the built-in names come back near the end. Here they are run once and the names
# are copied.

_STAR_IMPORTS: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
_PLAIN_IMPORTS: Final = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random",
    "statistics", "itertools", "functools", "operator", "io", "sys", "json",
)  # fmt: skip
RECURSION_LIMIT: Final = 50_000

CONTEST_IMPORTS: Final = "".join(
    [
        *(f"from {name} import *\n" for name in _STAR_IMPORTS),
        *(f"import {name}\n" for name in _PLAIN_IMPORTS),
        f"sys.setrecursionlimit({RECURSION_LIMIT})\n",
    ]
)

_WORD: Final = re.compile(r"\w+")
# Filled by the supervisor before it forks; empty in every other process.
_contest_namespace: dict[str, Any] = {}


def prepare_contest_names() -> None:
    """Run the statements once, for all programs to come."""
    recursion_limit = sys.getrecursionlimit()
    exec(CONTEST_IMPORTS, _contest_namespace)  # noqa: S102  a constant
    sys.setrecursionlimit(recursion_limit)
    # A stream would be another process's by the time that a program looks at it.
    for name in ("stdin", "stdout", "stderr", "__builtins__"):
        _contest_namespace.pop(name, None)


def contest_names(program: str) -> dict[str, Any]:
    """Return names for a program to begin with; sets the recursion limit as the statements do.

    Only names that its text mentions: touching a thousand objects after a fork would copy their
    pages.
    """
    sys.setrecursionlimit(RECURSION_LIMIT)
    mentioned = set(_WORD.findall(program))
    return {name: _contest_namespace[name] for name in mentioned & _contest_namespace.keys()}
