"""Base and trained model at every sampled temperature, and each at its best one."""

from __future__ import annotations

import pandas as pd

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, end_labels, k_axis
from rlbhpc.report.temperatures import Temperatures


def temperature_figure(one: Temperatures, bases: set[str], colours: Colours) -> Drawn:
    """Draw all curves thinly and both envelopes boldly; on the right, their difference."""
    base_colour = colours[next((m.arm for _, m in one.arms[0] if m.arm in bases), "")]
    trained_colour = colours[one.arms[1][0][1].arm]
    pairs = ((one.arms[0], one.envelopes[0], "--", base_colour, one.base),
             (one.arms[1], one.envelopes[1], "-", trained_colour, one.trained))  # fmt: skip
    with canvas(DOUBLE, 2.8, 2) as (figure, (curves, difference)):
        reach = int(one.envelopes[0].k[-1])
        for panel in (curves, difference):
            k_axis(panel, reach)
        for arms, envelope, dash, colour, name in pairs:
            for t, arm in arms:
                if arm.curve is None:
                    continue
                inside = arm.curve.k <= reach
                value = 100 * arm.curve.interval.estimate[inside]
                curves.plot(arm.curve.k[inside], value, dash, color=colour, linewidth=0.7)
                curves.annotate(
                    f"{t:g}", (arm.curve.k[inside][0], value[0]), xytext=(-2, 0),
                    textcoords="offset points", ha="right", va="center", fontsize=5.5,
                    color=colour, annotation_clip=False,
                )  # fmt: skip
            low, high = 100 * envelope.interval.lower, 100 * envelope.interval.upper
            curves.fill_between(envelope.k, low, high, color=colour, alpha=0.16, linewidth=0)
            value = 100 * envelope.interval.estimate
            curves.plot(envelope.k, value, dash, color=colour, label=f"{name}, best temperature")
        curves.set_ylim(0, 100)
        curves.tick_params(axis="y", pad=11)
        curves.set_ylabel("pass@k, %")
        curves.legend(fontsize=6.5, loc="lower right")
        d = one.difference
        k = one.envelopes[0].k
        difference.fill_between(
            k, 100 * d.lower, 100 * d.upper, color=trained_colour, alpha=0.2, linewidth=0
        )
        difference.plot(k, 100 * d.estimate, color=trained_colour)
        difference.axhline(0, color=INK, linewidth=0.6)
        difference.set_ylabel("best trained − best base, points")
        end_labels(difference, [])
    return Drawn(figure, temperature_frame(one))


def temperature_frame(one: Temperatures) -> pd.DataFrame:
    """Both envelopes with their temperatures and the difference, one row per k."""
    (base, trained), d = one.envelopes, one.difference
    return pd.DataFrame(
        {
            "problem_set": one.problem_set,
            "base": one.base,
            "trained": one.trained,
            "k": base.k,
            "base_pass_at_k": base.interval.estimate,
            "base_lower": base.interval.lower,
            "base_upper": base.interval.upper,
            "base_temperature": base.temperature,
            "trained_pass_at_k": trained.interval.estimate,
            "trained_lower": trained.interval.lower,
            "trained_upper": trained.interval.upper,
            "trained_temperature": trained.temperature,
            "difference": d.estimate,
            "lower": d.lower,
            "upper": d.upper,
            "sound": d.sound,
            "problems": one.problems,
        }
    )
