"""The study's published numbers as figures; curves of runs on a benchmark are laid over them.

Sources stand in each row of analysis/published/*.csv. A problem set of a run is laid over the
benchmark of its name (aime24, math500, minerva, ...).

Example: python analysis/published.py runs/math -o figures
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from rlbhpc.errors import UserError
from rlbhpc.report.figures.palette import Colours
from rlbhpc.report.figures.style import DOUBLE, INK, Drawn, canvas, k_axis, marker_of, save
from rlbhpc.report.gather import Report, gather
from rlbhpc.stats import delta_se

DATA = Path(__file__).parent / "published"
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


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(DATA / f"{name}.csv")


def slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


def curves(reports: list[Report]) -> Iterator[tuple[str, Drawn]]:
    """One panel per benchmark: base dashed, trained solid, one colour per base model."""
    published = read("pass_at_k")
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
        yield f"published-pass_at_k-{name}", Drawn(figure, pd.concat(frames, ignore_index=True))


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


def gaps() -> Iterator[tuple[str, Drawn]]:
    """Sampling-efficiency gaps worked out anew from tables 3 and 4, one panel per problem set."""
    table = read("algorithms")
    base = table[table["arm"] == "base"].set_index("benchmark")["pass_at_256"]
    rows = table[table["arm"] != "base"].copy()
    rows["delta_se"] = delta_se(base[rows["benchmark"]].to_numpy(), rows["pass_at_1"]).round(1)
    rows["label"] = [f"{r.arm}, step {r.step}" for r in rows.itertuples()]
    names = list(dict.fromkeys(rows["label"]))
    colours = Colours(dict.fromkeys(rows["arm"]), [])
    with canvas(DOUBLE, 2.2, 3) as (figure, axes):
        for place, (panel, benchmark) in enumerate(zip(axes, base.index, strict=True)):
            for row in rows[rows["benchmark"] == benchmark].itertuples():
                panel.plot(row.delta_se, -names.index(row.label), "o", color=colours[row.arm])
                panel.annotate(
                    f"{row.delta_se:.1f}", (row.delta_se, -names.index(row.label)),
                    xytext=(4, 0), textcoords="offset points", va="center", fontsize=6.5,
                )  # fmt: skip
            shown = names if place == 0 else [""] * len(names)
            panel.set_yticks([-i for i in range(len(names))], shown)
            panel.set_title(benchmark, loc="left")
            panel.margins(x=0.25)
            panel.set_xlabel("base pass@256 − pass@1")
    yield "published-delta_se", Drawn(figure, rows)


def histograms() -> Iterator[tuple[str, Drawn]]:
    """Problems by accuracy before and after training, base hatched, one panel per benchmark."""
    table = read("accuracy_histogram")
    parts = [part for _, part in table.groupby("benchmark", sort=False)]
    colour = Colours(["trained"], [])["trained"]
    with canvas(DOUBLE, 1.9 * len(parts), 1, len(parts)) as (figure, axes):
        for panel, part in zip(axes, parts, strict=True):
            for side, shift in (("base", -0.21), ("trained", 0.21)):
                line = part[part["side"] == side]
                bars = panel.bar(
                    np.arange(len(line)) + shift, line["problems"], 0.4, edgecolor=colour,
                    facecolor="none" if side == "base" else colour, label=side,
                    hatch="/////" if side == "base" else None,
                )  # fmt: skip
                panel.bar_label(bars, fontsize=6.5, padding=1)
                panel.set_xticks(np.arange(len(line)), line["bin"])
            panel.set_title(part["benchmark"].iloc[0], loc="left")
            panel.set_ylabel("problems")
        axes[0].legend(fontsize=7)
        axes[-1].set_xlabel("accuracy of a problem")
    yield "published-accuracy_histogram", Drawn(figure, table)


def dynamics() -> Iterator[tuple[str, Drawn]]:
    """Reward and entropy of the study's runs over training."""
    table = read("training_dynamics")
    colours = Colours(dict.fromkeys(table["run"]), [])
    with canvas(DOUBLE, 2.5, 2) as (figure, axes):
        for panel, metric in zip(axes, ("reward", "entropy"), strict=True):
            part = table[table["metric"] == metric]
            for number, (run, line) in enumerate(part.groupby("run", sort=False)):
                panel.plot(
                    line["step"], line["value"], color=colours[str(run)], markersize=3.5,
                    marker=marker_of(number), label=run,
                )  # fmt: skip
            panel.set_xlabel("training step")
            panel.set_ylabel(metric)
        axes[0].legend(fontsize=6.5)
    yield "published-training_dynamics", Drawn(figure, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="runs to lay over")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    asked = parser.parse_args()
    try:
        reports = [gather(run) for run in asked.runs]
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)
    about = {"runs": [report.name for report in reports]}
    for draw in (lambda: curves(reports), gaps, histograms, dynamics):
        for name, drawn in draw():
            print(save(drawn, asked.out, name, about)[0])


if __name__ == "__main__":
    main()
