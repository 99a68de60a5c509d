"""A stranger's check of what a RIGHT rests on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rlbhpc.verify import verify
from rlbhpc.verify.audit import witness_replay
from rlbhpc.verify.audit.witness_replay import _CLAIM, FAILS, HOLDS, TEXT, UNKNOWN, replay
from rlbhpc.verify.benchmark.cases import cases
from tests.verify.test_benchmark import BOXED
from tests.verify.test_math import boxed, rows_of, table


@pytest.mark.parametrize(
    ("witness", "result"),
    [
        ("(div $x 2) = (mul 1/2 $x) @ $x=3/7 | $x=-5/9", HOLDS),
        ("4.51 ~ 4.5 +- 1/20", HOLDS),
        ("(root 3 -8) = -2; (arcsin 1) = (div pi 2)", HOLDS),
        ("(app:f $x) = (app:f (add $x 0)) @ $x=1/2", HOLDS),
        ("(pow i 2) = -1", HOLDS),
        ("oo = oo", HOLDS),
        ("oo = (neg oo)", FAILS),
        ("oo = 5", FAILS),
        ('"B" = "B"', HOLDS),
        ('"<" = "<"; 1 = 1', HOLDS),
        ('"B" = "C"', FAILS),
        ('"a; b" = "a; b"', HOLDS),
        ('"a; b" = "a; c"', FAILS),
        ('"a" = "a" = "a"', UNKNOWN),
        ('"a', UNKNOWN),
        # A power of a negative number is real at integers alone.
        ("(pow (neg 1) $n) = (cos (mul $n pi)) @ $n=1/3 | $n=3 | $n=4", HOLDS),
        ("(pow (neg 1) $n) = 1 @ $n=1/3 | $n=3 | $n=4", FAILS),
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
        # Margins and rounding from either side.
        ("1 ~ 3/2 +- 1/2", HOLDS),
        ("1 ~ 1.5000004 +- 1/2", HOLDS),
        ("1 ~ 1.500001 +- 1/2", FAILS),
        (f"1 = 1.{'0' * 25}1", HOLDS),
        (f"1 = 1.{'0' * 24}2", FAILS),
        (f"10 = 10.{'0' * 24}5", HOLDS),
        # Each operation, at a value that is known.
        ("(add 1 2 3) = 6; (div 7 2) = 3.5; (neg 2) = -2; (abs -3) = 3", HOLDS),
        ("(pow 2 10) = 1024; (pow 0 2) = 0; (root 2 0) = 0; (root 2 9) = 3", HOLDS),
        ("(root 2 -4) = (mul 2 i); (root 5 -32) = -2; (pow -8 2) = 64", HOLDS),
        ("(binom 5 2) = 10; (perm 5 2) = 20; (fact 5) = 120", HOLDS),
        ("(gcd 12 18) = 6; (lcm 4 6) = 12; (max 1 3) = 3; (min 1 3) = 1", HOLDS),
        ("(ln e) = 1; (log e) = 1; (log 8 2) = 3; (lg 1000) = 3; (lg 8 2) = 3", HOLDS),
        ("(deg 180) = pi; (sin (deg 30)) = 1/2; (cis pi) = -1; (sgn -3) = -1", HOLDS),
        ("(floor 7/2) = 3; (ceil 7/2) = 4; (Re (add 1 i)) = 1; (arccot 1) = (deg 45)", HOLDS),
        ("(fact 10000) = (mul 10000 (fact 9999))", HOLDS),
        ("(fact 10001) = (fact 10001)", UNKNOWN),
        ("(pow 0 0) = 1", UNKNOWN),
        ("(pow 0 -1) = 1", UNKNOWN),
        ("(app:f 1 2) = (app:f 2 1)", FAILS),
        # Beside a real point, one where a root is complex says nothing.
        ("(root 2 $x) = 5 @ $x=-1 | $x=25", HOLDS),
        ("(root 2 $x) = 5 @ $x=-1", UNKNOWN),
        ("(mul i (root 2 $x)) = (mul 5 i) @ $x=25 | $x=-1", FAILS),
    ],
)
def test_replay(witness: str, result: str) -> None:
    assert replay(witness) == result


def test_what_rights_rest_on_holds() -> None:
    """Every RIGHT of the table, but for the few that name what cannot be computed."""
    results: dict[str, list[str]] = {HOLDS: [], FAILS: [], UNKNOWN: [], TEXT: []}
    for _, gold, answer, right in table("math_answers.tsv"):
        witness = verify("math", gold, boxed(answer)).witness
        if right and witness:
            results[replay(witness)].append(witness)
    assert results[FAILS] == []
    assert len(results[HOLDS]) > 300
    assert len(results[UNKNOWN]) < 0.05 * len(results[HOLDS]), results[UNKNOWN]


@pytest.fixture(scope="module")
def witnesses() -> Counter[str]:
    """What the right verdicts over the benchmark's boxed values rest on, and how many do."""
    values = (case for case in cases() if case.response.startswith(BOXED))
    verdicts = (verify("math", case.gold, case.response) for case in values)
    return Counter(verdict.witness for verdict in verdicts if verdict.right)


def test_every_right_of_the_benchmark_is_replayed(witnesses: Counter[str]) -> None:
    results: Counter[str] = Counter()
    for witness, count in witnesses.items():
        results[replay(witness) if witness else "without a witness"] += count
    # None fails and none is without a witness; few texts are equal as they stand.
    assert results.keys() == {HOLDS, TEXT}
    assert results[HOLDS] > 2 * results[TEXT]


def test_no_falsified_witness_of_the_benchmark_holds(witnesses: Counter[str]) -> None:
    claims = {claim.strip() for text in witnesses for claim in _CLAIM.findall(text)}
    claims = {claim for claim in claims if replay(claim) == HOLDS}
    assert len(claims) > 300
    assert [claim for claim in sorted(claims) if replay(_falsified(claim)) != FAILS] == []


def _falsified(claim: str) -> str:
    """Return a claim whose right side is another."""
    if claim.startswith('"'):
        return claim[:-1] + 'x"'
    if " ~ " in claim:
        return claim.replace(" +- ", " +- -")
    sides, at, places = claim.partition(" @ ")
    left, right = sides.split(" = ")
    return f"{left} = (add 1/7 (mul -3 {right})){at}{places}"


@pytest.mark.parametrize(("gold", "answer", "witness", "note"), rows_of("witnesses.tsv"))
def test_witness_names_what_decides(gold: str, answer: str, witness: str, note: str) -> None:
    verdict = verify("math", gold, boxed(answer))
    assert verdict.right
    assert witness in verdict.witness, note
    assert replay(verdict.witness) in (HOLDS, TEXT)


def test_the_checker_is_small_and_stands_alone() -> None:
    text = Path(witness_replay.__file__).read_text()
    assert text.count("\n") <= 200
    assert "rlbhpc" not in "".join(line for line in text.splitlines() if "import" in line)
