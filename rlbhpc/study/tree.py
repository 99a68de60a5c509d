"""A study file, its includes and `--set` as one tree of which every value knows its place.

A study file comes from anywhere, so it is read as data and nothing else: no tags, one document,
duplicate keys refused, size, depth and the number of nodes bounded (aliases are counted as often
as they are used, which stops a "billion laughs"). Plain scalars follow the core schema of YAML
1.2 rather than PyYAML's 1.1: ``1e-6`` is a number, ``no`` and ``12:30`` are text.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from rlbhpc.errors import UserError
from rlbhpc.study.fields import NAME_PATTERN, Shape
from rlbhpc.study.schema import StudyFile

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 24
MAX_NODES: Final = 20_000

INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
NUMBER: Final = re.compile(
    r"[-+]?(?:(?:\.[0-9]{1,40}|[0-9]{1,18}\.[0-9]{0,40})(?:[eE][-+]?[0-9]{1,4})?"
    r"|[0-9]{1,18}[eE][-+]?[0-9]{1,4})"
)
CONSTANTS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Tab and line feed have a use inside text; the other control characters only do harm, from
# NUL in a path to an escape sequence in somebody's terminal.
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a study file and its place.

    ``line`` is that of the key for a value in a mapping, as this is where a reader looks; ``key``
    is the path as the user wrote it, such as ``arms.base.temperature[1]``.
    """

    value: Scalar | list[Node] | dict[str, Node]
    file: str
    line: int
    key: str

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise the one line that says what is wrong here."""
        raise UserError(f"{self.place(key)}: {message}")

    def place(self, key: str | None = None) -> str:
        """``file:line: key path``, without what does not apply."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = _shortened(self.key if key is None else key)
        return f"{where}: {path}" if path else where

    @property
    def entries(self) -> Mapping[str, Node]:
        """The children by key; empty for anything but a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The children in order; empty for anything but a list."""
        return self.value if isinstance(self.value, list) else []

    def plain(self) -> Any:
        """Return the value without places, as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def joined(parent: str, key: str) -> str:
    """Key path of a child."""
    return f"{parent}.{key}" if parent else key


def moved(node: Node, key: str, count: Callable[[Node], None] | None = None) -> Node:
    """Return a copy whose key paths begin at ``key``; ``count`` is first told of each node."""
    if count is not None:
        count(node)
    value = node.value
    if isinstance(value, dict):
        value = {name: moved(child, joined(key, name), count) for name, child in value.items()}
    elif isinstance(value, list):
        value = [moved(child, f"{key}[{i}]", count) for i, child in enumerate(value)]
    return replace(node, value=value, key=key)


def status_of(path: Path) -> os.stat_result | None:
    """What the file system says of a path; None where it says nothing, whatever the reason."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def is_file(path: Path) -> bool:
    """Whether there is a regular file; unlike `Path.is_file`, never an exception."""
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: Path) -> bool:
    """Whether there is a folder; unlike `Path.is_dir`, never an exception."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def read_tree(path: Path) -> Node:
    """Read one YAML file; every problem is a one-line `UserError`."""
    file = str(path) if str(path).isprintable() else ascii(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{file}: not a file; give the path of a study file (YAML)")
        if status.st_size > MAX_BYTES:
            raise UserError(
                f"{file}: {status.st_size:,} bytes; a study file has at most {MAX_BYTES:,}"
            )
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; `rlbhpc init` writes one to start from") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{file}: cannot be read: {reason}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UserError(f"{file}:{line}: not UTF-8 text; a study file is YAML") from None
    return parse(text, file)


def parse(text: str, file: str, line: int | None = None) -> Node:
    """Parse one YAML document; messages name ``file`` as its place.

    ``line`` replaces the true line of all nodes; 0 leaves lines out (``--set`` has none).
    """
    # The C parser is in every PyYAML wheel; the other one is the same, only slower.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Composer(yaml.parse(text, Loader=loader), file, line).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark and line is None else file
        raise UserError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        place = f"{file}:{text[: error.position].count(chr(10)) + 1}" if line is None else file
        raise UserError(f"{place}: not valid YAML: {error.reason}") from None


class _Composer:
    """Builds the tree from parser events, counting as it goes."""

    def __init__(self, events: Iterator[yaml.Event], file: str, line: int | None) -> None:
        self.events = events
        self.file = file
        self.fixed_line = line
        self.anchors: dict[str, Node] = {}
        self.nodes = 0

    def document(self) -> Node:
        """Return the one document of the stream."""
        next(self.events)
        first = next(self.events)
        if isinstance(first, yaml.StreamEndEvent):
            raise UserError(f"{self.file}: empty; `rlbhpc init` writes a study file to start from")
        root = self.node(next(self.events), "", None, 0)
        next(self.events)
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            self.at(after, "").fail("a second YAML document; a study file holds one")
        return root

    def at(self, event: yaml.Event, key: str) -> Node:
        """Return an empty node in the event's place."""
        line = self.fixed_line
        if line is None:
            assert event.start_mark is not None
            line = event.start_mark.line + 1
        return Node(None, self.file, line, key)

    def node(self, event: yaml.Event, key: str, line: int | None, depth: int) -> Node:
        """Build the node that begins with ``event``; ``line`` is that of its key, if it has one."""
        here = self.at(event, key)
        if line is not None:
            here = replace(here, line=line)
        self.count(here)
        if depth > MAX_DEPTH:
            here.fail(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, here)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.tag is not None:
            here.fail(f"YAML tags are not allowed (found {shown(event.tag)}); write plain values")
        if isinstance(event, yaml.ScalarEvent):
            value: Any = _scalar(event)
            if isinstance(value, str) and (bad := CONTROL.search(value)):
                here.fail(f"control character {bad.group()!a} in the text")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self.sequence(key, depth)
        else:
            value = self.mapping(here, depth)
        node = replace(here, value=value)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def count(self, here: Node) -> None:
        """Refuse a tree that grows without bound."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            here.fail(f"more than {MAX_NODES:,} values, aliases counted as often as they are used")

    def alias(self, event: yaml.AliasEvent, here: Node) -> Node:
        """Return a copy of what the anchor stands for, with the key path of the place of use."""
        if event.anchor not in self.anchors:
            here.fail(f"*{event.anchor} stands for no value that is complete before this line")
        return moved(self.anchors[event.anchor], here.key, self.count)

    def sequence(self, key: str, depth: int) -> list[Node]:
        """Return the items up to the end of the sequence."""
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, f"{key}[{len(items)}]", None, depth + 1))
        return items

    def mapping(self, here: Node, depth: int) -> dict[str, Node]:
        """Return the entries of a mapping; those of ``<<`` give way to the others."""
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            place = self.at(event, here.key)
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                place.fail("a key must be a plain name")
            name = event.value
            if not name.isprintable():
                place.fail(f"a character that cannot be printed in the key {shown(name)}")
            is_merge = name == "<<" and event.implicit[0]
            child = self.node(next(self.events), joined(here.key, name), place.line, depth + 1)
            if is_merge:
                merged |= self.merge(child, here.key)
            elif name in entries:
                first = entries[name].line
                since = f", first on line {first}" if first else ""
                place.fail(f"duplicate key{since}", key=joined(here.key, name))
            else:
                entries[name] = child
        return entries | {name: node for name, node in merged.items() if name not in entries}

    def merge(self, child: Node, key: str) -> dict[str, Node]:
        """Return the entries that ``<<: *anchor`` or ``<<: [*a, *b]`` brings; earlier ones win."""
        sources = child.items or [child]
        merged: dict[str, Node] = {}
        for source in sources:
            if not isinstance(source.value, dict):
                source.fail("`<<` takes a mapping, or a list of mappings")
            for name, node in source.value.items():
                merged.setdefault(name, moved(node, joined(key, name), self.count))
        return merged


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    """Value of a scalar by the core schema; what is quoted, or fits nothing, is text."""
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        return float(text)
    return text


def _shortened(key: str) -> str:
    """Return a key path that fits into one line even when it is a thousand levels deep."""
    return key if len(key) <= 160 else f"{key[:80]}…{key[-60:]}"


def shown(value: Any, width: int = 60) -> str:
    """Return a found value for a message: quoted, on one line, printable, not too long."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = ascii(value)
    return text if len(text) <= width else f"{text[: width - 1]}…"


# ``include:`` and ``--set``: one tree out of several, each value still knowing its place.


MAX_INCLUDES: Final = 32
COMMAND_LINE: Final = "--set"
# A recipe has one of these: whoever writes the other means it in place of the one below.
_SEEDS: Final = {"seed", "seeds"}
_STUDY: Final = Shape(StudyFile)


def load_tree(path: Path, overrides: Sequence[str] = ()) -> Node:
    """Read a study file, what it includes, and the overrides of the command line.

    Later words win: an included file gives way to the one that includes it, a list of includes is
    read from first to last, and ``--set`` wins over all. Mappings are joined key by key; anything
    else is replaced, also ``seed`` by its rival ``seeds``; ``null`` takes an included entry away.
    """
    tree = _without_nulls(_with_includes(path, (), [0]))
    for text in overrides:
        tree = _without_nulls(_override(tree, text))
    return tree


def local_path(node: Node) -> Path:
    """Return the path that a node holds, made absolute.

    ``~`` and ``$VARIABLE`` are expanded, by us and not by a shell; a relative path begins at the
    folder of the file that it is written in, one of the command line at the current folder.
    """
    text = str(node.value)
    if "\n" in text:
        node.fail(f"found {shown(text)}; a path is one line")
    missing = [
        name
        for pair in re.findall(r"\$(?:(\w+)|\{(\w+)\})", text)
        if (name := pair[0] or pair[1]) not in os.environ
    ]
    if missing:
        node.fail(f"the environment has no variable ${missing[0]} (found {shown(text)})")
    expanded = Path(os.path.expandvars(text))
    try:
        expanded = expanded.expanduser()
    except RuntimeError:
        node.fail(f"no home folder for the ~ in {shown(text)}")
    start = Path.cwd() if node.file == COMMAND_LINE else Path(node.file).parent
    # Not resolve(): a link to the newest checkpoint is to stay a link.
    return Path(os.path.normpath(Path.cwd() / start / expanded))


def _with_includes(path: Path, chain: tuple[Path, ...], count: list[int]) -> Node:
    count[0] += 1
    tree = read_tree(path)
    if not isinstance(tree.value, dict):
        tree.fail(f"found {shown(tree.value)}; a study file is a mapping of keys to values")
    here = path.resolve()
    entries = dict(tree.value)
    include = entries.pop("include", None)
    merged = Node({}, tree.file, tree.line, "")
    for node in _included(include):
        target = local_path(node)
        if target.resolve() in (*chain, here):
            names = " -> ".join(p.name for p in (*chain, here, target))
            node.fail(f"includes itself: {names}")
        if count[0] >= MAX_INCLUDES:
            node.fail(f"more than {MAX_INCLUDES} included files")
        if not is_file(target):
            node.fail(f"no such file: {shown(str(target), 200)}")
        merged = overlay(merged, _with_includes(target, (*chain, here), count))
    return overlay(merged, replace(tree, value=entries))


def _included(include: Node | None) -> list[Node]:
    """Return the paths under ``include``: one, or a list."""
    if include is None:
        return []
    nodes = include.items if isinstance(include.value, list) else [include]
    for node in nodes:
        if not isinstance(node.value, str) or not node.value:
            node.fail(f"found {shown(node.plain())}; allowed: the path of a YAML file, or a list")
    return nodes


def overlay(below: Node, above: Node, *where: str) -> Node:
    """``above`` written over ``below``: mappings key by key, all else replaced."""
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    is_recipe = len(where) == 2 and where[0] == "recipes"
    has_seeds = any(above.value[key].value is not None for key in _SEEDS & above.value.keys())
    replaced = _SEEDS if is_recipe and has_seeds else ()
    entries = {key: node for key, node in below.value.items() if key not in replaced}
    for key, node in above.value.items():
        entries[key] = overlay(entries[key], node, *where, key) if key in entries else node
    place = below if above.file == COMMAND_LINE else above
    return replace(place, value=entries)


def _without_nulls(node: Node, shape: Shape | None = _STUDY) -> Node:
    """Drop the keys that hold nothing: writing nothing is leaving the key out.

    One that is not in the schema stays, to be refused as any other that is misspelt.
    """
    if not isinstance(node.value, dict):
        return node
    entries = {}
    for key, child in node.value.items():
        below = shape.below(key) if shape else None
        is_known = below or not (shape and shape.is_entry) or key in _SEEDS
        if child.value is not None or not is_known:
            entries[key] = _without_nulls(child, below)
    return replace(node, value=entries)


def _override(tree: Node, text: str) -> Node:
    """Apply one ``key.path=value``; the value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{COMMAND_LINE} {shown(text)}: write key=value, such as arms.base.n=256")
    path = _split(tree, key.strip())
    if path[0] == "include":
        raise UserError(f"{COMMAND_LINE} include: files are included by a study file alone")
    if re.search(r"^\s*$", value):
        node = Node(None, COMMAND_LINE, 0, "")
    else:
        try:
            node = parse(value, COMMAND_LINE, line=0)
        except UserError as error:
            raise UserError(f"{COMMAND_LINE} {shown(key)}: {error}") from None
    node = moved(node, ".".join(path))
    for i in reversed(range(len(path))):
        node = Node({path[i]: node}, COMMAND_LINE, 0, ".".join(path[:i]))
    _refuse_descent(tree, path)
    return overlay(tree, node)


def _refuse_descent(tree: Node, path: list[str]) -> None:
    """Say so when a key path leads through something that has no keys."""
    node = tree
    for step in path[:-1]:
        if step not in node.entries:
            return
        node = node.entries[step]
        if not isinstance(node.value, dict):
            raise UserError(
                f"{COMMAND_LINE}: {'.'.join(path)}: {node.key} holds {shown(node.plain())},"
                " which has no keys"
            )


def _split(tree: Node, key: str) -> list[str]:
    """Cut a dotted path. Names may hold dots: at each level the longest known key wins."""
    words = key.split(".")
    if len(words) > MAX_DEPTH:
        raise UserError(
            f"{COMMAND_LINE} {shown(key)}: {len(words)} levels; at most {MAX_DEPTH} are allowed"
        )
    path: list[str] = []
    node = tree
    while words:
        take = next((i for i in range(len(words), 0, -1) if ".".join(words[:i]) in node.entries), 1)
        step = ".".join(words[:take])
        if not re.fullmatch(NAME_PATTERN, step):
            raise UserError(f"{COMMAND_LINE} {shown(key)}: {shown(step)} cannot be a key")
        path.append(step)
        node = node.entries.get(step, Node({}, COMMAND_LINE, 0, step))
        words = words[take:]
    return path
