"""Plugins: a Python file beside the study, or what an installed package registers.

A study names such a file as ``./mine.py``, or as ``./mine.py:name`` where the file holds several
plugins. An installed package registers a plugin as an entry point, by a name; the groups are
``rlbhpc.problem_sets``, ``rlbhpc.verifiers`` and so on, one for each key of :data:`DEFAULT_NAMES`.

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

# By kind of plugin, the name that it has in its file unless the study names another one.
DEFAULT_NAMES: Final[Mapping[str, str]] = {
    "problem_sets": "SET",
    "verifiers": "verify",
    "rewards": "reward",
    "algorithms": "ALGORITHM",
    "engines": "ENGINE",
    "tools": "tool",
    "statistics": "statistic",
    "aspects": "ASPECT",
}

# Keys of a study under which plugins are named (in a value, in a list, or as a mapping's keys), and
# the kind of those plugins.
_KIND_BY_KEY: Final[Mapping[str, str]] = {
    "set": "problem_sets",
    "verifier": "verifiers",
    "rewards": "rewards",
    "algorithm": "algorithms",
    "engine": "engines",
    "tools": "tools",
    "statistics": "statistics",
    "aspects": "aspects",
}

# A path begins with one of these characters, which no registered name does.
_FILE_REFERENCE: Final = re.compile(r"(?P<path>[~.$/][^\n]*\.py)(?::(?P<name>[A-Za-z_]\w*))?")

_IMPORT_HINT: Final = (
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
    """Return whether a text of a study names a Python file, as ``./mine.py:name`` does."""
    return _FILE_REFERENCE.fullmatch(reference) is not None


def path_of(reference: str) -> Path:
    """Return the file that a reference names."""
    return Path(_split_reference(reference)[0])


def label(reference: str) -> str:
    """Return a reference without its folder; any other text as it is."""
    if not is_file(reference):
        return reference
    path, name = _split_reference(reference)
    file_name = Path(path).name
    return f"{file_name}:{name}" if name else file_name


def identity(reference: str) -> str:
    """Return a name and 16 hex digits over the bytes of the file or module."""
    if not is_file(reference):
        kind, _, name = reference.partition(":")
        return installed_identity(kind, name)
    return f"{label(reference)}@{_digest(_read_bytes(path_of(reference)))}"


@cache
def installed_identity(kind: str, name: str) -> str:
    """Return a text that says which plugin of an installed package this is, in which version.

    It has the plugin's name, name and version of its package, and a digest of its module's bytes.
    ``kind``: such as ``verifiers``. What a package registers is an *entry point*. Looked up once:
    the identity is that of the code which this process has loaded.
    """
    entry_point = _find_entry_point(kind, name)
    assert entry_point is not None, name
    plugin = f"{kind} {name!r} of {entry_point.value}"
    content = _read_module_bytes(plugin, entry_point.module)
    package = entry_point.dist
    version = f"{package.name}-{package.version}:" if package else ""
    return f"{name}@{version}{_digest(content)}"


def _read_module_bytes(plugin: str, module_name: str) -> bytes:
    """Return the bytes of an installed module's file, without running it.

    ``plugin``: what to call it in messages.
    """
    try:
        # Imports the packages that the module is in.
        spec = importlib.util.find_spec(module_name)
    except Exception as error:
        raise UserError(f"{plugin}: {describe_exception(error)}") from None
    # Loaders of files on disk and in zip files have this; a folder without `__init__.py` hasn't.
    read = getattr(spec.loader, "get_data", None) if spec else None
    if spec is None or spec.origin is None or read is None:
        raise UserError(f"{plugin}: ModuleNotFoundError: No module named {module_name!r}")
    try:
        content: bytes = read(spec.origin)
    except OSError as error:
        raise UserError(f"{plugin}: cannot be read: {error}") from None
    return content


def planned_identity(identities: Mapping[str, str], kind: str, name: str) -> str | None:
    """Return the identity that a study was planned with; None where the name is rlbhpc's own.

    ``identities``: by reference, those of all plugins of the study.
    """
    return identities.get(_reference(kind, name))


def reject_changed(identities: Mapping[str, str]) -> None:
    """Refuse plugins of packages that are not those that a study was planned with.

    ``identities``: by reference. A *reference* is how a study names a plugin: a file, of which
    there is a copy that can't have changed, or ``kind:name`` for what an installed package
    registers. An *identity* has a digest of the plugin's code, so it changes with it.
    """
    for reference, planned in identities.items():
        if is_file(reference):
            continue
        kind, _, name = reference.partition(":")
        current = installed_identity(kind, name) if name in installed(kind) else "not installed"
        if current != planned:
            raise UserError(
                f"{reference}: the study was planned with {planned} and here it is {current}; "
                "install what it was planned with, or plan it again"
            )


def find(kind: str, name: str) -> Plugin | None:
    """Load the plugin that a study names: a file's, or an installed package's; None if none has it.

    What a package registers under a name is an *entry point*.

    Parameters
    ----------
    kind
        A key of :data:`DEFAULT_NAMES`.
    name
        How the study names it: a reference to a file, or a registered name.
    """
    if is_file(name):
        return _load_from_file(kind, name)
    entry_point = _find_entry_point(kind, name)
    if entry_point is None:
        return None
    try:
        value = entry_point.load()
        module = importlib.import_module(entry_point.module)
    except Exception as error:
        plugin = f"{kind} {name!r} of {entry_point.value}"
        raise UserError(f"{plugin}: {describe_exception(error)}") from None
    return Plugin(value, module, installed_identity(kind, name))


def _load_from_file(kind: str, reference: str) -> Plugin:
    """Load the plugin that a file holds, under the name in the reference or the usual one.

    ``reference``: ``./mine.py`` or ``./mine.py:name``. ``kind``: such as ``verifiers``; it decides
    the usual name, such as ``verify``.
    """
    path, given_name = _split_reference(reference)
    module = _load_module(Path(path))
    name = given_name or DEFAULT_NAMES[kind]
    if not hasattr(module, name):
        defined = ", ".join(names(Path(path))) or "nothing"
        hint = "" if given_name else "; name another one as ./file.py:name"
        raise UserError(f"{path}: no `{name}` in it, only {defined}{hint}")
    return Plugin(getattr(module, name), module, identity(reference))


def reject_own_name(kind: str, name: str) -> None:
    """Refuse a package that registers a plugin under a name of rlbhpc's own: which is meant?

    ``kind``: such as ``verifiers``. ``name``: one that rlbhpc has itself. What a package registers
    is an *entry point*.
    """
    entry_point = _find_entry_point(kind, name)
    if entry_point is not None:
        raise UserError(
            f"{kind} {name!r} is rlbhpc's own, and {_package_label(entry_point)} registers "
            f"{entry_point.value} under the same name; register that under another name, or "
            "uninstall it"
        )


def _find_entry_point(kind: str, name: str) -> importlib.metadata.EntryPoint | None:
    """Return what an installed package registers under a name; None if nothing.

    ``kind``: such as ``verifiers``. A name that two packages register is refused.
    """
    entry_points = installed(kind).get(name, ())
    if len(entry_points) > 1:
        packages = " and ".join(
            f"{entry_point.value} of {_package_label(entry_point)}" for entry_point in entry_points
        )
        raise UserError(f"{kind} {name!r} is registered twice: {packages}; uninstall one of them")
    return entry_points[0] if entry_points else None


def _package_label(entry_point: importlib.metadata.EntryPoint) -> str:
    package = entry_point.dist
    return f"{package.name}-{package.version}" if package else entry_point.module


@cache
def installed(kind: str) -> Mapping[str, tuple[importlib.metadata.EntryPoint, ...]]:
    """Return what installed packages register, by name; several where they take the same name."""
    entry_points = all_entry_points().select(group=f"rlbhpc.{kind}")
    return {name: tuple(entry_points.select(name=name)) for name in entry_points.names}


#: Entry points of all installed packages. Looked up once for all kinds, since it takes 6 ms.
all_entry_points: Final = cache(importlib.metadata.entry_points)


@contextmanager
def isolated_copy(path: Path) -> Iterator[Path]:
    """Copy a file into an empty folder and work there, as jobs do; errors name the original.

    So a plugin that needs other files beside it fails here and not only in a job.
    """
    with TemporaryDirectory() as folder, chdir(folder):
        copy = Path(folder, path.name)
        copy.write_bytes(_read_bytes(path))
        try:
            yield copy
        except UserError as error:
            raise UserError(str(error).replace(str(copy), str(path))) from None


@contextmanager
def isolated_plugin(reference: str) -> Iterator[str]:
    """Give a reference to a copy of a plugin's file in an empty folder; errors name the original.

    A *reference* is how a study names a plugin: a file, or the name of what a package registers,
    which stays as it is. Jobs have such a copy too.
    """
    if not is_file(reference):
        yield reference
        return
    original = path_of(reference)
    with isolated_copy(original) as copy:
        yield reference.replace(str(original), str(copy), 1)


def names(path: Path) -> list[str]:
    """Public names that a file defines or imports."""
    return [name for name in vars(_load_module(path)) if not name.startswith("_")]


def references(study: Mapping[str, Any]) -> list[str]:
    """Return references to every plugin that a study names, in order, each once.

    A *reference* is a file as the study names it, or ``kind:name`` for what an installed package
    registers. ``study``: its values as JSON-like data. A problem set may be named by the key of its
    settings alone, so those are looked at apart.
    """
    found: dict[str, None] = {}

    def add_reference(kind: str, name: str) -> None:
        if is_file(name) or name in installed(kind):
            found[_reference(kind, name)] = None

    _map_plugin_names(study, add_reference)
    # Before validation a study may have anything under this key.
    problem_sets = study.get("problem_sets")
    if isinstance(problem_sets, dict):
        for key, settings in problem_sets.items():
            has_source = isinstance(settings, dict) and not {"set", "fields"}.isdisjoint(settings)
            # Without a source the key itself names the set.
            if not has_source:
                add_reference("problem_sets", key)
    return list(found)


def replace_references(value: Any, replacements: Mapping[str, str]) -> Any:
    """Copy JSON-like values of a study, with plugins replaced by what is given for a reference."""
    return _map_plugin_names(
        value, lambda kind, name: replacements.get(_reference(kind, name), name)
    )


def _reference(kind: str, name: str) -> str:
    return name if is_file(name) else f"{kind}:{name}"


def _map_plugin_names(value: Any, change: Callable[[str, str], Any], kind: str = "") -> Any:
    """Copy JSON-like values of a study with each name of a plugin changed.

    ``change``: takes the kind of a plugin (such as ``verifiers``) and its name, and returns what
    replaces it. ``kind``: of the plugins that ``value`` names, as the key above it says; empty
    where it names none. Under a key that isn't known, a text that names a Python file is a plugin
    all the same.
    """
    if isinstance(value, dict):
        changed = {}
        for key, child in value.items():
            # Rewards are named by keys: a mapping gives each its weight.
            key_kind = kind if kind == "rewards" else ""
            child_kind = _KIND_BY_KEY.get(key, kind if key == "name" else "")
            new_key = _map_plugin_names(key, change, key_kind)
            changed[new_key] = _map_plugin_names(child, change, child_kind)
        return changed
    if isinstance(value, list):
        return [_map_plugin_names(child, change, kind) for child in value]
    if isinstance(value, str) and (kind or is_file(value)):
        return change(kind, value)
    return value


def _split_reference(reference: str) -> tuple[str, str | None]:
    match = _FILE_REFERENCE.fullmatch(reference)
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
    """Run a Python file as a module, and return it; once for the same bytes.

    The module's name is made from a digest of its bytes, so a changed file is another module. An
    error in it is told with the line of the file that it comes from.
    """
    content = _read_bytes(path)
    module_name = f"rlbhpc_plugin_{_digest(content)}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look up the module of a class here.
    sys.modules[module_name] = module
    try:
        # The user's own code, from the very bytes that the name is a digest of.
        exec(compile(content, str(path), "exec"), vars(module))  # noqa: S102
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        place = str(path)
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == str(path):
                place = f"{path}:{frame.lineno}"
        hint = _IMPORT_HINT if isinstance(error, ImportError | FileNotFoundError) else ""
        raise UserError(f"{place}: {describe_exception(error)}{hint}") from None
    return module


def describe_exception(error: BaseException) -> str:
    """Return the type and message of an exception, in one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
