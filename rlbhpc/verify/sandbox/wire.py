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
_SMALL: Final = 1 << 53


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
    """Encode by base class: a subclass may lie about itself, its base's own methods don't."""
    if depth == 0:
        return {"o": "too deep"}
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    # Before float: NumPy's float64 is a float too.
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return {"n": [kind.__name__, _encode(value.item(), depth - 1)]}
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and value.dtype.kind in "biufc":
        return {"a": _encode(value.tolist(), depth - 1)}
    for base, encode in _ENCODERS:
        if isinstance(value, base):
            return encode(value, depth - 1)
    return {"o": kind.__name__[:100]}


def _integer(value: int, depth: int) -> Any:
    number = int.__index__(value)
    return number if -_SMALL < number < _SMALL else {"i": format(number, "x")}


def _float(value: float, depth: int) -> Any:
    number = float.__float__(value)
    return number if math.isfinite(number) else {"f": repr(number)}


def _rational(value: Fraction | Decimal, depth: int) -> Any:
    try:
        top, bottom = value.as_integer_ratio()
    except (ValueError, OverflowError):
        return {"o": str(value)}
    return {"q": [format(top, "x"), format(bottom, "x")]}


def _items(mark: str, iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any, int], Any]:
    def encode(value: Any, depth: int) -> Any:
        return {mark: [_encode(item, depth) for item in iterate(value)]}

    return encode


_ENCODERS: Final[tuple[tuple[type, Callable[[Any, int], Any]], ...]] = (
    (int, _integer),
    (float, _float),
    (str, lambda value, depth: str.__str__(value)),
    (list, lambda value, depth: [_encode(item, depth) for item in list.__iter__(value)]),
    (tuple, _items("t", tuple.__iter__)),
    (
        dict,
        lambda value, depth: {
            "d": [[_encode(k, depth), _encode(v, depth)] for k, v in dict.items(value)]
        },
    ),
    (set, _items("s", set.__iter__)),
    (frozenset, _items("z", frozenset.__iter__)),
    (deque, _items("e", deque.__iter__)),
    (complex, lambda value, depth: {"c": [_float(value.real, depth), _float(value.imag, depth)]}),
    (bytes, lambda value, depth: {"b": bytes.hex(value)}),
    (Fraction, _rational),
    (Decimal, _rational),
)


def loads(data: bytes, most_hashed: int = MAX_HASHED) -> Any:
    """Decode what :func:`dumps` wrote, trusting nothing about it.

    Sets and dictionaries have at most ``most_hashed`` members.
    """
    try:
        plain = json.loads(
            data,
            object_pairs_hook=_single_pair,
            parse_int=_short_integer,
            parse_float=_short_float,
            parse_constant=_no_constant,
        )
        return _decode(plain, MAX_DEPTH + 1, most_hashed)
    except WireError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, ArithmeticError) as error:
        raise WireError(type(error).__name__) from None


def _single_pair(pairs: list[tuple[str, Any]]) -> tuple[str, Any]:
    if len(pairs) != 1:
        raise WireError("an object has one member")
    return pairs[0]


def _short_integer(text: str) -> int:
    if len(text) > 20:
        raise WireError("a long integer travels in base 16")
    return int(text)


def _short_float(text: str) -> float:
    if len(text) > 40:
        raise WireError("a float has at most 40 characters")
    return float(text)


def _no_constant(text: str) -> float:
    raise WireError(f"{text} is no JSON")


def _decode(plain: Any, depth: int, most: int) -> Any:
    if depth == 0:
        raise WireError(f"deeper than {MAX_DEPTH}")
    if isinstance(plain, list):
        return [_decode(item, depth - 1, most) for item in plain]
    if not isinstance(plain, tuple):
        return plain
    mark, content = plain
    if mark in _LEAVES:
        return _LEAVES[mark](content)
    if mark not in _CONTAINERS or not isinstance(content, list):
        raise WireError("unknown mark, or no list where one belongs")
    if mark in "dsz" and len(content) > most:
        raise WireError(f"a hash table of more than {most} members")
    return _CONTAINERS[mark]([_decode(item, depth - 1, most) for item in content])


def _named_float(content: Any) -> float:
    return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]


def _fraction(parts: list[Any]) -> Fraction:
    top, bottom = parts
    # Reducing a fraction is quadratic in its length.
    if len(top) + len(bottom) > 10_000:
        raise WireError("a fraction this long")
    return Fraction(int(top, 16), int(bottom, 16))


def _numpy_scalar(parts: list[Any]) -> Any:
    """Decode to NumPy's type, since a comparison may ask for types to agree."""
    import numpy as np

    kind, value = parts
    if kind in {"float64", "float32", "float16"}:
        return getattr(np, kind)(float(value))
    if kind in {"bool", "bool_"}:
        return np.bool_(value is True)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return np.int64(value)
    return value


def _array(items: list[Any]) -> Any:
    """Decode to an array of numbers: of texts, one long one would make all others as large."""
    import numpy as np

    if not _are_numbers(items):
        raise WireError("an array holds numbers")
    return np.array(items)


def _are_numbers(items: list[Any]) -> bool:
    return all(
        _are_numbers(item) if isinstance(item, list) else isinstance(item, int | float | complex)
        for item in items
    )


def _complex(parts: list[Any]) -> complex:
    real, imaginary = parts
    return complex(float(real), float(imaginary))


_LEAVES: Final[dict[str, Callable[[Any], Any]]] = {
    "i": lambda content: int(content, 16),
    "f": _named_float,
    "b": bytes.fromhex,
    "o": lambda content: Opaque(str(content)[:100]),
}
_CONTAINERS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "t": tuple,
    "d": dict,
    "s": set,
    "z": frozenset,
    "e": deque,
    "a": _array,
    "c": _complex,
    "q": _fraction,
    "n": _numpy_scalar,
}
