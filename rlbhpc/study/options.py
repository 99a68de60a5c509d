"""Options of a recipe: values of a mapping, held against the dataclass that they are for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import nearest
from rlbhpc.study.fields import allowed, shape
from rlbhpc.study.tree import shown

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
