"""Perplexity of the first, the middle and the last tokens of responses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator, ScalarFormatter

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.perplexity import TICKS
from rlbhpc.report.figures.style import DOUBLE, Drawn, canvas, marker_of
from rlbhpc.report.positions import PARTS, Positions


def positions_figure(shown: Sequence[Positions], bases: set[str], colours: Colours) -> Drawn:
    """Draw one line per arm over the three parts, base dashed, with intervals."""
    with canvas(DOUBLE, 2.5) as (figure, (axes,)):
        for number, one in enumerate(shown):
            middle = np.array([float(one.parts[name].estimate) for name in PARTS])
            low = middle - [float(one.parts[name].lower) for name in PARTS]
            high = [float(one.parts[name].upper) for name in PARTS] - middle
            # A little apart, so that intervals of several arms can be told from each other.
            place = np.arange(len(PARTS)) + 0.06 * (number - (len(shown) - 1) / 2)
            axes.errorbar(
                place, middle, yerr=np.array([low, high]), color=colours[one.of.arm],
                linestyle="--" if one.of.arm in bases else "-", marker=marker_of(number),
                markersize=4, capsize=2, elinewidth=0.9, linewidth=1.1, label=one.of.label,
            )  # fmt: skip
        axes.set_xticks(range(len(PARTS)), [f"{name} tokens" for name in PARTS])
        axes.set_xlim(-0.4, len(PARTS) - 0.6)
        axes.set_yscale("log")
        least, most = axes.get_ylim()
        axes.set_yticks([tick for tick in TICKS if least <= tick <= most] or [least])
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylabel("perplexity")
        figure.legend(loc="outside upper center", ncols=min(4, len(shown)), fontsize=7)
    return Drawn(figure, positions_frame(shown))


def positions_frame(shown: Sequence[Positions]) -> pd.DataFrame:
    """Perplexity with its interval, one row per arm and part."""
    return pd.DataFrame(
        {
            "problem_set": one.of.problem_set,
            "arm": one.of.arm,
            "step": one.of.step,
            "part": name,
            "perplexity": float(value.estimate),
            "lower": float(value.lower),
            "upper": float(value.upper),
            "responses": one.responses,
            "too_short": one.short,
        }
        for one in shown
        for name, value in one.parts.items()
    )
