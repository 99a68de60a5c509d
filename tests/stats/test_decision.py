"""The answer: lost and gained apart, symmetric in the arms, and never misled by speed alone."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, ProblemWeights, Verdict, Word, answer, mcnemar_exact, pythia
from rlbhpc.stats.decision import decide
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.exact import attained_level
from rlbhpc.stats.joint import still_solved
from tests.stats.answer_truths import Truth, draw, truth


def drawn(name: str, seed: int = 0) -> tuple[Counts, Counts, Truth]:
    rng = np.random.default_rng(seed)
    case = truth(name)
    base, trained = draw(case, rng)
    return base, trained[0], case


def test_slower_is_not_lost() -> None:
    # Easy problems six times as quick, hard ones four times slower: nobody lost a problem.
    for seed in range(12):
        base, trained, _ = drawn("trap", seed)
        found = answer(base, trained)
        assert found.lost.verdict is not Verdict.YES
        assert found.word is Word.OPEN and found.states.net == -1
    # Nor where every hard problem is one that few samples solve.
    for seed in range(3):
        base, trained, _ = drawn("slower", seed)
        assert answer(base, trained).lost.verdict is not Verdict.YES


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


@pytest.mark.parametrize(("name", "stragglers"), [("contest, lost", 1), ("slower", 11)])
def test_stragglers_are_left_out_and_leave_k_alone(name: str, stragglers: int) -> None:
    base, trained, _ = drawn(name)
    n, c = trained.n.copy(), trained.c.copy()
    # In the places of any problems, with few samples that are all right.
    places = np.random.default_rng(1).choice(len(base), stragglers, replace=False)
    n[places] = c[places] = 5
    found = answer(base, Counts.of(n, c))
    assert found.k == int(base.n[0])
    assert found.left_out == tuple(sorted(places.tolist()))
    assert found.lost.problems == len(base) - stragglers
    assert f"{stragglers} problem" in found.sentences()[-1]
    # All is said of the others, as if these had never been asked for.
    others = np.delete(np.arange(len(base)), places)
    alone = answer(base[others], trained[others])
    assert repr(replace(found, left_out=())) == repr(alone)


@pytest.mark.parametrize(
    ("n", "k", "left_out"),
    [
        ([64] * 35 + [5] * 5, 5, 0),  # more than a tenth are no stragglers
        ([64] * 39 + [63], 63, 0),  # one sample that failed costs no problem
        ([64] * 99 + [63], 64, 1),
        ([64] * 88 + [63] * 3 + [5] * 9, 63, 9),
    ],
)
def test_k_is_what_nearly_all_problems_have(n: list[int], k: int, left_out: int) -> None:
    found = answer(Counts.of(64, [9] * len(n)), Counts.of(n, [5] * len(n)))
    assert (found.k, len(found.left_out)) == (k, left_out)


def test_large_k_is_said_where_k_is_large() -> None:
    def headline(n: int) -> str:
        base = Counts.of(n, [1] * 12 + [0] * 28)
        return answer(base, Counts.of(n, [0] * 40)).headline

    assert headline(64) == "behind at large k"
    assert headline(63) == "behind at k = 63" and headline(2) == "behind at k = 2"


def test_nothing_solved_has_its_own_sentence() -> None:
    zero = Counts.of(256, [0] * 40)
    found = answer(zero, zero)
    assert found.word is Word.NOTHING_SOLVED
    assert found.sentences()[0].startswith("Neither model solves any of the 40 problems")
    assert not any("ahead" in sentence for sentence in found.sentences())


def test_no_size_is_promised_but_that_of_the_study() -> None:
    base, trained, _ = drawn("nothing moved, hard")
    found = answer(base, trained)
    assert found.lost.verdict is found.gained.verdict is Verdict.UNDECIDED
    sizes = re.findall(r"([\d,]+) (problems|samples)", " ".join(found.sentences()))
    assert set(sizes) <= {(str(len(base)), "problems"), (str(found.k), "samples")}


def test_the_same_seed_gives_the_same_answer() -> None:
    base, trained, _ = drawn("churn")
    one, other = answer(base, trained, seed=3), answer(base, trained, seed=3)
    assert repr(one) == repr(other)


def test_a_k_that_too_few_problems_support_is_refused() -> None:
    base, trained, _ = drawn("lost")
    with pytest.raises(UserError, match="allowed is 1 to 256"):
        answer(base, trained, k=512)


def test_what_a_leaping_test_leaves_of_the_error_goes_to_k_1() -> None:
    # With 30 problems both models solve the same ones: McNemar's test cannot claim anything.
    base = Counts.of(64, [2 + i % 5 for i in range(30)])
    found = answer(base, Counts.of(64, base.c * 3))
    assert found.p_mcnemar == 1.0
    assert found.headline == "ahead at k = 1"
    assert answer(Counts.of(64, base.c * 3), base).headline == "behind at k = 1"
    assert answer(base, base).headline == "undecided"
    # Six of six problems that move have p = .031: above the .01 that k = 1 has in any case.
    steady = Counts.of(64, [10] * 30)
    assert answer(steady, Counts.of(64, [11] * 6 + [10] * 24)).headline == "ahead at k = 1"


def test_single_samples_say_nothing_of_large_k() -> None:
    # 121 problems against 74, by McNemar p = .001: the net at K is pass@1.
    base = Counts.of(1, [0] * 272 + [1] * 128)
    trained = Counts.of(1, [1] * 121 + [0] * 225 + [1] * 54)
    found = answer(base, trained)
    assert (
        found.headline == "ahead at k = 1" and answer(trained, base).headline == "behind at k = 1"
    )
    first, *_, net, _, _ = found.sentences()
    assert re.findall(r"\d+", first.partition("(")[0]) == ["1", "400", "74", "121"]
    assert net.count("k = 1 ") == 1


def test_several_comparisons_share_the_error() -> None:
    # Six problems against none have McNemar p = .031.
    base = Counts.of(64, [1] * 6 + [20] * 40)
    weights = ProblemWeights.draw(len(base), np.random.default_rng(0), 1)
    curve = difference_curve(base, Counts.of(64, [0] * 6 + [20] * 40), weights, [1, 64])
    assert decide(curve).headline == "behind at large k"
    assert decide(curve, comparisons=2).headline == "undecided"


def test_the_level_left_by_mcnemars_test() -> None:
    for discordant in (0, 5, 6, 9, 40, 301):
        p_values = [mcnemar_exact(i, discordant - i) for i in range(discordant + 1)]
        below = [p for p in p_values if p < 0.05]
        assert attained_level(discordant) == pytest.approx(max(below, default=0.0))
    assert attained_level(6, 2 / 64) == 0, "only a level below the error is attained"


def test_seeds_of_a_recipe_are_one_arm() -> None:
    base, trained = draw(truth("three seeds"), np.random.default_rng(0))
    found = answer(base, trained)
    alone = [answer(base, run) for run in trained]
    assert found.seeds == 3
    assert found.lost.problems == len(base)
    assert found.net.estimate == pytest.approx(np.mean([a.net.estimate for a in alone]))
    assert found.lost.count == round(np.mean([a.lost.count for a in alone]))
    assert found.spread is not None
    assert "3 seeds" in " ".join(found.sentences())


def test_trainings_that_are_copies_add_nothing() -> None:
    base, trained = draw(truth("lost"), np.random.default_rng(0))
    alone, copied = answer(base, trained), answer(base, trained * 5)
    assert copied.spread is not None
    assert copied.spread.seeds == copied.spread.rest == 0
    assert copied.net.low == pytest.approx(alone.net.low, abs=1e-6)
    assert copied.lost.low == pytest.approx(alone.lost.low, abs=1e-3)
    assert copied.lost.verdict is alone.lost.verdict


def test_a_spread_between_seeds_widens_the_interval() -> None:
    base = Counts.of(64, [8 + i % 9 for i in range(60)])
    gain = np.arange(60) % 13
    near, far = (
        answer(base, [Counts.of(64, base.c + gain + shift) for shift in shifts]).efficiency
        for shifts in ((6, 6, 6), (0, 6, 12))
    )
    assert near.estimate == pytest.approx(float(far.estimate))
    assert near.sign == 1
    assert far.sign == 0, "three trainings this far apart decide nothing"


def test_seeds_of_other_problems_are_refused() -> None:
    base, trained = draw(truth("three seeds"), np.random.default_rng(0))
    with pytest.raises(UserError, match="same problems"):
        answer(base, [trained[0], trained[1][:-1]])
    with pytest.raises(UserError, match="no trained model"):
        answer(base, [])


@pytest.mark.parametrize("name", ["trap", "gained", "contest, lost", "churn", "floor"])
def test_more_samples_than_there_are_leave_the_difference_open(name: str) -> None:
    base, trained, case = drawn(name)
    found = answer(base, trained)
    more, limit = found.beyond
    assert found.net.low > more.low > limit.low and found.net.high < more.high < limit.high
    rates = case.rates(200_000, np.random.default_rng(1))
    fails = [(1 - arm) ** (10 * case.n) for arm in rates]
    truths = [np.mean(fails[0] - fails[1]), np.mean(rates[1] > 0) - np.mean(rates[0] > 0)]
    for beyond, true in zip((more, limit), truths, strict=True):
        assert beyond.low <= true <= beyond.high


def test_what_more_samples_may_show_is_mirrored_with_the_arms() -> None:
    base, trained, _ = drawn("lost")
    there, back = answer(base, trained).beyond, answer(trained, base).beyond
    for one, other in zip(there, back, strict=True):
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))


@pytest.mark.parametrize("shape", [(0.2, 1.0), (0.5, 20.0), (2.0, 2.0)])
def test_an_arm_comes_to_solve_no_more_than_convexity_allows(shape: tuple[float, float]) -> None:
    n, times = 64, 10
    rates = np.random.default_rng(2).beta(*shape, 20_000)
    counts = Counts.of(n, np.random.default_rng(3).binomial(n, rates))
    gain = np.mean((1 - rates) ** n - (1 - rates) ** (times * n))
    least = still_solved(counts, n, times)
    assert gain <= least + 0.003, "noise of the counts"
    assert still_solved(counts, n, 1) == 0
    assert least < still_solved(counts, n, np.inf) == pytest.approx(1 - counts.pass_at_k(n).mean())


def test_the_answer_names_the_last_crossing() -> None:
    models = pythia()
    said = " ".join(answer(models["2.8B"], models["6.9B"]).sentences())
    assert "The curves last cross at k = 23; the data allow 1 to beyond 10,000." in said
    assert "in the limit." in said


def test_problems_that_nobody_solved_late_may_still_be_solved_later() -> None:
    # 40 of 100 have rates of 5 in a million: at ten times K, 5 % of them are solved.
    easy = np.random.default_rng(0).binomial(1024, 0.3, 60)
    counts = Counts.of(np.full(100, 1024), np.r_[easy, np.zeros(40, np.int64)])
    assert still_solved(counts, 1024, 10) >= 0.4 * (1 - (1 - 5e-6) ** (9 * 1024))
    late = 1 - 0.025 ** (1 / 100)
    assert still_solved(counts, 1024, 10) == pytest.approx(0.4 * (1 - (0.4 / (0.4 + late)) ** 18))
