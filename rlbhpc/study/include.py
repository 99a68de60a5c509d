"""``include:`` and ``--set``: one tree out of several, each value still knowing its place."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.study.fields import NAME_PATTERN, Shape
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.tree import MAX_DEPTH, Node, is_file, moved, parse, read_tree, shown

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
