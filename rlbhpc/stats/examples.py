"""A tiny real data set that comes with the package, for documentation, tests and a first look."""

from __future__ import annotations

import json
from importlib.resources import files

from rlbhpc.stats.counts import Counts


def pythia() -> dict[str, Counts]:
    """Load counts of three Pythia models on 128 MATH problems, 10,000 samples each.

    The models 2.8B and 6.9B list the same problems in the same order and cross at k = 23; the
    counts of 70M are sorted and pair with nothing.

    Brown et al. (2024), "Large language monkeys", arXiv:2407.21787; samples published under MIT.

    >>> models = pythia()
    >>> round(float(models["6.9B"].pass_at_k(10_000).mean()), 4)
    0.8359
    """
    text = files("rlbhpc.stats").joinpath("data", "pythia.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return {model: Counts.of(data["n"], data[model]) for model in ("70M", "2.8B", "6.9B")}
