"""Error rates from judgements: the interval, what counts, and what is kept on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.verify.error_audit import (
    Judgement,
    Side,
    Stratum,
    StratumCount,
    Word,
    error_rate,
    error_rates,
    load_error_rates,
    load_judgements,
    read_sample,
    store_judgement,
    write_sample,
)

SIDE = Side("base", 0, "math")
KEYS = tuple(SampleKey("base", 0, f"math/{i}", 0) for i in range(6))


def judged(words: str) -> dict[SampleKey, Judgement]:
    """One letter a response: right, wrong, unclear, or a blank where nobody has judged."""
    names: dict[str, Word] = {"r": "right", "w": "wrong", "u": "unclear"}
    return {
        key: Judgement(key, names[letter])
        for key, letter in zip(KEYS, words, strict=False)
        if letter != " "
    }


@pytest.mark.parametrize(("errors", "read"), [(0, 1), (0, 50), (3, 50), (25, 50), (50, 50)])
def test_one_stratum_has_the_interval_of_clopper_and_pearson(errors: int, read: int) -> None:
    rate = error_rate([StratumCount(10_000, read, errors)])
    low = beta.ppf(0.025, errors, read - errors + 1) if errors else 0.0
    high = beta.ppf(0.975, errors + 1, read - errors) if errors < read else 1.0
    assert (rate.low, rate.high) == pytest.approx((low, high))
    assert (rate.errors, rate.audited, rate.read) == pytest.approx((errors, read, read))


def test_equal_weights_are_one_stratum() -> None:
    whole = error_rate([StratumCount(300, 30, 3)])
    parts = error_rate([StratumCount(100, 10, 3), StratumCount(200, 20, 0)])
    assert vars(parts) == pytest.approx(vars(whole))


def test_errors_in_a_small_stratum_do_not_vouch_for_a_large_one() -> None:
    """Forty read of ten rare answers' worth say little about 10,000 common ones."""
    rate = error_rate([StratumCount(10, 10, 5), StratumCount(10_000, 40, 0)])
    assert rate.rate == pytest.approx(5 / 10_010)
    assert rate.audited < 41
    assert rate.high > 0.07


def test_a_stratum_that_nobody_has_read_leaves_the_rate_unknown() -> None:
    rate = error_rate([StratumCount(10, 10, 0), StratumCount(1, 0, 0)])
    assert np.isnan(rate.rate)
    assert (rate.audited, rate.low, rate.high, rate.read) == (0, 0, 1, 10)
    assert error_rate([StratumCount(10, 10, 0), StratumCount(0, 0, 0)]).audited > 0


@pytest.mark.parametrize(
    ("sizes", "reads", "shares"),
    [
        ((50, 950, 99_000), (40, 40, 40), (0.2, 0.05, 0.002)),
        ((50, 950, 99_000), (40, 40, 40), (0.5, 0.02, 0.03)),
        ((1000, 1000), (20, 80), (0.1, 0.001)),
        ((100, 10_000), (40, 40), (0.9, 0.6)),
        ((100, 10_000), (40, 40), (0.0, 0.9)),
        ((500, 500, 500), (40, 10, 20), (0.01, 0.01, 0.01)),
    ],
)
def test_intervals_cover(
    sizes: tuple[int, ...], reads: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    """Exactly, over all outcomes that are not out of the world: at least 95 %."""
    truth = float(np.dot(sizes, shares)) / sum(sizes)
    supports = []
    for read, share in zip(reads, shares, strict=True):
        chances = binom.pmf(np.arange(read + 1), read, share)
        supports.append([(x, p) for x, p in enumerate(chances) if p > 1e-5])
    covered = total = 0.0
    outcomes = np.array(np.meshgrid(*[np.arange(len(s)) for s in supports])).reshape(len(sizes), -1)
    for outcome in outcomes.T:
        chosen = [support[i] for support, i in zip(supports, outcome, strict=True)]
        chance = float(np.prod([p for _, p in chosen]))
        if chance < 1e-5:
            continue
        counts = [
            StratumCount(size, read, x)
            for size, read, (x, _) in zip(sizes, reads, chosen, strict=True)
        ]
        rate = error_rate(counts)
        covered += chance * (rate.low <= truth <= rate.high)
        total += chance
    assert covered / total >= 0.95


def test_right_and_wrong_are_errors_of_opposite_verdicts() -> None:
    accepted = Stratum(SIDE, "right", True, 100, KEYS[:3])
    refused = Stratum(SIDE, "wrong", False, 50, KEYS[3:])
    rates = error_rates([accepted, refused], judged("rwrwwr"))[SIDE]
    assert (rates.false_right.rate, rates.false_right.read) == (pytest.approx(1 / 3), 3)
    assert (rates.false_wrong.rate, rates.false_wrong.read) == (pytest.approx(1 / 3), 3)


def test_only_what_was_judged_in_the_order_of_the_draw_counts() -> None:
    stratum = Stratum(SIDE, "right", True, 100, KEYS)
    rate = error_rates([stratum], judged("rru ww"))[SIDE].false_right
    assert (rate.read, rate.errors) == (2, 0), "unclear is no reading; behind a gap nothing counts"


def test_sample_and_judgements_come_back_from_the_run(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert load_error_rates(layout) == {}
    strata = [Stratum(SIDE, "right", True, 9, KEYS[:2]), Stratum(SIDE, "wrong", False, 3, KEYS[2:])]
    write_sample(layout, strata)
    assert read_sample(layout) == strata
    for key, word in zip(KEYS, ("wrong", "right"), strict=False):
        store_judgement(layout, Judgement(key, "unclear"))
        store_judgement(layout, Judgement(key, word, "A reader", "a note"))  # type: ignore[arg-type]
    assert load_judgements(layout)[KEYS[0]] == Judgement(KEYS[0], "wrong", "A reader", "a note")
    assert load_error_rates(layout)[SIDE].false_right.rate == pytest.approx(0.5)
    layout.audit_sample.write_text("{")
    with pytest.raises(UserError, match="draw it anew"):
        load_error_rates(layout)


def test_a_line_that_a_kill_cut_off_is_judged_again(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for key in KEYS[:2]:
        store_judgement(layout, Judgement(key, "right"))
    content = layout.judgements.read_bytes()
    for length in range(len(content)):
        layout.judgements.write_bytes(content[:length])
        known = load_judgements(layout)
        assert known.keys() <= set(KEYS[:2])
        store_judgement(layout, Judgement(KEYS[2], "wrong"))
        assert load_judgements(layout) == known | {KEYS[2]: Judgement(KEYS[2], "wrong")}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"arm": "a", "step": 0, "problem": "p", "sample": 0, "judgement": "yes"}', "'yes'"),
        ('{"judgement": "right"}', "names no response"),
    ],
)
def test_a_line_that_says_something_else_is_refused(
    tmp_path: Path, line: str, complaint: str
) -> None:
    layout = Layout(tmp_path)
    layout.judgements.parent.mkdir()
    layout.judgements.write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=f"jsonl:2: .*{complaint}"):
        load_judgements(layout)
