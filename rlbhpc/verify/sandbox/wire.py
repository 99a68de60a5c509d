"""Python values as plain JSON data: how arguments go into a sandbox and results come out.

Values of a closed list of types travel; everything else arrives as :class:`Opaque`, which equals
nothing. Nothing is pickled and no name of a type is ever looked up. What comes out of a sandbox is
hostile data: :func:`loads` bounds its depth, the length of its numbers and the size of its hash
tables, and raises :class:`WireError` for anything else than what :func:`dumps` writes.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

MAX_DEPTH: Final = 100
# Hash tables in the trusted process are built from hostile keys: n colliding keys cost n² steps.
MAX_HASHED: Final = 4096
# JSON numbers are exact up to this.
_MAX_JSON_INTEGER: Final = 1 << 53

# Each value that JSON lacks travels as an object with one member, whose name is one of these marks.
_OPAQUE: Final = "o"
_NUMPY_SCALAR: Final = "n"
_ARRAY: Final = "a"
_LARGE_INTEGER: Final = "i"
_NOT_FINITE: Final = "f"
_FRACTION: Final = "q"
_COMPLEX: Final = "c"
_BYTES: Final = "b"
_TUPLE: Final = "t"
_DICT: Final = "d"
_SET: Final = "s"
_FROZENSET: Final = "z"
_DEQUE: Final = "e"
_HASHED: Final = {_DICT, _SET, _FROZENSET}


class WireError(ValueError):
    """Data that :func:`dumps` would not have written."""


class Opaque:
    """A value that doesn't travel. Equal to nothing, itself included."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def dumps(value: Any) -> bytes:
    """Encode a value."""
    return json.dumps(_encode(value, MAX_DEPTH), separators=(",", ":")).encode()


def _encode(value: Any, depth: int) -> Any:
    """Return a value as JSON data: lists, texts, numbers, and for the rest an object with one mark.

    ``depth``: how many levels of containers may follow. A mark is one letter that says what the
    content is, such as a tuple or a set; a value that can't travel becomes an opaque one with the
    name of its type. Values are encoded by the methods of the base class, since a subclass may lie
    about itself.
    """
    if depth == 0:
        return {_OPAQUE: "too deep"}
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind.__module__ == "numpy":
        # Before float: NumPy's float64 is a float too.
        if getattr(value, "shape", None) == ():
            return {_NUMPY_SCALAR: [kind.__name__, _encode(value.item(), depth - 1)]}
        if kind.__name__ == "ndarray" and value.dtype.kind in "biufc":
            return {_ARRAY: _encode(value.tolist(), depth - 1)}
    for base, encode in _ENCODERS:
        if isinstance(value, base):
            return encode(value, depth - 1)
    return {_OPAQUE: kind.__name__[:100]}


def _encode_integer(value: int, depth: int) -> Any:
    number = int.__index__(value)
    if -_MAX_JSON_INTEGER < number < _MAX_JSON_INTEGER:
        return number
    return {_LARGE_INTEGER: format(number, "x")}


def _encode_float(value: float, depth: int) -> Any:
    number = float.__float__(value)
    return number if math.isfinite(number) else {_NOT_FINITE: repr(number)}


def _encode_complex(value: complex, depth: int) -> Any:
    return {_COMPLEX: [_encode_float(value.real, depth), _encode_float(value.imag, depth)]}


def _encode_fraction(value: Fraction | Decimal, depth: int) -> Any:
    try:
        numerator, denominator = value.as_integer_ratio()
    except (ValueError, OverflowError):
        return {_OPAQUE: str(value)}
    return {_FRACTION: [format(numerator, "x"), format(denominator, "x")]}


def _encode_text(value: str, depth: int) -> Any:
    return str.__str__(value)


def _encode_bytes(value: bytes, depth: int) -> Any:
    return {_BYTES: bytes.hex(value)}


def _encode_list(value: list[Any], depth: int) -> Any:
    return [_encode(item, depth) for item in list.__iter__(value)]


def _encode_dict(value: dict[Any, Any], depth: int) -> Any:
    pairs = [[_encode(key, depth), _encode(item, depth)] for key, item in dict.items(value)]
    return {_DICT: pairs}


def _encode_items(mark: str, iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any, int], Any]:
    """Make an encoder of a container; ``iterate`` is its base class's own method."""

    def encode(value: Any, depth: int) -> Any:
        return {mark: [_encode(item, depth) for item in iterate(value)]}

    return encode


_ENCODERS: Final[tuple[tuple[type, Callable[[Any, int], Any]], ...]] = (
    (int, _encode_integer),
    (float, _encode_float),
    (str, _encode_text),
    (list, _encode_list),
    (tuple, _encode_items(_TUPLE, tuple.__iter__)),
    (dict, _encode_dict),
    (set, _encode_items(_SET, set.__iter__)),
    (frozenset, _encode_items(_FROZENSET, frozenset.__iter__)),
    (deque, _encode_items(_DEQUE, deque.__iter__)),
    (complex, _encode_complex),
    (bytes, _encode_bytes),
    (Fraction, _encode_fraction),
    (Decimal, _encode_fraction),
)


def loads(data: bytes, max_hashed: int = MAX_HASHED) -> Any:
    """Return the value that :func:`dumps` encoded, trusting nothing about the data.

    Data that :func:`dumps` would not have written raises :class:`WireError`. Each JSON object has a
    single member, a mark for its type and the content; the hook turns it into such a pair, so
    ``plain`` holds lists, pairs, texts and short numbers only. Sets and dictionaries have at most
    ``max_hashed`` members, since colliding keys make large ones slow.
    """
    try:
        plain = json.loads(
            data,
            object_pairs_hook=_take_single_pair,
            parse_int=_parse_short_integer,
            parse_float=_parse_short_float,
            parse_constant=_refuse_constant,
        )
        return _decode(plain, MAX_DEPTH + 1, max_hashed)
    except WireError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, ArithmeticError) as error:
        raise WireError(type(error).__name__) from None


def _take_single_pair(pairs: list[tuple[str, Any]]) -> tuple[str, Any]:
    """Turn an object into a tuple of its mark and content."""
    if len(pairs) != 1:
        raise WireError("an object has one member")
    return pairs[0]


def _parse_short_integer(text: str) -> int:
    if len(text) > 20:
        raise WireError("a long integer travels in base 16")
    return int(text)


def _parse_short_float(text: str) -> float:
    if len(text) > 40:
        raise WireError("a float has at most 40 characters")
    return float(text)


def _refuse_constant(text: str) -> float:
    raise WireError(f"{text} is no JSON")


def _decode(plain: Any, depth: int, max_hashed: int) -> Any:
    """Decode parsed JSON in which each object is a pair of its mark and content.

    A mark is one letter that says what type the content is of. ``depth``: how many levels may
    follow. ``max_hashed``: most members of a set or dictionary. Raises :class:`WireError` for
    anything that the encoder would not have written.
    """
    if depth == 0:
        raise WireError(f"deeper than {MAX_DEPTH}")
    if isinstance(plain, list):
        return [_decode(item, depth - 1, max_hashed) for item in plain]
    if not isinstance(plain, tuple):
        return plain
    mark, content = plain
    if mark in _SCALAR_DECODERS:
        return _SCALAR_DECODERS[mark](content)
    if mark not in _CONTAINER_DECODERS or not isinstance(content, list):
        raise WireError("unknown mark, or no list where one belongs")
    if mark in _HASHED and len(content) > max_hashed:
        raise WireError(f"a hash table of more than {max_hashed} members")
    items = [_decode(item, depth - 1, max_hashed) for item in content]
    return _CONTAINER_DECODERS[mark](items)


def _decode_not_finite(content: Any) -> float:
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]


def _decode_fraction(items: list[Any]) -> Fraction:
    numerator, denominator = items
    # Reducing a fraction is quadratic in its length.
    if len(numerator) + len(denominator) > 10_000:
        raise WireError("a fraction this long")
    return Fraction(int(numerator, 16), int(denominator, 16))


def _decode_numpy_scalar(items: list[Any]) -> Any:
    """Decode to NumPy's type, since a comparison may ask for types to agree.

    ``items``: the name of the type, and the value as a plain number. All integer types become
    int64; a value that fits none of the types stays plain.
    """
    import numpy as np

    type_name, value = items
    if type_name in {"float64", "float32", "float16"}:
        return getattr(np, type_name)(float(value))
    if type_name in {"bool", "bool_"}:
        return np.bool_(value is True)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return np.int64(value)
    return value


def _decode_array(items: list[Any]) -> Any:
    """Decode to an array of numbers: of texts, one long one would make all others as large."""
    import numpy as np

    if not _are_numbers(items):
        raise WireError("an array holds numbers")
    return np.array(items)


def _are_numbers(items: list[Any]) -> bool:
    """Return whether nested lists hold nothing but numbers."""
    return all(
        _are_numbers(item) if isinstance(item, list) else isinstance(item, int | float | complex)
        for item in items
    )


def _decode_complex(items: list[Any]) -> complex:
    real, imaginary = items
    return complex(float(real), float(imaginary))


_SCALAR_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    _LARGE_INTEGER: lambda content: int(content, 16),
    _NOT_FINITE: _decode_not_finite,
    _BYTES: bytes.fromhex,
    _OPAQUE: lambda content: Opaque(str(content)[:100]),
}
_CONTAINER_DECODERS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    _TUPLE: tuple,
    _DICT: dict,
    _SET: set,
    _FROZENSET: frozenset,
    _DEQUE: deque,
    _ARRAY: _decode_array,
    _COMPLEX: _decode_complex,
    _FRACTION: _decode_fraction,
    _NUMPY_SCALAR: _decode_numpy_scalar,
}
