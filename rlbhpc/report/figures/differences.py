"""Difference curves of several arms against one, in one panel: algorithms, ablations, steps."""

from __future__ import annotations

from collections.abc import Sequence

from rlbhpc.report.compare import Comparison
from rlbhpc.report.figures.difference import difference_frame
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, end_labels, k_axis


def differences_figure(comparisons: Sequence[Comparison], colours: Colours) -> Drawn:
    """Draw trained − base of each comparison of one problem set with its pointwise interval."""
    with canvas(DOUBLE, 3.0) as (figure, (axes,)):
        k_axis(axes, max(one.reach for one in comparisons))
        axes.axhline(0, color=INK, linewidth=0.6)
        ends = []
        for one in comparisons:
            at, colour = one.curve.pointwise, colours[one.trained.arm]
            axes.fill_between(
                one.curve.k, 100 * at.lower, 100 * at.upper, color=colour, alpha=0.12, linewidth=0
            )
            axes.plot(one.curve.k, 100 * at.estimate, color=colour)
            ends.append((100 * float(at.estimate[-1]), one.trained.label, colour))
        bases = {one.base.label for one in comparisons}
        axes.set_ylabel(f"difference to {bases.pop() if len(bases) == 1 else 'the base'}, points")
        end_labels(axes, ends)
    return Drawn(figure, difference_frame(comparisons))
