"""The smallest and the most extreme studies, and input that is no study."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis.best_checkpoint import choose_checkpoint
from analysis.cot_pass_at_k import cot_pass_at_k, refuse_stopped
from analysis.cover_at_tau import posterior_above
from analysis.extrapolation import held_out_check
from analysis.perplexity_by_position import perplexity_by_position
from analysis.perplexity_over_steps import perplexity_over_steps
from analysis.repeats import collisions, duplicates
from analysis.solvable_sets import solvable_sets
from analysis.temperature import envelope, envelope_difference, matched_temperature
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
    support_metrics,
)
from rlbhpc.stats.counts import check_paired
from rlbhpc.stats.curve import even_odd, pass_at_budget
from rlbhpc.stats.decision import problems_with_samples
from rlbhpc.stats.design import smallest_loss
from rlbhpc.stats.exact import bayes_at_n, clopper_pearson, detection_threshold, holm, mg_pass_at_k
from rlbhpc.stats.interval import mean_interval, ratio_interval
from rlbhpc.stats.priors import fit_prior
from rlbhpc.stats.verifier_error import chance_at_k
from rlbhpc.stats.votes import maj_at_k_by_votes


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
    given = ~np.isnan(curve.interval.lower)
    assert (given == curve.interval.sound).all(), "an interval that holds, or none"
    for interval in (curve.interval[given], difference.pointwise, difference.band):
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


def test_bounds_of_pass_at_k_never_fall_with_k() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 0.3), (0.3, 2), (0.1, 4)):
        counts = Counts.of(256, rng.binomial(256, rng.beta(*shape, 300)))
        weights = ProblemWeights.draw(300, rng, 2)
        interval = pass_curve(counts, weights).interval
        for bounds in (interval.lower, interval.upper):
            assert (np.diff(bounds[~np.isnan(bounds)]) >= 0).all()


def test_thirty_solved_problems_leave_room_for_a_tenth_unsolved() -> None:
    weights = ProblemWeights.draw(30, np.random.default_rng(0), 100)
    upper = mean_interval(np.ones((30, 1)), weights, 0.95, "")
    assert 0.88 < upper.lower[0] < 0.97
    assert upper.upper[0] == 1


def test_clusters_widen_the_interval() -> None:
    counts = Counts.of(32, np.repeat(np.arange(8) * 4, 8))
    alone = ProblemWeights.draw(64, np.random.default_rng(0))
    together = ProblemWeights.draw(64, np.random.default_rng(0), clusters=np.repeat(range(8), 8))
    rates = counts.pass_at_k(1)
    narrow, wide = (mean_interval(rates, w, 0.95, "") for w in (alone, together))
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


ONE_RNG = np.random.default_rng(0)
ONE = ProblemWeights.draw(1, ONE_RNG, 2)
EIGHT = Counts.of(8, [1])

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
    (lambda: pass_curve(Counts.of(4, [1]), ONE, [0, 1]), "rising from 1 on"),
    (lambda: pass_curve(Counts.of(4, [1]), ONE, [1, 1]), "rising from 1 on"),
    (lambda: pass_curve(Counts.of(4, [1]), ONE, [[1]]), "rising from 1 on"),
    (lambda: pass_curve(Counts.of(4, [1]), ONE, []), "rising from 1 on"),
    (lambda: pass_curve(Counts.of(4, [1]), ONE, [1.5]), "k: found [1.5]; allowed: whole numbers"),
    (lambda: pass_curve(Counts.of(4, [1]), ONE, ["1"]), "k: found ['1']; allowed: whole numbers"),
    (lambda: pass_curve(Counts.of(0, [0]), ONE), "a curve up to k = 0 has no point"),
    (lambda: pass_at_budget(Counts.of(4, [1, 1]), [1, -1], [1]), "problem 1 has a mean cost of -1"),
    (lambda: Counts.of(4, [1, -1]), "problem 1 has n=4, c=-1, stop_after=0; needed is 0 <= c <= n"),
    (lambda: Counts.of(4, 1, stop_after=-1), "stop_after=-1; needed is stop_after >= 0"),
    (lambda: check_paired(Counts.of(4, []), Counts.of(4, [])), "no problems to compare"),
    (
        lambda: refuse_stopped(Counts.of([8, 9], [0, 1], [0, 3])),
        "those of problem 1 end at its right sample no. 3; take the first 3 samples",
    ),
    (lambda: ProblemWeights.draw(1, ONE_RNG, 0), "of 1 problems with 0 replicates"),
    (
        lambda: bayes_at_n([[0]], prior_outcomes=[[0], [1]]),
        "earlier outcomes are of other problems",
    ),
    (lambda: bayes_at_n([0]), "in two dimensions"),
    (lambda: bayes_at_n([[0.5]]), "outcomes are whole numbers"),
    (
        lambda: bayes_at_n([[0, 2]]),
        "go from 0 to 2, but 2 categories have a worth; allowed are 0 to 1",
    ),
    (lambda: bayes_at_n([[-1, 0]]), "outcomes go from -1 to 0"),
    (
        lambda: cot_pass_at_k(8, [4], [2], 1, ppv=1.01),
        "ppv of the judge is 1.01; allowed is a share",
    ),
    (
        lambda: cot_pass_at_k(8, [4], [2], 1, npv=-0.1),
        "npv of the judge is -0.1; allowed is a share",
    ),
    (lambda: cot_pass_at_k(8, [4], [2, 2], 1), "of different numbers of problems"),
    (lambda: clopper_pearson(-1, 2), "0 <= successes <= trials"),
    (
        lambda: clopper_pearson(1, 2, 1),
        "interval probability is 1; allowed is a number between 0 and 1",
    ),
    (lambda: clopper_pearson(1, 2, 0), "interval probability is 0"),
    (lambda: coverage([[1]], [[1]]), "coverage compares (1, 1) with (1, 1) problems"),
    (lambda: coverage([], []), "coverage compares (0,) with (0,) problems"),
    (lambda: coverage([1], [-1]), "negative"),
    (lambda: solvable_sets({"a": [[1]], "b": [[1]]}), "(1, 1) and (1, 1) problems"),
    (lambda: crossing_points([[1]], [[1]]), "a curve has (1, 1) draw sizes and (1, 1) values"),
    (
        lambda: problems_with_samples(Counts.of([0, 1], 0), [Counts.of(4, [0, 0])]),
        "1 of 2 problems have no samples",
    ),
    (
        lambda: problems_with_samples(Counts.of(4, [0]), [Counts.of(4, [0])], 0),
        "k is 0; 98 % of the problems have 4",
    ),
    (
        lambda: problems_with_samples(Counts.of(4, [0]), [Counts.of(4, [0])], 5),
        "so allowed is 1 to 4",
    ),
    (lambda: answer(Counts.of(4, [1]), Counts.of(4, [1]), margin=0), "margin is 0; allowed is a"),
    (lambda: answer(Counts.of(4, [1]), Counts.of(4, [1]), margin=1), "between 0 and 1"),
    (lambda: duplicates([["a"]]), "give one label per sample"),
    (lambda: collisions(["a", "b"], [0.0]), "a label and a log-probability for each sample"),
    (lambda: collisions([["a"]], [[0.0]]), "a label and a log-probability for each sample"),
    (
        lambda: held_out_check(Counts.of(100, [1]), ONE_RNG, 1),
        "a share 1 of 100 samples is no part",
    ),
    (lambda: held_out_check(Counts.of(100, [1]), ONE_RNG, 0), "a share 0 of 100 samples"),
    (
        lambda: maj_at_k_by_votes([1], [True], 1, ONE_RNG),
        "by problem and sample, in two dimensions",
    ),
    (
        lambda: maj_at_k_by_votes([[1]], [[True, True]], 1, ONE_RNG),
        "answers and verdicts are needed",
    ),
    (lambda: holm([[0.1]]), "must be a list of numbers"),
    (lambda: holm([-0.1]), "from 0 to 1"),
    (lambda: perplexity_over_steps([[-1.0]], [[1]]), "needs step, problem and response dimensions"),
    (lambda: perplexity_by_position([[-1.0]], 0), "a part of 0 tokens has no perplexity"),
    (lambda: posterior_above(Counts.of(4, [1, 2]), 1.1), "allowed are numbers from 0 to 1"),
    (lambda: posterior_above(Counts.of(4, [1, 2]), [-0.1]), "Cover thresholds are success rates"),
    (lambda: fit_prior(Counts.of(0, [0, 0]), False), "2 problems cannot carry a distribution"),
    (lambda: ratio_interval([[1.0]], [[1.0]], ONE), "one sum and one total"),
    (lambda: ratio_interval([1.0], [-1.0], ONE), "not below 0, per problem"),
    (lambda: mg_pass_at_k(4, 2, 0), "draw size is 0; allowed are whole numbers from 1 on"),
    (lambda: even_odd([1, 0]), "needs verdicts by problem and sample"),
    (lambda: choose_checkpoint([], 1), "one checkpoint at least"),
    (lambda: choose_checkpoint([even_odd([[1, 0]])], 2), "no checkpoint has 2 even samples"),
    (lambda: envelope({}, ONE), "counts at one temperature at least"),
    (
        lambda: envelope_difference(
            *(envelope({1: Counts.of(4, [1])}, ONE, k) for k in (2, [1, 3]))
        ),
        "envelopes differ in k or in bootstrap weights",
    ),
    (
        lambda: envelope_difference(
            *(envelope({1: Counts.of(4, [1])}, ONE, k) for k in (1, [1, 3]))
        ),
        "draw both with the same",
    ),
    (lambda: matched_temperature([1.0], [0.5], 0.5), "for each of two or more temperatures"),
    (lambda: matched_temperature([1, 2], [0.5], 0.5), "for each of two or more temperatures"),
    (lambda: matched_temperature([[1, 2]] * 2, [[1, 2]] * 2, 1), "two or more temperatures"),
    (lambda: matched_temperature([1, 2], [0.5, 0.5], 0.5), "does not rise with temperature"),
    (
        lambda: matched_temperature([1, 2], [0.5, 0.6], 0.4),
        "0.5 to 0.6; sample the model at a lower",
    ),
    (lambda: chance_at_k(1.1, 1), "allowed: 0 to 1"),
    (lambda: chance_at_k(-0.1, 1), "allowed: 0 to 1"),
    (lambda: smallest_loss(8, 0, ONE_RNG), "a study of 8 problems with 0 samples"),
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
