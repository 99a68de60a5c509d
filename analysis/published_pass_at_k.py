"""The study's published pass@k curves; those of runs are laid over the benchmark of their name.

Where each row comes from stands in analysis/published/pass_at_k.csv. A problem set of a run is laid
over the benchmark of its name (aime24, math500, minerva, ...).

Example: python analysis/published_pass_at_k.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rlbhpc.report.aspect import Report
from rlbhpc.report.chart import DASHED, INK, Chart, Colours, Key, Panel, k_axis, percent_axis
from rlbhpc.report.paper import main_published

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


def draw(reports: Sequence[Report]) -> Iterator[tuple[str, Chart]]:
    """One panel per benchmark: base dashed, trained solid, one colour per base model."""
    published = pd.read_csv(TABLE)
    for name, benchmarks in GROUPS.items():
        models = published.query("benchmark in @benchmarks")["model"].unique()
        colours = Colours(models, [])
        frames, panels = [], []
        for benchmark in benchmarks:
            part = published[published["benchmark"] == benchmark]
            overlay = [frame for report in reports for frame in ours(report, benchmark)]
            panels.append(curves_panel(part, overlay, colours))
            frames += [part, *overlay]
        legend = tuple(Key(model, colours[model]) for model in models)
        chart = Chart(panels, pd.concat(frames, ignore_index=True), legend)
        yield f"published_pass_at_k-{name}", chart


def curves_panel(part: pd.DataFrame, overlay: list[pd.DataFrame], colours: Colours) -> Panel:
    """Draw the curves of one benchmark, those of runs in ink."""
    panel = Panel(k_axis(int(part["k"].max())), percent_axis(), part["benchmark"].iloc[0], 150)
    lines = part.groupby(["model", "side", "arm"], sort=False)
    for (model, side, arm), line in lines:
        dash = DASHED if side == "base" else ""
        colour, name = colours[str(model)], f"{model}: {arm}"
        panel.line(line["k"], line["percent"], colour, name=name, dash=dash, width=1.2)
        if side == "trained" and arm not in USUAL:
            panel.points(line["k"], line["percent"], colour, name=name, size=4)
    for frame in overlay:
        arm = frame["arm"].iloc[0]
        dash = DASHED if frame["side"].iloc[0] == "base" else ""
        panel.band(frame["k"], frame["lower"], frame["upper"], INK, 0.1)
        panel.line(frame["k"], frame["percent"], INK, name=f"this run: {arm}", dash=dash)
        panel.end(float(frame["percent"].iloc[-1]), arm, INK)
    return panel


def ours(report: Report, benchmark: str) -> Iterator[pd.DataFrame]:
    """Curves of the compared arms of a run on the problem set of that name."""
    sides = {id(pair.trained): ("trained", pair.trained) for pair in report.last_comparisons}
    sides |= {id(pair.base): ("base", pair.base) for pair in report.last_comparisons}
    for side, arm in sides.values():
        if arm.curve is None or slug(arm.problem_set).replace("-", "") != benchmark.lower():
            continue
        interval = arm.curve.interval
        yield pd.DataFrame(
            {
                "benchmark": benchmark,
                "model": arm.model,
                "side": side,
                "arm": arm.label,
                "k": arm.curve.k,
                "percent": 100 * interval.estimate,
                "lower": 100 * interval.lower,
                "upper": 100 * interval.upper,
                "source": report.name,
            }
        )


def slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


if __name__ == "__main__":
    main_published(__doc__, draw, takes_runs=True)
