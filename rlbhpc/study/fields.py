"""What the fields of a study file are made of: value types, and marks that say what they mean.

The marks (`Refers`, `Tag`, `IsPath`) stand in the annotations of the schema. Sweeps, references,
relative paths, error messages and the reference page are all derived from them, so a new field
needs one line in the schema and nothing else.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.fields import FieldInfo

# A name becomes a folder name and a word on a command line, so it is a slug.
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$"
NAME_ALLOWED: Final = (
    "letters, digits and . _ + -, beginning with a letter or digit, at most 80 characters"
)


M = TypeVar("M")

# What a reference may be where it is more than an entry of this file.
REFERENCE_WORDS: Final = {
    "prompts": "the name of a prompt, or a path that ends in .txt",
    "registered sets": "the name of a registered problem set, or a file such as ./mine.py",
}


@dataclass(frozen=True)
class Refers:
    """The value names an entry of this section."""

    section: str


@dataclass(frozen=True)
class Tag:
    """What a sweep over this field puts before the value in a name: ``t`` in ``base-t0.6``."""

    text: str


@dataclass(frozen=True)
class IsPath:
    """The value is a path: ``~`` and ``$VARIABLE`` are expanded, and a relative one begins at the
    folder of the file that it is written in.
    """  # noqa: D205


@dataclass(frozen=True)
class Words:
    """What may stand in a field, in words, where its pattern would not say it to a reader."""

    text: str


class Entry(BaseModel):
    """A mapping of the study file: unknown keys and near-miss types are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN), Words(f"a name ({NAME_ALLOWED})")]
# A registered name, or a file of the user's own: ./mine.py, or ./mine.py:name.
PluginName = Annotated[
    str,
    StringConstraints(pattern=rf"({NAME_PATTERN}|^[~.$/].*\.py(:[A-Za-z_][A-Za-z0-9_]*)?$)"),
    Words("a name, or a file such as ./mine.py or ./mine.py:name"),
]
FilePath = Annotated[str, StringConstraints(min_length=1), IsPath()]
Text = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


def reject_repeats(values: list[Any]) -> list[Any]:
    """Refuse a list that names something twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value} stands twice in the list")
    return values


ModelName = Annotated[str, Refers("models")]
PromptName = Annotated[str, Refers("prompts")]
RegisteredSet = Annotated[str, Refers("registered sets")]
SetName = Annotated[str, Refers("problem_sets")]
RecipeName = Annotated[str, Refers("recipes")]
ArmName = Annotated[str, Refers("arms")]

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, le=10**18 - 1), Tag("s")]
Temperature = Annotated[float, Field(ge=0, le=10), Tag("t")]
TopP = Annotated[float, Field(gt=0, le=1), Tag("p")]
Tokens = Annotated[int, Field(ge=1, le=10_000_000), Tag("len")]
Samples = Annotated[int, Field(ge=1, le=1_000_000), Tag("n")]
Share = Annotated[float, Field(gt=0, lt=1), Tag("share")]
StopAfter = Annotated[int, Field(ge=0, le=1_000_000), Tag("r")]
Checkpoints = Annotated[
    list[Annotated[int, Field(ge=0, le=10**12)]],
    Field(min_length=1, max_length=1_000),
    AfterValidator(reject_repeats),
]
SetNames = Annotated[
    list[SetName], Field(min_length=1, max_length=1_000), AfterValidator(reject_repeats)
]


@dataclass(frozen=True)
class Shape:
    """The type of a value with its marks, ``None`` and ``Annotated`` taken off.

    ``core`` is a scalar type, ``list``, ``dict``, a ``Literal`` or an `Entry`; ``item`` is the
    shape of the items or values of a list or dict.
    """

    core: Any
    marks: tuple[Any, ...] = ()
    item: Shape | None = None

    def mark(self, mark_type: type[M]) -> M | None:
        """Return the first mark of one type, or None."""
        for mark in self.marks:
            if isinstance(mark, mark_type):
                return mark
        return None

    @property
    def refers_to(self) -> str | None:
        """The section of whose entries one is named here; None for any other value."""
        mark = self.mark(Refers)
        return None if mark is None else mark.section

    @property
    def is_scalar(self) -> bool:
        """Whether one value stands here, so that a list of them is a sweep."""
        return self.core in (int, float, str, bool) or get_origin(self.core) is Literal

    @property
    def is_entry(self) -> bool:
        """Whether a mapping with known keys stands here."""
        return isinstance(self.core, type) and issubclass(self.core, Entry)

    def below(self, key: str) -> Shape | None:
        """The shape of what stands under a key; None where the schema does not say."""
        if self.is_entry:
            return fields(self.core).get(key)
        return self.item if self.core is dict else None


def shape(annotation: Any, marks: tuple[Any, ...] = ()) -> Shape:
    """Take a type annotation of the schema apart into type, marks and the shape of its items.

    ``marks`` are those found around it: what `Annotated` adds, such as "this names a model". Of a
    type that may also be None only the type itself counts.
    """
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Annotated:
        inner, *more_marks = arguments
        return shape(inner, (*marks, *more_marks))
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return shape(inner, marks)
    if origin is list:
        return Shape(list, marks, shape(arguments[0]))
    if origin is dict:
        return Shape(dict, marks, shape(arguments[1]))
    return Shape(annotation, marks)


def own_first(entry: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """The fields of an entry: its own before those that it shares with others."""
    return sorted(
        entry.model_fields.items(), key=lambda field: field[0] not in entry.__annotations__
    )


@cache
def fields(entry: type[BaseModel]) -> Mapping[str, Shape]:
    """The shape of each field of an entry, by its key in YAML."""
    return {
        field.alias or name: shape(field.annotation, tuple(field.metadata))
        for name, field in own_first(entry)
    }


_NUMBER_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false"}


def allowed(shape: Shape) -> str:
    """Say what may stand in a field, in words: for messages and for the reference page.

    ``shape`` is the field's type with its marks, which are the annotations of the schema: an own
    wording (`Words`), "this is a path" (`IsPath`), or which section it names an entry of
    (``refers_to``).
    """
    words = shape.mark(Words)
    if words is not None:
        return words.text
    if get_origin(shape.core) is Literal:
        return " or ".join(str(option) for option in get_args(shape.core))
    if shape.refers_to is not None:
        return REFERENCE_WORDS.get(shape.refers_to, f"a name from `{shape.refers_to}`")
    if shape.mark(IsPath):
        return "a path"
    if shape.is_entry:
        keys = ", ".join(fields(shape.core))
        return f"a mapping with the keys {keys}"
    if shape.item is not None:
        item_words = allowed(shape.item)
        if shape.core is list:
            return f"a list, of which each item is {item_words}"
        return f"a mapping from names to {item_words}"
    if shape.core is str:
        return _text_words(shape.marks)
    return _NUMBER_WORDS.get(shape.core, "any value") + _range_words(shape.marks)


def _constraints(marks: tuple[Any, ...]) -> Iterator[Any]:
    """The marks, and the constraints inside those that group some, such as ``Field(...)``."""
    for mark in marks:
        yield from getattr(mark, "metadata", ()) or ()
        yield mark


def _range_words(marks: tuple[Any, ...]) -> str:
    """Put the bounds of a number in words that follow the word for its type: `` from 1 to 10``.

    ``marks`` are the annotations of a field, among them bounds such as ``Ge(1)``.
    """
    lower = upper = ""
    for mark in _constraints(marks):
        match mark:
            case annotated_types.Ge(ge=bound):
                lower = f"from {bound:,}"
            case annotated_types.Gt(gt=bound):
                lower = f"above {bound:,}"
            case annotated_types.Le(le=bound):
                upper = f"to {bound:,}"
            case annotated_types.Lt(lt=bound):
                upper = f"below {bound:,}"
            case _:
                pass
    joint = " "
    if lower.startswith("above") or upper.startswith("below"):
        joint = " and up " if upper.startswith("to") else " and "
    return f" {lower}{joint if lower and upper else ''}{upper}".rstrip()


def _text_words(marks: tuple[Any, ...]) -> str:
    """Say in words how long a text may be.

    ``marks`` are the annotations of a field, some of which limit the length.
    """
    words = "text"
    longest = None
    for mark in marks:
        if getattr(mark, "min_length", None):
            words = "text that is not empty"
        longest = getattr(mark, "max_length", None) or longest
    return words if longest is None else f"{words}, of at most {longest:,} characters"
