"""How often intervals hold the truth: the simulations behind the tests and the documentation.

``python -m tests.stats.calibration`` prints the table of docs/statistics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

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
    support_metrics,
)
from rlbhpc.stats.support import support_intervals
from tests.stats.truths import (
    mean_pass,
    one_model,
    population_curve,
    population_difference,
    two_models,
)

REPLICATES = 600


@dataclass(frozen=True)
class Cell:
    """Coverage of one interval in one regime, elementwise over k.

    ``when_sound`` is the coverage among the studies that call the interval sound.
    """

    interval: str
    truth: str
    problems: int
    n: int
    k: tuple[int, ...]
    coverage: NDArray[np.float64]
    sound: NDArray[np.float64]
    when_sound: NDArray[np.float64]
    studies: int


class Tally:
    """Collects whether intervals held the truth, and whether they called themselves sound."""

    def __init__(self) -> None:
        self.held: list[NDArray[np.bool_]] = []
        self.sound: list[NDArray[np.bool_]] = []

    def add(self, interval: Interval, truth: NDArray[np.float64]) -> None:
        self.held.append(np.atleast_1d(interval.covers(truth)))
        self.sound.append(np.atleast_1d(interval.sound))

    def cell(self, interval: str, truth: str, problems: int, n: int, k: tuple[int, ...]) -> Cell:
        held, sound = np.asarray(self.held), np.asarray(self.sound)
        trusted = sound.sum(axis=0)
        when_sound = (held & sound).sum(axis=0) / np.where(trusted, trusted, np.nan)
        return Cell(
            interval, truth, problems, n, k,
            held.mean(axis=0), sound.mean(axis=0), when_sound, len(held),
        )  # fmt: skip


def population_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@k of problems like these."""
    n, k = 256, (1, 4, 16, 64, 256)
    for truth in ("beta", "fifth unsolvable", "hard", "skewed", "nearly solved"):
        for problems in (30, 64, 128, 500):
            weights = ProblemWeights.draw(problems, rng, REPLICATES)
            tally, target = Tally(), population_curve(truth, k)
            for _ in range(studies):
                c = rng.binomial(n, one_model(truth, problems, rng))
                tally.add(pass_curve(Counts.of(n, c), weights, k).interval, target)
            yield tally.cell("pass@k, problems like these", truth, problems, n, k)


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
    for truth in ("beta", "fifth unsolvable", "hard", "skewed", "nearly solved", "alike"):
        for problems in (30, 128):
            tally = Tally()
            for _ in range(studies):
                rates = one_model(truth, problems, rng)
                counts = Counts.of(n, rng.binomial(n, rates))
                tally.add(fixed_curve(counts, k).interval, mean_pass(rates, np.asarray(k)))
            yield tally.cell(name, truth, problems, n, k)


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
            point, band, cross = Tally(), Tally(), Tally()
            for _ in range(studies):
                base, trained = _arms(name, problems, n, rng)
                curve = difference_curve(base, trained, weights)
                point.add(curve.pointwise, target)
                band.held.append(np.atleast_1d(curve.band.covers(target).all()))
                band.sound.append(np.atleast_1d(curve.band.sound.all()))
                if len(true_points):
                    found = crossing(curve)
                    cross.held.append(np.asarray([x in found for x in true_points]))
                    cross.sound.append(np.full(len(true_points), found.sound))
            yield point.cell("difference, one k", name, problems, n, k)
            yield band.cell("difference, whole band", name, problems, n, (0,))
            if len(true_points):
                where = tuple(round(x) for x in true_points.tolist())
                yield cross.cell("crossing set", name, problems, n, where)


def beyond_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """A crossing beyond n: the true curves cross at 42, and only 32 samples exist."""
    for problems in (64, 256):
        weights = ProblemWeights.draw(problems, rng, REPLICATES)
        tally = Tally()
        for _ in range(studies):
            found = crossing(difference_curve(*_arms("shrinks", problems, 32, rng), weights))
            tally.held.append(np.asarray([42 in found]))
            tally.sound.append(np.asarray([found.sound]))
        yield tally.cell("crossing set, beyond n", "shrinks", problems, 32, (42,))


def gap_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Delta_SE."""
    n, k = 256, 64
    for name in ("shrinks", "expands", "only sharpens"):
        base, trained = two_models(name, 1_000_000, np.random.default_rng(9))
        target = mean_pass(base, np.asarray([k])) - trained.mean()
        for problems in (64, 500):
            weights, tally = ProblemWeights.draw(problems, rng, REPLICATES), Tally()
            for _ in range(studies):
                tally.add(
                    delta_se_interval(*_arms(name, problems, n, rng), weights, k)[None], target
                )
            yield tally.cell("Delta_SE", name, problems, n, (k,))


def extrapolation_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """pass@10n of these problems, the envelope of the models."""
    n = 128
    k = (n, 4 * n, 10 * n)
    for truth in ("beta", "fifth unsolvable", "skewed", "nearly solved"):
        for problems in (64, 256):
            tally = Tally()
            for _ in range(studies):
                rates = one_model(truth, problems, rng)
                counts = Counts.of(n, rng.binomial(n, rates))
                tally.add(extrapolate(counts, k).band, mean_pass(rates, np.asarray(k)))
            yield tally.cell("extrapolation band", truth, problems, n, k)


def support_cells(studies: int, rng: np.random.Generator) -> Iterator[Cell]:
    """SRR, NDR, SDS and NSCR of problems like these, in the order of ``k`` 0 … 3."""
    names = ("srr", "ndr", "sds", "nscr")
    for label, cells in (("even", (60, 15, 25)), ("shrunk", (80, 5, 15))):
        share = np.asarray(cells) / 100
        whole = support_metrics(*cells)
        truth = [getattr(whole, name) for name in names]
        for problems in (100, 400):
            tally = Tally()
            for _ in range(studies):
                drawn = support_intervals(*rng.multinomial(problems, share).tolist(), rng)
                tally.held.append(
                    np.asarray([drawn[m].covers(t) for m, t in zip(names, truth, strict=True)])
                )
                tally.sound.append(np.asarray([drawn[m].sound for m in names]))
            yield tally.cell("support metrics", label, problems, 0, (0, 1, 2, 3))


def _arms(name: str, problems: int, n: int, rng: np.random.Generator) -> tuple[Counts, Counts]:
    base, trained = two_models(name, problems, rng)
    return Counts.of(n, rng.binomial(n, base)), Counts.of(n, rng.binomial(n, trained))


ALL = (
    population_cells, fixed_cells, prior_cells, difference_cells, beyond_cells, gap_cells,
    extrapolation_cells, support_cells,
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
