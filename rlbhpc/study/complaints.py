"""From a failed validation to one line: place, key, what was found, what is allowed, a guess."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rlbhpc.errors import UserError
from rlbhpc.study.fields import NAME_ALLOWED, Entry, Shape, allowed, fields, shape
from rlbhpc.study.schema import SamplingDefaults
from rlbhpc.study.tree import Node, joined, shown

E = TypeVar("E", bound=Entry)

MOST_LISTED: Final = 24
MOST_COMPARED: Final = 1_000

_TOKENS_BY_HAND: Final = "a model whose tokens are barred or favoured by hand is another model"
_NOT_TAKEN: Final = {
    "ignore_eos": "a response ends where the model ends it; `min_tokens` bars an early end",
    **dict.fromkeys(("bad_words", "logit_bias", "allowed_token_ids"), _TOKENS_BY_HAND),
}


def nearest(name: str, options: Iterable[str]) -> str:
    """``; did you mean …?`` when one of the options is close, else nothing."""
    by_lower = {option.lower(): option for option in itertools.islice(options, MOST_COMPARED)}
    close = difflib.get_close_matches(name[:100].lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def listed(options: Iterable[str]) -> str:
    """Options for a message; long lists are cut."""
    names = list(options)
    more = f" … ({len(names) - MOST_LISTED} more)" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more if names else "none, as there are none"


def unknown_key(key: str, keys: Collection[str]) -> str:
    """Complain about a key that is none of those known in its place."""
    of_an_arm = "min_tokens" in keys
    if of_an_arm and key in _NOT_TAKEN:
        return f"no arm takes this setting of vLLM: {_NOT_TAKEN[key]}; allowed: {listed(keys)}"
    return f"unknown key; allowed: {listed(keys)}{nearest(key, keys)}"


def unknown_name(node: Node, kind: str, options: Iterable[str]) -> UserError:
    """Complain about a value that should be the name of something and is not."""
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
        raise _first_complaint(error, tree, schema) from None


def _first_complaint(error: ValidationError, tree: Node, schema: type[Entry]) -> UserError:
    """Tell the first error in the order of the file, and how many more there are."""
    located = [(detail, *_locate(detail, tree, schema)) for detail in error.errors()]
    # A misspelt key is unknown and leaves another one missing: what is there is told first.
    # Errors that come from --set have no line; they are the freshest, so they come before others.
    located.sort(key=lambda complaint: (complaint[0]["type"] == "missing", complaint[1].line))
    # One mistake in a swept entry is found in each of its members.
    distinct = {(detail["type"], node.place(missing)) for detail, node, _, missing in located}
    detail, node, shape, missing = located[0]
    more = f" ({len(distinct) - 1} more)" if len(distinct) > 1 else ""
    return UserError(f"{node.place(missing)}: {_message(detail, node, shape, schema)}{more}")


def _locate(
    detail: ErrorDetails, tree: Node, schema: type[Entry]
) -> tuple[Node, Shape | None, str | None]:
    """Node and shape that an error is about, and the key path when the node is not there."""
    node, shape = tree, Shape(schema)
    for step in detail["loc"]:
        if step == "[key]":
            return node, None, None
        inner = shape.item if isinstance(step, int) else shape.below(step)
        child = node.entries.get(str(step))
        if isinstance(step, int) and step < len(node.items):
            child = node.items[step]
        if child is None:
            return node, inner, joined(node.key, str(step))
        if inner is None:
            return child, None, None
        node, shape = child, inner
    return node, shape, None


def _message(detail: ErrorDetails, node: Node, shape: Shape | None, schema: type[Entry]) -> str:
    kind, last = detail["type"], detail["loc"][-1] if detail["loc"] else ""
    if kind == "extra_forbidden":
        keys = _siblings(detail["loc"], schema)
        return unknown_key(str(last), keys)
    if kind == "missing":
        assert shape is not None
        shared = detail["loc"][0] == "arms" and last in fields(SamplingDefaults)
        return f"missing; give {allowed(shape)}{', here or under `sampling`' if shared else ''}"
    if last == "[key]":
        return f"not a usable name; allowed: {NAME_ALLOWED}"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in ("too_short", "too_long"):
        limits = detail["ctx"]
        bound = f"at least {limits.get('min_length')}" if kind == "too_short" else "fewer"
        return f"found {limits.get('actual_length')} entries; allowed: {bound}"
    value = detail["input"]
    allow = "any plain value" if shape is None else allowed(shape)
    return f"found {shown(value)}; allowed: {allow}{_hint(value, shape)}"


def _siblings(loc: tuple[int | str, ...], schema: type[Entry]) -> list[str]:
    shape = Shape(schema)
    for step in loc[:-1]:
        inner = shape.item if isinstance(step, int) else shape.below(step)
        assert inner is not None, "only an entry of the schema refuses a key"
        shape = inner
    keys = list(fields(shape.core))
    # Known too, though it is gone before the schema sees the file.
    return [*keys, "include"] if len(loc) == 1 else keys


def _hint(value: Any, shape: Shape | None) -> str:
    if shape is None:
        return ""
    if shape.core is str and isinstance(value, int | float | bool):
        return f'; to mean it as text, quote it: "{shown(value)}"'
    if shape.core is list and isinstance(value, str | int | float) and value is not True:
        return f"; a list of one is [{shown(value)}]"
    if isinstance(value, str) and shape.core in (int, float):
        return _number_hint(value)
    if isinstance(value, str) and shape.core is bool:
        return "; YAML 1.2 has no other words for these"
    if isinstance(value, str) and shape.is_scalar:
        return nearest(value, allowed(shape).split(" or "))
    return ""


def _number_hint(value: str) -> str:
    """For text that reads like a number: how to write that number."""
    text = value.strip().replace(",", "").replace("_", "")
    try:
        float(text)
    except ValueError:
        return ""
    return f"; write {text} without quotes" if len(text) < 30 else ""


# Options of a recipe: values of a mapping, held against the dataclass that they are for.


T = TypeVar("T")

Whole = Annotated[int, Field(ge=0, le=10_000_000)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def from_options(kind: type[T], options: Any, subject: str) -> T:
    """Build a dataclass from a mapping; a name that it does not have is refused."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if not isinstance(options, Mapping):
        keys = ", ".join(names)
        raise UserError(
            f"{subject}: found {shown(options)}; allowed: a mapping with the keys {keys}"
        )
    for name in options:
        if name not in names:
            raise UserError(
                f"{subject}: unknown setting {shown(name)}; allowed: {', '.join(names)}"
                f"{nearest(name, names)}"
            )
    return kind(**options)


def check_values(options: Any) -> None:
    """Refuse a value that is not of its field's type, or out of its range."""
    kind: Any = type(options)
    for name, (hint, values) in _types(kind).items():
        value = getattr(options, name)
        try:
            values.validate_python(value)
        except ValidationError:
            words = allowed(shape(hint))
            raise UserError(f"{name}: found {shown(value)}; allowed: {words}") from None


@cache
def _types(kind: Any) -> dict[str, tuple[Any, TypeAdapter[Any]]]:
    hints = get_type_hints(kind, include_extras=True)
    config = ConfigDict(strict=True, allow_inf_nan=False)
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: (hints[name], TypeAdapter(hints[name], config=config)) for name in names}
