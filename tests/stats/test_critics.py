"""The answer under verifier errors, topics and what else a critic would try it on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rlbhpc.stats import Counts, ErrorCounts, Told, Verdict, Word, answer
from rlbhpc.stats.decision import MARGIN
from rlbhpc.stats.difference import cluster_effect
from rlbhpc.stats.verifier_error import chance_at_k, error_range, largest_false_right
from tests.stats.critics import CRITICS, Critic, counts, outcomes, same, true_shares

WHOLE, PART = 500, 50


def most_of(number: int, share: float) -> float:
    """Events of so many studies that chance exceeds once in ten thousand tests."""
    return float(stats.binom.ppf(0.9999, number, share))


@pytest.mark.by_turns(3)
@pytest.mark.slow
@pytest.mark.parametrize("critic", CRITICS, ids=[critic.name for critic in CRITICS])
def test_critics(critic: Critic, soak: bool) -> None:
    number = WHOLE if soak else PART
    found, true = outcomes(critic, number), true_shares(critic)
    for claim in ("false_side", "false_sign", "false_word"):
        wrong = sum(getattr(one, claim) for one in found)
        assert wrong <= most_of(number, 0.05), claim
    for name in ("lost", "gained", "net", "first"):
        held = np.array([getattr(one, name) for one in found])
        held = held[~np.isnan(held)]
        if len(held) >= number / 10:
            assert (held == 0).sum() <= most_of(len(held), 0.07), name
    if max(true.lost, true.gained) >= 2 * MARGIN and critic.topic < 25:
        called = np.mean([one.called for one in found])
        assert called >= 0.7 - 3 * np.sqrt(0.21 / number)


def small(false_right: tuple[float, float], moved: bool) -> tuple[Counts, Counts]:
    """A study of 300 problems, in which nothing moved or 25 problems were lost."""
    rng = np.random.default_rng(3)
    base, trained = same(300, rng)
    trained = trained.copy()
    if moved:
        trained[:25] = 0.0
    critic = Critic("", same, 300, 1024, false_right=false_right)
    return counts(base, critic, 1024, 0, rng), counts(trained, critic, 1024, 1, rng)


def test_told_errors_take_a_wrong_word_away() -> None:
    base, trained = small((0.01, 0.0005), moved=False)
    assert answer(base, trained).states.lost is Verdict.YES
    told = answer(base, trained, errors=(Told(0.01), Told(0.0005)))
    assert Verdict.YES not in (told.states.lost, told.states.gained)
    assert told.states.net == 0


def test_told_errors_find_a_loss_that_they_hide() -> None:
    base, trained = small((0.01, 0.01), moved=True)
    assert answer(base, trained).states.lost is Verdict.NO
    told = answer(base, trained, errors=(Told(0.01), Told(0.01)))
    assert told.lost.verdict is Verdict.YES and told.lost.low < 25 / 300 < told.lost.high


def test_arms_and_errors_exchange() -> None:
    base, trained = small((0.001, 0.003), moved=True)
    errors = Told(0.001), ErrorCounts(3, 50)
    there, back = answer(base, trained, errors=errors), answer(trained, base, errors=errors[::-1])
    assert there.lost.estimate == pytest.approx(back.gained.estimate, abs=1e-3)
    assert there.states.lost is back.states.gained and there.states.net == -back.states.net


def test_a_statement_falls_above_its_tipping_point() -> None:
    base, trained = small((0.01, 0.0005), moved=False)
    tips = {tip.statement: tip for tip in answer(base, trained).tips}
    tip = tips["lost"]
    assert tip.arm == "base" and not tip.all_allowed and tip.rate < 0.01
    for rate, stands in ((tip.rate, True), (2.5 * tip.rate, False)):
        found = answer(base, trained, errors=(Told(rate), None))
        assert (found.states.lost is Verdict.YES) is stands


def test_a_word_within_the_reach_of_the_audit_is_open_to_the_verifier() -> None:
    base, trained = small((0.01, 0.01), moved=True)
    assert answer(base, trained).word in (Word.ONLY_BLUNTS, Word.UNCHANGED)
    errors = ErrorCounts(30, 200), ErrorCounts(30, 200)
    assert answer(base, trained, errors=errors).word in (Word.OPEN, Word.OPEN_TO_VERIFIER)


def test_the_rarest_counts_bound_false_rights_from_above() -> None:
    rng = np.random.default_rng(0)
    for rate in (0.0, 1e-4, 1e-3, 1e-2):
        most = [
            largest_false_right(Counts.of(1024, rng.binomial(1024, np.r_[[rate] * 50, [0.3] * 50])))
            for _ in range(40)
        ]
        assert np.mean([bound >= rate for bound in most]) >= 0.95
        assert np.median(most) <= 3 * rate + 0.002
    assert largest_false_right(Counts.of(64, [64] * 30)) == 0.5, "all solved: nothing is known"


def test_an_audit_by_verdict_gives_the_rate_among_wrong_responses() -> None:
    arm = Counts.of(100, [0] * 30 + [20] * 10)  # 200 of 4,000 accepted
    found = error_range(ErrorCounts(2, 100, 1, 100), arm)
    accepted, refused = 0.05, 0.95
    wrong = accepted * 0.02 + refused * 0.99
    assert found.low < found.estimate < found.high <= largest_false_right(arm)
    assert found.estimate == pytest.approx(accepted * 0.02 / wrong)
    assert found.missed == pytest.approx(refused * 0.01 / (refused * 0.01 + accepted * 0.98))
    assert error_range(ErrorCounts(0, 0), arm).high == 0
    assert float(chance_at_k(1 / 4, 1)) == pytest.approx(0.25)


def test_clusters_widen_what_is_said_of_problems_like_these() -> None:
    base, trained = small((0.0, 0.0), moved=True)
    topics = np.arange(300) // 25
    alone, clustered = answer(base, trained), answer(base, trained, clusters=topics)
    assert clustered.lost.verdict is alone.lost.verdict is Verdict.YES
    assert clustered.lost.high - clustered.lost.low > 2 * (alone.lost.high - alone.lost.low)
    assert clustered.clusters == 12 and clustered.effective_problems < 150
    assert np.isnan(clustered.p_mcnemar) and np.isnan(clustered.net.low)
    unmoved = answer(base, base, clusters=topics)
    assert unmoved.lost.high > 0.1, "a topic in ten may be lost and none of the twelve drawn"


def test_clusters_that_moved_leave_no_interval_at_one() -> None:
    """Where clusters are lost as a whole, only studies that lost too many would have bounds."""
    rng = np.random.default_rng(4)
    base = np.repeat(np.linspace(0.1, 0.6, 50), 4)
    trained = np.where(np.arange(200) // 4 % 5 == 0, 0.0, base)
    arms = [Counts.of(256, rng.binomial(256, rates)) for rates in (base, trained)]
    assert not np.isnan(answer(*arms).efficiency.low)
    assert np.isnan(answer(*arms, clusters=np.arange(200) // 4).efficiency.low)


def test_an_interval_needs_unsolved_problems_at_every_rate_that_an_audit_allows() -> None:
    """Else only studies whose audit happened to find few false rights would have one."""
    critic = Critic("", same, false_right=(0.006, 0.006))
    rng = np.random.default_rng(3)
    rates, _ = same(critic.problems, rng)
    base, trained = (counts(rates, critic, critic.n, arm, rng) for arm in (0, 1))
    rough, precise = ErrorCounts(20, 400), ErrorCounts(2_000, 40_000)
    assert not np.isnan(answer(base, trained, errors=(precise, precise)).net.low)
    net = answer(base, trained, errors=(rough, rough)).net
    assert np.isnan(net.low) and np.isnan(net.high)


def test_topics_that_explain_much_are_told_from_labels_that_say_nothing() -> None:
    rng = np.random.default_rng(5)
    topics = np.arange(200) // 20
    noise = rng.normal(0, 1, (100, 200))
    shifts = rng.normal(0, 1, (100, 10))[:, topics]
    alone = [cluster_effect(values, topics) for values in noise]
    shifted = [cluster_effect(values, topics) for values in noise + shifts]
    assert np.mean([p <= 0.005 for _, p in alone]) <= 0.03
    assert np.mean([p <= 0.005 and effect > 2 for effect, p in shifted]) >= 0.95
    assert np.mean([effect for effect, _ in alone]) == pytest.approx(1, abs=0.15)
    assert np.isnan(cluster_effect(np.zeros(20), np.arange(20) // 5)[0])


def test_shares_by_factor_fall() -> None:
    base, trained = small((0.0, 0.0), moved=True)
    found = answer(base, trained)
    shares = [share.lost for share in found.factors]
    assert all(low <= estimate <= high for estimate, low, high in shares)
    assert np.all(np.diff([share[0] for share in shares]) <= 1e-12)
    at_ten = next(share for share in found.factors if share.factor == pytest.approx(10))
    assert at_ten.lost[0] == pytest.approx(found.lost.estimate)
