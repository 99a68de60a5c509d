"""Values travel unchanged, and hostile data is refused without harm."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import deque
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.verify.sandbox import wire

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.complex_numbers(allow_nan=False) | st.fractions(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple)
    | st.dictionaries(st.text() | st.integers(), inner) | st.sets(st.integers() | st.text())
    | st.frozensets(st.integers()) | st.lists(inner).map(deque),
    max_leaves=20,
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equal in value and in every type."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@given(PLAIN)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert same(wire.loads(wire.dumps(value)), value)


def test_surrogates_and_odd_floats() -> None:
    assert wire.loads(wire.dumps("\ud800x")) == "\ud800x"
    assert math.isnan(wire.loads(wire.dumps(math.nan)))
    assert wire.loads(wire.dumps([math.inf, -0.0])) == [math.inf, 0.0]
    assert math.copysign(1, wire.loads(wire.dumps(-0.0))) == -1


class Kind(IntEnum):
    A = 3


class Liar(list):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter([42])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Kind.A, 3),
        (Decimal("0.5"), Fraction(1, 2)),
        (Liar([1, 2]), [1, 2]),
        (np.int64(7), np.int64(7)),
        (np.float64(0.1), np.float64(0.1)),
        (np.bool_(True), np.bool_(True)),
        (np.float32(0.5), np.float32(0.5)),
        (np.int32(5), np.int64(5)),
        (np.int64(-(2**63)), np.int64(-(2**63))),
        (np.uint64(2**63), 2**63),
        (np.str_("a"), "a"),
    ],
)
def test_a_subclass_is_what_its_base_holds(value: Any, expected: Any) -> None:
    back = wire.loads(wire.dumps(value))
    assert back == expected
    assert type(back) is type(expected)


def test_what_is_written() -> None:
    most = 2**53
    data = wire.dumps([most - 1, 1 - most, most, -most])
    assert data == (
        b'[9007199254740991,-9007199254740991,{"i":"20000000000000"},{"i":"-20000000000000"}]'
    )
    assert wire.loads(data) == [most - 1, 1 - most, most, -most]
    assert wire.dumps(type("x" * 150, (), {})()) == b'{"o":"' + b"x" * 100 + b'"}'
    assert wire.loads(b'{"o":"' + b"x" * 150 + b'"}').kind == "x" * 100


@pytest.mark.parametrize(
    "value", [object(), range(3), iter([]), np.array([print]), np.array(["a"]), print, {}.items()]
)
def test_what_does_not_travel_equals_nothing(value: Any) -> None:
    back = wire.loads(wire.dumps(value))
    assert isinstance(back, wire.Opaque)
    assert back != back
    assert [back] != [value]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3), np.array([0.5, np.inf]), np.array([]),
        np.array([True]), np.array([1j]), np.arange(3, dtype=np.float32),
    ],
)  # fmt: skip
def test_arrays_come_back_as_arrays(array: Any) -> None:
    back = wire.loads(wire.dumps(array))
    assert isinstance(back, np.ndarray)
    assert np.array_equal(back, array)


def within(value: Any, lists: int) -> Any:
    """A value within so many lists."""
    for _ in range(lists):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "deepest"),
    [
        ((), 99), ((1,), 98), ([1], 98), ({1: 2}, 98), ({1}, 98), (Fraction(1, 2), 99),
        (np.int64(3), 98), (np.array([]), 98),
    ],
)  # fmt: skip
def test_depth_is_that_of_what_is_written(value: Any, deepest: int) -> None:
    assert b"too deep" not in wire.dumps(within(value, deepest))
    assert b"too deep" in wire.dumps(within(value, deepest + 1))


@pytest.mark.parametrize(
    "data", [b"9" * 20, b"0." + b"1" * 38, b'{"q":["1","' + b"1" * 9999 + b'"]}']
)
def test_the_longest_numbers_travel(data: bytes) -> None:
    assert wire.loads(data) > 0
    with pytest.raises(wire.WireError):
        wire.loads(data.replace(b"1", b"11", 1) if b"1" in data else data + b"9")


def test_depth_is_bounded_on_both_sides() -> None:
    deepest = within([], wire.MAX_DEPTH - 1)
    assert wire.loads(wire.dumps(deepest)) == deepest
    assert wire.loads(b"[" * 101 + b"]" * 101)
    with pytest.raises(wire.WireError, match="deeper than 100"):
        wire.loads(b"[" * 102 + b"]" * 102)
    assert len(wire.dumps(within([], 5000))) < 1000
    with pytest.raises(wire.WireError):
        wire.loads(b"[" * 5000 + b"]" * 5000)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"{}", b'{"t":[1],"d":[]}', b'{"t":1}', b'{"x":[1]}', b'{"s":[[1]]}',
        b'{"d":[[[1],2]]}', b'{"d":[[1]]}', b'{"d":[1]}', b'{"c":[1]}', b'{"q":["1","0"]}',
        b'{"q":[1,2]}', b'{"i":"zz"}', b'{"i":[]}', b'{"b":"0g"}', b'{"f":"one"}', b'{"f":[]}',
        b'{"n":["float64",[]]}', b'{"n":["float64","x"]}', b"NaN", b"Infinity", b"1" * 30,
        b"0." + b"1" * 60, b"\xff\xfe", b'{"q":["' + b"f" * 9999 + b'","' + b"3" * 9999 + b'"]}',
        b'{"a":[[1],[2,3]]}', b'{"a":["x"]}', b'{"a":[{"t":[1]}]}', b'{"a":1}',
        b"[1,2", b"nul", b'"\\ud8"', b'{"n":[1,2,3]}',
    ],
)  # fmt: skip
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.loads(data)


@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]",:0123456789tdszcqnobif-.e').map(str.encode)
)
def test_no_data_raises_anything_else(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        wire.loads(data)


def test_colliding_keys_are_not_hashed() -> None:
    keys = [{"i": format(k * (2**61 - 1), "x")} for k in range(1, 50_000)]
    start = time.process_time()
    with pytest.raises(wire.WireError, match="hash table"):
        wire.loads(json.dumps({"s": keys}).encode())
    # Hashing them all takes minutes.
    assert time.process_time() - start < 10


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_a_table_has_a_most(kind: Any) -> None:
    assert len(wire.loads(wire.dumps(kind(range(4096))))) == 4096
    with pytest.raises(wire.WireError, match="more than 4096 members"):
        wire.loads(wire.dumps(kind(range(4097))))
    assert len(wire.loads(wire.dumps(tuple(range(4097))))) == 4097


def test_a_larger_table_is_taken_where_one_is_expected() -> None:
    value = set(range(10_000))
    assert wire.loads(wire.dumps(value), 10_000) == value
