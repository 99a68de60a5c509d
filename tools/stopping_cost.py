"""Draw docs/stopping.png: what stopping at r right answers costs, and how exact it leaves pass@k.

Simulated: 500 problems with rates like those of a model of some billion parameters on MATH500, up
to 1,024 samples each, many studies of the same problems. Prints the table of docs/stopping.md.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from rlbhpc.stats import Counts

PROBLEMS, N_MAX, STUDIES = 500, 1024, 100
K = np.array([1, 16, 256, 1024])
RULES = (2, 4, 8, 16, 32, 64)


def study(rates: NDArray[np.float64], r: int, rng: np.random.Generator) -> Counts:
    """Counts of one study; the r-th right answer comes after a negative binomial of wrong ones."""
    ends = r + rng.negative_binomial(r, rates)
    # One that does not stop has fewer than r right in n_max, which is binomial given that.
    right = rng.binomial(N_MAX, rates)
    while (again := (ends > N_MAX) & (right >= r)).any():
        right[again] = rng.binomial(N_MAX, rates[again])
    stopped = ends <= N_MAX
    return Counts.of(np.where(stopped, ends, N_MAX), np.where(stopped, r, right), r, N_MAX)


def rounds_cost(rates: NDArray[np.float64], ends: list[int], rng: np.random.Generator) -> float:
    """Samples per sample needed, if every open problem is drawn to the end of each round."""
    needed = np.concatenate([study(rates, 16, rng).n for _ in range(STUDIES)])
    drawn = np.array(ends)[np.searchsorted(ends, needed)]
    return float(drawn.sum() / needed.sum())


def main() -> None:
    """Simulate, print, draw."""
    rng = np.random.default_rng(0)
    rates = 1 / (1 + np.exp(-rng.normal(0.3, 3.2, PROBLEMS)))
    full = [Counts.of(N_MAX, rng.binomial(N_MAX, rates)).pass_at_k(K) for _ in range(STUDIES)]
    spread = np.std([values.mean(axis=0) for values in full], axis=0)
    others = np.mean([values.std(axis=0) for values in full], axis=0) / np.sqrt(PROBLEMS)
    shares, errors = [], []
    for r in RULES:
        studies = [study(rates, r, rng) for _ in range(STUDIES)]
        shares.append(np.mean([counts.n.sum() for counts in studies]) / (PROBLEMS * N_MAX))
        errors.append(np.std([counts.pass_at_k(K).mean(axis=0) for counts in studies], axis=0))
    print("| r | samples used | " + " | ".join(f"k = {k:,}" for k in K) + " |")
    print("|---|---|" + "---|" * len(K))
    rows = [
        *((f"{r}", share, error) for r, share, error in zip(RULES, shares, errors, strict=True)),
        ("all", 1.0, spread),
    ]
    for name, share, error in rows:
        cells = " | ".join(f"{100 * value:.2f}" for value in error)
        print(f"| {name} | {100 * share:.0f} % | {cells} |")
    print("| other problems | – | " + " | ".join(f"{100 * v:.2f}" for v in others) + " |")
    for ends in ([16, 64, 256, 1024], [2**i for i in range(4, 11)]):
        print(f"rounds up to {ends}: {rounds_cost(rates, ends, rng):.2f} times the samples needed")
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for column, k in enumerate(K[:3].tolist()):
        values = 100 * np.array(errors)[:, column]
        (line,) = axes.plot(100 * np.array(shares), values, "o-", label=f"k = {k}")
        axes.axhline(100 * spread[column], color=line.get_color(), linestyle=":")
    for r, share, error in zip(RULES, shares, errors, strict=True):
        axes.annotate(f"r = {r}", (100 * share, 100 * error[0]), (4, 4), textcoords="offset points")
    axes.set(xlabel="samples used, % of n = 1,024", ylabel="sd of mean pass@k, points")
    axes.set_ylim(0)
    axes.legend(title="dotted: all samples")
    figure.savefig(Path(__file__).parents[1] / "docs" / "stopping.png", dpi=110)


if __name__ == "__main__":
    main()
