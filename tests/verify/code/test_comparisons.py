"""What counts as the same output and the same value."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from rlbhpc.verify.code import evalplus
from rlbhpc.verify.code.evalplus import python_inputs
from rlbhpc.verify.code.livecodebench import same_output, same_value
from rlbhpc.verify.code.programs import read_call_results
from rlbhpc.verify.sandbox.wire import Opaque


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        ("  1  \r\n2 \n\n", "1\n2\n", True),
        ("1 2", "1\n2", False),
        ("1\n\n2", "1\n2", False),
        ("Yes", "YES", False),
        ("a  b", "a b", False),
        ("1   2", "1 2", True),
        ("1.0", "1", True),
        ("1e3", "1000", True),
        ("0.3333333333", "0.33333333333333", True),
        ("0.3334", "0.33333333333333", False),
        # An integer is met exactly or not at all.
        ("1000000000000000001", "1000000000000000000", False),
        ("0.9999999", "1", False),
        ("nan", "nan", True),
        ("nan", "0.5", False),
        ("inf", "1.5", False),
        ("sNaN", "0.5", False),
        ("1e9999", "1.5", False),
        ("1e99999999", "1.5", False),
        ("1_000", "1000", False),
        ("１", "1", False),
        ("0x10", "16", False),
        ("", "", True),
        ("", "0", False),
        ("9" * 20_000, "1.5", False),
        ("x" * 100, "1.5", False),
        ("-0", "0", True),
        ("+5", "5", True),
    ],
)
def test_output(output: str, expected: str, same: bool) -> None:
    assert same_output(output, expected) is same


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ([1, 2], [1, 2], True),
        ((1, (2, 3)), [1, [2, 3]], True),
        ([1, 2, 3], [1, 2], False),
        (0.1 + 0.2, 0.3, True),
        ([0.30000001], [0.3], True),
        (0.301, 0.3, False),
        (3, 3.0, True),
        (10**400, 1.5, False),
        (float("nan"), 1.5, False),
        (float("inf"), 1.5, False),
        (True, True, True),
        ("1", 1, False),
        (1, "1", False),
        (None, None, True),
        ({1}, [1], False),
        (Opaque("x"), None, False),
        ([Opaque("x")], [1], False),
        (np.int64(3), 3, True),
        (2.9999999, 3, False),
        (deque([1, (2,)]), [1, [2]], True),
        (deque([1, 2]), [2, 1], False),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], True),
        (np.array([0.1 + 0.2]), [0.3], True),
        (np.array([1, 2]), [1, 3], False),
        (np.array([1]), 1, False),
        ([np.array([1])], [[1]], True),
        ({"a": (1, 2), "b": {"c": 0.1 + 0.2}}, {"a": [1, 2], "b": {"c": 0.3}}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 0.4}, {"a": 0.3}, False),
        ({1: 2}, {"1": 2}, False),
        ([("a", 1)], {"a": 1}, False),
    ],
)
def test_value(value: Any, expected: Any, same: bool) -> None:
    assert same_value(value, expected) is same


@pytest.mark.parametrize(
    ("dataset", "entry", "arguments", "expected", "value", "tolerance", "right"),
    [
        ("humaneval", "f", [1], 2, 2, 0, True),
        ("humaneval", "f", [1], 2, 2.0, 0, True),
        ("humaneval", "f", [1], [1, 2], (1, 2), 0, False),
        ("humaneval", "f", [1], 0.5, 0.5000001, 1e-6, True),
        ("humaneval", "f", [1], 0.5, 0.51, 1e-6, False),
        # Closeness wants the same type and length.
        ("humaneval", "f", [1], 0.5, np.float64(0.5000001), 1e-6, False),
        ("humaneval", "f", [1], [0.5], [0.5000001, 1.0], 1e-6, False),
        ("humaneval", "f", [1], [0.5], "x", 1e-6, False),
        ("humaneval", "f", [1], [0.5], [10**400], 1e-6, False),
        ("humaneval", "f", [1], [0.5], Opaque("Any"), 1e-6, False),
        ("humaneval", "f", [1], float("nan"), float("nan"), 1e-6, False),
        ("humaneval", "find_zero", [[1, 2]], -0.5, -0.5000001, 1e-4, True),
        ("humaneval", "find_zero", [[1, 2]], -0.5, 0.5, 1e-4, False),
        ("humaneval", "find_zero", [[1, 2]], -0.5, float("nan"), 1e-4, False),
        ("humaneval", "find_zero", [[1, 2]], -0.5, "x", 1e-4, False),
        ("humaneval", "find_zero", [[1, 2]], -0.5, 1e300, 1e-4, False),
        ("mbpp", "find_zero", [[1, 2]], 7, 7, 0, True),
        ("mbpp", "are_equivalent", [36, 57], False, True, 0, True),
        ("mbpp", "sum_div", [8], 7, 0, 0, True),
        ("mbpp", "sum_div", [8], 7, 3, 0, False),
        ("mbpp", "sum_div", [8], 7, Opaque("Any"), 0, False),
        ("mbpp", "surface_Area", [3, 4], 33, 33, 0, True),
        ("mbpp", "surface_Area", [3, 4], 33, 35, 0, True),
        ("mbpp", "surface_Area", [3, 4], 33, 34, 0, False),
        ("mbpp", "surface_Area", [3, 4], 33, Opaque("Any"), 0, False),
        ("mbpp", "digit_distance_nums", [23, 156], 99, 7, 0, True),
        ("humaneval", "sum_div", [8], 7, 0, 0, False),
        ("mbpp", "similar_elements", [1], {4, 5}, {5, 4}, 0, True),
    ],
)  # fmt: skip
def test_oracles(
    dataset: str, entry: str, arguments: list[Any], expected: Any, value: Any, tolerance: float,
    right: bool,
) -> None:  # fmt: skip
    assert evalplus.is_right(dataset, entry, arguments, expected, value, tolerance) is right


def test_names_of_what_was_raised_are_short() -> None:
    for length, raised in ((198, ["x" * 198]), (199, [])):
        line = b'{"raised":"' + b"x" * length + b'","cpu":0.5}\n'
        assert [one.raised for one in read_call_results(line, [1])] == raised


@pytest.mark.parametrize(
    ("value", "floats"),
    [(0.5, True), ([0.5, 1.0], True), ((), True), ([0.5, 1], False), (1, False), ("x", False)],
)
def test_floats_get_a_tolerance(value: Any, floats: bool) -> None:
    assert evalplus.is_floats(value) is floats


@pytest.mark.parametrize(
    ("task", "arguments", "expected"),
    [
        ("Mbpp/2", [[1, 2], [3]], [(1, 2), (3,)]),
        ("Mbpp/63", [[[1, 2], [3, 4]]], [[(1, 2), (3, 4)]]),
        ("Mbpp/75", [[[6, 24], [7, 9]], 6], [[(6, 24), (7, 9)], 6]),
        ("Mbpp/106", [[5, 6], [9, 10]], [[5, 6], (9, 10)]),
        ("Mbpp/115", [[[1, 2], [], [3]]], [[{1, 2}, {}, {3}]]),
        ("Mbpp/124", ["0", "1j"], [0.0, 1j]),
        ("Mbpp/252", ["1+2j"], [1 + 2j]),
        ("Mbpp/259", [[[1, 3], [4, 5]], [[6, 7]]], [((1, 3), (4, 5)), ((6, 7),)]),
        ("Mbpp/278", [[1, [2, 3], 4]], [(1, (2, 3), 4)]),
        ("Mbpp/307", [["a", 5, []], 2, 50], [("a", 5, []), 2, 50]),
        ("Mbpp/580", [[4, [7, [2]]]], [(4, (7, (2,)))]),
        ("Mbpp/722", [{"x": [6.2, 70]}, 6.0, 70], [{"x": (6.2, 70)}, 6.0, 70]),
        ("Mbpp/763", [[1, 2], 2], [(1, 2), 2]),
        ("Mbpp/3", [[1]], [[1]]),
    ],
)  # fmt: skip
def test_mbpp_inputs(task: str, arguments: list[Any], expected: list[Any]) -> None:
    converted = python_inputs(task, [arguments, arguments])
    assert converted == [expected, expected]
    assert [type(item) for item in converted[0]] == [type(item) for item in expected]


def test_records_are_read_up_to_the_first_that_is_none() -> None:
    good = b'{"returned":1,"cpu":0.5}\n'
    raised = b'{"raised":"ValueError","cpu":0.1}\n'
    assert [one.value for one in read_call_results(good * 3, [9, 9])] == [1, 1]
    assert read_call_results(good + raised, [9, 9])[1].raised == "ValueError"
    assert read_call_results(good, [9])[0].cpu == 0.5
    for broken in (
        b"x\n",
        b"{}\n",
        b'{"returned":\n',
        b'{"raised":1}x\n',
        b"\xff\n",
        b'{"returned":1',
    ):
        assert len(read_call_results(good + broken + good, [9, 9, 9])) == 1
    assert read_call_results(b"", [9]) == []


# All that evalplus v0.2.0 lists in data/mbpp.py.
CONVERTED = """2 63 64 70 75 94 106 115 116 120 124 132 143 222 237 250 252 259 261 272 273 278 299
307 394 399 400 401 405 409 413 417 421 424 429 438 444 445 446 470 473 560 579 580 596 614 615 616
617 630 720 722 726 740 744 750 753 763 780 791 808 809"""


def test_tasks_whose_inputs_are_converted() -> None:
    no_input: list[list[Any]] = []
    tasks = [n for n in range(1000) if python_inputs(f"Mbpp/{n}", no_input) is not no_input]
    assert tasks == [int(task) for task in CONVERTED.split()]
