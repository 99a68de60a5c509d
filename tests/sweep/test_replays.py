"""Full studies replayed through the real sampler with a stopping rule, their samples shuffled.

``python -m tests.sweep.test_replays RUN`` replays the base and the trained arm of a stored run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

import rlbhpc
from rlbhpc.stats import Counts, crossing, difference_curve, fixed_curve
from rlbhpc.stats.interval import ProblemWeights
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.study import Study
from tests.sweep.replay import Replay, look, make_study, swept

ARMS = ("base", "rl")


class Shuffled(Mapping[int, bool]):
    """Which samples are right, by seed; counts the tokens of those that are asked for."""

    def __init__(self, study: Study, right: NDArray[np.bool_], tokens: NDArray[np.int64]) -> None:
        """Take both as ``[arm, problem, sample]``."""
        self.right, self.tokens, self.drawn = right, tokens, 0
        self.place = {
            sample_seed(study.seed, SampleKey(arm, 0, problem, i)): (a, p, i)
            for a, arm in enumerate(ARMS)
            for p, problem in enumerate(study.problem_ids("math500"))
            for i in range(right.shape[2])
        }

    def shuffle(self, rng: np.random.Generator) -> None:
        indices = np.broadcast_to(np.arange(self.right.shape[2]), self.right.shape)
        order = rng.permuted(indices, axis=2)
        self.right = np.take_along_axis(self.right, order, 2)
        self.tokens = np.take_along_axis(self.tokens, order, 2)
        self.drawn = 0

    def __getitem__(self, seed: int) -> bool:
        """Say whether a sample is right."""
        place = self.place[seed]
        self.drawn += int(self.tokens[place])
        return bool(self.right[place])

    def __iter__(self) -> Iterator[int]:
        """Go through the seeds."""
        return iter(self.place)

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.place)


@dataclass
class Outcome:
    """Of all replays together."""

    samples: float
    beyond: float
    tokens: float
    pass_at_k: float
    crossed: float


def replays(
    folder: Path, right: NDArray[np.bool_], tokens: NDArray[np.int64], stop_after: int,
    number: int, k: int,
) -> Outcome:  # fmt: skip
    """Replay a full study again and again, and compare pass@k and the crossing with its own."""
    _, problems, n = right.shape
    rng = np.random.default_rng(11)
    weights = ProblemWeights.draw(problems, np.random.default_rng(4), 300)
    full = [Counts.of(n, arm.sum(axis=1)) for arm in right]
    whole = full[0].pass_at_k(k).mean()
    points = crossing(difference_curve(full[0], full[1], weights)).points
    samples, ideal, spent, held, crossed = 0, 0, 0, [], []
    for i in range(number):
        with tempfile.TemporaryDirectory(dir=folder) as run:
            study = make_study(Path(run), problems, n, stop_after, "\n  rl: {model: rl}")
            if not i:
                table = Shuffled(study, right, tokens)
            table.shuffle(rng)
            engine = Replay(table)  # type: ignore[arg-type]
            swept(study, engine)
            arms = [
                Counts.of(p.n, np.minimum(p.right, stop_after), stop_after, n) for p in look(study)
            ]
        samples += engine.drawn
        ideal += sum(int(arm.n.sum()) for arm in arms)
        spent += table.drawn
        interval = fixed_curve(arms[0], np.array([k])).interval
        held.append(bool(interval.lower[0] <= whole <= interval.upper[0]))
        found = crossing(difference_curve(arms[0], arms[1], weights))
        crossed.append(float(points[0]) in found if len(points) else not len(found.points))
    total = number * right.size
    return Outcome(
        samples / total, samples / ideal, spent / (number * int(tokens.sum())),
        float(np.mean(held)), float(np.mean(crossed)),
    )  # fmt: skip


def math_like(problems: int, n: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Two models: rates as on MATH500; the other is quicker on easy problems, slower on hard ones.

    A wrong response is half as long again as a right one.
    """
    rng = np.random.default_rng(0)
    base = special.expit(0.3 + 3.2 * special.ndtri((np.arange(problems) + 0.5) / problems))
    rates = np.stack([base, np.where(base < 0.02, base / 6, np.sqrt(base))])
    right = rng.random((2, problems, n)) < rates[:, :, None]
    return right, np.where(right, 2, 3)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_replays_agree_with_their_full_study(tmp_path: Path, soak: bool) -> None:
    right, tokens = math_like(32 if soak else 16, 1024)
    outcome = replays(tmp_path, right, tokens, 16, 200 if soak else 20, 256)
    print(outcome)
    assert outcome.beyond <= 1.15
    assert max(outcome.samples, outcome.tokens) <= 0.2
    assert outcome.pass_at_k >= 0.95
    assert outcome.crossed >= 0.95


def least_shares(
    right: NDArray[np.bool_], tokens: NDArray[np.int64], stop_after: int
) -> tuple[float, float]:
    """Share of the full study's samples and tokens that any sampler needs for the rule."""
    needed = np.cumsum(right, axis=2) - right < stop_after
    return float(needed.mean()), float(tokens[needed].sum() / tokens.sum())


def test_problems_that_are_never_solved_bound_what_a_rule_can_save() -> None:
    right = np.zeros((1, 4, 10), np.bool_)
    right[:, 1:, 4] = True
    tokens = np.where(right, 1, 2)
    assert least_shares(right, tokens, 1) == ((10 + 3 * 5) / 40, (20 + 3 * 9) / (20 + 3 * 19))
    assert least_shares(right, tokens, 2) == (1, 1)


def main(run: Path, number: int) -> None:
    """Replay a stored run, of which ``base`` and ``rl`` have samples of the same problems."""
    tree = rlbhpc.open_cube(run)
    groups = [next(iter(tree[arm].children.values())).to_dataset() for arm in ARMS]
    right = np.stack([group["verdict"].values[:, :, 0] == 1 for group in groups])
    tokens = np.stack([group["n_tokens"].values[:, :, 0] for group in groups]).astype(np.int64)
    unsolved = 1 - right.any(axis=2).mean()
    print(f"{100 * unsolved:.1f} % of the problems are never solved, and end under no rule")
    for stop_after in (1, 2, 4, 8, 16):
        samples, spent = least_shares(right, tokens, stop_after)
        print(f"r = {stop_after}: at least {samples:.1%} of the samples, {spent:.1%} of the tokens")
    with tempfile.TemporaryDirectory() as folder:
        for stop_after in (4, 16):
            k = min(64, right.shape[2])
            print(stop_after, replays(Path(folder), right, tokens, stop_after, number, k))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
