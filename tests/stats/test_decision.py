"""The answer: lost and gained apart, symmetric in the arms, and never misled by speed alone."""

from __future__ import annotations

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, Verdict, Word, answer
from tests.stats.answer_truths import Truth, draw, truth


def drawn(name: str, seed: int = 0) -> tuple[Counts, Counts, Truth]:
    rng = np.random.default_rng(seed)
    case = truth(name)
    return *draw(case, rng), case


def test_slower_is_not_lost() -> None:
    # Easy problems six times as quick, hard ones four times slower: nobody lost a problem.
    for seed in range(12):
        base, trained, _ = drawn("trap", seed)
        found = answer(base, trained)
        assert found.lost.verdict is not Verdict.YES
        assert found.word is Word.BEHIND


def test_an_expansion_is_called() -> None:
    called = 0
    for seed in range(12):
        base, trained, _ = drawn("expansion", seed)
        found = answer(base, trained)
        called += found.gained.verdict is Verdict.YES
        assert found.lost.verdict is not Verdict.YES
    assert called >= 11


def test_the_arms_exchange() -> None:
    base, trained, _ = drawn("lost")
    one, other = answer(base, trained), answer(trained, base)
    assert one.lost.verdict is other.gained.verdict is Verdict.YES
    assert one.lost.estimate == pytest.approx(other.gained.estimate, abs=1e-4)
    assert one.lost.high == pytest.approx(other.gained.high, abs=0.004)
    assert one.net.low == pytest.approx(-other.net.high)
    assert one.p_mcnemar == other.p_mcnemar


def test_churn_is_both_and_not_the_same() -> None:
    base, trained, _ = drawn("churn")
    found = answer(base, trained)
    assert found.word is Word.TRADES
    assert abs(found.net.estimate) < 0.05


def test_one_straggler_is_left_out() -> None:
    base, trained, _ = drawn("lost")
    n, c = trained.n.copy(), trained.c.copy()
    n[7], c[7] = 5, 0
    found = answer(base, Counts.of(n, c))
    assert found.k == int(base.n[0])
    assert found.left_out == (7,)
    assert found.lost.problems == len(base) - 1
    assert "left out" in found.sentences()[-1]


def test_nothing_solved_has_its_own_sentence() -> None:
    zero = Counts.of(256, [0] * 40)
    found = answer(zero, zero)
    assert found.word is Word.NOTHING_SOLVED
    assert found.sentences()[0].startswith("Neither model solves any of the 40 problems")
    assert not any("ahead" in sentence for sentence in found.sentences())


def test_the_same_seed_gives_the_same_answer() -> None:
    base, trained, _ = drawn("churn")
    one, other = answer(base, trained, seed=3), answer(base, trained, seed=3)
    assert repr(one) == repr(other)


def test_a_k_that_too_few_problems_support_is_refused() -> None:
    base, trained, _ = drawn("lost")
    with pytest.raises(UserError, match="allowed is 1 to 256"):
        answer(base, trained, k=512)
