"""What a golden accepts, and what its failure says."""

from __future__ import annotations

import pytest

from tests.golden import differences

BEFORE = ["pass_at_k: 2 rows", "  k (int64): 1 2", "  value (float64): 0.25000 -3.1000e-05"]


def changed(line: int, old: str, new: str) -> list[str]:
    return [text.replace(old, new) if i == line else text for i, text in enumerate(BEFORE)]


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [(2, "0.25000", "0.25001"), (2, "0.25000", "0.24999"), (2, "-3.1000e-05", "-3.1001e-05")],
)
def test_the_last_digit_may_differ(line: int, old: str, new: str) -> None:
    assert not list(differences(changed(line, old, new), BEFORE))


@pytest.mark.parametrize(
    ("line", "old", "new", "place"),
    [
        (1, "1 2", "1 3", "number 3"),
        (2, "0.25000", "0.25002", "number 2"),
        (2, "-3.1000e-05", "+3.1000e-05", "number 3"),
    ],
)
def test_a_number_that_moved_is_named(line: int, old: str, new: str, place: str) -> None:
    (moved,) = differences(changed(line, old, new), BEFORE)
    name = BEFORE[line].split(":")[0].strip()
    assert f"line {line + 1} (pass_at_k / {name}), {place}" in moved
    assert old.split()[-1] in moved and new.split()[-1] in moved


def test_a_stated_tolerance_counts() -> None:
    moved = changed(2, "0.25000", "0.25020")
    assert list(differences(moved, BEFORE, relative=1e-4))
    assert not list(differences(moved, BEFORE, relative=1e-3))
    assert not list(differences(changed(2, "-3.1000e-05", "+0.0000"), BEFORE, absolute=1e-4))


def test_text_has_to_be_equal() -> None:
    assert list(differences(changed(1, "int64", "int32"), BEFORE))
    assert list(differences(BEFORE[:2], BEFORE)) and list(differences([*BEFORE, "x"], BEFORE))


def test_numbers_behind_a_new_line_of_text_are_compared() -> None:
    moved = list(differences(["new", *changed(2, "0.25000", "0.30000")], BEFORE))
    assert len(moved) == 2 and "0.25000" in moved[1] and "0.30000" in moved[1]
