"""The pass@k curves of one line of checkpoints, early to late, beside its pass@1 and pass@K."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np

from rlbhpc.report.figures.curves import curves_frame
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import BASE_COLOUR, DOUBLE, Drawn, canvas, k_axis
from rlbhpc.report.gather import Line
from rlbhpc.report.measured import Measured


def checkpoints_figure(line: Line, colours: Colours) -> Drawn:
    """Draw base and checkpoints on the left, pass@1 and pass@K over steps on the right.

    Checkpoints go from dark to light as training goes on, within what can be told from black and
    from white paper; intervals are drawn on the right only,
    where they can be told apart.
    """
    base, checkpoints = line
    shown = [one for one in (base, *checkpoints) if one.curve is not None]
    shades = mpl.colormaps["cividis"](np.linspace(0.25, 0.85, max(len(checkpoints), 1)))
    with canvas(DOUBLE, 2.8, 2) as (figure, (left, right)):
        k_axis(left, max(int(one.curve.k[-1]) for one in shown if one.curve))
        for one, shade in zip(checkpoints, shades, strict=True):
            if one.curve is not None:
                value = 100 * one.curve.interval.estimate
                label = f"step {one.step:,}"
                left.plot(one.curve.k, value, color=shade, linewidth=1.2, label=label)
        if base.curve is not None:
            value = 100 * base.curve.interval.estimate
            left.plot(base.curve.k, value, "--", color=BASE_COLOUR, label=base.label)
        left.set_ylim(0, 100)
        left.set_ylabel("pass@k, %")
        left.legend(fontsize=6, ncols=2, loc="lower right", handlelength=1.4)
        colour = colours[checkpoints[-1].arm]
        reach = min(int(one.curve.k[-1]) for one in shown if one.curve)
        for k, fill, name in ((1, "none", "pass@1"), (reach, colour, f"pass@{reach:,}")):
            rows = np.array([_at(one, k) for one in shown]).reshape(-1, 3)
            steps = [one.step for one in shown]
            steps[0] = base.step if base.arm == checkpoints[-1].arm else 0
            right.errorbar(
                steps, rows[:, 0], yerr=abs(rows[:, 1:] - rows[:, :1]).T,
                color=colour, marker="o", markerfacecolor=fill, markersize=4, capsize=2,
                elinewidth=0.8, linewidth=1.1, label=name,
            )  # fmt: skip
        right.set_xlabel("training step (0: the base)")
        right.set_ylabel("pass@k, %")
        right.set_ylim(0, 100)
        right.legend(fontsize=7)
    return Drawn(figure, curves_frame(shown))


def _at(one: Measured, k: int) -> tuple[float, float, float]:
    assert one.curve is not None
    place = int(np.searchsorted(one.curve.k, k, "right")) - 1
    cell = one.curve.interval[place]
    return 100 * float(cell.estimate), 100 * float(cell.lower), 100 * float(cell.upper)
