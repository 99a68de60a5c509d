"""Sweeps: a list where the schema has one value makes one named entry per value.

``temperature: [0.6, 1.0]`` under an arm ``base`` gives the arms ``base-t0.6`` and ``base-t1.0``.
The written name then stands for all of them: an arm of the swept model ``rl`` is itself swept.
Two such names with the same endings go together (``-ppo`` with ``-ppo``); everything else
multiplies.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final, NamedTuple, get_origin

from rlbhpc import plugins
from rlbhpc.study.complaints import unknown_key
from rlbhpc.study.fields import Entry, IsPath, Refers, Shape, Tag, fields
from rlbhpc.study.schema import SamplingDefaults, StudyFile
from rlbhpc.study.tree import Node, local_path

MAX_MEMBERS: Final = 1_000
MAX_ENTRIES: Final = 5_000
MAX_CHAIN: Final = 50
# What stands under `options`, where the schema names no keys.
_FREE: Final = Shape(Any)
# Whatever is referred to comes before what refers to it.
ORDER: Final = ("problem_sets", "recipes", "models", "arms", "scores", "match_entropy")

Path = tuple[str | int, ...]


class Member(NamedTuple):
    """One entry that a sweep made: its name, and what it adds to the written name."""

    name: str
    ending: str


class Choice(NamedTuple):
    """One value of a swept field: what the name gets, and what goes where."""

    ending: str
    values: dict[Path, Node]


Families = dict[str, dict[str, list[Member]]]


def expand(tree: Node) -> Node:
    """Return the tree without lists that mean sweeps, without defaults, with absolute paths."""
    tree = _anchor_paths(_sweep_seeds(_spread_defaults(tree)), Shape(StudyFile))
    sections = dict(tree.entries)
    families: Families = {}
    for section in ORDER:
        if section in sections and isinstance(sections[section].value, dict):
            entry = fields(StudyFile)[section].item
            assert entry is not None
            sections[section] = _expand_section(section, sections[section], entry.core, families)
    for key, node in sections.items():
        shape = fields(StudyFile).get(key)
        if shape is not None and shape.is_entry:
            sections[key] = _expand_lists(node, shape.core, families)
    return replace(tree, value=sections)


def _spread_defaults(tree: Node) -> Node:
    """Write the keys of ``sampling`` into every arm that does not say otherwise."""
    defaults, arms = tree.entries.get("sampling"), tree.entries.get("arms")
    if defaults is None or not isinstance(defaults.value, dict):
        return tree
    for key, node in defaults.entries.items():
        if key not in fields(SamplingDefaults):
            keys = list(fields(SamplingDefaults))
            node.fail(unknown_key(key, keys))
    entries = {key: node for key, node in tree.entries.items() if key != "sampling"}
    if arms is not None:
        filled = {
            name: replace(arm, value={**defaults.entries, **arm.value})
            if isinstance(arm.value, dict)
            else arm
            for name, arm in arms.entries.items()
        }
        entries["arms"] = replace(arms, value=filled) if filled else arms
    return replace(tree, value=entries)


def _sweep_seeds(tree: Node) -> Node:
    """Write ``seeds`` of a recipe as the sweep of its ``seed`` that it is."""
    recipes = tree.entries.get("recipes")
    if recipes is None or not isinstance(recipes.value, dict):
        return tree
    entries = {}
    for name, recipe in recipes.entries.items():
        seeds = recipe.entries.get("seeds")
        if seeds is not None and "seed" in recipe.entries:
            seeds.fail("`seed` stands beside it; keep one of the two")
        if seeds is not None and not isinstance(seeds.value, list):
            seeds.fail("not a list; write seeds: [0, 1, 2], or `seed` for a single training")
        keys = {"seed" if key == "seeds" else key: node for key, node in recipe.entries.items()}
        entries[name] = replace(recipe, value=keys) if seeds is not None else recipe
    return replace(tree, value={**tree.entries, "recipes": replace(recipes, value=entries)})


def _anchor_paths(node: Node, shape: Shape) -> Node:
    if isinstance(node.value, dict):
        value: Any = {
            _anchored(key, child): _anchor_paths(child, shape.below(key) or _FREE)
            for key, child in node.value.items()
        }
        return replace(node, value=value)
    if isinstance(node.value, list):
        # A list without items of its own is a sweep of this value.
        item = shape.item if shape.core is list and shape.item is not None else shape
        return replace(node, value=[_anchor_paths(child, item) for child in node.value])
    if isinstance(node.value, str) and node.value and _is_path(node.value, shape):
        return replace(node, value=str(local_path(node)))
    return node


def _anchored(key: str, node: Node) -> str:
    """A key, which may name a file as well: a reward of one's own with its weight."""
    return str(local_path(replace(node, value=key))) if plugins.is_file(key) else key


def _is_path(text: str, shape: Shape) -> bool:
    """Whether a value is a path: by its field, a prompt that is a file, or a part of one's own."""
    refers = shape.mark(Refers)
    if plugins.is_file(text):
        return True
    is_prompt_file = refers is not None and refers.section == "prompts" and text.endswith(".txt")
    return shape.mark(IsPath) is not None or is_prompt_file


def _expand_section(section: str, node: Node, entry: type[Entry], families: Families) -> Node:
    """All entries of one section, swept; ``families`` learns what became of each name."""
    members: dict[str, list[tuple[Member, Node]]] = {}
    size = 0
    members_of = families.setdefault(section, {})
    for name in _in_order(section, node):
        child = node.entries[name]
        members[name] = [
            (Member(name + ending, ending), variant)
            for ending, variant in _variants(child, entry, families)
        ]
        size += len(members[name])
        if size > MAX_ENTRIES:
            node.fail(f"more than {MAX_ENTRIES:,} entries after the sweeps")
        if [m.name for m, _ in members[name]] != [name]:
            members_of[name] = [member for member, _ in members[name]]
    result: dict[str, Node] = {}
    for name in node.entries:
        for member, variant in members[name]:
            if member.name in result or (member.ending and member.name in node.entries):
                node.entries[name].fail(
                    f"the sweep gives the name {member.name} twice; rename one of the entries"
                    " or leave out the repeated value"
                )
            result[member.name] = variant
    return replace(node, value=result)


def _in_order(section: str, node: Node) -> list[str]:
    """Entries so that those that others of the section are built from come first."""
    done: dict[str, None] = {}

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in done:
            return
        if len(chain) > MAX_CHAIN:
            node.fail(f"more than {MAX_CHAIN} models in a chain, each made from the one before")
        for parent in _parents(node.entries[name]):
            target = str(parent.value)
            if target in (*chain, name):
                loop = (*chain, name, target)
                parent.fail(f"a cycle: {' <- '.join(loop[loop.index(target) :])}")
            if target in node.entries:
                visit(target, (*chain, name))
        done[name] = None

    for name in node.entries:
        if section == "models":
            visit(name, ())
        else:
            done[name] = None
    return list(done)


def _parents(model: Node) -> Iterator[Node]:
    """Return the values under a model that name the models it comes from."""
    train, base = model.entries.get("train"), model.entries.get("base")
    sources = [train.entries.get("from") if train else None, base]
    for node in sources:
        if node is not None:
            yield from (item for item in (node.items or [node]) if isinstance(item.value, str))


def _variants(node: Node, entry: type[Entry], families: Families) -> list[tuple[str, Node]]:
    """Every combination of the swept fields of one entry: ending of the name, and the entry."""
    node = _expand_lists(node, entry, families)
    axes = _together(list(_axes(node, entry, (), families)))
    size = 1
    for axis in axes:
        size *= len(axis)
        if size > MAX_MEMBERS:
            node.fail(f"the sweeps of this entry make more than {MAX_MEMBERS:,} combinations")
    variants = []
    for combination in itertools.product(*axes):
        variant = node
        for choice in combination:
            for path, value in choice.values.items():
                variant = _with(variant, path, value)
        variants.append(("".join(choice.ending for choice in combination), variant))
    return variants


def _axes(
    node: Node, entry: type[Entry], path: Path, families: Families
) -> Iterator[tuple[bool, list[Choice]]]:
    """Return the swept fields: whether a name was swept elsewhere, and the choices.

    In the order of the schema, so that the order of the keys in a file does not change a name.
    """
    for key, shape in fields(entry).items():
        if key not in node.entries:
            continue
        child, here = node.entries[key], (*path, key)
        if shape.is_entry:
            yield from _axes(child, shape.core, here, families)
        elif shape.core is dict:
            for name, option in sorted(child.entries.items()):
                swept = option.entries.get("sweep")
                if swept is not None and len(option.entries) == 1:
                    place = (*here, name)
                    choices = [
                        Choice(_ending(name, _FREE, value), {place: value})
                        for value in _filled(swept)
                    ]
                    yield False, choices
        elif shape.is_scalar:
            members = _members(child, shape, families)
            if isinstance(child.value, list):
                choices = []
                for value in _filled(child):
                    family = _members(value, shape, families)
                    choices += (
                        [_named(member, here, value) for member in family]
                        if family
                        else [Choice(_ending(key, shape, value), {here: value})]
                    )
                yield False, choices
            elif members:
                yield True, [_named(member, here, child) for member in members]


def _filled(node: Node) -> list[Node]:
    """Return the values of a sweep, of which there must be one."""
    if not isinstance(node.value, list):
        node.fail("a sweep is a list of values")
    if not node.value:
        node.fail("an empty list; a sweep needs at least one value")
    return node.value


def _members(node: Node, shape: Shape, families: Families) -> list[Member]:
    """Say what the written name in this field stands for, if it was swept."""
    refers = shape.mark(Refers)
    if refers is None or not isinstance(node.value, str):
        return []
    return families.get(refers.section, {}).get(node.value, [])


def _named(member: Member, path: Path, node: Node) -> Choice:
    return Choice(member.ending, {path: replace(node, value=member.name)})


def _together(axes: Sequence[tuple[bool, list[Choice]]]) -> list[list[Choice]]:
    """Axes of swept names with the same endings made one axis."""
    result: list[list[Choice]] = []
    by_endings: dict[tuple[str, ...], list[Choice]] = {}
    for from_name, choices in axes:
        endings = tuple(choice.ending for choice in choices)
        if from_name and endings in by_endings:
            for choice, more in zip(by_endings[endings], choices, strict=True):
                choice.values.update(more.values)
            continue
        if from_name:
            by_endings[endings] = choices
        result.append(choices)
    return result


def _with(node: Node, path: Path, value: Node) -> Node:
    if not path:
        return value
    entries = dict(node.entries)
    entries[str(path[0])] = _with(entries[str(path[0])], path[1:], value)
    return replace(node, value=entries)


def _expand_lists(node: Node, entry: type[Entry], families: Families) -> Node:
    """Replace swept names in lists of names, and of entries that hold names, by their members."""
    if not isinstance(node.value, dict):
        return node
    entries = dict(node.value)
    for key, child in entries.items():
        shape = fields(entry).get(key)
        if shape is None or shape.core is not list or not isinstance(child.value, list):
            continue
        inner = shape.item
        assert inner is not None
        items: list[Node] = []
        for item in child.value:
            if inner.is_entry:
                items += [variant for _, variant in _variants(item, inner.core, families)]
            else:
                members = _members(item, inner, families)
                items += [replace(item, value=m.name) for m in members] if members else [item]
        entries[key] = replace(child, value=items)
    return replace(node, value=entries)


def _ending(key: str, shape: Shape, node: Node) -> str:
    """Say what a swept value adds to a name: ``-t0.6``, ``-grpo``, ``-no-chat``."""
    value, tag = node.value, shape.mark(Tag)
    if isinstance(value, bool):
        return f"-{key}" if value else f"-no-{key}"
    if isinstance(value, int | float):
        # A float field writes 1 as 1.0, so that how a number is spelt does not rename an arm.
        number = repr(float(value)) if shape.core is float else str(value)
        return f"-{key if tag is None else tag.text}{number}"
    if isinstance(value, str):
        refers = shape.mark(Refers)
        if plugins.is_file(value):
            value = plugins.label(value).replace(".py", "")
        elif shape.mark(IsPath) or (refers and refers.section == "prompts" and "/" in value):
            value = PurePath(value).stem
        slug = re.sub(r"[^A-Za-z0-9._+-]+", "-", value).strip("-")[:40]
        prefix = tag.text if tag is not None and get_origin(shape.core) is None else ""
        return f"-{prefix}{slug}"
    return f"-{key}"
