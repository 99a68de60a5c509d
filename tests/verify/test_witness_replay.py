"""A stranger's check of what a RIGHT rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.audit import witness_replay
from rlbhpc.verify.audit.witness_replay import FAILS, HOLDS, TEXT, UNKNOWN, replay
from tests.verify.test_math import boxed, table


@pytest.mark.parametrize(
    ("witness", "result"),
    [
        ("(div $x 2) = (mul 1/2 $x) @ $x=3/7 | $x=-5/9", HOLDS),
        ("4.51 ~ 4.5 +- 1/20", HOLDS),
        ("(root 3 -8) = -2; (arcsin 1) = (div pi 2)", HOLDS),
        ("(app:f $x) = (app:f (add $x 0)) @ $x=1/2", HOLDS),
        ("(pow i 2) = -1", HOLDS),
        ("oo = oo", HOLDS),
        ('"east"; 1 = 1', HOLDS),
        ('"east"', TEXT),
        # A point where a side is undefined says nothing, if another says something.
        ("(div 1 $x) = (pow $x -1) @ $x=0 | $x=2", HOLDS),
        ("(div 1 $x) = (pow $x -1) @ $x=0", UNKNOWN),
        ("1/2 = 1/3", FAILS),
        ("(abs $x) = $x @ $x=2 | $x=-2", FAILS),
        ("(mul $x 2) = $x @ $x=1", FAILS),
        ("2 ~ 3 +- 1/2", FAILS),
        ("1 = 1; 2 = 3", FAILS),
        ("(app:f $x) = (app:g $x) @ $x=1/2", FAILS),
        # What is no claim is none that holds.
        ("", UNKNOWN),
        ('"text; with = and +- in it"', TEXT),
        ("1", UNKNOWN),
        ("1 = 1 = 1", UNKNOWN),
        ("(add 1 = 1", UNKNOWN),
        ("(__import__ 1) = 1", UNKNOWN),
        ("$x = $x @ $y=1", UNKNOWN),
        ("(fact 1000000000) = 1", UNKNOWN),
        ("1 2 = 1 2", UNKNOWN),
    ],
)
def test_replay(witness: str, result: str) -> None:
    assert replay(witness) == result


def test_what_rights_rest_on_holds() -> None:
    """Every RIGHT of the table, but for texts and the few that name what cannot be computed."""
    results: dict[str, list[str]] = {HOLDS: [], FAILS: [], UNKNOWN: []}
    for _, gold, answer, right in table("math_answers.tsv"):
        witness = verify("math", gold, boxed(answer)).witness
        if right and witness and '"' not in witness:
            results[replay(witness)].append(witness)
    assert results[FAILS] == []
    assert len(results[HOLDS]) > 300
    assert len(results[UNKNOWN]) < 0.05 * len(results[HOLDS]), results[UNKNOWN]


def test_the_checker_is_small_and_stands_alone() -> None:
    text = Path(witness_replay.__file__).read_text()
    assert text.count("\n") <= 200
    assert "rlbhpc" not in "".join(line for line in text.splitlines() if "import" in line)
