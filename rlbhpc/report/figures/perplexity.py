"""Perplexity: who finds whose text likely, and how that changes over training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator, ScalarFormatter

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, marker_of
from rlbhpc.report.scored import Evolution, Scored

# Points drawn of one condition; the quartiles are those of all.
_POINTS: Final = 150


def perplexity_figure(shown: Sequence[Scored], colours: Colours) -> Drawn:
    """Draw each combination of text and model as a strip with median and quartiles, on log x."""
    jitter = np.random.default_rng(0)
    with canvas(DOUBLE, 0.7 + 0.42 * max(len(shown), 1)) as (figure, (axes,)):
        for row, one in enumerate(reversed(shown)):
            colour = colours[one.source]
            known = one.perplexity[~np.isnan(one.perplexity)]
            points = known[np.linspace(0, len(known) - 1, min(_POINTS, len(known))).astype(int)]
            place = row + jitter.uniform(-0.26, 0.26, len(points))
            axes.plot(points, place, ".", color=colour, alpha=0.3, markersize=3, rasterized=False)
            s = one.spread
            axes.plot([s.lower_quartile, s.upper_quartile], [row, row], color=INK, linewidth=1.2)
            axes.plot(s.median, row, "o", color=INK, markersize=4)
            axes.text(
                1.005, row, f"{s.median:.3f}", transform=axes.get_yaxis_transform(), va="center",
                fontsize=7,
            )  # fmt: skip
        axes.set_yticks(range(len(shown)), [one.label for one in reversed(shown)])
        axes.set_ylim(-0.6, len(shown) - 0.3)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        low = min((float(np.nanmin(one.perplexity)) for one in shown), default=1.0)
        high = max((float(np.nanmax(one.perplexity)) for one in shown), default=2.0)
        axes.set_xticks([t for t in TICKS if low * 0.99 <= t <= high * 1.01] or [low])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("perplexity of a response (dot and number: median; line: quartiles)")
    return Drawn(figure, perplexity_frame(shown))


#: Perplexities that an axis may be marked with.
TICKS: Final = (1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)


def perplexity_frame(shown: Sequence[Scored]) -> pd.DataFrame:
    """Distribution of perplexities, one row per text and model."""
    return pd.DataFrame(
        {
            "problem_set": one.problem_set,
            "source": one.source,
            "step": one.step,
            "scorer": one.scorer,
            "scorer_step": one.scorer_step,
            **vars(one.spread),
        }
        for one in shown
    )


def perplexity_steps_figure(shown: Sequence[Evolution], colours: Colours) -> Drawn:
    """Draw the median of each problem thinly and the mean over problems boldly, over steps."""
    with canvas(DOUBLE, 2.6) as (figure, (axes,)):
        for number, one in enumerate(shown):
            colour = colours[one.source if one.over != "scorer_step" else one.scorer]
            axes.plot(one.steps, one.each[:, :60], color=colour, alpha=0.12, linewidth=0.6)
            axes.plot(
                one.steps, one.values, marker=marker_of(number), color=colour, markersize=4,
                label=f"{one.source} under {one.scorer}",
            )  # fmt: skip
        axes.set_xlabel("training step")
        axes.set_ylabel("perplexity, median of a problem")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        axes.tick_params(axis="y", which="minor", labelsize=6.5)
        axes.set_xticks(sorted({step for one in shown for step in one.steps}))
        figure.legend(loc="outside upper center", ncols=min(3, len(shown)), fontsize=7)
    return Drawn(figure, perplexity_steps_frame(shown))


def perplexity_steps_frame(shown: Sequence[Evolution]) -> pd.DataFrame:
    """Mean over problems of median perplexity, one row per pair and step."""
    rows = [
        {
            "problem_set": one.problem_set,
            "source": one.source,
            "scorer": one.scorer,
            "over": one.over,
            "step": step,
            "perplexity": value,
            "problems": int((~np.isnan(each)).sum()),
        }
        for one in shown
        for step, value, each in zip(one.steps, one.values.tolist(), one.each, strict=True)
    ]
    return pd.DataFrame(rows)
