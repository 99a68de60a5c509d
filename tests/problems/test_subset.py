"""Hash splits, seeded limits, digests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import digest, draw_limit, keep_listed, split, split_by_name
from rlbhpc.problems.registry import get_set, load_set
from tests.problems import shapes


def problems(n: int) -> list[Problem]:
    return [Problem(f"s/{i}", {"question": f"q{i}"}, "1", "math") for i in range(n)]


@given(st.integers(2, 60), st.data())
def test_a_split_is_a_partition_in_order(n: int, data: st.DataObject) -> None:
    n_train, seed = data.draw(st.integers(1, n - 1)), data.draw(st.integers(0, 3))
    every = problems(n)
    train, holdout = split(every, n_train, seed)
    assert len(train) == n_train
    assert sorted(train + holdout, key=every.index) == every
    assert train == [p for p in every if p in train]
    shuffled = random.Random(seed).sample(every, n)
    assert {p.id for p in split(shuffled, n_train, seed)[0]} == {p.id for p in train}


def test_splits_move_with_their_own_seed_only() -> None:
    every = problems(100)
    assert split_by_name(every, "train[30]") == split(every, 30)[0]
    assert split_by_name(every, "holdout[30,7]") == split(every, 30, 7)[1]
    assert split(every, 30)[0] != split(every, 30, 7)[0]
    for other in ("train", "train[]", "train[30", "train[-1]", "holdout[1,]", "train[1][2]"):
        assert split_by_name(every, other) is None


def test_adding_a_problem_moves_at_most_one_other() -> None:
    for n in range(50, 60):
        before, after = split(problems(n), 20)[0], split(problems(n + 1), 20)[0]
        assert len({p.id for p in before} - {p.id for p in after}) <= 1


@pytest.mark.parametrize("n_train", [0, 10, 11])
def test_both_halves_must_hold_something(n_train: int) -> None:
    with pytest.raises(UserError, match="needs 1 to 9 for training"):
        split(problems(10), n_train)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_limits_nest_and_keep_the_order(small: int, large: int, seed: int) -> None:
    small, large = sorted((small, large))
    every = problems(40)
    inner, outer = draw_limit(every, small, seed), draw_limit(every, large, seed)
    assert len(inner) == small and set(map(id, inner)) <= set(map(id, outer))
    assert inner == sorted(inner, key=every.index)


def test_a_limit_is_no_prefix_and_independent_of_the_split() -> None:
    every = problems(1000)
    chosen = draw_limit(every, 100, 0)
    assert chosen != every[:100] and chosen != draw_limit(every, 100, 1)
    # With one hash for both purposes all of them would come from one side.
    train = {p.id for p in split(every, 500)[0]}
    assert 30 < sum(p.id in train for p in chosen) < 70


def test_a_limit_beyond_the_set_takes_all_and_zero_is_refused() -> None:
    assert draw_limit(problems(3), 9, 0) == draw_limit(problems(3), None, 0) == problems(3)
    with pytest.raises(UserError, match="limit 0"):
        draw_limit(problems(3), 0, 0)


def test_digest_sees_ids_and_contents_but_not_order() -> None:
    every = problems(5)
    other = [*every[:4], Problem("s/4", {"question": "q4"}, "2", "math")]
    assert digest(every) == digest(every[::-1]) != digest(every[:4])
    assert digest(every) != digest(other)


def test_subsets_chain(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        records = [{"question": f"{name} {i}", "answer": f"#### {i}"} for i in range(20)]
        shapes.parquet(records, tmp_path / name)
        (tmp_path / name / "data" / "test-00000-of-00001.parquet").rename(
            tmp_path / f"{name}-00000-of-00001.parquet"
        )
    train = load_set("gsm8k", tmp_path, "train/train[15]")
    holdout = load_set("gsm8k", tmp_path, "train/holdout[15]")
    assert (len(train), len(holdout)) == (15, 5)
    assert all(p.fields["question"].startswith("train") for p in train + holdout)
    assert len(load_set("gsm8k", tmp_path, "train/holdout[15]", limit=2, seed=3)) == 2
    with pytest.raises(UserError, match=r"no subset 'dev'; allowed: test, train, train\[N\]"):
        load_set("gsm8k", tmp_path, "dev")


def test_unknown_sets_offer_the_nearest() -> None:
    with pytest.raises(UserError, match="'aime2024' is unknown; nearest: aime24; allowed: gsm8k"):
        get_set("aime2024")
    with pytest.raises(UserError, match="problem set 'zzzz' is unknown; allowed: gsm8k, math, "):
        get_set("zzzz")


def test_a_list_has_an_id_a_line_whatever_stands_in_it(tmp_path: Path) -> None:
    algebra = [Problem(f"mine/algebra {i}", {"question": "?"}, "4", "math") for i in range(3)]
    chosen = tmp_path / "ids.txt"
    chosen.write_text("mine/algebra 2\n\n  other/algebra 0  \n")
    assert keep_listed(algebra, chosen) == [algebra[0], algebra[2]]
    chosen.write_text("mine/algebra 2\nmine/algebra 7\n")
    with pytest.raises(UserError, match="1 of 2 ids are no problem of the set, such as algebra 7"):
        keep_listed(algebra, chosen)
    with pytest.raises(UserError, match=r"absent\.txt: .*No such file"):
        keep_listed(algebra, tmp_path / "absent.txt")
    chosen.write_text("\n")
    with pytest.raises(UserError, match="found no id; needed: one a line"):
        keep_listed(algebra, chosen)
