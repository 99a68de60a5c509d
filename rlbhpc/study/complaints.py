"""From a failed validation to one line: place, key, what was found, what is allowed, a guess."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rlbhpc.errors import UserError
from rlbhpc.study.fields import NAME_ALLOWED, Entry, Shape, allowed, fields, shape
from rlbhpc.study.schema import SamplingDefaults
from rlbhpc.study.tree import Node, child_key, shown

E = TypeVar("E", bound=Entry)
T = TypeVar("T")

MAX_LISTED: Final = 24
MAX_COMPARED: Final = 1_000


def nearest(name: str, options: Iterable[str]) -> str:
    """``; did you mean …?`` when one of the options is close, else nothing."""
    by_lower = {option.lower(): option for option in itertools.islice(options, MAX_COMPARED)}
    close = difflib.get_close_matches(name[:100].lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def listed(options: Iterable[str]) -> str:
    """Options for a message; long lists are cut."""
    names = list(options)
    if not names:
        return "none, as there are none"
    text = ", ".join(names[:MAX_LISTED])
    unlisted = len(names) - MAX_LISTED
    return f"{text} … ({unlisted} more)" if unlisted > 0 else text


def unknown_key(key: str, allowed_keys: Collection[str]) -> str:
    """Complain about a key that is none of those that may stand in its place."""
    return f"unknown key; allowed: {listed(allowed_keys)}{nearest(key, allowed_keys)}"


def unknown_name(node: Node, kind: str, options: Iterable[str]) -> UserError:
    """Return the error for a value that should name an existing entry and does not.

    ``node`` is that value with its place in the study file, ``kind`` the word for what it should
    name (such as ``model``), and ``options`` the names that exist. `listed` joins the options;
    `nearest` adds "did you mean …?" when one is close.
    """
    names = list(options)
    name = str(node.value)
    return UserError(
        f"{node.place()}: unknown {kind} {shown(name)}; allowed: {listed(names)}"
        f"{nearest(name, names)}"
    )


def validated(tree: Node, schema: type[E]) -> E:
    """Return the tree as an entry of the schema; its first mistake is told."""
    try:
        return schema.model_validate(tree.plain())
    except ValidationError as error:
        mistakes = [_locate(detail, tree, schema) for detail in error.errors()]
        raise _first_complaint(mistakes) from None


class _Mistake(NamedTuple):
    """One error of pydantic with the node that it is about.

    ``missing_key`` is a key path, where the error is about an entry that is not there. ``parent``
    is the shape of the mapping that holds the value, ``shape`` that of the value; None where the
    schema does not say.
    """

    detail: ErrorDetails
    node: Node
    missing_key: str | None
    parent: Shape
    shape: Shape | None

    @property
    def location(self) -> str:
        return self.node.place(self.missing_key)


def _first_complaint(mistakes: list[_Mistake]) -> UserError:
    """Tell the first mistake in the order of the file, and how many more there are."""
    # A misspelt key is unknown and leaves another one missing: what is there is told first.
    # Errors that come from --set have no line; they are the freshest, so they come before others.
    first = min(mistakes, key=lambda m: (m.detail["type"] == "missing", m.node.line))
    # One mistake in a swept entry is found in each of its members.
    distinct = {(mistake.detail["type"], mistake.location) for mistake in mistakes}
    more = f" ({len(distinct) - 1} more)" if len(distinct) > 1 else ""
    return UserError(f"{first.location}: {_explain(first)}{more}")


def _locate(detail: ErrorDetails, tree: Node, schema: type[Entry]) -> _Mistake:
    """Find the value of the study file that one of pydantic's errors is about.

    ``detail["loc"]`` is the path from the root, of keys and list indices. The walk follows it in
    step through ``tree`` (values with their place in the file) and through ``schema`` (what may
    stand there). A *shape* is the schema's type of a value with its annotations. The walk ends
    early at a key that is not in the file, at an error about a key itself, and where the schema
    says nothing further.
    """
    node = tree
    parent = Shape(schema)
    value_shape: Shape | None = parent
    for step in detail["loc"]:
        # An error about a key itself, not about the value under it.
        if step == "[key]" or value_shape is None:
            return _Mistake(detail, node, None, parent, None)
        parent = value_shape
        value_shape = parent.item if isinstance(step, int) else parent.below(step)
        child = node.entries.get(str(step))
        if isinstance(step, int) and step < len(node.items):
            child = node.items[step]
        if child is None:
            missing_key = child_key(node.key, str(step))
            return _Mistake(detail, node, missing_key, parent, value_shape)
        node = child
    return _Mistake(detail, node, None, parent, value_shape)


def _explain(mistake: _Mistake) -> str:
    """Say in words what is wrong with a value, and what is allowed instead.

    A *mistake* is one of pydantic's errors (``detail``) with the shape of the value that it is
    about: the type that the schema gives it. `allowed` puts a shape in words. ``kind`` is
    pydantic's name for the error, ``location`` the path of keys to the value.
    """
    detail = mistake.detail
    kind = detail["type"]
    location = detail["loc"]
    last_step = location[-1] if location else ""
    if kind == "extra_forbidden":
        keys = list(fields(mistake.parent.core))
        # Known at the top of a file, though it is gone before the schema sees the file.
        is_top_level = len(location) == 1
        return unknown_key(str(last_step), [*keys, "include"] if is_top_level else keys)
    if kind == "missing":
        assert mistake.shape is not None
        is_shared = location[0] == "arms" and last_step in fields(SamplingDefaults)
        hint = ", here or under `sampling`" if is_shared else ""
        return f"missing; give {allowed(mistake.shape)}{hint}"
    if last_step == "[key]":
        return f"not a usable name; allowed: {NAME_ALLOWED}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in ("too_short", "too_long"):
        limits = detail["ctx"]
        bound = f"at least {limits.get('min_length')}" if kind == "too_short" else "fewer"
        return f"found {limits.get('actual_length')} entries; allowed: {bound}"
    value = detail["input"]
    if mistake.shape is None:
        return f"found {shown(value)}; allowed: any plain value"
    return f"found {shown(value)}; allowed: {allowed(mistake.shape)}{_hint(value, mistake.shape)}"


def _hint(value: Any, value_shape: Shape) -> str:
    """Say how to write a value that looks right but has the wrong type; empty without advice.

    ``value_shape`` is the type that the schema wants; its ``core`` is that type without
    annotations.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value_shape.core is str and isinstance(value, int | float):
        return f'; to mean it as text, quote it: "{shown(value)}"'
    if value_shape.core is list and (is_number or isinstance(value, str)):
        return f"; a list of one is [{shown(value)}]"
    if not isinstance(value, str):
        return ""
    if value_shape.core in (int, float):
        return "; a number stands without quotes"
    if value_shape.core is bool:
        return "; YAML 1.2 has no other words for these"
    if value_shape.is_scalar:
        return nearest(value, allowed(value_shape).split(" or "))
    return ""


# Options of a recipe: values of a mapping, held against the dataclass that they are for.


Whole = Annotated[int, Field(ge=0, le=10_000_000)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def from_options(options_class: type[T], options: Any, subject: str) -> T:
    """Build a dataclass from a mapping, and refuse a key that is none of its fields.

    ``subject`` begins the error messages: it says whose options these are. Values are not checked
    here.
    """
    names = [field.name for field in dataclasses.fields(options_class)]  # type: ignore[arg-type]
    if not isinstance(options, Mapping):
        raise UserError(
            f"{subject}: found {shown(options)}; allowed: a mapping with the keys"
            f" {', '.join(names)}"
        )
    for name in options:
        if name not in names:
            raise UserError(
                f"{subject}: unknown setting {shown(name)}; allowed: {', '.join(names)}"
                f"{nearest(name, names)}"
            )
    return options_class(**options)


def check_values(options: Any) -> None:
    """Refuse options of which one is not of its field's annotated type, or is out of its range.

    ``options`` is an instance of a dataclass. `_field_adapters` gives, for each field, its
    annotation and pydantic's strict validator for it.
    """
    for name, (annotation, adapter) in _field_adapters(options.__class__).items():
        value = getattr(options, name)
        try:
            adapter.validate_python(value)
        except ValidationError:
            raise UserError(
                f"{name}: found {shown(value)}; allowed: {allowed(shape(annotation))}"
            ) from None


@cache
def _field_adapters(options_class: Any) -> dict[str, tuple[Any, TypeAdapter[Any]]]:
    """Return the annotation of each field of a dataclass, and pydantic's strict validator for it.

    Strict means that no value is converted: the text "1" is not a number.
    """
    annotations = get_type_hints(options_class, include_extras=True)
    config = ConfigDict(strict=True, allow_inf_nan=False)
    adapters = {}
    for field in dataclasses.fields(options_class):
        annotation = annotations[field.name]
        adapters[field.name] = (annotation, TypeAdapter(annotation, config=config))
    return adapters
