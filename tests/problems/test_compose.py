"""Compositions: every gold answer by hand, halves that never meet, any depth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.registry import load_set
from rlbhpc.problems.sets import generated
from rlbhpc.verify.registry import verify


def by_reading(question: str) -> int:
    """The answer by reading the question, with nothing of the generator's."""
    lines = question.splitlines()
    rules = dict(re.fullmatch(r"(\w)\(x\) = (.*)", line).groups() for line in lines[1:-1])  # type: ignore[union-attr]
    names, start = re.fullmatch(r"What is ((?:\w\()+)(\d+)\)+\?", lines[-1]).groups()  # type: ignore[union-attr]
    x = int(start)
    for name in reversed(names.replace("(", "")):
        words = rules[name]
        plus = int(words.rpartition(" ")[2])
        if words.startswith("the digits"):
            x = sum(map(int, str(x))) + plus
        elif "swapped" in words:
            x = int(f"{x:02d}"[::-1]) + plus
        elif words.startswith("the larger"):
            x = max(x, plus)
        elif "minus x" in words:
            x = 99 - x + plus
        elif words.startswith("x^2"):
            x = x**2 + plus
        else:
            x = int(words.partition("x")[0]) * x + plus
        x %= 100
    return x


def test_every_gold_answer_is_what_the_question_says() -> None:
    problems = load_set("compose", None, "test/depth[1-16]", 160, 3)
    assert {p.extras["depth"] for p in problems} == set(range(1, 17))
    for problem in problems:
        question = problem.fields["question"]
        assert question.splitlines()[-1].count("(") == problem.extras["depth"]
        assert by_reading(question) == int(problem.gold)
        assert verify("math", problem.gold, f"So \\boxed{{{problem.gold}}}", problem).right


def test_halves_share_no_problem_and_a_smaller_limit_is_the_beginning() -> None:
    halves = [
        {
            p.fields["question"]
            for seed in range(3)
            for p in load_set("compose", None, half, 50, seed)
        }
        for half in ("train/depth[1]", "test/depth[1]")
    ]
    assert all(len(half) > 100 for half in halves) and not halves[0] & halves[1]
    ids = [[p.id for p in load_set("compose", None, "test", n, 0)] for n in (7, 30)]
    assert ids[0] == ids[1][:7]


def test_the_default_depths_are_one_to_four_in_turn() -> None:
    assert [p.extras["depth"] for p in load_set("compose", None, None, 6)] == [1, 2, 3, 4, 1, 2]
    assert {p.extras["depth"] for p in load_set("compose", None, "train/depth[16]", 2)} == {16}
    assert load_set("compose", None, None, 6) == load_set("compose", None, "test", 6, 0)


def test_a_depth_that_runs_out_says_how_many_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_BARREN", 0)
    with pytest.raises(UserError, match=r"no more than about 256 problems of depth 1; lower"):
        load_set("compose", None, "test/depth[1]", 5_000)


def test_a_set_that_is_made_takes_no_file(tmp_path: Path) -> None:
    for name in ("compose", "program-tasks"):
        with pytest.raises(UserError, match=rf"give no path.*found .*{tmp_path}"):
            load_set(name, tmp_path, "test", 5)
    with pytest.raises(UserError, match="train, test and identity one; found 'dev'"):
        load_set("program-tasks", None, "dev", 5)


@pytest.mark.parametrize("subset", ["dev", "test/depth[0]", "test/depth[3-2]", "test/depth[99]"])
def test_another_subset_is_refused(subset: str) -> None:
    with pytest.raises(UserError, match=r"depths from 1 to 16; found"):
        load_set("compose", None, subset, 5)
    with pytest.raises(UserError, match="say how many problems"):
        load_set("compose", None, "test", None)
