"""Power before money: what a study of some size calls in four of five cases."""

from __future__ import annotations

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, Verdict, answer
from rlbhpc.stats.design import NEVER, SHAPE, smallest_loss


def test_four_of_five_studies_call_the_smallest_loss(soak: bool) -> None:
    problems, n, studies = 128, 256, 200 if soak else 40
    share = smallest_loss(problems, n, np.random.default_rng(0)).share
    rng = np.random.default_rng(5)
    called = []
    for _ in range(studies):
        base = np.where(rng.random(problems) < NEVER, 0.0, rng.beta(*SHAPE, problems))
        trained = np.where(rng.random(problems) < share, 0.0, base)
        ours, theirs = (Counts.of(n, rng.binomial(n, p)) for p in (base, trained))
        called.append(answer(ours, theirs).lost.verdict is Verdict.YES)
    room = 3 * np.sqrt(0.8 * 0.2 / studies)
    assert 0.75 - room <= np.mean(called) <= 0.9 + room


def test_more_problems_and_fewer_comparisons_decide_more() -> None:
    def share(problems: int, comparisons: int = 1) -> float:
        return smallest_loss(problems, 128, np.random.default_rng(0), comparisons).share

    assert share(1000) < share(300) < share(60)
    assert share(300) < share(300, comparisons=20)


def test_what_cannot_be_called_is_none() -> None:
    # Two problems cannot show a loss of both with one sample each, nor a base that solves nothing.
    assert np.isnan(smallest_loss(2, 1, np.random.default_rng(0)).share)
    hopeless = smallest_loss(40, 64, np.random.default_rng(0), rates=np.zeros(5))
    assert np.isnan(hopeless.share)
    with pytest.raises(UserError, match="above 0"):
        smallest_loss(0, 8, np.random.default_rng(0))


def test_studies_that_stop_are_simulated_as_such() -> None:
    # A trained arm that stops at its first right answer says of a rate only when that came.
    rates = np.full(60, 0.02)
    full = smallest_loss(60, 256, np.random.default_rng(0), rates=rates).share
    late = smallest_loss(60, 256, np.random.default_rng(0), rates=rates, stop_after=(99, 99)).share
    early = smallest_loss(60, 256, np.random.default_rng(0), rates=rates, stop_after=(1, 1)).share
    assert late == pytest.approx(full, abs=0.04)
    assert early > 1.3 * full
