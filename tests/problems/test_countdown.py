"""Countdown's generator: solvable, distinct, disjoint, seeded, and told apart by rules."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.problems.countdown import Rules, half_of, reachable, solve, work_traces
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import digest
from rlbhpc.problems.registry import load_set
from rlbhpc.verify.kinds.countdown import verify
from tests.problems import shapes


def generated(subset: str, limit: int, seed: int = 0, path: Path | None = None) -> list[Problem]:
    return load_set("countdown", path, subset, limit, seed)


def test_problems_are_distinct_solvable_and_within_the_rules() -> None:
    problems = generated("test", 300)
    assert len({p.id for p in problems}) == len({p.fields["question"] for p in problems}) == 300
    for problem in problems:
        numbers, target = problem.extras["numbers"], problem.extras["target"]
        assert len(numbers) == 4 and all(1 <= n <= 13 for n in numbers) and 1 <= target <= 99
        assert problem.fields["question"] == f"{' '.join(map(str, numbers))} -> {target}"
        assert solve(tuple(numbers), target, "+-*") is not None


@settings(max_examples=20)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_train_and_test_never_meet(one: int, other: int) -> None:
    train = {p.id for p in generated("train", 50, one)}
    assert not train & {p.id for p in generated("test", 50, other)}
    traces = {worked.problem.id for worked in work_traces("countdown", Rules(), 50, 0.5, one)}
    assert not traces & {p.id for p in generated("test", 50, other)}


def test_a_fifth_of_all_problems_is_for_testing() -> None:
    halves = [
        half_of(numbers, target)
        for numbers in itertools.combinations_with_replacement(range(1, 9), 4)
        for target in reachable(numbers, "+-*")
    ]
    assert len(halves) > 10_000
    assert 0.19 < halves.count("test") / len(halves) < 0.21
    assert (len(halves), halves.count("test")) == (17_080, 3378), "no problem changes sides"
    for target in range(30):
        assert len({half_of(order, target) for order in itertools.permutations((1, 2, 3))}) == 1


def test_the_seed_decides_everything() -> None:
    assert digest(generated("test", 50)) == digest(generated("test", 50))
    assert digest(generated("test", 50)) != digest(generated("test", 50, seed=1))
    assert generated("test", 20) == generated("test", 50)[:20]
    # Quickstart results are compared across releases: these problems may not change.
    assert digest(generated("test", 50)) == "cc4b5a6f7fc2a1e3"
    first = next(work_traces("countdown", Rules(), 1, 1.0, 0))
    assert first.problem.fields["question"] == "5 10 11 12 -> 50"
    assert first.response == "10*5=50\n12-11=1\n50*1=50"


@settings(max_examples=20)
@given(st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(0, 99), st.sampled_from(["+-*", "+-*/"]))
def test_the_fraction_of_hits_is_kept(hit: float, seed: int, operations: str) -> None:
    worked = list(work_traces("countdown", Rules(operations=operations), 100, hit, seed))
    right = [verify(one.problem.gold, one.response).right for one in worked]
    assert [sum(right[:count]) for count in range(101)] == [
        int(count * hit) for count in range(101)
    ]


@pytest.mark.parametrize("hit", [-0.01, 1.01])
def test_a_fraction_of_hits_is_one(hit: float) -> None:
    with pytest.raises(UserError, match=rf"fraction of hits {hit}; allowed: 0 to 1"):
        next(work_traces("countdown", Rules(), 1, hit, 0))


def test_the_ends_of_rules_belong_to_them() -> None:
    rules = Rules(counts=(2, 6), low=1, high=1, targets=(2, 2))
    assert {worked.problem.extras["target"] for worked in work_traces("c", rules, 9, 1.0, 0)} == {2}
    assert Rules(targets=(0, 0)).targets == (0, 0)


def by_hand(numbers: tuple[int, ...], operations: str) -> set[int]:
    """Every value: join each two of the numbers, the larger first, until one is left."""
    if len(numbers) == 1:
        return {numbers[0]}
    values: set[int] = set()
    for pair in itertools.combinations(range(len(numbers)), 2):
        rest = tuple(n for index, n in enumerate(numbers) if index not in pair)
        low, high = sorted(numbers[index] for index in pair)
        results = {"+": high + low, "-": high - low, "*": high * low}
        if low and Fraction(high, low).denominator == 1:
            results["/"] = int(Fraction(high, low))
        for operation in set(operations) & set(results):
            values |= by_hand((*rest, results[operation]), operations)
    return values


@pytest.mark.parametrize("operations", ["+-*", "+-*/", "/", "-"])
@pytest.mark.parametrize("numbers", [(7,), (0, 3), (2, 2, 3), (1, 4, 6), (1, 2, 3, 8)])
def test_what_can_be_reached_is_what_trying_finds(
    numbers: tuple[int, ...], operations: str
) -> None:
    values = by_hand(numbers, operations)
    assert reachable(numbers, operations) == tuple(sorted(values))
    solved = {target: solve(numbers, target, operations) for target in range(50)}
    assert {target for target, steps in solved.items() if steps is not None} == {
        value for value in values if value < 50
    }
    assert all(not steps or steps[-1].result == target for target, steps in solved.items())


def test_misses_are_written_as_neatly_as_hits() -> None:
    """Each step is true and the last number is single, so only the target gives a miss away."""
    for one in work_traces("countdown", Rules(), 50, 0.0, 3):
        last = one.response.rpartition("=")[2]
        gold = one.problem.gold.replace(f"-> {one.problem.extras['target']} ", f"-> {last} ")
        assert verify(gold, one.response).right


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("counts: [3, 5]\nlow: 2\nhigh: 9\noperations: '+*/'\ntargets: [100, 120]\n")
    problems = generated("train", 40, path=rules)
    assert {len(p.extras["numbers"]) for p in problems} == {3, 5}
    assert all(100 <= p.extras["target"] <= 120 for p in problems)
    assert all(p.gold.endswith(" (+*/)") for p in problems)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("counts: []", r"counts \[\]; each must be 2 to 6"),
        ("counts: [1, 4]", r"counts \[1, 4\]; each must be 2 to 6"),
        ("{low: 5, high: 4}", "numbers from 5 to 4; need 1 <= low <= high"),
        ("operations: ''", "operations ''; allowed"),
        ("operations: 3", "operations: 3 is not of the right type"),
        ("targets: [-1, 9]", r"targets \[-1, 9\]; need 0 <= lowest <= highest"),
        ("targets: [1, true]", "targets: .* is not of the right type"),
        ("targets: 9", "targets: 9 is not of the right type"),
        ("counts: 7", r"counts \[7\]; each must be 2 to 6"),
        ("counts: four", "counts: 'four' is not of the right type"),
        ("low: 0", "numbers from 0 to 13"),
        ("low: true", "low: True is not of the right type"),
        ("operations: '+^'", r"operations '\+\^'; allowed: some of \+-\*/"),
        ("targets: [9, 1]", r"targets \[9, 1\]"),
        ("targets: [9]", "targets: .* is not of the right type"),
        ("number: 4", "a mapping with some of"),
        ("- 1", "a mapping with some of"),
        ("{", "not YAML"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_bad_rules(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(UserError, match=complaint):
        generated("train", 5, path=tmp_path / "rules.yaml")


def test_more_than_there_are_is_told(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("counts: 2\nhigh: 2\ntargets: [1, 4]")
    with pytest.raises(UserError, match=r"the rules allow only about . train problems, 99 were"):
        generated("train", 99, path=tmp_path / "rules.yaml")
    with pytest.raises(UserError, match=r"none\.yml: No such file"):
        generated("train", 99, path=tmp_path / "none.yml")


def test_a_generated_set_needs_a_size_and_a_half() -> None:
    with pytest.raises(UserError, match="say how many problems with `limit`"):
        load_set("countdown", None)
    with pytest.raises(UserError, match="no subset 'dev'; allowed: train, test"):
        generated("dev", 5)


@pytest.mark.parametrize("fmt", shapes.WRITERS)
def test_published_records_load_too(fmt: str, tmp_path: Path) -> None:
    records = [{"target": 98, "nums": [44, 19, 35]}, {"target": 64, "nums": [63, 95, 96]}]
    problems = load_set("countdown", shapes.WRITERS[fmt](records, tmp_path), "test")
    assert [p.gold for p in problems] == ["19 35 44 -> 98 (+-*/)", "63 95 96 -> 64 (+-*/)"]
    assert all(solve(tuple(p.extras["numbers"]), p.extras["target"], "+-*/") for p in problems)


@pytest.mark.parametrize(
    ("numbers", "target"), [([1], 1), ([1, 2.5], 3), ("1 2", 3), ([1, 2], "3"), ([-1, 2], 1)]
)
def test_bad_records(numbers: object, target: object, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"nums": numbers, "target": target}))
    with pytest.raises(UserError, match="record 1: `nums` must be two or more whole numbers"):
        load_set("countdown", tmp_path / "a.jsonl")


def test_a_record_names_its_operations(tmp_path: Path) -> None:
    records = [{"nums": [0, 2], "target": 2, "operations": words} for words in ("+", "+^")]
    (tmp_path / "a.jsonl").write_text(json.dumps(records[0]))
    assert load_set("countdown", tmp_path / "a.jsonl")[0].gold == "0 2 -> 2 (+)"
    (tmp_path / "a.jsonl").write_text(json.dumps(records[1]))
    with pytest.raises(UserError, match=r"record 1: operations '\+\^'; allowed: some of \+-\*/"):
        load_set("countdown", tmp_path / "a.jsonl")
