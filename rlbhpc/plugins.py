"""Plugins: a Python file beside the study, or what an installed package registers.

A study names such a file as ``./mine.py``, or as ``./mine.py:name`` where the file holds several
plugins. An installed package registers a plugin as an entry point, by a name; the groups are
``rlbhpc.problem_sets``, ``rlbhpc.verifiers`` and so on, one for each key of :data:`EXPECTED`.

The bytes of a file are its identity: what it decides has another fingerprint once they change.
Its folder is no part of that, so a study can be moved. An installed plugin is known by the name and
version of its distribution and by the bytes of its module.

A *reference* is a file as it stands in a study, or ``verifiers:theirs`` for what a package
registers.
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

# Keys of a study under which plugins are named: in a value, in a list, or as a mapping's keys.
_KEYS: Final[Mapping[str, str]] = {
    "set": "problem_sets",
    "verifier": "verifiers",
    "rewards": "rewards",
    "algorithm": "algorithms",
    "engine": "engines",
    "statistics": "statistics",
    "aspects": "aspects",
}

# In front stands what tells a path from a registered name.
_REFERENCE: Final = re.compile(r"(?P<path>[~.$/][^\n]*\.py)(?::(?P<name>[A-Za-z_]\w*))?")

_STANDS_ALONE: Final = (
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
    return Path(_split_reference(reference)[0])


def label(reference: str) -> str:
    """A reference without its folder; any other text as it is."""
    if not is_file(reference):
        return reference
    path, name = _split_reference(reference)
    return Path(path).name + (f":{name}" if name else "")


def identity(reference: str) -> str:
    """A reference by content: a name, and 16 hex digits over the bytes of the file or module."""
    if not is_file(reference):
        kind, _, name = reference.partition(":")
        return installed_identity(kind, name)
    return f"{label(reference)}@{_digest(_read_bytes(path_of(reference)))}"


@cache
def installed_identity(kind: str, name: str) -> str:
    """What :func:`identity` says of an installed plugin; as it was when it was first looked up."""
    entry = _find_entry_point(kind, name)
    assert entry is not None, name
    place = f"{kind} {name!r} of {entry.value}"
    try:
        # Imports the packages that the module is in.
        spec = importlib.util.find_spec(entry.module)
    except Exception as error:
        raise UserError(f"{place}: {cause(error)}") from None
    # Of a file on disk or in a zip file; a folder without `__init__.py` has no bytes.
    read = getattr(spec and spec.loader, "get_data", None)
    if spec is None or spec.origin is None or read is None:
        raise UserError(f"{place}: ModuleNotFoundError: No module named {entry.module!r}")
    try:
        content = read(spec.origin)
    except OSError as error:
        raise UserError(f"{place}: cannot be read: {error}") from None
    package = entry.dist
    version = f"{package.name}-{package.version}:" if package else ""
    return f"{name}@{version}{_digest(content)}"


def planned_identity(known: Mapping[str, str], kind: str, name: str) -> str | None:
    """What a study knows of a plugin that it names; None where the name is rlbhpc's own."""
    return known.get(_reference(kind, name))


def reject_changed(known: Mapping[str, str]) -> None:
    """Refuse packages that are not those that a study was planned with; files have copies."""
    for reference, planned in known.items():
        if is_file(reference):
            continue
        kind, _, name = reference.partition(":")
        now = installed_identity(kind, name) if name in installed(kind) else "not installed"
        if now != planned:
            raise UserError(
                f"{reference}: the study was planned with {planned} and here it is {now}; install "
                "what it was planned with, or plan it again"
            )


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
        path, named = _split_reference(name)
        module = _load_module(Path(path))
        expected = named or EXPECTED[kind]
        if not hasattr(module, expected):
            own = ", ".join(names(Path(path))) or "nothing"
            hint = "" if named else "; name another one as ./file.py:name"
            raise UserError(f"{path}: no `{expected}` in it, only {own}{hint}")
        return Plugin(getattr(module, expected), module, identity(name))
    entry = _find_entry_point(kind, name)
    if entry is None:
        return None
    try:
        value = entry.load()
        module = importlib.import_module(entry.module)
    except Exception as error:
        raise UserError(f"{kind} {name!r} of {entry.value}: {cause(error)}") from None
    return Plugin(value, module, installed_identity(kind, name))


def reject_own_name(kind: str, name: str) -> None:
    """Refuse a package that registers a plugin under a name of rlbhpc's own: which is meant?"""
    entry = _find_entry_point(kind, name)
    if entry is not None:
        raise UserError(
            f"{kind} {name!r} is rlbhpc's own, and {_package_label(entry)} registers "
            f"{entry.value} under the same name; register that under another name, or uninstall it"
        )


def _find_entry_point(kind: str, name: str) -> importlib.metadata.EntryPoint | None:
    """What an installed package registers under a name; refused where two packages do."""
    entries = installed(kind).get(name, ())
    if len(entries) > 1:
        packages = " and ".join(f"{entry.value} of {_package_label(entry)}" for entry in entries)
        raise UserError(f"{kind} {name!r} is registered twice: {packages}; uninstall one of them")
    return entries[0] if entries else None


def _package_label(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.dist.name}-{entry.dist.version}" if entry.dist else entry.module


@cache
def installed(kind: str) -> Mapping[str, tuple[importlib.metadata.EntryPoint, ...]]:
    """What installed packages register, by name: more than one where several take the same."""
    entries = registered().select(group=f"rlbhpc.{kind}")
    return {name: tuple(entries.select(name=name)) for name in entries.names}


#: What installed packages register for anybody: looked up once for all kinds, since it takes 6 ms.
registered: Final = cache(importlib.metadata.entry_points)


@contextmanager
def isolated_copy(path: Path) -> Iterator[Path]:
    """A copy of a file in an empty working folder, as jobs have it; complaints name the file."""
    with TemporaryDirectory() as folder, chdir(folder):
        copy = Path(folder, path.name)
        copy.write_bytes(_read_bytes(path))
        try:
            yield copy
        except UserError as error:
            raise UserError(str(error).replace(str(copy), str(path))) from None


@contextmanager
def isolated_plugin(reference: str) -> Iterator[str]:
    """A plugin of a file in such a copy; one of a package as it is."""
    if not is_file(reference):
        yield reference
        return
    original = path_of(reference)
    with isolated_copy(original) as copy:
        yield reference.replace(str(original), str(copy), 1)


def names(path: Path) -> list[str]:
    """What a file defines and imports, by its public names."""
    return [key for key in vars(_load_module(path)) if not key.startswith("_")]


def references(study: Mapping[str, Any]) -> list[str]:
    """Every plugin that a study's JSON-like values name, in their order, each once."""
    named: dict[str, None] = {}

    def note(kind: str, text: str) -> None:
        if is_file(text) or text in installed(kind):
            named[_reference(kind, text)] = None

    _map_names(study, note)
    sets = study.get("problem_sets")
    # A file that was not validated yet may have anything there.
    for name, entry in sets.items() if isinstance(sets, dict) else ():
        keys = entry.keys() if isinstance(entry, dict) else set()
        if not {"set", "fields"} & keys:  # then its name is that of the set
            note("problem_sets", name)
    return list(named)


def replace_references(value: Any, by: Mapping[str, str]) -> Any:
    """JSON-like values of a study with each plugin replaced by what stands for its reference."""
    return _map_names(value, lambda kind, text: by.get(_reference(kind, text), text))


def _reference(kind: str, name: str) -> str:
    return name if is_file(name) else f"{kind}:{name}"


def _map_names(value: Any, change: Callable[[str, str], Any], kind: str = "") -> Any:
    """Change the names of plugins; ``kind``: of those that stand here, as the key above says."""
    if isinstance(value, dict):
        return {
            _map_names(key, change, kind if kind == "rewards" else ""): _map_names(
                child, change, _KEYS.get(key, kind if key == "name" else "")
            )
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_map_names(child, change, kind) for child in value]
    is_plugin = isinstance(value, str) and (kind or is_file(value))
    return change(kind, value) if is_plugin else value


def _split_reference(reference: str) -> tuple[str, str | None]:
    match = _REFERENCE.fullmatch(reference)
    assert match is not None, reference
    return match["path"], match["name"]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _load_module(path: Path) -> ModuleType:
    """Run a file as a module of a name of its own, once for the same bytes."""
    content = _read_bytes(path)
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
        hint = _STANDS_ALONE * isinstance(error, ImportError | FileNotFoundError)
        raise UserError(f"{place}: {cause(error)}{hint}") from None
    return module


def cause(error: BaseException) -> str:
    """What an exception says, in one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
