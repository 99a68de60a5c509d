"""Training curves: reward, length, entropy, KL, clipping and gradient over optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas
from rlbhpc.report.training import METRICS, Training


def training_figure(shown: Sequence[Training], colours: Colours) -> Drawn:
    """Draw one panel per metric that any model has, one line per model."""
    there = [name for name in METRICS if any(name in one.frame for one in shown)]
    rows = -(-max(len(there), 1) // 3)
    with canvas(DOUBLE, 0.35 + 1.75 * rows, min(3, max(len(there), 1)), rows) as (figure, axes):
        for panel, name in zip(axes, there, strict=False):
            for one in shown:
                if name in one.frame:
                    known = one.frame[["train_step", name]].dropna()
                    panel.plot(
                        known["train_step"], known[name], color=colours[one.model],
                        linewidth=1.1, label=one.model,
                    )  # fmt: skip
            panel.set_title(name, loc="left")
        for panel in axes[len(there) :]:
            panel.set_axis_off()
        for panel in axes[max(0, len(there) - 3) : len(there)]:
            panel.set_xlabel("optimizer step")
        if axes and there:
            handles, labels = axes[0].get_legend_handles_labels()
            columns = min(4, len(labels))
            figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=7)
    return Drawn(figure, training_frame(shown))


def training_frame(shown: Sequence[Training]) -> pd.DataFrame:
    """One row per model, metric and optimizer step."""
    parts = [
        one.frame.melt("train_step", var_name="metric", value_name="value").assign(model=one.model)
        for one in shown
    ]
    if not parts:
        return pd.DataFrame(columns=["model", "metric", "train_step", "value"])
    whole = pd.concat(parts, ignore_index=True).dropna(subset="value")
    return whole[["model", "metric", "train_step", "value"]]
