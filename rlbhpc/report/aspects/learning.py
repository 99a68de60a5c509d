"""What training did to single problems: learnt, corrupted, extinct, and pass@k of its rollouts."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.aspects.training import training
from rlbhpc.report.draw.axes import linear_axis
from rlbhpc.report.draw.chart import Chart, Key, Panel
from rlbhpc.report.draw.palette import Colours
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.memo import once
from rlbhpc.stats.learning import histories, least_rollouts, rollout_pass_at_k
from rlbhpc.store.cube_schema import ROLLOUTS

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
_POINTS: Final = 400


@once
def learning_frame(report: Report) -> pd.DataFrame:
    """One row per model and training step that has rollouts."""
    frames = []
    for node in report.tree.subtree:
        if node.attrs.get("kind") != ROLLOUTS:
            continue
        group = node.to_dataset()
        verdict = group["verdict"].transpose("problem", "rollout", "train_step").values
        n = least_rollouts(verdict)
        columns = {"train_step": group["train_step"].values, **histories(verdict)}
        columns |= {f"pass@{k}": rollout_pass_at_k(verdict, k) for k in _powers(n)}
        columns["pass@n"] = rollout_pass_at_k(verdict, n)
        frame = pd.DataFrame(columns)
        frame.insert(0, "model", str(group["model"].item()))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _powers(n: int) -> list[int]:
    return [1 << i for i in range(n.bit_length()) if 1 << i <= n]


def section(report: Report) -> list[Node]:
    """Figure and table of a run whose trainings stored their rollouts."""
    frame = learning_frame(report)
    if not len(frame):
        return []
    caption = (
        "What training did to the problems that it visited. Solved: any rollout of a visit is "
        "right. Learnt: first visit failed, last solved; corrupted: the opposite; extinct: once "
        "solved, failed at the last two visits. Few rollouts miss what is rarely solved."
    )
    return [
        el("h3", "Problems over training"),
        figure(caption, learning_chart(frame, report.colours)),
        _table(report, frame),
    ]


def learning_chart(frame: pd.DataFrame, colours: Colours) -> Chart:
    """Draw one panel per count, one line per model."""
    panels = []
    for name, title in SHOWN.items():
        curves = {model: part[["train_step", name]].dropna()
                  for model, part in frame.groupby("model", sort=False)}  # fmt: skip
        x = linear_axis([curve["train_step"] for curve in curves.values()], "optimizer step")
        y = linear_axis([curve[name] for curve in curves.values()], "", zero=True)
        panel = Panel(x, y, title, 140)
        for model, curve in curves.items():
            thin = curve.iloc[:: max(1, len(curve) // _POINTS)]
            colour = colours[str(model)]
            panel.line(thin["train_step"], thin[name], colour, name=str(model), width=1.2)
        panels.append(panel)
    models = dict.fromkeys(map(str, frame["model"]))
    return Chart(panels, frame, tuple(Key(model, colours[model]) for model in models))


def _table(report: Report, frame: pd.DataFrame) -> Node:
    """Counts at the last step, and first to last tenth of what stands beside them."""
    curves = {one.model: one.frame for one in training(report)}
    rows: list[list[Cell]] = []
    for model, part in frame.groupby("model", sort=False):
        last = part.iloc[-1]
        tenths = [_tenths(part[name]) for name in ("pass@1", "pass@n", "flips")]
        own = curves.get(str(model), pd.DataFrame())
        tenths += [_tenths(own[name]) if name in own else None for name in _BESIDE]
        counts = [int(last[name]) for name in ("learnt", "corrupted", "extinct")]
        rows.append([str(model), int(last["train_step"]), *counts, *tenths])
    heads = ["model", "steps", "learnt", "corrupted", "extinct", "pass@1", "pass@n", "flips",
             "reward", "length", "entropy"]  # fmt: skip
    return table("Problems at the last step; curves from their first to their last tenth",
                 heads, rows)  # fmt: skip


def _tenths(column: pd.Series) -> str | None:
    values = column.dropna().to_numpy(np.float64)
    if not len(values):
        return None
    part = max(1, len(values) // 10)
    return f"{values[:part].mean():.3g} → {values[-part:].mean():.3g}"


ASPECT = Aspect(Part.TRAINING, section, tables=lambda report: {"learning": learning_frame(report)})
