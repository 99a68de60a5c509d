"""pass@k of one model under several prompts."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, end_labels, k_axis
from rlbhpc.report.prompts import Prompts


def prompts_figure(shown: Sequence[Prompts], bases: set[str], colours: Colours) -> Drawn:
    """Draw one panel per model, one line per prompt, named at its end."""
    rows = -(-len(shown) // 2)
    with canvas(DOUBLE, 0.3 + 2.2 * rows, min(2, len(shown)), rows) as (figure, axes):
        for panel, one in zip(axes, shown, strict=False):
            k_axis(panel, int(one.spread.k[-1]))
            ends = []
            for arm, name, line in zip(
                one.arms, one.spread.prompts, one.spread.values, strict=True
            ):
                colour = colours[arm.arm]
                dash = "--" if arm.arm in bases else "-"
                panel.plot(one.spread.k, 100 * line, dash, color=colour, label=name)
                ends.append((100 * float(line[-1]), name, colour))
            panel.set_ylim(0, 100)
            panel.set_ylabel("pass@k, %")
            panel.set_title(one.label, loc="left")
            end_labels(panel, ends)
        for panel in axes[len(shown) :]:
            panel.set_axis_off()
    return Drawn(figure, prompts_frame(shown))


def prompts_frame(shown: Sequence[Prompts]) -> pd.DataFrame:
    """pass@k by prompt, one row per model, step, prompt and k, with the spread at that k."""
    parts = [
        pd.DataFrame(
            {
                "problem_set": one.problem_set,
                "model": one.model,
                "step": one.step,
                "prompt": name,
                "k": one.spread.k,
                "pass_at_k": line,
                "best_minus_worst": one.spread.spread.estimate,
                "lower": one.spread.spread.lower,
                "upper": one.spread.spread.upper,
                "sound": one.spread.spread.sound,
            }
        )
        for one in shown
        for name, line in zip(one.spread.prompts, one.spread.values, strict=True)
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
