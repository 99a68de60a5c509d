"""The smallest and the most extreme studies, and input that is no study."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import (
    Counts,
    ProblemWeights,
    accuracy_histogram,
    answer,
    coverage,
    crossing_points,
    difference_curve,
    fixed_curve,
    g_pass_at_k,
    mcnemar_exact,
    pass_curve,
    solvable_sets,
    support_metrics,
)
from rlbhpc.stats.binomial import clopper_pearson, detection_threshold
from rlbhpc.stats.curve import pass_at_budget
from rlbhpc.stats.multiple import holm
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.reliability import mg_pass_at_k


@pytest.mark.parametrize("problems", [1, 2, 30])
@pytest.mark.parametrize("n", [1, 2, 64])
@pytest.mark.parametrize("fill", ["none", "all", "one arm", "mixed"])
def test_any_study_gives_bounds_around_its_estimates(problems: int, n: int, fill: str) -> None:
    zero, full = np.zeros(problems, int), np.full(problems, n)
    a, b = {
        "none": (zero, zero), "all": (full, full), "one arm": (zero, full),
        "mixed": (full // 2, np.arange(problems) % (n + 1)),
    }[fill]  # fmt: skip
    base, trained = Counts.of(n, a), Counts.of(n, b)
    weights = ProblemWeights.draw(problems, np.random.default_rng(0), 100)
    curve = pass_curve(base, weights)
    difference = difference_curve(base, trained, weights)
    for interval in (curve.interval, difference.pointwise, difference.band):
        assert not np.isnan(interval.bounds).any()
        assert interval.covers(interval.estimate).all()
        assert (interval.lower < interval.upper).all(), "no study is certain of its problems"
    if problems < 20:
        assert not curve.interval.sound.any()
        assert not difference.band.sound.any()
    said = answer(base, trained).sentences()
    assert all(sentence.endswith(".") for sentence in said)
    assert "nan" not in " ".join(said)
    if problems > 1:
        fixed = fixed_curve(base)
        assert fixed.interval.covers(fixed.interval.estimate).all()


def test_thirty_solved_problems_leave_room_for_a_tenth_unsolved() -> None:
    weights = ProblemWeights.draw(30, np.random.default_rng(0), 100)
    upper = pass_curve(Counts.of(64, [64] * 30), weights, [64]).interval
    assert 0.88 < upper.lower[0] < 0.97
    assert upper.upper[0] == 1


def test_clusters_widen_the_interval() -> None:
    counts = Counts.of(32, np.repeat(np.arange(8) * 4, 8))
    alone = ProblemWeights.draw(64, np.random.default_rng(0))
    together = ProblemWeights.draw(64, np.random.default_rng(0), clusters=np.repeat(range(8), 8))
    narrow, wide = (pass_curve(counts, w, [1]).interval for w in (alone, together))
    ratio = (wide.upper - wide.lower) / (narrow.upper - narrow.lower)
    # Eight equal problems each: √8 in the standard error, and Student's t of 7 degrees.
    assert 2.5 < ratio[0] < 4


def test_six_discordant_problems_are_the_least() -> None:
    assert mcnemar_exact(0, 0) == 1
    assert mcnemar_exact(5, 0) > 0.05 >= mcnemar_exact(6, 0)
    assert mcnemar_exact(1000, 900) == pytest.approx(0.0231, abs=5e-4)


def test_empty_supports_are_missing() -> None:
    nothing = support_metrics(0, 0, 0)
    assert np.isnan([nothing.srr, nothing.ndr, nothing.sds, nothing.nscr]).all()
    lost = support_metrics(0, 0, 5)
    assert (lost.srr, lost.nscr) == (0, -1)
    assert np.isnan(lost.ndr)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: Counts.of(4, [5]), "problem 0 has n=4, c=5"),
    (lambda: Counts.of(4, [0.5]), "c holds 0.5"),
    (lambda: Counts.of(4, [float("nan")]), "c holds nan"),
    (lambda: Counts.of(4, [[1]]), "2 dimensions"),
    (lambda: ProblemWeights.draw(0, np.random.default_rng()), "bootstrap of 0 problems"),
    (lambda: ProblemWeights.draw(3, np.random.default_rng(), clusters=[1]), "1 cluster labels"),
    (lambda: coverage([1], [1, 2]), "same problems"),
    (lambda: coverage([-1], [1]), "negative"),
    (lambda: mcnemar_exact(-1, 2), "0 or more"),
    (lambda: mcnemar_exact(1, 2.5), "counts problems"),  # type: ignore[arg-type]
    (lambda: support_metrics(1, -1, 0), "number of problems"),
    (lambda: solvable_sets({}), "at least one arm"),
    (lambda: solvable_sets({"a": [1], "b": [1, 2]}), "arms 'a' and 'b'"),
    (lambda: accuracy_histogram([2], [3]), "needed is 0 <= c <= n"),
    (lambda: crossing_points([1, 2], [1]), "values"),
    (lambda: g_pass_at_k(4, 2, 0, 0.5), "from 1 on"),
    (lambda: g_pass_at_k(4, 2, 2, 1.5), "share from 0 to 1"),
    (lambda: clopper_pearson(3, 2), "successes <= trials"),
    (lambda: clopper_pearson(1, 2, 95), "between 0 and 1"),
    (lambda: detection_threshold(0), "at least one sample"),
    (lambda: holm([0.1, 1.2]), "from 0 to 1"),
    (lambda: fit_prior(Counts.of(4, [1]), False), "cannot carry a distribution"),
    (lambda: pass_at_budget(Counts.of(4, [1]), 0, [1]), "must be above 0"),
    (
        lambda: difference_curve(
            Counts.of(4, [1]), Counts.of(4, [1, 2]), ProblemWeights.draw(1, np.random.default_rng())
        ),
        "same problems in the same order",
    ),
    (
        lambda: pass_curve(
            Counts.of(4, [1, 2]), ProblemWeights.draw(3, np.random.default_rng()), [1]
        ),
        "draw the weights for these problems",
    ),
    (
        lambda: pass_curve(
            Counts.of(4, [1, 2]), ProblemWeights.draw(2, np.random.default_rng()), [2, 1]
        ),
        "rising from 1 on",
    ),
]


@pytest.mark.parametrize(("call", "says"), BAD)
def test_bad_input_is_told_in_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mg_pass_of_a_single_draw_is_zero_for_each_problem() -> None:
    assert mg_pass_at_k([1, 4], [1, 2], 1).tolist() == [0.0, 0.0]
    assert np.isnan(mg_pass_at_k([0, 4], [0, 2], 1)).tolist() == [True, False]
