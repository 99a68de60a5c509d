"""What training did to single problems: learnt, corrupted, extinct, and pass@k of its rollouts.

In the report of a study: `analysis: {aspects: [./analysis/problems_over_training.py]}`.
Example: python analysis/problems_over_training.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, once
from rlbhpc.report.aspects.training import first_and_last_tenth, metric_panel, training
from rlbhpc.report.chart import Chart, Colours, Key
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import powers_of_two
from rlbhpc.report.paper import main
from rlbhpc.report.svg import figure
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store.cube_schema import ROLLOUTS

RIGHT: Final = 1
MISSING: Final = -1
# Verdicts that say nothing of the model: missing, failed generation, verifier error.
_UNJUDGED: Final = (MISSING, 4, 5)


def histories(verdict: NDArray[np.int8]) -> dict[str, NDArray[np.float64]]:
    """Counts over training steps, each of shape (steps,).

    ``verdict`` has shape (problems, rollouts, steps). Of the problems that were visited twice or
    more up to a step, ``learnt`` counts those whose first visit failed and whose last is solved,
    ``corrupted`` the opposite, and ``extinct`` those once solved whose last two visits failed.
    ``flips`` is the share of the step's problems that changed since their visit before; NaN where
    none had one.
    """
    solved = np.any(verdict == RIGHT, axis=1)
    visited = np.any(~np.isin(verdict, _UNJUDGED), axis=1)
    problems, steps = solved.shape
    out = {name: np.full(steps, np.nan) for name in ("learnt", "corrupted", "extinct", "flips")}
    first, last, before, ever = (np.zeros(problems, bool) for _ in range(4))
    count = np.zeros(problems, np.int64)
    for step in range(steps):
        here, now = visited[:, step], solved[:, step]
        again = here & (count > 0)
        if again.any():
            out["flips"][step] = float((now != last)[again].mean())
        first = np.where(here & (count == 0), now, first)
        before = np.where(here, last, before)
        last = np.where(here, now, last)
        ever |= here & now
        count += here
        twice = count > 1
        out["learnt"][step] = float((twice & ~first & last).sum())
        out["corrupted"][step] = float((twice & first & ~last).sum())
        out["extinct"][step] = float(((count > 2) & ever & ~last & ~before).sum())
    return out


def least_rollouts(verdict: NDArray[np.int8]) -> int:
    """Rollouts of a problem that is drawn once in a step; one drawn twice has twice as many."""
    counts = (verdict != MISSING).sum(1)
    return int(counts[counts > 0].min(initial=verdict.shape[1]))


def rollout_pass_at_k(verdict: NDArray[np.int8], k: int) -> NDArray[np.float64]:
    """Mean pass@k over the problems of each step that have so many rollouts; shape (steps,)."""
    judged = ~np.isin(verdict, _UNJUDGED)
    n, c = judged.sum(1), (verdict == RIGHT).sum(1)
    values = pass_at_k(np.maximum(n, 1), c, k)
    there = (n >= k) & ~np.isnan(values)
    sums = np.where(there, values, 0.0).sum(0)
    counts = there.sum(0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


#: Columns of the frame, with the words for them.
SHOWN: Final = {
    "learnt": "problems learnt",
    "corrupted": "problems corrupted",
    "extinct": "problems extinct",
    "flips": "share that flipped",
    "pass@1": "pass@1 of rollouts",
    "pass@n": "pass@n of rollouts",
}
_BESIDE: Final = ("reward", "response length, tokens", "entropy, nat per token")


@once
def learning_frame(report: Report) -> pd.DataFrame:
    """One row per model and training step that has rollouts."""
    frames = []
    for group in report.groups(ROLLOUTS):
        verdict = group["verdict"].transpose("problem", "rollout", "train_step").values
        n = least_rollouts(verdict)
        columns = {"train_step": group["train_step"].values, **histories(verdict)}
        columns |= {f"pass@{k}": rollout_pass_at_k(verdict, k) for k in powers_of_two(n)}
        columns["pass@n"] = rollout_pass_at_k(verdict, n)
        frame = pd.DataFrame(columns)
        frame.insert(0, "model", str(group["model"].item()))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def section(report: Report) -> Iterator[Node]:
    """Figure and table of a run whose trainings stored their rollouts."""
    frame = learning_frame(report)
    if not len(frame):
        return
    caption = (
        "What training did to the problems that it visited. Solved: any rollout of a visit is "
        "right. Learnt: first visit failed, last solved; corrupted: the opposite; extinct: once "
        "solved, failed at the last two visits. Few rollouts miss what is rarely solved."
    )
    yield el("h3", "Problems over training")
    yield figure(caption, learning_chart(frame, report.colours))
    curves = {one.model: one.frame for one in training(report)}
    rows: list[list[Cell]] = []
    for model, part in frame.groupby("model", sort=False):
        last = part.iloc[-1]
        changes = [_change(part[name]) for name in ("pass@1", "pass@n", "flips")]
        own = curves.get(str(model), pd.DataFrame())
        changes += [_change(own[name]) if name in own else None for name in _BESIDE]
        counts = [int(last[name]) for name in ("learnt", "corrupted", "extinct")]
        rows.append([str(model), int(last["train_step"]), *counts, *changes])
    heads = ["model", "steps", "learnt", "corrupted", "extinct", "pass@1", "pass@n", "flips",
             "reward", "length", "entropy"]  # fmt: skip
    yield table("Problems at the last step; curves from their first to their last tenth",
                 heads, rows)  # fmt: skip


def learning_chart(frame: pd.DataFrame, colours: Colours) -> Chart:
    """Draw one panel per count, one line per model."""
    frames = {str(model): part for model, part in frame.groupby("model", sort=False)}
    panels = [
        metric_panel(frames, name, title, colours, zero=True) for name, title in SHOWN.items()
    ]
    return Chart(panels, frame, tuple(Key(model, colours[model]) for model in frames))


def _change(column: pd.Series) -> str | None:
    ends = first_and_last_tenth(column)
    return f"{ends[0]:.3g} → {ends[1]:.3g}" if ends else None


def charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """One chart of all models whose trainings stored their rollouts."""
    frame = learning_frame(report)
    if len(frame):
        yield "problems_over_training", learning_chart(frame, report.colours)


ASPECT = Aspect(Part.TRAINING, section, tables=lambda report: {"learning": learning_frame(report)})

if __name__ == "__main__":
    main(__doc__, charts)
