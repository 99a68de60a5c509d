"""A study file, its includes and `--set` as one tree in which every value knows its location.

A study file comes from anywhere, so it is read as data and nothing else: no tags, one document,
no duplicate keys, and a limited size, depth and number of values. An alias is built again wherever
it is used, so that a "billion laughs" reaches that limit. Plain scalars follow the core schema of
YAML 1.2 rather than PyYAML's 1.1: ``1e-6`` is a number, ``no`` and ``12:30`` are text.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
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
MAX_INCLUDES: Final = 32
MAX_KEY_CHARACTERS: Final = 160

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
CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
COMMAND_LINE: Final = "--set"

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a study file and its location.

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
        """The location for a message, ``file:line: key path``, without what does not apply."""
        location = f"{self.file}:{self.line}" if self.line else self.file
        key_path = self.key if key is None else key
        if len(key_path) > MAX_KEY_CHARACTERS:
            key_path = f"{key_path[:80]}…{key_path[-60:]}"
        return f"{location}: {key_path}" if key_path else location

    @property
    def entries(self) -> Mapping[str, Node]:
        """The children by key; empty for anything but a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The children in order; empty for anything but a list."""
        return self.value if isinstance(self.value, list) else []

    def plain(self) -> Any:
        """Return the value without locations, as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def child_key(parent_key: str, name: str) -> str:
    """The key path of an entry of a mapping."""
    return f"{parent_key}.{name}" if parent_key else name


def is_file(path: Path) -> bool:
    """Whether there is a regular file; unlike `Path.is_file`, never an exception."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether there is a folder; unlike `Path.is_dir`, never an exception."""
    return os.path.isdir(path)  # noqa: PTH112


def read_tree(path: Path) -> Node:
    """Read one YAML file as a tree of nodes; every problem is a one-line `UserError`.

    A node is a value that knows its file, line and key path.
    """
    file = str(path) if str(path).isprintable() else ascii(str(path))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{file}: not a file; give the path of a study file (YAML)")
        if status.st_size > MAX_BYTES:
            raise UserError(
                f"{file}: {status.st_size:,} bytes; a study file has at most {MAX_BYTES:,}"
            )
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{file}: no such file; `rlbhpc init` writes one to start from") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{file}: cannot be read: {reason}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{file}:{line}: not UTF-8 text; a study file is YAML") from None
    return parse(text, file)


def parse(text: str, file: str, line: int | None = None, key: str = "") -> Node:
    """Parse one YAML document into a tree of nodes; messages name ``file``.

    A node is a value that knows its file, line and key path. ``line`` replaces the true line of all
    nodes; 0 leaves lines out (``--set`` has none). All key paths begin with ``key``.
    """
    loader = _Loader(text)
    try:
        _reject_deep_nesting(text, file)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{file}:{mark.line + 1}" if mark and line is None else file
        if error.context == _SECOND_DOCUMENT:
            raise UserError(f"{location}: a second YAML document; a study file holds one") from None
        raise UserError(f"{location}: not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        error_line = text[: error.position].count("\n") + 1
        location = f"{file}:{error_line}" if line is None else file
        raise UserError(f"{location}: not valid YAML: {error.reason}") from None
    finally:
        loader.dispose()
    if root is None:
        raise UserError(f"{file}: empty; `rlbhpc init` writes a study file to start from")
    return _TreeBuilder(file, line).build(root, key)


def _reject_deep_nesting(text: str, file: str) -> None:
    """Refuse a text that nests too deep, before PyYAML's C code would overflow its stack.

    The parser's events come one by one, so this check itself does not recurse.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH + 1:
            raise UserError(f"{file}: nested deeper than {MAX_DEPTH} levels")


# What PyYAML says of a stream that goes on behind its first document.
_SECOND_DOCUMENT: Final = "expected a single document in the stream"
# How the loader marks nodes that carry no tag of their own.
_UNQUOTED: Final = "unquoted scalar"
_UNTAGGED: Final = "quoted scalar, list or mapping"


class _Loader(yaml.CSafeLoader):
    """PyYAML's parser without its rules for which plain scalar is a number, date or boolean."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Name what a node is that has no tag in the file."""
        is_unquoted = kind is yaml.ScalarNode and implicit[0]
        return _UNQUOTED if is_unquoted else _UNTAGGED


class _TreeBuilder:
    """Builds the tree from PyYAML's nodes and counts its values.

    ``fixed_line`` stands in place of the line of every node, where it is not None.
    """

    def __init__(self, file: str, fixed_line: int | None) -> None:
        self.file = file
        self.fixed_line = fixed_line
        self.count = 0

    def build(
        self, source: yaml.Node, key: str, key_line: int | None = None, depth: int = 0
    ) -> Node:
        """Turn one of PyYAML's nodes into a node of our tree, with all below it.

        Our node knows its file, line and key path. ``key`` is that path, ``key_line`` the line of
        the value's key if it has one, and ``depth`` counts the levels above. ``count`` counts all
        nodes: an alias is built anew at every use, and a few lines could stand for billions. A
        quoted text stays text; an unquoted one may be a number or a truth value.
        """
        line = self._line_of(source) if key_line is None else key_line
        node = Node(None, self.file, line, key)
        self.count += 1
        if self.count > MAX_NODES:
            node.fail(f"more than {MAX_NODES:,} values, aliases counted as often as they are used")
        if depth > MAX_DEPTH:
            node.fail(f"nested deeper than {MAX_DEPTH} levels")
        if source.tag not in (_UNQUOTED, _UNTAGGED):
            node.fail(f"YAML tags are not allowed (found {shown(source.tag)}); write plain values")
        if isinstance(source, yaml.MappingNode):
            return replace(node, value=self._build_entries(source, node, depth))
        if isinstance(source, yaml.SequenceNode):
            items = [
                self.build(item, f"{key}[{index}]", depth=depth + 1)
                for index, item in enumerate(source.value)
            ]
            return replace(node, value=items)
        control = CONTROL_CHARACTER.search(source.value)
        if control is not None:
            node.fail(f"control character {control.group()!a} in the text")
        is_quoted = source.tag == _UNTAGGED
        return replace(node, value=source.value if is_quoted else _scalar_value(source.value))

    def _line_of(self, source: yaml.Node) -> int:
        if self.fixed_line is not None:
            return self.fixed_line
        line: int = source.start_mark.line
        return line + 1

    def _build_entries(self, source: yaml.MappingNode, parent: Node, depth: int) -> dict[str, Node]:
        """Build the entries of a mapping by key.

        YAML's merge key ``<<`` brings the entries of another mapping; the mapping's own win over
        these. ``parent`` is the node of the mapping itself, for key paths and lines in messages.
        """
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_source, value_source in source.value:
            key_node = Node(None, self.file, self._line_of(key_source), parent.key)
            name = key_source.value
            if key_source.tag not in (_UNQUOTED, _UNTAGGED) or not isinstance(name, str):
                key_node.fail("a key must be a plain name")
            if not name.isprintable():
                key_node.fail(f"a character that cannot be printed in the key {shown(name)}")
            key = child_key(parent.key, name)
            if name == "<<" and key_source.tag == _UNQUOTED:
                merged |= self._build_merged(value_source, parent, depth)
            elif name in entries:
                first_line = entries[name].line
                first = f", first on line {first_line}" if first_line else ""
                key_node.fail(f"duplicate key{first}", key=key)
            else:
                entries[name] = self.build(value_source, key, key_node.line, depth + 1)
        inherited = {name: node for name, node in merged.items() if name not in entries}
        return entries | inherited

    def _build_merged(self, value: yaml.Node, parent: Node, depth: int) -> dict[str, Node]:
        """Build what ``<<: *anchor`` or ``<<: [*a, *b]`` brings; the first mapping wins."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        merged: dict[str, Node] = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                node = replace(parent, line=self._line_of(source))
                node.fail(
                    "`<<` takes a mapping, or a list of mappings", child_key(parent.key, "<<")
                )
            merged = self._build_entries(source, parent, depth) | merged
        return merged


def _scalar_value(text: str) -> Scalar:
    """Return the value of unquoted text by YAML's core schema; what fits nothing stays text."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        return float(text)
    return text


def shown(value: Any, width: int = 60) -> str:
    """Return a found value for a message: quoted, printable, on one line of at most ``width``."""
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


# ``include:`` and ``--set``: several trees become one, and each value still knows its location.


_STUDY_SHAPE: Final = Shape(StudyFile)


def load_tree(path: Path, overrides: Sequence[str] = ()) -> Node:
    """Read a study file, what it includes, and the overrides of the command line.

    Later words win: an included file gives way to the one that includes it, a list of includes is
    read from first to last, and ``--set`` wins over all. Mappings are joined key by key; anything
    else is replaced; ``null`` takes an included entry away.
    """
    tree = drop_nulls(_read_with_includes(path, including=()))
    for override in overrides:
        tree = drop_nulls(_apply_override(tree, override))
    return tree


def local_path(node: Node) -> Path:
    """Return the path that a value of the study file holds, made absolute.

    ``~`` and ``$VARIABLE`` are expanded, by us and not by a shell. A relative path begins at the
    folder of the file that it is written in, one of the command line at the current folder.
    """
    text = str(node.value)
    if "\n" in text:
        node.fail(f"found {shown(text)}; a path is one line")
    for match in re.finditer(r"\$\{?(\w+)", text):
        if match[1] not in os.environ:
            node.fail(f"the environment has no variable ${match[1]} (found {shown(text)})")
    try:
        expanded = Path(os.path.expandvars(text)).expanduser()
    except RuntimeError:
        node.fail(f"no home folder for the ~ in {shown(text)}")
    folder = Path() if node.file == COMMAND_LINE else Path(node.file).parent
    # Not resolve(): a link to the newest checkpoint is to stay a link.
    return Path(os.path.normpath(Path.cwd() / folder / expanded))


def _read_with_includes(path: Path, including: tuple[Path, ...]) -> Node:
    """Read a study file and lay it over the files that it includes.

    ``including`` are the files that led to this one, so that a file that includes itself is
    noticed. `overlay` joins two trees, of which the second wins.
    """
    tree = read_tree(path)
    if not isinstance(tree.value, dict):
        tree.fail(f"found {shown(tree.value)}; a study file is a mapping of keys to values")
    entries = dict(tree.value)
    include = entries.pop("include", None)
    merged = Node({}, tree.file, tree.line, "")
    chain = (*including, path.resolve())
    for node in _included_paths(include):
        target = local_path(node)
        if target.resolve() in chain:
            names = " -> ".join(file.name for file in (*chain, target))
            node.fail(f"includes itself: {names}")
        if not is_file(target):
            node.fail(f"no such file: {shown(str(target), 200)}")
        merged = overlay(merged, _read_with_includes(target, chain))
    return overlay(merged, replace(tree, value=entries))


def _included_paths(include: Node | None) -> list[Node]:
    """Return the values under ``include``, each with its place: one path, or a list of paths.

    A node is a value with its place; its ``items`` are the items of a list, and ``fail`` raises an
    error that begins with the place.
    """
    if include is None:
        return []
    nodes = include.items if isinstance(include.value, list) else [include]
    if len(nodes) >= MAX_INCLUDES:
        nodes[MAX_INCLUDES - 1].fail(f"more than {MAX_INCLUDES} included files")
    for node in nodes:
        if not isinstance(node.value, str) or not node.value:
            node.fail(f"found {shown(node.plain())}; allowed: the path of a YAML file, or a list")
    return nodes


def overlay(below: Node, above: Node) -> Node:
    """Lay one tree over another: mappings are joined key by key, all else is replaced.

    The joined value keeps the place of the upper one, unless that came from the command line, which
    has no line. ``COMMAND_LINE`` stands for its file.
    """
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    entries = dict(below.value)
    for key, node in above.value.items():
        entries[key] = overlay(entries[key], node) if key in entries else node
    located = below if above.file == COMMAND_LINE else above
    return replace(located, value=entries)


def drop_nulls(node: Node, shape: Shape | None = _STUDY_SHAPE) -> Node:
    """Drop the keys that hold nothing: to write nothing is to leave the key out.

    ``shape`` is what the schema says of the value; None where it says nothing. A key that is not in
    the schema stays, to be refused as any other that is misspelt.
    """
    if not isinstance(node.value, dict):
        return node
    entries = {}
    for key, child in node.value.items():
        child_shape = shape.below(key) if shape else None
        is_misspelt = shape is not None and shape.is_entry and child_shape is None
        if child.value is not None or is_misspelt:
            entries[key] = drop_nulls(child, child_shape)
    return replace(node, value=entries)


def _apply_override(tree: Node, text: str) -> Node:
    """Apply one ``key.path=value`` of the command line to a tree; the value is read as YAML.

    The value is wrapped in mappings, one for each word of the path, and laid over the tree.
    """
    key, equals, value_text = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"{COMMAND_LINE} {shown(text)}: write key=value, such as arms.base.n=256")
    key_path = _split_key(tree, key.strip())
    if key_path[0] == "include":
        raise UserError(f"{COMMAND_LINE} include: files are included by a study file alone")
    try:
        node = parse(value_text.strip() or "null", COMMAND_LINE, 0, ".".join(key_path))
    except UserError as error:
        raise UserError(f"{COMMAND_LINE} {shown(key)}: {error}") from None
    # From the inside out: the value under its last key, that under the key before, and so on.
    for depth in reversed(range(len(key_path))):
        node = Node({key_path[depth]: node}, COMMAND_LINE, 0, ".".join(key_path[:depth]))
    return overlay(tree, node)


def _split_key(tree: Node, key: str) -> list[str]:
    """Cut a dotted path into keys.

    A key may hold dots itself, such as ``rl-t0.6``. So at each level the longest run of words that
    is a key of the tree is taken, and where there is none a single word. A node is a value with its
    place; its ``entries`` are its children by key, none if it is no mapping.
    """
    words = key.split(".")
    if len(words) > MAX_DEPTH:
        raise UserError(
            f"{COMMAND_LINE} {shown(key)}: {len(words)} levels; at most {MAX_DEPTH} are allowed"
        )
    key_path: list[str] = []
    node = tree
    while words:
        known = [
            count for count in range(1, len(words) + 1) if ".".join(words[:count]) in node.entries
        ]
        word_count = max(known, default=1)
        name = ".".join(words[:word_count])
        if not re.fullmatch(NAME_PATTERN, name):
            raise UserError(f"{COMMAND_LINE} {shown(key)}: {shown(name)} cannot be a key")
        key_path.append(name)
        node = node.entries.get(name, Node({}, COMMAND_LINE, 0, name))
        del words[:word_count]
    return key_path
