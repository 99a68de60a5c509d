"""Entropy of the responses: over training steps, and against what pass@k became."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, marker_of
from rlbhpc.report.responses import Responses


def entropy_figure(shown: Sequence[Responses], bases: set[str], colours: Colours) -> Drawn:
    """Draw entropy and length over steps, and pass@K against entropy with arrows along the steps.

    Parameters
    ----------
    shown
        Arms and steps of one problem set.
    bases
        Arms that are a base; they have a level and not a line.
    colours
        Of the report.
    """
    lines: dict[str, list[Responses]] = {}
    for one in shown:
        lines.setdefault(one.of.arm, []).append(one)
    k = min((int(one.of.curve.k[-1]) for one in shown if one.of.curve), default=1)
    with canvas(DOUBLE, 2.7, 3) as (figure, (over, length, against)):
        for number, (arm, line) in enumerate(lines.items()):
            colour, marker = colours[arm], marker_of(number)
            steps = [one.of.step for one in line]
            for panel, name in ((over, "entropy"), (length, "tokens")):
                values = [getattr(one, name) for one in line]
                middle = np.array([float(v.estimate) for v in values])
                ends = [middle - [float(v.lower) for v in values],
                        [float(v.upper) for v in values] - middle]  # fmt: skip
                if arm in bases and len(line) == 1:
                    panel.axhline(middle[0], color=colour, linestyle="--", linewidth=1, label=arm)
                    continue
                panel.errorbar(
                    steps, middle, yerr=np.array(ends), color=colour, marker=marker, markersize=3.5,
                    capsize=2, elinewidth=0.8, linewidth=1.1, label=arm,
                )  # fmt: skip
            x = [float(one.entropy.estimate) for one in line]
            y = [100 * _pass_at(one, k) for one in line]
            against.plot(x, y, marker, color=colour, markersize=4)
            for a, b in zip(range(len(x) - 1), range(1, len(x)), strict=True):
                against.annotate(
                    "", (x[b], y[b]), (x[a], y[a]),
                    arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 0.8},
                )  # fmt: skip
        over.set_ylabel("entropy, nat per token")
        length.set_ylabel("tokens per response")
        for panel in (over, length):
            panel.set_xlabel("training step")
            panel.set_ylim(0)
        against.set_xlabel("entropy, nat per token")
        against.set_ylabel(f"pass@{k}, %")
        against.grid(color=INK, alpha=0.12, linewidth=0.5)
        handles, labels = over.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=min(5, len(labels)), fontsize=7
        )
    return Drawn(figure, responses_frame(shown))


def _pass_at(one: Responses, k: int) -> float:
    if one.of.curve is None:
        return float("nan")
    at = int(np.searchsorted(one.of.curve.k, k, "right")) - 1
    return float(one.of.curve.interval.estimate[at])


def responses_frame(shown: Sequence[Responses]) -> pd.DataFrame:
    """Entropy and length with intervals, pass@1 and pass@K, one row per arm, step and set."""
    rows = []
    for one in shown:
        ends = one.of.curve.interval.estimate if one.of.curve else np.array([np.nan])
        row: dict[str, object] = {
            "problem_set": one.of.problem_set,
            "arm": one.of.arm,
            "step": one.of.step,
        }
        for name, interval in (("entropy", one.entropy), ("tokens", one.tokens)):
            row |= {
                name: float(interval.estimate),
                f"{name}_lower": float(interval.lower),
                f"{name}_upper": float(interval.upper),
            }
        row |= {
            "pass_at_1": float(ends[0]),
            "k": int(one.of.curve.k[-1]) if one.of.curve else 0,
            "pass_at_k": float(ends[-1]),
        }
        rows.append(row)
    return pd.DataFrame(rows)
