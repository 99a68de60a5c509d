"""Ways to read an answer that the audit of style holds against each other."""

from __future__ import annotations

import time

import pytest

from rlbhpc.verify.audit.policies import POLICIES


@pytest.mark.parametrize(
    ("response", "committed", "box", "value"),
    [
        (r"So \boxed{5}.", "5", "5", "5"),
        (r"\boxed{1}, no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}", r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"So \boxed{5}. I checked 3 cases.", "5", "5", "3"),
        ("The answer is 7.", "7", "", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", r"\{1, 2\}", "2"),
        # A box that is never closed is none; the one before it counts.
        (r"\boxed{4} and \boxed{5", "4", "4", "5"),
        # Only the last eight boxes are looked at.
        (r"\boxed{4}" + r"\boxed{" * 7, "", "4", "4"),
        (r"\boxed{4}" + r"\boxed{" * 8, "", "", "4"),
        ("It costs $1,234.50 in all", "", "", "1,234.50"),
        ("-3/4 it is, then", "", "", "-3/4"),
        ("nothing", "", "", ""),
        ("", "", "", ""),
    ],
)  # fmt: skip
def test_policies(response: str, committed: str, box: str, value: str) -> None:
    read = {name: policy(response) for name, policy in POLICIES.items()}
    assert committed in ("", read["ours"])
    assert (read["last box"], read["last value"]) == (box, value)


@pytest.mark.parametrize("piece", ["\\boxed{", "1", "1,", "{", "}", "\\", "-", "9/9", "\\frac{1}"])
def test_time_is_linear(piece: str) -> None:
    start = time.process_time()
    for name in ("last box", "last value"):
        POLICIES[name](piece * 200_000)
    # A quadratic scan of these takes hours.
    assert time.process_time() - start < 30
