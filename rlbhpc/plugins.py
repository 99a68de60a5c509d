"""Plugins: a Python file beside the study, or what an installed package registers.

A study names such a file as ``./mine.py``, or as ``./mine.py:name`` where the file holds several
plugins. An installed package registers a plugin as an entry point, by a name; the groups are
``rlbhpc.problem_sets``, ``rlbhpc.verifiers`` and so on, one for each key of :data:`EXPECTED`.

The bytes of a file are its identity: what it decides has another fingerprint once they change.
Its folder is no part of that, so a study can be moved.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

from rlbhpc.errors import UserError

# What a plugin of each kind is called in its file, unless the study names it otherwise.
EXPECTED: Final[Mapping[str, str]] = {
    "problem_sets": "SET",
    "verifiers": "verify",
    "rewards": "reward",
    "algorithms": "ALGORITHM",
    "engines": "ENGINE",
    "statistics": "statistic",
    "aspects": "ASPECT",
}

# In front stands what tells a path from a registered name.
_REFERENCE: Final = re.compile(r"(?P<path>[~.$/][^\n]*\.py)(?::(?P<name>[A-Za-z_]\w*))?")

_ALONE: Final = (
    "; jobs have a copy of this file alone: import installed packages, and name other files by "
    "their whole path"
)


@dataclass(frozen=True)
class Plugin:
    """A plugin that was loaded: its value, the module that it is from, and its identity."""

    value: Any
    module: ModuleType
    identity: str


def is_file(reference: str) -> bool:
    """Whether a text of a study names a Python file, as ``./mine.py:name`` does."""
    return _REFERENCE.fullmatch(reference) is not None


def path_of(reference: str) -> Path:
    """The file that a reference names."""
    return Path(_taken_apart(reference)[0])


def label(reference: str) -> str:
    """A reference without its folder; any other text as it is."""
    if not is_file(reference):
        return reference
    path, name = _taken_apart(reference)
    return Path(path).name + (f":{name}" if name else "")


def identity(reference: str) -> str:
    """A reference by content: the file's name and 16 hex digits over its bytes."""
    return f"{label(reference)}@{_digest(_read(path_of(reference)))}"


def find(kind: str, name: str) -> Plugin | None:
    """The plugin that a study names: a file, or an installed package's.

    Parameters
    ----------
    kind
        A key of :data:`EXPECTED`.
    name
        What stands in the study.
    """
    if is_file(name):
        return _load(kind, name)
    entry = installed(kind).get(name)
    if entry is None:
        return None
    try:
        value = entry.load()
        module = importlib.import_module(entry.module)
    except Exception as error:
        raise UserError(f"{kind} {name!r} of {entry.value}: {_cause(error)}") from None
    package = entry.dist
    version = f"{package.name}-{package.version}" if package else entry.module
    return Plugin(value, module, f"{name}@{version}")


@cache
def installed(kind: str) -> Mapping[str, importlib.metadata.EntryPoint]:
    """What installed packages register, by name."""
    return {e.name: e for e in importlib.metadata.entry_points(group=f"rlbhpc.{kind}")}


@contextmanager
def alone(path: Path) -> Iterator[Path]:
    """A copy of a file in an empty working folder, as jobs have it; complaints name the file."""
    with TemporaryDirectory() as folder, chdir(folder):
        copy = Path(folder, path.name)
        copy.write_bytes(_read(path))
        try:
            yield copy
        except UserError as error:
            raise UserError(str(error).replace(str(copy), str(path))) from None


def names(path: Path) -> list[str]:
    """What a file defines and imports, by its public names."""
    return [key for key in vars(_module(path)) if not key.startswith("_")]


def references(value: Any) -> list[str]:
    """Every file that is named somewhere in JSON-like values, in their order, each once."""
    texts: dict[str, None] = {}
    _mapped(value, lambda text: texts.setdefault(text))
    return list(texts)


def replaced(value: Any, by: Mapping[str, str]) -> Any:
    """JSON-like values with each reference replaced by what stands for it."""
    return _mapped(value, lambda text: by[text])


def _mapped(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, dict):
        return {_mapped(key, change): _mapped(child, change) for key, child in value.items()}
    if isinstance(value, list):
        return [_mapped(child, change) for child in value]
    return change(value) if isinstance(value, str) and is_file(value) else value


def _taken_apart(reference: str) -> tuple[str, str | None]:
    match = _REFERENCE.fullmatch(reference)
    assert match is not None, reference
    return match["path"], match["name"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _load(kind: str, reference: str) -> Plugin:
    path, name = _taken_apart(reference)
    module = _module(Path(path))
    expected = name or EXPECTED[kind]
    if not hasattr(module, expected):
        own = ", ".join(names(Path(path))) or "nothing"
        hint = "" if name else "; name another one as ./file.py:name"
        raise UserError(f"{path}: no `{expected}` in it, only {own}{hint}")
    return Plugin(getattr(module, expected), module, identity(reference))


def _module(path: Path) -> ModuleType:
    """Run a file as a module of a name of its own, once for the same bytes."""
    content = _read(path)
    name = f"rlbhpc_plugin_{_digest(content)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Where classes look for their module, as dataclasses and pickle do.
    sys.modules[name] = module
    try:
        # The user's own code, from the very bytes that the name is a digest of.
        exec(compile(content, str(path), "exec"), vars(module))  # noqa: S102
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == str(path)]  # fmt: skip
        place = f"{path}:{lines[-1]}" if lines else str(path)
        hint = _ALONE * isinstance(error, ImportError | FileNotFoundError)
        raise UserError(f"{place}: {_cause(error)}{hint}") from None
    return module


def _cause(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
