"""Sweeps: a list where the schema has one value makes one named entry per value.

``temperature: [0.6, 1.0]`` under an arm ``base`` gives the arms ``base-t0.6`` and ``base-t1.0``.
The written name then stands for all of them: an arm of the swept model ``rl`` is itself swept.
Two such names with the same endings go together (``-ppo`` with ``-ppo``); everything else
multiplies.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import Any, Final, NamedTuple, get_origin

from rlbhpc import plugins
from rlbhpc.study.complaints import unknown_key
from rlbhpc.study.fields import Entry, IsPath, Shape, Tag, fields
from rlbhpc.study.schema import SamplingDefaults, StudyFile
from rlbhpc.study.tree import Node, local_path

MAX_COMBINATIONS: Final = 1_000
# The shape of what stands under `options`, where the schema names no keys.
_ANY_SHAPE: Final = Shape(Any)
# Sections in the order of expansion: whatever is referred to comes before what refers to it.
EXPANDED_SECTIONS: Final = (
    "problem_sets", "recipes", "models", "arms", "scores", "match_entropy",
)  # fmt: skip

KeyPath = tuple[str, ...]


class Member(NamedTuple):
    """One entry that a sweep made: its name, and what it adds to the written name."""

    name: str
    ending: str


#: By section and written name, the entries that a swept entry became.
MembersBySection = dict[str, dict[str, list[Member]]]


class Choice(NamedTuple):
    """One value of a swept field: the ending of the name, and the values to put in, by key path."""

    ending: str
    values: dict[KeyPath, Node]


@dataclass(frozen=True)
class Axis:
    """The choices of one swept field; ``is_reference`` where it names an entry that was swept."""

    choices: list[Choice]
    is_reference: bool = False


def expand(tree: Node) -> Node:
    """Return the tree without lists that mean sweeps, without defaults, with absolute paths.

    The tree is the study file: each value is a node that knows its place. A list where the schema
    has one value is a *sweep*: it makes one named entry per value. ``members`` collects what each
    swept entry became, so that later sections can replace its name by the names of its members.
    """
    tree = _fill_arms_from_defaults(tree)
    tree = _make_paths_absolute(tree, Shape(StudyFile))
    sections = dict(tree.entries)
    members: MembersBySection = {}
    for name in EXPANDED_SECTIONS:
        if name in sections and isinstance(sections[name].value, dict):
            entry_shape = fields(StudyFile)[name].item
            assert entry_shape is not None
            sections[name] = _expand_section(name, sections[name], entry_shape.core, members)
    for key, node in sections.items():
        shape = fields(StudyFile).get(key)
        if shape is not None and shape.is_entry:
            sections[key] = _expand_name_lists(node, shape.core, members)
    return replace(tree, value=sections)


def _fill_arms_from_defaults(tree: Node) -> Node:
    """Copy the keys of the ``sampling`` section into every arm that does not set them itself.

    The section is then gone from the tree. An unknown key in it is refused. A node's ``entries``
    are its children by key.
    """
    defaults = tree.entries.get("sampling")
    if defaults is None or not isinstance(defaults.value, dict):
        return tree
    allowed_keys = list(fields(SamplingDefaults))
    for key, node in defaults.entries.items():
        if key not in allowed_keys:
            node.fail(unknown_key(key, allowed_keys))
    sections = dict(tree.entries)
    del sections["sampling"]
    arms = sections.get("arms")
    if arms is not None and arms.entries:
        filled_arms = {}
        for name, arm in arms.entries.items():
            is_mapping = isinstance(arm.value, dict)
            values = {**defaults.entries, **arm.entries}
            filled_arms[name] = replace(arm, value=values) if is_mapping else arm
        sections["arms"] = replace(arms, value=filled_arms)
    return replace(tree, value=sections)


def _make_paths_absolute(node: Node, shape: Shape) -> Node:
    """Return a copy of a value in which every path is absolute, at any depth.

    ``shape`` is what the schema says of the value: its type, with marks such as "this is a path".
    Where the schema is silent (``_ANY_SHAPE``) only a plugin's file, such as ``./mine.py``, is
    taken for a path. `local_path` resolves against the folder of the file that the value is written
    in. ``shape.item`` is the shape of a list's items, and ``shape.below(key)`` that of an entry.
    """
    if isinstance(node.value, dict):
        entries = {}
        for key, child in node.value.items():
            # A key may name a file as well: a reward of one's own with its weight.
            if plugins.is_file(key):
                key = str(local_path(replace(child, value=key)))
            entries[key] = _make_paths_absolute(child, shape.below(key) or _ANY_SHAPE)
        return replace(node, value=entries)
    if isinstance(node.value, list):
        # A list where the schema has a single value is a sweep of this value.
        item_shape = shape if shape.item is None else shape.item
        items = [_make_paths_absolute(item, item_shape) for item in node.value]
        return replace(node, value=items)
    if isinstance(node.value, str) and node.value and _is_path(node.value, shape):
        return replace(node, value=str(local_path(node)))
    return node


def _is_path(text: str, shape: Shape) -> bool:
    """Whether a value is a path: by its field, as a prompt's file, or as a plugin's file."""
    if shape.mark(IsPath) is not None or plugins.is_file(text):
        return True
    return shape.refers_to == "prompts" and text.endswith(".txt")


def _expand_section(
    section: str, node: Node, entry: type[Entry], members: MembersBySection
) -> Node:
    """Replace each entry of one section by its variants, and record them in ``members``.

    ``entry`` is the schema's class for an entry of this section. A variant is one combination of
    the entry's swept values; its name is the written name and an ending, such as ``-t0.6``. An
    entry without sweeps has one variant with an empty ending, and is not recorded. Models go in the
    order of their making, because the sweep of a model sweeps the models made from it. A node's
    ``entries`` are its children by key.
    """
    variants_by_name: dict[str, list[tuple[str, Node]]] = {}
    section_members = members.setdefault(section, {})
    names = list(node.entries)
    if section == "models":
        parents = {name: _parent_names(model, node) for name, model in node.entries.items()}
        names = sort_by_origin(node, parents)
    for name in names:
        variants = _variants(node.entries[name], entry, members)
        variants_by_name[name] = variants
        endings = [ending for ending, _ in variants]
        # A single empty ending is an entry without sweeps, which keeps its name.
        if endings != [""]:
            section_members[name] = [Member(name + ending, ending) for ending in endings]
    result: dict[str, Node] = {}
    for name, written in node.entries.items():
        for ending, variant in variants_by_name[name]:
            new_name = name + ending
            if new_name in result or (ending and new_name in node.entries):
                written.fail(
                    f"the sweep gives the name {new_name} twice; rename one of the entries"
                    " or leave out the repeated value"
                )
            result[new_name] = variant
    return replace(node, value=result)


def sort_by_origin(models: Node, sources: Mapping[str, Iterable[str]]) -> list[str]:
    """Names of models, each behind those it is made from; a cycle is refused.

    ``sources`` has, for each model, the names of those it is made from.
    """
    try:
        return list(TopologicalSorter(sources).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        models.entries[cycle[-1]].fail(f"a cycle: {' <- '.join(reversed(cycle))}")


def _parent_names(model: Node, models: Node) -> list[str]:
    """Name the models that a model is made from: those under its ``base`` and its ``train.from``.

    Either key may hold one name or a list of names (a sweep). ``models`` is the whole section; a
    name that is not in it is left out. A node's ``entries`` are its children by key.
    """
    sources = [model.entries.get("base")]
    if "train" in model.entries:
        sources.append(model.entries["train"].entries.get("from"))
    names = []
    for source in sources:
        if source is not None:
            # `items` is empty unless the value is a list.
            names += [str(item.value) for item in source.items or [source]]
    return [name for name in names if name in models.entries]


def _variants(node: Node, entry: type[Entry], members: MembersBySection) -> list[tuple[str, Node]]:
    """Return every combination of an entry's swept values: the ending of its name, and the entry.

    An *axis* is one swept field, and a *choice* one value on it: the ending it adds to the name,
    and the values it puts in, by key path. The variants are the product of all axes. ``members``
    says what entries that were swept before became. `_find_axes` finds the swept fields, and
    `_with_value` puts a value in.
    """
    node = _expand_name_lists(node, entry, members)
    axes = _join_axes(list(_find_axes(node, entry, (), members)))
    combination_count = 1
    for choices in axes:
        combination_count *= len(choices)
        if combination_count > MAX_COMBINATIONS:
            node.fail(f"the sweeps of this entry make more than {MAX_COMBINATIONS:,} combinations")
    variants = []
    for combination in itertools.product(*axes):
        ending = "".join(choice.ending for choice in combination)
        variant = node
        for choice in combination:
            for key_path, value in choice.values.items():
                variant = _with_value(variant, key_path, value)
        variants.append((ending, variant))
    return variants


def _find_axes(
    node: Node, entry: type[Entry], parent_path: KeyPath, members: MembersBySection
) -> Iterator[Axis]:
    """Find the swept fields of an entry, in the order of the schema.

    So the order of the keys in a file does not change a name. An *axis* is a swept field with its
    choices. A field is swept if it holds a list where the schema has a single value, or if it names
    an entry that was swept itself (``is_reference``). ``parent_path`` is the path of keys to this
    entry; ``members`` says what each swept entry became. ``shape`` is what the schema says of a
    field, and ``shape.core`` its type.
    """
    for key, shape in fields(entry).items():
        if key not in node.entries:
            continue
        child = node.entries[key]
        key_path = (*parent_path, key)
        if shape.is_entry:
            yield from _find_axes(child, shape.core, key_path, members)
        elif shape.core is dict:
            yield from _find_option_axes(child, key_path)
        elif shape.is_scalar and isinstance(child.value, list):
            choices: list[Choice] = []
            for value in _sweep_values(child):
                swept = _choices_of_reference(value, shape, key_path, members)
                choices += swept or [Choice(_name_ending(key, shape, value), {key_path: value})]
            yield Axis(choices)
        elif shape.is_scalar:
            swept = _choices_of_reference(child, shape, key_path, members)
            if swept:
                yield Axis(swept, is_reference=True)


def _find_option_axes(options: Node, parent_path: KeyPath) -> Iterator[Axis]:
    """Find the free options that are swept, ``{sweep: [1, 2]}``, in the order of their names.

    The schema does not know an option's type, so a bare list there is a value and no sweep. An axis
    is one swept field with a choice for each of its values.
    """
    for name, option in sorted(options.entries.items()):
        if option.entries.keys() != {"sweep"}:
            continue
        key_path = (*parent_path, name)
        values = _sweep_values(option.entries["sweep"])
        yield Axis(
            [Choice(_name_ending(name, _ANY_SHAPE, value), {key_path: value}) for value in values]
        )


def _sweep_values(node: Node) -> list[Node]:
    """Return the values of a sweep, of which there must be one."""
    if not isinstance(node.value, list):
        node.fail("a sweep is a list of values")
    if not node.value:
        node.fail("an empty list; a sweep needs at least one value")
    return node.value


def _choices_of_reference(
    node: Node, shape: Shape, key_path: KeyPath, members: MembersBySection
) -> list[Choice]:
    """Return a choice for each entry that the named entry was swept into; none if it was not swept.

    ``node`` is a value that may name another entry, ``key_path`` where it stands. A choice says
    what its value adds to the name of the entry, and which value to put in at which path.
    """
    return [
        Choice(member.ending, {key_path: replace(node, value=member.name)})
        for member in _members_of(node, shape, members)
    ]


def _members_of(node: Node, shape: Shape, members: MembersBySection) -> list[Member]:
    """The entries that the name in this field stands for, if that entry was swept."""
    if shape.refers_to is None or not isinstance(node.value, str):
        return []
    return members.get(shape.refers_to, {}).get(node.value, [])


def _join_axes(axes: list[Axis]) -> list[list[Choice]]:
    """Return the choices of each axis, with references that vary together joined into one axis.

    An axis is one swept field. Two fields that name swept entries with the same endings (``-ppo``,
    ``-grpo``) do not multiply: the first choice of one goes with the first of the other.
    ``choice.values`` are the values to put in, by key path.
    """
    joined: list[list[Choice]] = []
    references: dict[tuple[str, ...], list[Choice]] = {}
    for axis in axes:
        endings = tuple(choice.ending for choice in axis.choices)
        if axis.is_reference and endings in references:
            for choice, same_ending in zip(references[endings], axis.choices, strict=True):
                choice.values.update(same_ending.values)
            continue
        if axis.is_reference:
            references[endings] = axis.choices
        joined.append(axis.choices)
    return joined


def _with_value(node: Node, key_path: KeyPath, value: Node) -> Node:
    """Return a copy of an entry with another value at a key path.

    A node is a value of the study file with its place; ``entries`` are its children by key, and
    `replace` makes a changed copy.
    """
    if not key_path:
        return value
    name, *inner_path = key_path
    entries = dict(node.entries)
    entries[name] = _with_value(entries[name], tuple(inner_path), value)
    return replace(node, value=entries)


def _expand_name_lists(node: Node, entry: type[Entry], members: MembersBySection) -> Node:
    """Replace swept names in an entry's lists of names by the names of their members.

    A list field of the schema is no sweep, so a swept name in it stands for all that it became. A
    list of entries, each of which may hold such names, is expanded entry by entry. ``members`` says
    what each swept entry became. ``entry`` is the schema's class for this node; ``shape.core`` is
    the type of a field and ``shape.item`` that of a list's items. `_members_of` gives what a swept
    name became.
    """
    if not isinstance(node.value, dict):
        return node
    entries = dict(node.value)
    for key, child in entries.items():
        shape = fields(entry).get(key)
        if shape is None or shape.core is not list or not isinstance(child.value, list):
            continue
        item_shape = shape.item
        assert item_shape is not None
        items: list[Node] = []
        for item in child.value:
            if item_shape.is_entry:
                items += [variant for _, variant in _variants(item, item_shape.core, members)]
                continue
            names = [member.name for member in _members_of(item, item_shape, members)]
            items += [replace(item, value=name) for name in names] or [item]
        entries[key] = replace(child, value=items)
    return replace(node, value=entries)


def _name_ending(key: str, shape: Shape, node: Node) -> str:
    """Return what a swept value adds to the name of its entry: ``-t0.6``, ``-grpo``, ``-no-chat``.

    ``shape`` is what the schema says of the field. Its *tag* is the letter or word that stands
    before the value, such as ``t`` for a temperature; without a tag it is the key. A text becomes a
    word of at most 40 characters that a file name may have, a path the name of its file.
    """
    value = node.value
    tag: Tag | None = shape.mark(Tag)
    if isinstance(value, bool):
        return f"-{key}" if value else f"-no-{key}"
    if isinstance(value, int | float):
        # A float field writes 1 as 1.0, so that how a number is spelt does not rename an arm.
        number = repr(float(value)) if shape.core is float else str(value)
        return f"-{key if tag is None else tag.text}{number}"
    if isinstance(value, str):
        is_prompt_file = shape.refers_to == "prompts" and "/" in value
        if plugins.is_file(value):
            value = plugins.label(value).replace(".py", "")
        elif shape.mark(IsPath) or is_prompt_file:
            value = PurePath(value).stem
        slug = re.sub(r"[^A-Za-z0-9._+-]+", "-", value).strip("-")[:40]
        prefix = tag.text if tag is not None and get_origin(shape.core) is None else ""
        return f"-{prefix}{slug}"
    return f"-{key}"
