"""Fitted distributions, crossing sets and words against what they are defined as."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats

from rlbhpc.stats import Counts, Interval, ProblemWeights, Target, difference_curve
from rlbhpc.stats.difference import CrossingSet, DifferenceCurve, crossing
from rlbhpc.stats.joint import Finding, JointRates, Verdict, _share_at
from rlbhpc.stats.priors import fit_prior, gradient, mean_fail
from rlbhpc.stats.scenario import States, Word

Floats = NDArray[np.float64]


def weights(problems: int, clusters: object = None) -> ProblemWeights:
    labels = None if clusters is None else np.asarray(clusters)
    return ProblemWeights.draw(problems, np.random.default_rng(0), 2, labels)


N = np.array([16] * 12 + [8, 8])
C = np.array([0] * 6 + [6, 7, 8, 9, 10, 5, 3, 0])


@pytest.mark.parametrize("zeros", [False, True])
def test_priors_have_the_likelihood_and_moments_of_their_distribution(zeros: bool) -> None:
    counts = Counts.of(N, C)
    prior = fit_prior(counts, zeros)

    def likelihood(theta: Floats) -> float:
        """Log marginal likelihood without the binomial coefficients."""
        a, b = np.exp(theta[:2])
        of_beta = stats.betabinom.pmf(C, N, a, b) / special.comb(N, C)
        share = special.expit(theta[2]) if zeros else 0.0
        return float(np.log(share * (C == 0) + (1 - share) * of_beta).sum())

    assert prior.log_likelihood == pytest.approx(likelihood(prior.parameters))
    for step in np.eye(len(prior.parameters)) * 0.3:
        for moved in (prior.parameters + step, prior.parameters - step):
            assert likelihood(moved) < prior.log_likelihood + 1e-6
    hessian = np.array(
        [
            [
                sum(
                    s * r * likelihood(prior.parameters + 0.01 * (s * e + r * f))
                    for s, r in itertools.product((1, -1), repeat=2)
                )
                / 4e-4
                for f in np.eye(len(prior.parameters))
            ]
            for e in np.eye(len(prior.parameters))
        ]
    )
    loose = np.linalg.inv(-hessian + np.eye(len(hessian)) / 9)
    assert prior.covariance == pytest.approx(loose, rel=0.02, abs=0.01)
    for n, c, k in ((4, 0, 3), (9, 3, 2), (0, 0, 5)):
        beta = stats.beta(prior.a + c, prior.b + n - c)
        inside = float(
            special.betaln(prior.a + c, prior.b + n - c) - special.betaln(prior.a, prior.b)
        )
        never = prior.zeros / (prior.zeros + (1 - prior.zeros) * np.exp(inside)) if c == 0 else 0.0
        fails = integrate.quad(lambda p, b=beta, k=k: (1 - p) ** k * b.pdf(p), 0, 1)[0]
        assert prior.never(n, c) == pytest.approx(never, abs=1e-9)
        assert prior.fail(n, c, k) == pytest.approx(never + (1 - never) * fails, rel=1e-5)
    sizes = np.array([2.0, 16.0])
    for row, step in zip(
        gradient(prior, counts, sizes), np.eye(len(prior.parameters)), strict=True
    ):
        ends = [mean_fail(prior.parameters + s * 0.05 * step, counts, sizes) for s in (1, -1)]
        assert row == pytest.approx((ends[0] - ends[1]) / 0.1, rel=0.02, abs=1e-4)


def test_a_joint_fit_is_a_distribution_with_its_likelihood() -> None:
    base, trained = Counts.of(32, [0, 4, 30, 32]), Counts.of(32, [0, 0, 30, 32])
    joint = JointRates(base, trained, 32)
    best = joint.fit()
    assert best.mass.sum() == pytest.approx(1)
    assert joint.row_log_likelihoods(best) @ joint.problems_in_row == pytest.approx(
        best.log_likelihood
    )
    for share in (0.0, 0.25, 1.0):
        held = joint.fit(best.mass, joint.lost, share)
        assert held.mass[joint.lost].sum() == pytest.approx(share)
        assert held.mass.sum() == pytest.approx(1)
        assert held.log_likelihood <= best.log_likelihood + 1e-3
    # Lost: solved by the base in k samples, and ten times slower or never.
    for i, j in zip(*np.divmod(np.flatnonzero(joint.lost), len(joint.rates)), strict=True):
        ours, theirs = -np.log1p(-joint.rates[[i, j]].clip(0, 1 - 1e-15))
        assert ours > 2 / 32 and theirs < ours / 10


@pytest.mark.filterwarnings("error")
def test_a_share_that_no_count_speaks_for_costs_its_likelihood() -> None:
    base, trained = Counts.of(1024, [1024] * 30), Counts.of(1024, [0] * 30)
    joint = JointRates(base, trained, 1024)
    best = joint.fit()
    held = joint.fit(best.mass, joint.gained, 0.25)
    lost = 30 * math.log(1 - 0.25)
    assert held.log_likelihood - best.log_likelihood == pytest.approx(lost, abs=1e-2)


@pytest.mark.parametrize(("estimate", "edge"), [(0.1, 1.0), (0.6, 0.0)])
@pytest.mark.parametrize("power", [1.0, 0.5, 2.0])
def test_a_bound_lies_where_the_deviance_passes_the_cut(
    estimate: float, edge: float, power: float
) -> None:
    bound = 0.4
    found = _share_at(
        lambda share: 2 * (abs(share - estimate) / abs(bound - estimate)) ** power,
        2.0,
        estimate,
        edge,
    )
    assert found == pytest.approx(bound, abs=0.02 * abs(bound - estimate) / power + 1e-9)


def intervals(k: list[int], lower: list[float], upper: list[float]) -> DifferenceCurve:
    """A curve with made-up pointwise intervals, of arms of one problem."""
    arms = Counts.of(k[-1], [1]), Counts.of(k[-1], [1])
    curve = difference_curve(*arms, weights(1), k)
    low, high = np.array(lower), np.array(upper)
    shaped = Interval((low + high) / 2, low, high, Target.POPULATION, "made up")
    return replace(curve, pointwise=shaped)


@pytest.mark.parametrize(
    ("lower", "upper", "sets"),
    [
        ([1, 1, -1, -1, -3], [2, 2, 1, -1, -2], [
            CrossingSet(8**0.5, 32**0.5, False, False)]),
        ([-1, 1, 1, 1, -3], [1, 2, 2, 2, 1], [
            CrossingSet(1, 2**0.5, True, False), CrossingSet(8 * 2**0.25, 16, False, True)]),
        ([1, 1, -2, -2, -2], [2, 2, -1, -1, -1], [CrossingSet(2, 4, False, False)]),
        ([1, 1, 1, 1, 1], [2, 2, 2, 2, 2], []),
        ([-2, -2, 1, np.nan, 1], [-1, -1, 2, np.nan, 2], [CrossingSet(2, 4, False, False)]),
    ],
)  # fmt: skip
def test_a_crossing_set_is_where_intervals_hold_zero(
    lower: list[float], upper: list[float], sets: list[CrossingSet]
) -> None:
    found = crossing(intervals([1, 2, 4, 8, 16], lower, upper)).sets
    flat = [[s.lower, s.upper, s.open_below, s.open_above] for s in found]
    assert flat == [pytest.approx([s.lower, s.upper, s.open_below, s.open_above]) for s in sets]


def test_what_a_crossing_set_holds_and_how_it_reads() -> None:
    closed, open_ = CrossingSet(18, 70, False, False), CrossingSet(18, 7000, True, True)
    assert [k in closed for k in (17, 18, 70, 71)] == [False, True, True, False]
    assert [k in open_ for k in (1, 9000)] == [True, True]
    assert (str(closed), str(open_)) == ("[18, 70]", "[≤ 18, ≥ 7,000]")
    whole = crossing(intervals([1, 2, 4], [1, 1, 1], [2, 2, 2]))
    assert [k in whole for k in (1, 4, 5)] == [False, False, True]


YES, NO, OPEN = Verdict.YES, Verdict.NO, Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("states", "word", "direction"),
    [
        ((YES, YES, 0, 0), Word.TRADES, "both"),
        ((YES, NO, -1, 1), Word.SHRINKS, "lost"),
        ((YES, NO, 0, 1), Word.SHRINKS, "lost"),
        ((YES, NO, 1, 1), Word.TRADES, "both"),
        ((NO, NO, 0, 1), Word.ONLY_SHARPENS, "same"),
        ((NO, NO, -1, 0), Word.UNCHANGED, "same"),
        ((YES, OPEN, 1, 0), Word.OPEN, "both"),
        ((YES, OPEN, 0, 1), Word.OPEN, "lost"),
        ((NO, OPEN, -1, 1), Word.OPEN, "lost"),
        ((NO, OPEN, 0, -1), Word.OPEN, "open"),
        ((OPEN, OPEN, -1, 0), Word.OPEN, "lost"),
        ((OPEN, OPEN, 0, 1), Word.OPEN, "open"),
    ],
)
def test_one_word_needs_both_sides_and_is_mirrored(
    states: tuple[Verdict, Verdict, int, int], word: Word, direction: str
) -> None:
    mirrors = {
        Word.SHRINKS: Word.EXPANDS, Word.ONLY_SHARPENS: Word.ONLY_BLUNTS,
        "lost": "gained", "gained": "lost",
    }  # fmt: skip
    lost, gained, net, first = states
    found, mirrored = States(*states), States(gained, lost, -net, -first)
    assert found.word(True) is word and found.direction == direction
    assert mirrored.word(True) is mirrors.get(word, word)
    assert mirrored.direction == mirrors.get(direction, direction)
    assert found.word(False) is Word.NOTHING_SOLVED


def test_what_is_decided_is_said_where_a_side_is_open() -> None:
    assert States(YES, OPEN, 1, 0).decided_text("large k") == "lost, gains open, ahead at large k"
    assert States(OPEN, NO, 0, 1).decided_text("large k") == "no gain, losses open"
    assert States(OPEN, OPEN, -1, 1).decided_text("k = 8") == "behind at k = 8"
    assert States(OPEN, OPEN, 0, 1).decided_text("k = 8") == "ahead at k = 1"
    assert States(OPEN, OPEN, 0, 0).decided_text("k = 8") == "undecided"


@pytest.mark.parametrize(
    ("verdict", "share", "word_says"),
    [
        (YES, (0.008, 0.004, 0.013), NO),
        (YES, (0.015, 0.007, 0.029), OPEN),
        (YES, (0.03, 0.015, 0.05), YES),
        (YES, (0.03, np.nan, np.nan), YES),
        (NO, (0.0, 0.0, 0.015), NO),
        (OPEN, (0.03, 0.0, 0.08), OPEN),
    ],
)
def test_the_margin_counts_for_the_word(
    verdict: Verdict, share: tuple[float, float, float], word_says: Verdict
) -> None:
    assert Finding(verdict, *share, 0, 9).against(0.02) is word_says
