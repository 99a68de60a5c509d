"""Would the study's comparisons have been decided? ``python -m tests.stats.published_power``.

Sizes and problems that no sample solved are those of arXiv 2504.13837, figures 5 and 14, for
Qwen2.5-7B, 14B, 32B and LLaMA-3.1-8B: (base, trained).
"""

from __future__ import annotations

import numpy as np

from rlbhpc.stats.design import smallest_loss

SETS = {
    "AIME24": (30, 1024, ((7, 11), (8, 9), (3, 5), (21, 22))),
    "AMC23": (40, 1024, ((0, 0), (0, 0), (0, 0), (3, 4))),
    "MATH500": (500, 128, ((20, 33), (19, 27), (12, 25), (124, 152))),
    "Minerva": (272, 128, ((93, 113), (92, 114), (88, 113), (141, 143))),
    "GSM8K": (1319, 128, ((7, 32), (7, 26), (6, 29), (40, 54))),
    "Olympiad": (675, 128, ((170, 190), (166, 186), (146, 193), (308, 312))),
}


def main() -> None:
    """Print for each set the problems gained, and the smallest gain that is called."""
    for name, (problems, n, pairs) in SETS.items():
        rng = np.random.default_rng(0)
        cells = []
        for base, trained in pairs:
            solved = np.maximum(rng.beta(0.3, 2.0, problems - base), 1e-3)
            rates = np.concatenate([np.zeros(base), solved])
            least = smallest_loss(problems, n, rng, rates=rates).count
            more = trained - base
            cells.append(f"{more} of {least:.0f}{' ✓' if more >= least else ''}")
        print(f"| {name} | {problems:,} × {n:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
