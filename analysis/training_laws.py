"""Two laws of RL training, fitted to the training curves of a run with intervals.

The entropy law (Cui et al. 2025, arXiv 2505.22617), R = b - a exp(H): at entropy 0 the reward ends
at b - a. The sigmoid of ScaleRL (Khatri et al. 2025, arXiv 2510.13786),
R = R0 + (A - R0) / (1 + (C_mid / C)^B), with training steps as the compute C. Curves may be of any
trainer whose log was imported.

Example: python analysis/training_laws.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.training import Training, training
from rlbhpc.report.chart import Chart, Colours, Panel, linear_axis
from rlbhpc.report.paper import main

Floats = NDArray[np.float64]
#: Fewest steps of a training that a law is fitted to.
FEWEST_STEPS: Final = 12
REPLICATES: Final = 200
_ENTROPY: Final = "entropy, nat per token"
# Range of exponents B that are tried, and of C_mid in parts of the longest compute.
_EXPONENTS: Final = (0.2, 8.0)
_MIDPOINTS: Final = (0.01, 10.0)
# Values of either that are tried at once, and how often the grid is drawn closer around the best.
_GRID: Final = 16
_ROUNDS: Final = 6


@dataclass(frozen=True)
class Law:
    """A fitted law: the numbers by name, each with the bounds of its 95 % interval, and its curve.

    ``x``: what the reward is a function of, ``fitted``: the reward by the law. ``r_squared``: share
    of the reward's variance that the law explains.
    """

    name: str
    x: Floats
    reward: Floats
    fitted: Floats
    numbers: dict[str, tuple[float, float, float]]
    r_squared: float


#: Fits rewards over x: the parameters by name, and the fitted rewards.
Fit = Callable[[Floats, Floats], tuple[dict[str, float], Floats]]


def fit_entropy_law(entropy: Floats, reward: Floats) -> tuple[dict[str, float], Floats]:
    """Fit R = b - a exp(H) by least squares; ``ceiling`` is the reward at entropy 0."""
    design = np.column_stack([-np.exp(entropy), np.ones_like(entropy)])
    (a, b), *_ = np.linalg.lstsq(design, reward, rcond=None)
    return {"a": float(a), "b": float(b), "ceiling": float(b - a)}, design @ np.array([a, b])


def fit_sigmoid(compute: Floats, reward: Floats) -> tuple[dict[str, float], Floats]:
    """Fit the sigmoid of ScaleRL by least squares, on grids of B and C_mid that grow finer.

    For given B and C_mid the law is a straight line in s = 1 / (1 + (C_mid / C)^B): R0 at s = 0 and
    A at s = 1. Each grid covers what lies around the best point of the grid before.
    """
    exponents = np.geomspace(*_EXPONENTS, _GRID)
    midpoints = np.geomspace(*_MIDPOINTS, _GRID) * compute.max()
    for _ in range(_ROUNDS):
        errors = np.empty((_GRID, _GRID))
        for i, exponent in enumerate(exponents):
            errors[i] = _errors(_shares(compute, exponent, midpoints), reward)
        best_i, best_j = np.unravel_index(int(errors.argmin()), errors.shape)
        exponent, midpoint = float(exponents[best_i]), float(midpoints[best_j])
        exponents = _closer(exponents, int(best_i))
        midpoints = _closer(midpoints, int(best_j))
    share = _shares(compute, exponent, np.array([midpoint]))[0]
    slope, start = np.polyfit(share, reward, 1)
    numbers = {"R0": float(start), "A": float(start + slope), "B": exponent, "C_mid": midpoint}
    return numbers, start + slope * share


def _shares(compute: Floats, exponent: float, midpoints: Floats) -> Floats:
    """The share of its rise that the sigmoid has made (midpoints, steps)."""
    return np.asarray(1 / (1 + (midpoints[:, np.newaxis] / compute) ** exponent))


def _errors(shares: Floats, reward: Floats) -> Floats:
    """Squared error that a straight line in each row of shares leaves of the reward."""
    centred = shares - shares.mean(axis=1, keepdims=True)
    deviations = reward - reward.mean()
    variances = np.maximum((centred**2).sum(axis=1), np.finfo(float).tiny)
    return np.asarray((deviations**2).sum() - (centred @ deviations) ** 2 / variances)


def _closer(values: Floats, best: int) -> Floats:
    """As many values, between the neighbours of the best one."""
    low, high = values[max(best - 1, 0)], values[min(best + 1, len(values) - 1)]
    return np.geomspace(low, high, len(values))


def fit_law(name: str, fit: Fit, x: Floats, reward: Floats, replicates: int = REPLICATES) -> Law:
    """Fit a law, with basic intervals from a bootstrap of blocks of residuals.

    Neighbouring steps are alike, so residuals are drawn in blocks of about n^(1/3) steps. A basic
    interval is 2 estimate - quantile; it takes out the bias that an asymptote beyond the data has.
    """
    numbers, fitted = fit(x, reward)
    residuals = reward - fitted
    rng = np.random.default_rng(0)
    length = max(1, round(len(x) ** (1 / 3)))
    drawn: dict[str, list[float]] = {key: [] for key in numbers}
    for _ in range(replicates):
        starts = rng.integers(0, len(x) - length + 1, -(-len(x) // length))
        blocks = np.concatenate([residuals[start : start + length] for start in starts])
        for key, value in fit(x, fitted + blocks[: len(x)])[0].items():
            drawn[key].append(value)
    bounds = {
        key: 2 * numbers[key] - np.quantile(values, [0.975, 0.025]) for key, values in drawn.items()
    }
    explained = 1 - float((residuals**2).sum() / ((reward - reward.mean()) ** 2).sum())
    return Law(
        name,
        x,
        reward,
        fitted,
        {key: (value, *map(float, bounds[key])) for key, value in numbers.items()},
        explained,
    )


def laws_of(model: Training) -> Iterator[Law]:
    """Fit what the log of a training allows; nothing where it has too few steps with a reward."""
    frame = model.frame
    if "reward" not in frame:
        return
    logged = frame.dropna(subset=["reward"])
    logged = logged[logged["train_step"] > 0]
    reward = logged["reward"].to_numpy(np.float64)
    if len(logged) < FEWEST_STEPS or np.ptp(reward) == 0:
        return
    steps = logged["train_step"].to_numpy(np.float64)
    yield fit_law("sigmoid", fit_sigmoid, steps, reward)
    if _ENTROPY in logged and logged[_ENTROPY].notna().all():
        yield fit_law("entropy law", fit_entropy_law, logged[_ENTROPY].to_numpy(float), reward)


def laws_chart(laws: Sequence[tuple[str, Law]], colours: Colours) -> Chart:
    """Draw a panel for each law and model: what was logged as dots, the law as a line."""
    panels = []
    for model, law in laws:
        label = "training step" if law.name == "sigmoid" else _ENTROPY
        panel = Panel(
            linear_axis([law.x], label),
            linear_axis([law.reward, law.fitted], "reward"),
            f"{model}: {law.name}",
        )
        order = np.argsort(law.x)
        panel.dots(law.x, law.reward, colours[model])
        panel.line(law.x[order], law.fitted[order], colours[model])
        panels.append(panel)
    return Chart(panels, lambda: laws_frame(laws))


def laws_frame(laws: Sequence[tuple[str, Law]]) -> pd.DataFrame:
    """One row for each number of each law, with its interval."""
    return pd.DataFrame(
        {
            "model": model,
            "law": law.name,
            "number": name,
            "estimate": estimate,
            "lower": lower,
            "upper": upper,
            "r_squared": law.r_squared,
            "steps": len(law.x),
        }
        for model, law in laws
        for name, (estimate, lower, upper) in law.numbers.items()
    )


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """Draw all laws of all trainings of a run in one figure."""
    laws = [(model.model, law) for model in training(report) for law in laws_of(model)]
    if laws:
        yield "training_laws", laws_chart(laws, report.colours)


if __name__ == "__main__":
    main(__doc__, charts)
