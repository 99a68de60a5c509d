"""The smaller families: stopping, selection, budgets, entropy, perplexity, temperature, prompts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.best_checkpoint import choose_checkpoint
from analysis.best_prompt import prompt_spread
from analysis.cot_pass_at_k import cot_pass_at_k
from analysis.cover_at_tau import log_area, posterior_above
from analysis.extrapolation import held_out_check
from analysis.perplexity_by_position import perplexity_by_position
from analysis.perplexity_over_steps import perplexity_over_steps
from analysis.repeats import collisions, duplicates
from analysis.sharpening import sharpened
from analysis.temperature import (
    envelope,
    envelope_difference,
    matched_pass_at_k,
    matched_temperature,
)
from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, ProblemWeights, extrapolate, fixed_curve
from rlbhpc.stats.counts import pythia
from rlbhpc.stats.coverage_table import coverage, rarest_first
from rlbhpc.stats.curve import even_odd
from rlbhpc.stats.exact import bayes_at_n, clopper_pearson
from rlbhpc.stats.interval import mean_interval, paired_interval
from rlbhpc.stats.perplexities import (
    perplexity,
    summarize_perplexities,
)
from rlbhpc.stats.priors import carries_rates, fit_prior
from rlbhpc.stats.verifier_error import chance_at_k


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_even_samples_choose_and_odd_samples_report() -> None:
    verdicts = np.zeros((3, 2, 8), np.int8)
    verdicts[1, :, ::2] = 1
    verdicts[2, :, 1::2] = 1
    verdicts[1, 0, 1] = -1
    chosen = choose_checkpoint([even_odd(step) for step in verdicts], 1)
    assert chosen.chosen == 1
    assert chosen.scores.tolist() == [0, 1, 0]
    assert (chosen.report.n.tolist(), chosen.report.c.tolist()) == ([3, 4], [0, 0])


def test_halves_leave_out_what_has_no_verdict() -> None:
    even, odd = even_odd([[1, 2, 3, 4, 5, -1, 0, 1]])
    assert (even.n.tolist(), even.c.tolist()) == ([3], [1])
    assert (odd.n.tolist(), odd.c.tolist()) == ([2], [1])


@pytest.mark.parametrize(("n", "zeros"), [(1, False), (1, True), (2, True)])
def test_a_distribution_with_more_parameters_than_samples_is_refused(n: int, zeros: bool) -> None:
    counts = Counts.of(n, rng().binomial(n, rng(1).beta(0.5, 1.2, 48)))
    with pytest.raises(UserError, match=f"^{n} samples .* open"):
        fit_prior(counts, zeros)
    assert not carries_rates(counts)
    last = fixed_curve(counts).interval[-1]
    assert (last.low, last.high, bool(last.sound)) == (0, 1, False), "everything is open"


def test_a_flat_likelihood_is_no_estimate() -> None:
    """Half a million pairs leave a ridge of equal likelihood; one triple says little of it."""
    pairs = [0] * 25 + [1] * 10 + [2] * 15
    counts = Counts.of([2] * 500_000 + [3], pairs * 10_000 + [0])
    assert not fit_prior(counts, zero_inflated=True).identified
    assert fit_prior(counts, zero_inflated=False).identified


def test_a_fit_ends_at_its_maximum() -> None:
    """Not near it, at a place that depends on how a processor adds."""
    counts = pythia()["2.8B"]
    for zeros in (False, True):
        prior = fit_prior(counts, zeros)
        again = fit_prior(counts[::-1], zeros)
        assert prior.identified
        assert again.parameters == pytest.approx(prior.parameters, rel=1e-12, abs=1e-11)


def test_rarest_problems_come_first() -> None:
    base = [9, 1, 4, 0, 2]
    table = coverage(base, [3, 0, 0, 0, 0])
    assert rarest_first(table.base_only, base).tolist() == [1, 4, 2]


def test_judged_chains_are_bounded_by_answers() -> None:
    n, right, valid, k = 16, [8, 3], [5, 0], [1, 4, 16]
    plain = cot_pass_at_k(n, right, valid, k)
    assert plain.tolist() == Counts.of(n, valid).pass_at_k(k).tolist()
    strict, lenient = (
        cot_pass_at_k(n, right, valid, k, ppv=0.8),
        cot_pass_at_k(n, right, valid, k, npv=0.8),
    )
    assert (strict <= plain + 1e-12).all()
    assert (lenient >= plain - 1e-12).all()
    everything = cot_pass_at_k(n, right, valid, k, npv=0.0)
    assert everything == pytest.approx(Counts.of(n, right).pass_at_k(k))


def test_posterior_cover_is_less_noisy_than_counting() -> None:
    rates = rng(7).beta(0.5, 2, 300)
    counts = Counts.of(32, rng(8).binomial(32, rates))
    weights = ProblemWeights.draw(300, rng())
    tau = [0.0, 0.05, 0.5]
    found = mean_interval(posterior_above(counts, tau), weights, 0.95, "Cover")
    assert found.estimate[0] == 1
    assert found.estimate == pytest.approx(
        [1, (rates >= 0.05).mean(), (rates >= 0.5).mean()], abs=0.04
    )
    assert found.covers([1, (rates >= 0.05).mean(), (rates >= 0.5).mean()]).all()
    above = posterior_above(counts, tau, fit_prior(counts, False))
    assert (np.diff(above, axis=1) <= 0).all()


def test_differences_of_cover_hold_the_truth() -> None:
    ours = rng(7).beta(0.5, 2, 300)
    theirs = np.minimum(3 * ours, 1)
    base, trained = (Counts.of(64, rng(8).binomial(64, rates)) for rates in (ours, theirs))
    tau = [0.1, 0.5, 0.9]
    apart = posterior_above(trained, tau) - posterior_above(base, tau)
    found = paired_interval(apart, ProblemWeights.draw(300, rng()), 0.95)
    assert found.covers([(theirs >= t).mean() - (ours >= t).mean() for t in tau]).all()


def test_an_area_is_the_mean_of_the_curve_over_orders_of_magnitude() -> None:
    counts = Counts.of(256, [0, 1, 30, 256])
    area = log_area(counts, 256)
    assert area[0] == 0 and area[-1] == pytest.approx(1)
    k = np.arange(1, 257)
    exact = np.trapezoid(counts.pass_at_k(k), np.log(k), axis=1) / np.log(256)
    assert area == pytest.approx(exact, abs=0.005)
    with pytest.raises(UserError, match="2 or more"):
        log_area(counts, 1)


def test_reweighted_samples_are_those_of_the_sharpened_distribution() -> None:
    # Four responses of known probability, two of them right: p² / Σ p² is exact.
    chance = np.array([0.4, 0.3, 0.2, 0.1])
    drawn = rng(3).choice(4, p=chance, size=(1, 200_000))
    right, logs = np.isin(drawn, (0, 3)), np.log(chance)[drawn]
    found = sharpened(right, logs, np.ones_like(right), [1, 2, 4])
    exact = [(chance**a)[[0, 3]].sum() / (chance**a).sum() for a in (1, 2, 4)]
    assert found.value[0] == pytest.approx(exact, abs=0.01)
    share = (chance**2).sum() ** 2 / (chance**3).sum()  # E[w]² / E[w²] under p, with w = p
    assert found.effective_n[0, 1] / 200_000 == pytest.approx(share, abs=0.01)


def test_samples_that_say_nothing_are_not_reweighted() -> None:
    right, judged = [[1, 0, 1], [0, 0, 0]], [[1, 1, 0], [0, 0, 0]]
    logs = [[-5.0, -3.0, -1.0], [-1.0, np.nan, -2.0]]
    found = sharpened(right, logs, judged, [1, 2])
    assert found.value[0] == pytest.approx([0.5, np.exp(-2) / (1 + np.exp(-2))])
    assert np.isnan(found.value[1]).all() and found.effective_n[1].tolist() == [0, 0]
    with pytest.raises(UserError, match="or more"):
        sharpened(right, logs, judged, [0.5])


def test_bayes_says_when_its_prior_decides() -> None:
    rare = np.zeros((40, 8), int)
    assert not bayes_at_n(rare).interval().sound
    mixed = rng(9).integers(0, 2, (40, 200))
    assert bayes_at_n(mixed).interval().sound


def test_extrapolation_is_refused_beyond_ten_n_unless_said() -> None:
    counts = Counts.of(100, rng(1).binomial(100, rng(2).beta(0.3, 2, 60)))
    with pytest.raises(UserError, match="ask for k up to 1000"):
        extrapolate(counts, [1001])
    far = extrapolate(counts, [1000, 5000], beyond=True)
    assert far.band.sound.tolist() == [True, False]
    # A saturating and a non-saturating model part; the band holds both and the power law.
    for model in far.models.values():
        assert (model.lower >= far.band.lower).all()
        assert (model.upper <= far.band.upper).all()


def test_extrapolation_of_real_data_from_a_tenth() -> None:
    models = pythia()
    for name in ("2.8B", "6.9B"):
        check = held_out_check(models[name], rng(11))
        assert (check.n, check.k) == (1000, 10_000)
        assert check.passed, (name, check)
    with pytest.raises(UserError, match="no part to predict from"):
        held_out_check(Counts.of(29, [1, 2]), rng(), 0.1)


def test_extrapolation_of_all_zero_counts_says_it_is_no_estimate() -> None:
    nothing = extrapolate(Counts.of(64, [0] * 20), [64, 640])
    assert nothing.power_law is None
    assert nothing.band.lower[1] < 1e-3
    assert not nothing.band.sound.any()


@pytest.mark.parametrize("count", [0, 64])
def test_an_interval_of_no_width_is_not_called_sound(count: int) -> None:
    sure = fixed_curve(Counts.of(64, [count] * 30), [1, 16, 32, 48, 64]).interval
    assert not sure.sound.any()


def test_a_missing_value_and_a_prior_of_few_problems_are_not_called_sound() -> None:
    whole = fixed_curve(Counts.of(64, [0, 1, 9] * 10), [1, 64, 65]).interval
    assert whole.sound.tolist() == [True, True, False]
    few = fixed_curve(Counts.of(64, [0, 1, 9] * 5), [1, 64]).interval
    assert few.sound.tolist() == [True, False]
    assert not extrapolate(Counts.of(64, [0, 1, 9] * 5), [64, 640]).band.sound.any()


def test_duplicates_shrink_the_effective_n() -> None:
    assert duplicates(range(10)).effective_n == 10
    assert duplicates([1] * 10).effective_n == 1
    assert duplicates([]).n == 0


def test_a_sure_model_repeats_itself_without_alarm() -> None:
    # Nine answers in ten are the same short text: independent draws, whose effective n is 2 of 256.
    draws = rng(6).choice(5, size=256, p=[0.9, 0.05, 0.03, 0.015, 0.005])
    logs = np.log(np.asarray([0.9, 0.05, 0.03, 0.015, 0.005])[draws])
    assert duplicates(draws).effective_n < 2
    found = collisions(draws, logs, problems=500)
    assert found.copies == 0
    assert found.pairs == pytest.approx(found.expected, rel=0.1)


def test_a_seed_used_twice_is_told_from_chance() -> None:
    texts = np.concatenate([np.arange(200), np.arange(56)])
    found = collisions(texts, np.full(256, -180.0), problems=500)
    assert found.copies == 56
    assert found.expected < 1e-60


def test_perplexity_intervals_resample_problems(soak: bool) -> None:
    # Responses to one problem are alike: an interval over responses would be far too short.
    generator, held = rng(8), 0
    studies = 2000 if soak else 400
    for _ in range(studies):
        level = generator.normal(0.5, 0.2, (60, 1))
        found = summarize_perplexities(np.exp(level + generator.normal(0, 0.1, (60, 16))))
        held += found.lower <= math.exp(0.5) <= found.upper
    room = 3 * math.sqrt(0.05 * 0.95 / studies)
    assert 0.93 - room <= held / studies <= 0.97 + room


def test_perplexity_is_that_of_the_mean_log_probability() -> None:
    assert perplexity(-math.log(4) * 7, 7) == pytest.approx(4)
    with pytest.raises(UserError, match="natural logarithms"):
        perplexity([2.0], [4])
    found = summarize_perplexities(perplexity([-1.0, np.nan, -4.0], [1, 1, 2]))
    assert found.responses == 2
    assert found.median == pytest.approx((math.e + math.e**2) / 2)


def test_perplexity_over_steps_uses_the_problems_of_every_step() -> None:
    sums = -np.ones((2, 2, 3)) * np.log([[[2]], [[4]]])
    sums[1, 1] = np.nan
    assert perplexity_over_steps(sums, np.ones((2, 2, 3))) == pytest.approx([2, 4])
    sums[:, 0] = np.nan
    assert np.isnan(perplexity_over_steps(sums, np.ones((2, 2, 3)))).all()


def test_perplexity_parts_do_not_overlap() -> None:
    parts = perplexity_by_position([list(-np.arange(9.0)), [-1.0] * 8], window=3)
    assert parts["middle"][0] == pytest.approx(math.exp(4))
    assert np.isnan(parts["first"][1])


def test_envelope_takes_the_best_temperature_at_each_k() -> None:
    cold, hot = Counts.of(64, [40, 40, 0, 0] * 20), Counts.of(64, [10, 10, 2, 0] * 20)
    weights = ProblemWeights.draw(80, rng())
    best = envelope({1.2: hot, 0.6: cold}, weights, [1, 64])
    assert best.temperature.tolist() == [0.6, 1.2]
    assert best.interval.estimate.tolist() == [cold.pass_at_k(1).mean(), 0.75]
    gap = envelope_difference(best, envelope({0.6: cold}, weights, [1, 64]))
    assert gap.estimate == pytest.approx([0, -0.25])
    assert gap.upper[1] < 0


def test_entropy_matching_interpolates_and_refuses_to_extrapolate() -> None:
    assert matched_temperature([1.0, 0.6], [0.6, 0.2], 0.3) == pytest.approx(0.7)
    curves = [[0.1, 0.5], [0.3, 0.9]]
    assert matched_pass_at_k([0.6, 1.0], [0.2, 0.6], curves, 0.3) == pytest.approx([0.15, 0.6])
    three = [0.6, 1.0, 1.2], [0.2, 0.6, 1.0], [[0.1], [0.3], [0.9]]
    at = [matched_pass_at_k(*three, wanted).item() for wanted in (0.2, 0.4, 0.8, 1.0)]
    assert at == pytest.approx([0.1, 0.2, 0.6, 0.9])
    with pytest.raises(UserError, match="at a higher one"):
        matched_temperature([0.6, 1.0], [0.2, 0.6], 0.7)
    with pytest.raises(UserError, match="does not rise"):
        matched_temperature([0.6, 1.0], [0.6, 0.2], 0.3)


def test_prompt_spread_is_between_best_and_worst() -> None:
    one, other = Counts.of(32, [30, 2] * 30), Counts.of(32, [10, 4] * 30)
    found = prompt_spread({"boxed": one, "r1": other}, ProblemWeights.draw(60, rng()), [1, 32])
    assert found.spread.estimate[0] == pytest.approx(18 / 64)
    assert found.spread.estimate[1] == 0
    assert found.spread.sound.tolist() == [True, False]
    with pytest.raises(UserError, match="sample under two"):
        prompt_spread({"boxed": one}, ProblemWeights.draw(60, rng()))


def test_verifier_floor_rises_with_an_imprecise_audit() -> None:
    few, many = (chance_at_k(clopper_pearson(0, m).upper, 256) for m in (50, 5000))
    assert few > 0.99 > 0.2 > many
