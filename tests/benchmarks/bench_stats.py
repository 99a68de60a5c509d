"""Speed of the statistics of a large study, on counts and from raw verdicts.

``python -m tests.benchmarks.bench_stats`` prints the table. The study: 500 problems × 2,048
samples × 10 steps × 4 arms, 1,000 bootstrap replicates of every pass@k curve and every difference
from the base.
"""

from __future__ import annotations

import time

import numpy as np

from rlbhpc.stats import Counts, ProblemWeights, answer, difference_curve, k_grid, pass_curve
from rlbhpc.stats.difference import crossing
from tests.benchmarks import Row, in_loops, median_seconds

PROBLEMS, SAMPLES, STEPS, ARMS, REPLICATES = 500, 2048, 10, 4, 1000


def study(rng: np.random.Generator) -> list[list[Counts]]:
    """Draw the counts of every arm and step."""
    rates = rng.beta(0.3, 2, PROBLEMS)
    return [
        [Counts.of(SAMPLES, rng.binomial(SAMPLES, rates)) for _ in range(STEPS)]
        for _ in range(ARMS)
    ]


def run() -> list[Row]:
    """Measure the whole study and its parts."""
    rng = np.random.default_rng(0)
    arms = study(rng)
    every = [counts for steps in arms for counts in steps]
    base = arms[0][0]
    k = k_grid(SAMPLES)

    def draw() -> ProblemWeights:
        return ProblemWeights.draw(PROBLEMS, np.random.default_rng(1), REPLICATES)

    weights = draw()

    def replicates() -> None:
        # All 40 curves in one product: the replicates of every curve, at every k of the grid.
        shared = draw()
        table = np.concatenate([counts.pass_at_k(k) for counts in every], axis=1)
        assert shared.means(table).shape == (REPLICATES, len(every) * len(k))

    def naive() -> None:
        # One curve by the definition: resample problems, evaluate the curve, again and again.
        picks = np.random.default_rng(1).integers(0, PROBLEMS, (REPLICATES, PROBLEMS))
        for pick in picks:
            base[pick].pass_at_k(k).mean(axis=0)

    curves = median_seconds(lambda: [pass_curve(counts, weights) for counts in every])
    differences = median_seconds(
        lambda: [difference_curve(base, counts, weights) for counts in every]
    )
    one = difference_curve(base, every[-1], weights)
    ours = median_seconds(replicates)
    start = time.perf_counter()
    naive()
    per_curve = time.perf_counter() - start
    of_all = f"all {len(every)} curves of {PROBLEMS} × {SAMPLES} × {STEPS} × {ARMS}"
    return [
        in_loops(f"{REPLICATES} bootstraps of {of_all}", ours, 20),
        Row(f"{of_all} with their intervals", curves, "s"),
        Row("their differences, two bands and a sign-flip test", differences, "s"),
        Row("one crossing, exact over every k", median_seconds(lambda: crossing(one)), "s"),
        in_loops("one answer", median_seconds(lambda: answer(one.base, one.trained)), 5),
        Row("resampling each curve problem by problem ÷ ours", per_curve * len(every) / ours, "×"),
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row.what:<75} {row.value:9.3f} {row.unit}  {row.target}")
