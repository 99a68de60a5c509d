"""Published numbers, to their printed digits."""

from __future__ import annotations

import numpy as np
import pytest

from rlbhpc.stats import (
    ProblemWeights,
    accuracy_histogram,
    answer,
    bayes_at_n,
    coverage,
    crossing,
    crossing_points,
    delta_se,
    difference_curve,
    g_pass_at_k,
    mcnemar_exact,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
    pythia,
    support_metrics,
)
from rlbhpc.stats.coverage_table import BINS
from rlbhpc.stats.exact import detection_threshold
from rlbhpc.stats.extrapolation import fit_power_law
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.verifier_error import chance_at_k
from tests.stats.exact_majority import maj_at_k

# "Does RL really incentivize reasoning capacity beyond the base model?", arXiv:2504.13837v5,
# tables 3 and 4: pass@1 in percent on Omni-MATH train, Omni-MATH test and MATH500.
BASE_AT_256 = [67.2, 69.1, 96.2]
#: By training: its pass@1, and its gap of sampling efficiency.
AT_1_AND_GAPS = {
    "base": ([9.9, 10.2, 34.5], [57.3, 58.9, 61.7]),
    "GRPO": ([26.1, 25.1, 74.4], [41.1, 44.0, 21.8]),
    "PPO": ([27.2, 26.8, 75.2], [40.0, 42.3, 21.0]),
    "ReMax": ([24.4, 23.8, 73.5], [42.8, 45.3, 22.7]),
    "RLOO": ([28.6, 28.1, 75.0], [38.6, 41.0, 21.2]),
    "Reinforce++": ([28.2, 28.0, 75.4], [39.0, 41.1, 20.8]),
    "DAPO": ([31.4, 26.5, 75.6], [35.8, 42.6, 20.6]),
    "GRPO 300": ([33.6, 27.1, 75.4], [33.6, 42.0, 20.8]),
    "GRPO 450": ([42.5, 28.3, 76.3], [24.7, 40.8, 19.9]),
}


@pytest.mark.parametrize("run", AT_1_AND_GAPS)
def test_all_27_sampling_efficiency_gaps(run: str) -> None:
    at_1, gaps = AT_1_AND_GAPS[run]
    assert delta_se(BASE_AT_256, at_1).round(1).tolist() == gaps


def solved(*runs: int | range) -> np.ndarray:
    """Which of 30 problems, from numbers and ranges."""
    flags = np.zeros(30, bool)
    for run in runs:
        flags[list(run) if isinstance(run, range) else run] = True
    return flags


def test_coverage_of_aime_from_its_index_sets() -> None:
    base = solved(0, 1, 4, 6, 7, 8, 9, 11, 12, range(14, 20), range(22, 30))
    trained = solved(0, 1, 6, 7, 8, 9, 12, 14, 15, 16, 18, range(22, 30))
    table = coverage(base, trained)
    assert table.counts == {"both": 19, "base_only": 4, "trained_only": 0, "neither": 7}
    percent = {name: round(100 * share, 1) for name, share in table.shares.items()}
    assert percent == {"both": 63.3, "base_only": 13.3, "trained_only": 0.0, "neither": 23.3}
    assert table.base_only.tolist() == [4, 11, 17, 19]
    assert table.p_value == 0.125


def test_coverage_of_math500_from_its_counts() -> None:
    cells = {"both": 462, "base_only": 18, "trained_only": 5, "neither": 15}
    assert {k: round(v / 5, 1) for k, v in cells.items()} == {
        "both": 92.4, "base_only": 3.6, "trained_only": 1.0, "neither": 3.0,
    }  # fmt: skip
    assert round(mcnemar_exact(18, 5), 3) == 0.011
    # The independent reproduction: 19 against 3.
    assert round(mcnemar_exact(19, 3), 4) == 0.0009


def test_livecodebench_slice() -> None:
    # Problems 400 – 450: base 23, trained 20, both 19; {430} and {409, 432, 436, 448} alone.
    assert mcnemar_exact(4, 1) == 0.375


@pytest.mark.parametrize(
    ("preserved", "expanded", "shrunk", "printed"),
    [
        (19, 0, 4, (0.826, 0.0, 0.0, -0.174)),
        (462, 5, 18, (0.963, 0.011, 0.021, -0.027)),
        # ProRL-1.5B-v2 of arXiv:2507.14843, printed with two digits.
        (2388, 48, 175, (0.93, 0.02, 0.04, -0.05)),
    ],
)
def test_support_metrics(
    preserved: int, expanded: int, shrunk: int, printed: tuple[float, ...]
) -> None:
    got = support_metrics(preserved, expanded, shrunk)
    digits = 2 if preserved > 1000 else 3
    assert tuple(round(v, digits) for v in (got.srr, got.ndr, got.sds, got.nscr)) == printed


HISTOGRAMS = {
    ("Minerva", 272, 128): (
        [93, 52, 17, 23, 16, 19, 13, 7, 10, 11, 8, 3],
        [113, 33, 12, 9, 7, 4, 5, 6, 6, 9, 21, 47],
    ),
    ("MATH500", 500, 128): (
        [20, 45, 31, 27, 29, 28, 22, 34, 40, 69, 138, 17],
        [33, 27, 14, 17, 9, 8, 9, 7, 19, 22, 67, 268],
    ),
    ("AIME24", 30, 1024): (
        [7, 16, 4, 1, 0, 1, 0, 0, 1, 0, 0, 0],
        [11, 12, 1, 1, 0, 0, 1, 1, 1, 0, 2, 0],
    ),
}


@pytest.mark.parametrize("which", HISTOGRAMS)
def test_accuracy_bins_of_the_study(which: tuple[str, int, int]) -> None:
    _, problems, n = which
    assert len(BINS) == 12
    edges = [0, *(n * tenth // 10 for tenth in range(1, 11)), n]
    for published in HISTOGRAMS[which]:
        assert sum(published) == problems
        # Closed upper edges: the largest count of each bin still belongs to it.
        upper = [*edges[:-2], n - 1, n]
        lower = [0, *(edge + 1 for edge in edges[:-2]), n]
        for ends in (upper, lower):
            assert accuracy_histogram(n, np.repeat(ends, published)).tolist() == published


def test_pythia_crossing() -> None:
    models = pythia()
    base, trained = models["2.8B"], models["6.9B"]
    k = np.arange(1, 10_001)
    # All four exact values of the published counts at the crossing.
    d = trained.pass_at_k(k[21:23]).mean(axis=0) - base.pass_at_k(k[21:23]).mean(axis=0)
    assert d[0] < 0
    assert round(d[1], 14) == 1.0028785909e-4
    table = coverage(base.c, trained.c)
    assert table.counts == {"both": 103, "base_only": 1, "trained_only": 4, "neither": 20}
    assert table.p_value == 0.375
    weights = ProblemWeights.draw(128, np.random.default_rng(0))
    curve = difference_curve(base, trained, weights)
    found = crossing(curve)
    assert found.first_k.tolist() == [23]
    # The bootstrap's percentile interval of about 2.3 to 4,100 lies within the set.
    assert 2.3 in found
    assert 4100 in found
    assert str(answer(base, trained).headline) == "undecided"


def test_pythia_pair_that_never_crosses() -> None:
    # The smallest model's counts are sorted, which a mean curve does not notice.
    models = pythia()
    weights = ProblemWeights.draw(128, np.random.default_rng(0))
    found = crossing(difference_curve(models["70M"], models["6.9B"], weights))
    assert not len(found.points)
    assert found.sets == ()
    assert found.probability < 0.01


@pytest.mark.parametrize(
    ("model", "a", "b", "exponent"), [("70M", 0.0650, 100.1, 0.192), ("2.8B", 0.2460, 11.70, 0.338)]
)
def test_fitted_distributions_of_pythia(model: str, a: float, b: float, exponent: float) -> None:
    prior = fit_prior(pythia()[model], zero_inflated=False)
    assert (round(prior.a, 4), round(prior.b, 1)) == (a, round(b, 1))
    law = fit_power_law(pythia()[model])
    assert law is not None
    assert round(law.exponent, 3) == exponent


# 100 MATH problems x 8 responses of an evaluation harness (math_cot_100): problems by right
# responses, and the values that follow.
FIXTURE = np.repeat(np.arange(9), [4, 1, 1, 2, 3, 0, 2, 1, 86])


def test_fixture_of_100_problems_with_8_samples() -> None:
    curve = pass_at_k(8, FIXTURE[:, None], np.arange(1, 9)).mean(axis=0)
    assert curve.round(6).tolist() == [
        0.91, 0.932857, 0.944464, 0.951, 0.954821, 0.957143, 0.95875, 0.96,
    ]  # fmt: skip
    all_right = [pass_hat_k(8, FIXTURE, k).mean().round(6) for k in (2, 4, 8)]
    assert all_right == [0.887143, 0.869714, 0.86]


def test_textbook_values() -> None:
    n, c = 5, np.asarray([3, 4])
    assert pass_at_k(n, c, 1).mean() == pytest.approx(0.7, abs=1e-12)
    assert pass_at_k(n, c, 2).mean() == pytest.approx(0.95, abs=1e-12)
    assert pass_hat_k(n, c, 2).mean() == pytest.approx(0.45, abs=1e-12)
    assert g_pass_at_k(n, c, 2, 0.5).mean() == pytest.approx(0.95, abs=1e-12)
    assert round(float(mg_pass_at_k(n, c, 3).mean()), 6) == 0.166667
    votes = [maj_at_k([right, n - right], [True, False], 3) for right in c.tolist()]
    assert np.mean(votes) == pytest.approx(0.85, abs=1e-12)
    rows = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    flat = bayes_at_n(rows, [0, 0.5, 1])
    assert (round(flat.mean, 4), round(flat.deviation, 6)) == (0.5625, 0.091998)
    informed = bayes_at_n(rows, [0, 0.5, 1], [[0, 2], [1, 2]])
    assert (round(informed.mean, 3), round(informed.deviation, 6)) == (0.575, 0.084275)


def test_small_published_facts() -> None:
    assert detection_threshold([8192])[0] == pytest.approx(3.66e-4, abs=5e-7)
    assert round(float(chance_at_k(0.001, 1000)), 2) == 0.63


# Curves read from the study's figures (percent, k = 1, 2, 4, …), base and trained, and the
# crossing read on a finer grid; rounding to a tenth of a point moves it by a few percent.
DIGITISED = {
    "AIME24 7B": (
        [7.4, 11.6, 16.9, 22.9, 29.0, 35.0, 41.6, 49.4, 58.2, 67.6, 76.6],
        [15.4, 19.6, 23.6, 27.7, 32.5, 38.2, 44.7, 51.0, 56.2, 60.3, 63.3],
        183,
    ),
    "MATH500 7B": (
        [61.5, 73.4, 81.5, 86.9, 90.6, 93.1, 94.8, 96.0],
        [78.0, 82.4, 85.7, 88.4, 90.4, 91.7, 92.5, 93.4],
        14.5,
    ),
    "Minerva 14B": (
        [23.1, 32.7, 42.0, 49.7, 55.4, 59.5, 62.9, 66.2],
        [41.6, 45.3, 48.3, 50.7, 52.8, 54.6, 56.3, 58.1],
        9.4,
    ),
    "Olympiad 8B": (
        [2.2, 4.1, 7.1, 11.5, 17.1, 23.6, 30.8, 38.4, 46.4, 54.3],
        [6.0, 9.3, 13.6, 18.6, 24.4, 30.4, 36.4, 42.4, 48.3, 53.8],
        438,
    ),
}


@pytest.mark.parametrize("which", DIGITISED)
def test_crossings_of_the_study(which: str) -> None:
    base, trained, printed = DIGITISED[which]
    k = 2.0 ** np.arange(len(base))
    found = crossing_points(k, np.subtract(trained, base))
    assert len(found) == 1
    assert found[0] == pytest.approx(printed, rel=0.06)
