"""How often intervals hold the truth: the simulations behind the tests and the documentation.

``python -m tests.stats.calibration`` prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats import (
    Counts,
    Interval,
    ProblemWeights,
    crossing,
    crossing_points,
    delta_se_interval,
    difference_curve,
    extrapolate,
    fixed_curve,
    k_grid,
    pass_curve,
)
from tests.stats.truths import (
    mean_pass,
    one_model,
    population_curve,
    population_difference,
    two_models,
)

REPLICATES = 600


@dataclass
class Cell:
    """Whether an interval held the truth in the studies of one regime, and called itself sound.

    Shares of studies are elementwise over k.
    """

    interval: str
    truth: str
    problems: int
    n: int
    k: tuple[int, ...]
    held: list[NDArray[np.bool_]] = field(default_factory=list)
    called_sound: list[NDArray[np.bool_]] = field(default_factory=list)

    def add(self, interval: Interval, truth: NDArray[np.float64]) -> None:
        self.held.append(np.atleast_1d(interval.covers(truth)))
        self.called_sound.append(np.atleast_1d(interval.sound))

    @property
    def studies(self) -> int:
        return len(self.held)

    @property
    def coverage(self) -> NDArray[np.float64]:
        return np.mean(self.held, axis=0)

    @property
    def sound(self) -> NDArray[np.float64]:
        return np.mean(self.called_sound, axis=0)

    @property
    def when_sound(self) -> NDArray[np.float64]:
        """Coverage among the studies that call the interval sound."""
        held, sound = np.asarray(self.held), np.asarray(self.called_sound)
        trusted = sound.sum(axis=0)
        return (held & sound).sum(axis=0) / np.where(trusted, trusted, np.nan)


def population_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@k of problems like these."""
    n, k = 256, (1, 4, 16, 64, 256)
    for truth in ("beta", "fifth unsolvable", "hard", "skewed", "nearly solved"):
        for problems in (30, 64, 128, 500):
            weights = ProblemWeights.draw(problems, rng, REPLICATES)
            cell = Cell("pass@k, problems like these", truth, problems, n, k)
            target = population_curve(truth, k)
            for _ in range(studies):
                c = rng.binomial(n, one_model(truth, problems, rng))
                cell.add(pass_curve(Counts.of(n, c), weights, k).interval, target)
            yield cell


def fixed_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@k of exactly these problems, as far as the samples alone bound it."""
    for n in (64, 256):
        k = (1, 2, n // 16, n // 8, n // 4, n // 2)
        yield from _fixed("pass@k, these problems", n, k, studies, rng)


def prior_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@n of exactly these problems, under fitted priors."""
    yield from _fixed("pass@n, these problems", 256, (256,), studies, rng)


def _fixed(
    name: str, n: int, k: tuple[int, ...], studies: int, rng: np.random.Generator
) -> Iterator[Cell]:
    truths = ("beta", "fifth unsolvable", "hard", "skewed", "nearly solved", "alike")
    regimes = [Cell(name, truth, size, n, k) for truth in truths for size in (30, 128)]
    yield from _drawn(regimes, lambda counts: fixed_curve(counts, k).interval, studies, rng)


def _drawn(
    regimes: Sequence[Cell],
    interval: Callable[[Counts], Interval],
    studies: int,
    rng: np.random.Generator,
) -> Iterator[Cell]:
    """Draw the counts of one model, and compare its interval with pass@k of these problems."""
    for cell in regimes:
        for _ in range(studies):
            rates = one_model(cell.truth, cell.problems, rng)
            counts = Counts.of(cell.n, rng.binomial(cell.n, rates))
            cell.add(interval(counts), mean_pass(rates, np.asarray(cell.k)))
        yield cell


def difference_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Difference curves: pointwise, whole band, and the set of crossings."""
    names = (
        "nothing moved", "nothing moved, hard", "shrinks", "expands", "only sharpens",
        "crosses twice",
    )  # fmt: skip
    for problems, n in ((30, 256), (64, 256), (128, 256), (500, 1024)):
        weights = ProblemWeights.draw(problems, rng, REPLICATES)
        k = tuple(k_grid(n).tolist())
        for name in names:
            nothing = name.startswith("nothing")
            target = np.zeros(len(k)) if nothing else population_difference(name, k)
            true_points = crossing_points(k, target)
            where = tuple(round(x) for x in true_points.tolist())
            point = Cell("difference, one k", name, problems, n, k)
            band = Cell("difference, whole band", name, problems, n, (0,))
            cross = Cell("crossing set", name, problems, n, where)
            for _ in range(studies):
                base, trained = _arms(name, problems, n, rng)
                curve = difference_curve(base, trained, weights)
                point.add(curve.pointwise, target)
                band.held.append(np.atleast_1d(curve.band.covers(target).all()))
                band.called_sound.append(np.atleast_1d(curve.band.sound.all()))
                if len(true_points):
                    found = crossing(curve)
                    cross.held.append(np.asarray([x in found for x in true_points]))
                    cross.called_sound.append(np.full(len(true_points), found.sound))
            yield point
            yield band
            if len(true_points):
                yield cross


def beyond_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A crossing beyond n: the true curves cross at 42, and only 32 samples exist."""
    for problems in (64, 256):
        weights = ProblemWeights.draw(problems, rng, REPLICATES)
        cell = Cell("crossing set, beyond n", "shrinks", problems, 32, (42,))
        for _ in range(studies):
            found = crossing(difference_curve(*_arms("shrinks", problems, 32, rng), weights))
            cell.held.append(np.asarray([42 in found]))
            cell.called_sound.append(np.asarray([found.sound]))
        yield cell


def gap_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Delta_SE."""
    n, k = 256, 64
    for name in ("shrinks", "expands", "only sharpens"):
        base, trained = two_models(name, 1_000_000, np.random.default_rng(9))
        target = mean_pass(base, np.asarray([k])) - trained.mean()
        for problems in (64, 500):
            weights = ProblemWeights.draw(problems, rng, REPLICATES)
            cell = Cell("Delta_SE", name, problems, n, (k,))
            for _ in range(studies):
                base_arm, trained_arm = _arms(name, problems, n, rng)
                interval = delta_se_interval(base_arm, trained_arm, weights, k)
                cell.add(interval[None], target)
            yield cell


def extrapolation_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@10n of these problems, the envelope of the models."""
    n = 128
    k = (n, 4 * n, 10 * n)
    truths = ("beta", "fifth unsolvable", "skewed", "nearly solved")
    regimes = [
        Cell("extrapolation band", truth, size, n, k) for truth in truths for size in (64, 256)
    ]
    yield from _drawn(regimes, lambda counts: extrapolate(counts, k).band, studies, rng)


def _arms(name: str, problems: int, n: int, rng: np.random.Generator) -> tuple[Counts, Counts]:
    base, trained = two_models(name, problems, rng)
    return Counts.of(n, rng.binomial(n, base)), Counts.of(n, rng.binomial(n, trained))


ALL = (
    population_cells, fixed_cells, prior_cells, difference_cells, beyond_cells, gap_cells,
    extrapolation_cells,
)  # fmt: skip


def main() -> None:
    """Print the coverage of every interval in every regime, and the range of each interval.

    Arguments are the number of studies and, if not all, names of families. Elements that fewer
    than 95 % of studies call sound are marked and stay out of the range; behind them stands the
    coverage among those that do.
    """
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    chosen = sys.argv[2:]
    ranges: dict[str, list[float]] = {}
    for family in ALL:
        if chosen and family.__name__ not in chosen:
            continue
        for cell in family(studies, np.random.default_rng(20)):
            held = []
            for share, sound, when in zip(
                cell.coverage.tolist(), cell.sound.tolist(), cell.when_sound.tolist(), strict=True
            ):
                held.append(f"{share:.3f}" if sound > 0.95 else f"{share:.3f}*({when:.3f})")
                if sound > 0.95:
                    ranges.setdefault(cell.interval, []).append(share)
            line = f"{cell.interval} | {cell.truth} | {cell.problems} | {cell.n} |"
            print(line, " ".join(held), flush=True)
    for interval, shares in ranges.items():
        print(f"{interval}: {min(shares):.3f} – {max(shares):.3f} in {len(shares)} sound elements")


if __name__ == "__main__":
    main()
