"""Laws of training: numbers that made the curves are found again, inside their intervals."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from rlbhpc.report.aspects.training import Training
from tests.report.made import make_study, put_counts
from tests.store.made import put_training

SCRIPT = Path(__file__).parents[2] / "analysis" / "training_laws.py"
LAWS = runpy.run_path(str(SCRIPT))


def noise(rng: np.random.Generator, n: int, level: float) -> NDArray[np.float64]:
    """Noise of which neighbours are alike, as that of a training is."""
    steps = rng.normal(0, level, n + 1)
    return 0.6 * steps[:-1] + 0.8 * steps[1:]


def test_the_entropy_law_is_found_inside_its_interval() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        entropy = np.linspace(1.2, 0.1, 150)
        reward = 0.9 - 0.2 * np.exp(entropy) + noise(rng, 150, 0.02)
        law = LAWS["fit_law"]("law", LAWS["fit_entropy_law"], entropy, reward, 100)
        _, low, high = law.numbers["ceiling"]
        covered += low <= 0.7 <= high
    assert covered >= 80


def test_the_sigmoid_is_found_inside_its_interval() -> None:
    steps = np.arange(1.0, 201)
    covered = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        reward = 0.1 + 0.6 / (1 + (60 / steps) ** 1.5) + noise(rng, 200, 0.01)
        law = LAWS["fit_law"]("law", LAWS["fit_sigmoid"], steps, reward, 40)
        estimate, low, high = law.numbers["A"]
        assert estimate == pytest.approx(0.7, abs=0.08)
        assert law.r_squared > 0.98
        covered += low <= 0.7 <= high
    assert covered >= 7


def test_a_log_that_is_too_short_or_flat_has_no_law() -> None:
    steps = np.arange(1, 41)
    flat = pd.DataFrame({"train_step": steps, "reward": 0.5})
    short = pd.DataFrame({"train_step": steps[:5], "reward": steps[:5] / 10})
    for frame in (flat, short, flat.drop(columns="reward")):
        assert not list(LAWS["laws_of"](Training("rl", frame)))


def test_a_log_without_entropy_has_the_sigmoid_alone() -> None:
    steps = np.arange(1, 31)
    frame = pd.DataFrame({"train_step": steps, "reward": steps / (steps + 20)})
    laws = list(LAWS["laws_of"](Training("rl", frame)))
    assert [law.name for law in laws] == ["sigmoid"]
    chart = LAWS["laws_chart"]([("rl", laws[0])], {"rl": "#000000"})
    assert set(chart.frame["number"]) == {"R0", "A", "B", "C_mid"}


def test_the_figure_of_a_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(tmp_path / "run", 2, 4)
    put_counts(study, "base", [1, 2], 4)
    steps = np.arange(1, 41)
    entropy = np.linspace(1.0, 0.2, 40)
    metrics = {"critic/rewards/mean": 0.8 - 0.2 * np.exp(entropy), "actor/entropy": entropy}
    put_training(study.layout, "rl", steps.tolist(), metrics)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["training_laws", str(tmp_path / "run"), "-o", str(out)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    frame = pd.read_csv(out / "training_laws.csv").set_index(["law", "number"])
    assert frame.loc[("entropy law", "ceiling"), "estimate"] == pytest.approx(0.6)
    assert (out / "training_laws.pdf").stat().st_size > 1000
