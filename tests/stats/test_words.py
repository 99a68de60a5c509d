"""Conclusions in words: right in every direction, silent where nothing moved."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import Conclusion, Counts, ProblemWeights, conclude, difference_curve, sentences
from rlbhpc.stats.words import Boundary, Headline, may_catch_up
from tests.stats.truths import two_models

REPLICATES = 500


def study(
    name: str, problems: int, n: int, weights: ProblemWeights, rng: np.random.Generator
) -> Conclusion:
    base, trained = (Counts.of(n, rng.binomial(n, p)) for p in two_models(name, problems, rng))
    return conclude(difference_curve(base, trained, weights), weights)


def simulate(name: str, problems: int, n: int, studies: int) -> list[Conclusion]:
    rng = np.random.default_rng(30)
    weights = ProblemWeights.draw(problems, rng, REPLICATES)
    return [study(name, problems, n, weights, rng) for _ in range(studies)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problems", "n"),
    [
        ("nothing moved", 500, 1024),
        ("nothing moved, fifth unsolvable", 500, 256),
        ("nothing moved, hard", 128, 256),
        ("nothing moved", 30, 1024),
    ],
)
def test_null_studies_claim_nothing(name: str, problems: int, n: int, soak: bool) -> None:
    studies = 1000 if soak else 100
    moved = sum(c.moved for c in simulate(name, problems, n, studies))
    # At 100 studies 10 is what a true rate of 5 % exceeds once in a hundred.
    assert moved <= (50 if soak else 10)


TRUTHS = {
    "shrinks": Headline.SHRINKS,
    "expands": Headline.EXPANDS,
    "only sharpens": Headline.ONLY_SHARPENS,
    "crosses twice": Headline.CROSSES_TWICE,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_truths_are_called_right_with_500_problems_and_1024_samples(name: str, soak: bool) -> None:
    studies = 200 if soak else 20
    found = Counter(c.headline for c in simulate(name, 500, 1024, studies))
    assert found[TRUTHS[name]] >= 0.95 * studies


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_undecided_with_30_problems_and_16_samples(name: str, soak: bool) -> None:
    studies = 200 if soak else 20
    found = Counter(c.headline for c in simulate(name, 30, 16, studies))
    assert found[Headline.UNDECIDED] >= 0.95 * studies


def concluded(base: Counts, trained: Counts) -> tuple[Conclusion, tuple[str, ...]]:
    weights = ProblemWeights.draw(len(base), np.random.default_rng(0), 800)
    curve = difference_curve(base, trained, weights)
    found = conclude(curve, weights)
    return found, sentences(found, curve)


def drawn(name: str, problems: int = 500, n: int = 1024, seed: int = 1) -> tuple[Counts, Counts]:
    rng = np.random.default_rng(seed)
    base, trained = two_models(name, problems, rng)
    return Counts.of(n, rng.binomial(n, base)), Counts.of(n, rng.binomial(n, trained))


def test_a_head_start_is_no_moved_boundary() -> None:
    # The trained model leads at every k up to 16, only because it is six times as quick.
    base, trained = drawn("only sharpens", n=16)
    found, said = concluded(base, trained)
    assert found.at_reach.lower > 0
    assert found.catches_up is True
    assert found.headline is Headline.UNDECIDED
    assert "had a head start" in said[-1]


def test_head_starts_are_doubted_in_both_directions() -> None:
    trained, base = drawn("only sharpens", n=16)
    found, _ = concluded(base, trained)
    assert found.at_reach.upper < 0
    assert found.headline is Headline.UNDECIDED


def test_who_trailed_and_overtook_needs_no_projection() -> None:
    found, said = concluded(*drawn("shrinks"))
    assert found.headline is Headline.SHRINKS
    assert found.catches_up is None
    assert found.crossings == 1
    assert found.efficiency == 1
    assert said[0].startswith("The trained model leads first; the curves cross, at k = ")
    assert said[2].endswith("the reasoning boundary shrinks.")


def test_never_crosses() -> None:
    found, said = concluded(*drawn("expands"))
    assert found.headline is Headline.EXPANDS
    assert found.crossings == 0
    assert found.catches_up is False
    assert said[0] == "The trained model leads at every k up to 1,024; the curves never cross."


def test_crosses_twice() -> None:
    found, said = concluded(*drawn("crosses twice"))
    assert found.crossings == 2
    assert found.headline is Headline.CROSSES_TWICE
    assert "the curves cross twice, at k = " in said[0]


def test_only_sharpens_is_a_claim_about_the_margin() -> None:
    base, trained = drawn("only sharpens")
    found, said = concluded(base, trained)
    assert found.boundary is Boundary.SAME
    assert found.headline is Headline.ONLY_SHARPENS
    assert said[2].endswith("training only sharpens: more right at k = 1, the same boundary.")
    # Thirty problems that agree at n say nothing about the thirty-first.
    few, _ = concluded(base[:30], trained[:30])
    assert few.boundary is not Boundary.SAME


def test_four_problems_of_thirty_are_no_result() -> None:
    base = Counts.of(1024, [400] * 19 + [1] * 4 + [0] * 7)
    trained = Counts.of(1024, [410] * 19 + [0] * 11)
    found, said = concluded(base, trained)
    assert found.boundary is Boundary.UNDECIDED
    assert (
        "solves 0 of 30 problems that the base does not, and the base 4 that the trained model "
        "does not (McNemar p = .125; with fewer than 6 no p < .05 is possible)" in said[1]
    )


def test_unchanged_needs_the_whole_curve_within_the_margin() -> None:
    rate = np.repeat([0.0, 0.2, 1.0], 200)
    rng = np.random.default_rng(2)
    base, trained = (Counts.of(1024, rng.binomial(1024, rate)) for _ in range(2))
    found, said = concluded(base, trained)
    assert found.headline is Headline.UNCHANGED
    assert not found.moved
    assert said[2].endswith("nothing changes at any k.")


def test_projection_asks_for_ten_times_the_samples() -> None:
    rng = np.random.default_rng(3)
    rate = rng.beta(1.5, 60, 400)
    slow = Counts.of(32, rng.binomial(32, rate))
    weights = ProblemWeights.draw(400, rng, 100)
    for speed, catches_up in ((4, True), (60, False)):
        quick = Counts.of(32, rng.binomial(32, 1 - (1 - rate) ** speed))
        assert may_catch_up(quick, slow, 32 if speed == 4 else 8, weights, 0.95) is catches_up


def test_words_refuse_a_curve_beyond_the_samples() -> None:
    counts = Counts.of([8, 16], [1, 1])
    weights = ProblemWeights.draw(2, np.random.default_rng(0))
    curve = difference_curve(counts, counts, weights, [1, 16])
    with pytest.raises(UserError, match="end it at 8"):
        conclude(curve, weights)


def test_an_undecided_difference_whose_own_interval_leaves_0_out_is_not_said_to_hold_it() -> None:
    base = Counts.of(256, [0] * 12 + [1] * 12 + [40] * 72)
    trained = Counts.of(256, [0] * 5 + [1] * 7 + [2] * 12 + [60] * 72)
    found, said = concluded(base, trained)
    assert found.headline is Headline.UNDECIDED and found.catches_up is None
    assert found.at_reach.lower > 0
    assert "leaves 0 out by itself" in said[-1] and "holds 0" not in said[-1]


def test_sentences_leave_coverage_out_for_unequal_budgets() -> None:
    base, trained = Counts.of(64, [1, 2, 3] * 20), Counts.of(32, [1, 2, 3] * 20)
    _, said = concluded(base, trained)
    assert not any("McNemar" in sentence for sentence in said)
