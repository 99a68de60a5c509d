"""Identity of expressions: equal on one branch is not equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlbhpc.verify import verify

#: ``A = B`` is the same wherever both are real; ``A ≠ B`` is equal on one branch at the most.
IDENTITIES = (Path(__file__).parent / "identities.txt").read_text().splitlines()


@pytest.mark.parametrize("line", IDENTITIES)
def test_equal_means_equal_on_every_branch(line: str) -> None:
    left, sign, right = re.split(" (=|≠) ", line)
    for gold, answer in ((left, right), (right, left)):
        verdict = verify("math", gold, rf"\boxed{{{answer}}}")
        assert verdict.right == (sign == "="), verdict
