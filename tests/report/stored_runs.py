"""Three small runs in a folder: ``python -m tests.report.stored_runs FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tests.report.extra import make_extra
from tests.report.made import make_study, put_samples
from tests.report.rich import make_rich

PROBLEMS, N = 48, 20


def make_thin(folder: Path) -> None:
    """Of these few samples a tenth tells no distribution of rates."""
    study = make_study(folder, PROBLEMS, N)
    rng = np.random.default_rng(3)
    base = rng.beta(0.5, 1.2, PROBLEMS)
    trained = np.clip(1.3 * base, 0, 1) * (rng.random(PROBLEMS) > 0.1)
    for arm, step, rate in (("base", 0, base), ("rl", 100, trained)):
        put_samples(study, arm, rng.random((PROBLEMS, N)) < rate[:, None], step)


def main(folder: Path) -> None:
    """Make them."""
    make_thin(folder / "thin")
    make_rich(folder / "rich")
    made = folder.parent / "extra"
    made.mkdir()
    make_extra(made)
    (made / "run").rename(folder / "extra")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
