"""The study's published pass@k curves; those of runs are laid over the benchmark of their name.

Where each row comes from stands in analysis/published/pass_at_k.csv. A problem set of a run is laid
over the benchmark of its name (aime24, math500, minerva, ...).

Example: python analysis/published_pass_at_k.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, k_axis
from rlbhpc.report.gather import Report
from rlbhpc.report.script import main_published

TABLE = Path(__file__).parent / "published" / "pass_at_k.csv"
GROUPS = {
    "math": (
        "AIME24", "AMC23", "MATH500", "Minerva", "Olympiad", "GSM8K", "Omni-MATH train",
        "Omni-MATH test",
    ),
    "code-and-vision": (
        "HumanEval+", "MBPP+", "LiveCodeBench 2024.8-2025.1", "LiveCodeBench 2023.5-2025.1",
        "MathVista", "MathVision",
    ),
}  # fmt: skip
# Arms that are drawn without markers: each base's own trained model.
USUAL = {"SimpleRL-Zoo", "Code-R1", "EasyR1", "DeepCoder-14B"}


def draw(reports: Sequence[Report]) -> Iterator[tuple[str, Drawn]]:
    """One panel per benchmark: base dashed, trained solid, one colour per base model."""
    published = pd.read_csv(TABLE)
    for name, benchmarks in GROUPS.items():
        rows = -(-len(benchmarks) // 3)
        colours = Colours(published.query("benchmark in @benchmarks")["model"].unique(), [])
        frames = []
        with canvas(DOUBLE, 0.9 + 1.9 * rows, 3, rows) as (figure, axes):
            for panel, benchmark in zip(axes, benchmarks, strict=False):
                part = published[published["benchmark"] == benchmark]
                overlay = [frame for report in reports for frame in ours(report, benchmark)]
                draw_panel(panel, part, overlay, colours)
                frames += [part, *overlay]
            for panel in axes[len(benchmarks) :]:
                panel.set_axis_off()
            named = dict(pair[::-1] for panel in axes for pair in zip(*_legend(panel), strict=True))
            figure.legend(
                named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=6
            )
        yield f"published_pass_at_k-{name}", Drawn(figure, pd.concat(frames, ignore_index=True))


def draw_panel(
    panel: Axes, part: pd.DataFrame, overlay: list[pd.DataFrame], colours: Colours
) -> None:
    """Draw the curves of one benchmark, those of runs in ink."""
    k_axis(panel, int(part["k"].max()))
    lines = part.groupby(["model", "side", "arm"], sort=False)
    for (model, side, arm), line in lines:
        other = side == "trained" and arm not in USUAL
        panel.plot(
            line["k"], line["percent"], "--" if side == "base" else "-", linewidth=1.0,
            color=colours[str(model)], marker="s" if other else None, markersize=2.5,
            label=f"{model}: {arm}",
        )  # fmt: skip
    for frame in overlay:
        dash = "--" if frame["side"].iloc[0] == "base" else "-"
        panel.fill_between(
            frame["k"], frame["lower"], frame["upper"], color=INK, alpha=0.1, linewidth=0
        )
        label = f"this run: {frame['arm'].iloc[0]}"
        panel.plot(frame["k"], frame["percent"], dash, color=INK, linewidth=1.6, label=label)
    panel.set_ylim(0, 100)
    panel.set_title(part["benchmark"].iloc[0], loc="left")
    panel.set_ylabel("pass@k, %")


def _legend(panel: Axes) -> tuple[list[Artist], list[str]]:
    return panel.get_legend_handles_labels()


def ours(report: Report, benchmark: str) -> Iterator[pd.DataFrame]:
    """Curves of the compared arms of a run on the problem set of that name."""
    sides = {id(o.trained): ("trained", o.trained) for o in report.final}
    sides |= {id(o.base): ("base", o.base) for o in report.final}
    for side, one in sides.values():
        if one.curve is None or slug(one.problem_set).replace("-", "") != benchmark.lower():
            continue
        at = one.curve.interval
        yield pd.DataFrame(
            {
                "benchmark": benchmark,
                "model": one.model,
                "side": side,
                "arm": one.label,
                "k": one.curve.k,
                "percent": 100 * at.estimate,
                "lower": 100 * at.lower,
                "upper": 100 * at.upper,
                "source": report.name,
            }
        )


def slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


if __name__ == "__main__":
    main_published(__doc__, draw, runs=True)
