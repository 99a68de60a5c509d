"""Looks whose error holds at every one of them, simulated on truths in which nothing was lost.

``python -m tests.stats.test_sequential 200`` prints the table of docs/stopping.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from rlbhpc.stats import Counts, Verdict
from rlbhpc.stats.design import look
from rlbhpc.stats.joint import JointRates, Side, finding
from rlbhpc.sweep.until import ENOUGH
from tests.stats.answer_truths import truth

NULLS = ("nothing moved", "nothing moved, hard", "trap", "slower", "quicker")
LOOKS = 5


@dataclass
class Drawn:
    """A simulated study that grows."""

    rates: tuple[NDArray[np.float64], NDArray[np.float64]]
    n: list[NDArray[np.int64]]
    c: list[NDArray[np.int64]]

    @classmethod
    def of(cls, name: str, problems: int, n: int, rng: np.random.Generator) -> Drawn:
        base, trained = truth(name).rates(problems, rng)
        rates = base, trained.reshape(-1, problems)[0]
        c = [np.asarray(rng.binomial(n, rate), np.int64) for rate in rates]
        return cls(rates, [np.full(problems, n), np.full(problems, n)], c)

    def counts(self) -> tuple[Counts, Counts]:
        base, trained = (Counts.of(n, c) for n, c in zip(self.n, self.c, strict=True))
        return base, trained

    def draw(self, arm: int, more: NDArray[np.int64], rng: np.random.Generator) -> None:
        self.c[arm] = self.c[arm] + rng.binomial(more, self.rates[arm])
        self.n[arm] = self.n[arm] + more


@dataclass(frozen=True)
class Decided:
    """How looks at a study ended; ``cost`` in samples of the first look."""

    lost: Verdict
    gained: Verdict
    cost: float
    looks: int


def decided_by_looks(
    study: Drawn, k: int, rng: np.random.Generator, wayward: bool = False
) -> Decided:
    """Look and draw as ``plan --until`` does, or, wayward, whatever comes to somebody's mind."""
    verdicts = [Verdict.UNDECIDED, Verdict.UNDECIDED]
    for number in range(1, LOOKS + 1):
        view = look(*study.counts(), k, number)
        for side, result in enumerate((view.lost, view.gained)):
            if verdicts[side] is Verdict.UNDECIDED:
                verdicts[side] = result.verdict
        lost_open, gained_open = (v is Verdict.UNDECIDED for v in verdicts)
        open_problems = view.open_problems(lost_open, gained_open)
        if number == LOOKS or not (lost_open or gained_open) or not open_problems.any():
            break
        for arm in range(2):
            needs = open_problems & (study.c[arm] < ENOUGH)
            more = np.where(needs, study.n[arm], 0)
            if wayward:
                more = np.where(rng.random(len(needs)) < 0.5, needs * rng.integers(1, 2 * k), 0)
            study.draw(arm, more, rng)
    cost = sum(int(n.sum()) for n in study.n) / (2 * len(study.n[0]) * k)
    return Decided(verdicts[0], verdicts[1], cost, number)


def decided_at_once(study: Drawn, k: int, n: int) -> Decided:
    """One test of a study with so many samples of every problem."""
    base, trained = study.counts()
    joint = JointRates(base, trained, k)
    best = joint.fit()
    lost, gained = (
        finding(Side(joint, best, group, 1, np.arange(len(base))), 0, 0.02, 0.05).verdict
        for group in (joint.lost, joint.gained)
    )
    return Decided(lost, gained, n / k, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wayward", [False, True])
@pytest.mark.parametrize("name", NULLS)
def test_looks_at_will_find_nothing_where_nothing_was(name: str, wayward: bool, soak: bool) -> None:
    studies = 100 if soak else 10
    rng = np.random.default_rng(29 + wayward)
    false = 0
    for _ in range(studies):
        ended = decided_by_looks(Drawn.of(name, 100, 32, rng), 32, rng, wayward)
        false += Verdict.YES in (ended.lost, ended.gained)
    print(f"{name}: {false} of {studies} false, wayward: {wayward}")
    assert false <= 0.05 * studies


@pytest.mark.timeout(3600)
def test_a_loss_at_the_margin_is_not_called_none(soak: bool) -> None:
    studies = 200 if soak else 15
    rng = np.random.default_rng(3)
    false = 0
    for _ in range(studies):
        rate = np.exp(rng.uniform(np.log(0.1), np.log(0.6), 300))
        study = Drawn((rate, np.where(np.arange(300) < 8, 0.0, rate)), [], [])
        study.n = [np.full(300, 32), np.full(300, 32)]
        study.c = [rng.binomial(32, r) for r in study.rates]
        false += decided_by_looks(study, 32, rng).lost is Verdict.NO
    print(f"{false} of {studies} called none")
    assert false <= 0.05 * studies


def test_looks_decide_at_less_cost_than_a_larger_study(soak: bool) -> None:
    studies = 60 if soak else 6
    rng = np.random.default_rng(5)
    ended = [decided_by_looks(Drawn.of("lost", 500, 32, rng), 32, rng) for _ in range(studies)]
    assert np.mean([d.lost is Verdict.YES for d in ended]) >= 0.9
    assert np.mean([d.cost for d in ended]) < 1.3


def test_every_look_uses_up_its_share_and_all_of_them_no_more_than_all() -> None:
    base, trained = Counts.of(8, [0, 4] * 20), Counts.of(8, [0, 2] * 20)
    used = [look(base, trained, 8, number).error for number in (1, 2, 3)]
    assert used == [1 / 2, 1 / 6, 1 / 12]
    wide = [look(base, trained, 8, number).lost.high for number in (1, 3)]
    assert wide[0] < wide[1]


def test_problems_that_can_change_the_answer_are_those_nobody_can_be_sure_of() -> None:
    base = Counts.of(64, [0, 7, 40, 60, 40, 8] * 20)
    trained = Counts.of(64, [0, 0, 0, 60, 20, 2] * 20)
    view = look(base, trained, 64, 1)
    unclear = view.open_problems(lost=True, gained=False).reshape(20, 6)
    assert unclear.sum(axis=0).tolist() == [0, 20, 0, 0, 0, 0]
    assert not view.open_problems(lost=False, gained=False).any()


def main(studies: int) -> None:
    """Print what a decision costs, by looks and at once."""
    k = 64
    print("| truth | how | lost | gained | samples, in n = 64 | looks |\n|---|---|---|---|---|---|")
    for name in ("nothing moved", "lost", "gained", "churn", "trap"):
        for n in (k, 2 * k, 4 * k):
            rng = np.random.default_rng(8)
            ended = [decided_at_once(Drawn.of(name, 500, n, rng), k, n) for _ in range(studies)]
            _row(name, f"n = {n}", ended)
        rng = np.random.default_rng(8)
        ended = [decided_by_looks(Drawn.of(name, 500, k, rng), k, rng) for _ in range(studies)]
        _row(name, "looks", ended)


def _row(name: str, how: str, ended: list[Decided]) -> None:
    shares = []
    for verdicts in ([d.lost for d in ended], [d.gained for d in ended]):
        parts = [(v, np.mean([x is v for x in verdicts])) for v in (Verdict.YES, Verdict.NO)]
        shares.append(", ".join(f"{v} {100 * s:.0f} %" for v, s in parts if s) or "–")
    cost = np.mean([d.cost for d in ended])
    looks = np.mean([d.looks for d in ended])
    print(f"| {name} | {how} | {shares[0]} | {shares[1]} | {cost:.2f} | {looks:.1f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
