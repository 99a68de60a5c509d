"""Which problems only one of two arms solves: the 2 × 2 table with the ids behind it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, single_chart
from rlbhpc.report.aspects.evidence import case_links
from rlbhpc.report.compare import Comparison
from rlbhpc.report.draw.chart import (
    INK,
    Axis,
    Chart,
    Colours,
    Key,
    Panel,
    linear_axis,
    row_axis,
)
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import (
    adjusted_p,
    count_text,
    equals_p,
    interval_text,
    percent_text,
    stack_rows,
)
from rlbhpc.stats import accuracy_histogram
from rlbhpc.stats.coverage_table import BINS
from rlbhpc.stats.priors import carries_rates, flip_probability

#: The cells of the 2 × 2 table, as they are named in words.
CELLS: Final = {
    "both": "both",
    "base_only": "base only",
    "trained_only": "trained only",
    "neither": "neither",
}
# Ids that a table lists before it says how many more there are.
_IDS: Final = 60


def comparison(report: Report, pair: Comparison) -> Iterator[Node]:
    """The table of one comparison, McNemar's test, and what was kept and found."""
    if pair.solved is None:
        yield el("p", "Coverage is not known: imported counts of unequal numbers of samples.")
        return
    links = case_links(report, pair)
    rows: list[list[Cell]] = []
    for name, words in CELLS.items():
        cell = getattr(pair.solved, name).tolist()
        ids = _ids([pair.problems[i] for i in cell], links) if "only" in name else ""
        rows.append([words, len(cell), percent_text(pair.solved.shares[name]), ids])
    caption = f"Solved at least once in {count_text(pair.solved_in, 'sample')}"
    p = adjusted_p(pair.solved.p_value, pair.p_solved_holm, len(report.final))
    yield table(caption, ["by", "problems", "%", "ids"], rows, wide=(3,))
    fitted = carries_rates(pair.sides.base) and carries_rates(pair.sides.trained)
    again = _again(report, pair) if fitted else ""
    yield el("p", f"McNemar's exact test, two-sided: p {p}.{again}")


def _again(report: Report, pair: Comparison) -> str:
    differ, by_chance = churn(report, pair)
    base, trained = _flips(report, pair)
    cell_changes = float((1 - (1 - base) * (1 - trained)).sum())
    return (
        f" Sampled again, about {cell_changes:.1f} of these problems would change their cell. "
        f"Only one of the two solves {count_text(differ, 'problem')}; a model sampled twice would "
        f"differ from itself on about {by_chance:.1f}, so that {differ - by_chance:+z.1f} is churn."
    )


def churn(report: Report, pair: Comparison) -> tuple[int, float]:
    """Problems that only one of the two solves, and how many a re-run of one model would show.

    The latter is the mean of both models, each sampled anew against itself; what is above it is
    churn that sampling alone does not explain.
    """
    assert pair.solved is not None
    cells = pair.solved.counts
    base, trained = _flips(report, pair)
    return cells["base_only"] + cells["trained_only"], float((base.sum() + trained.sum()) / 2)


def _flips(report: Report, pair: Comparison) -> list[NDArray[np.float64]]:
    """Chance of every problem to come out differently, of base and trained."""
    key = (_flips, id(pair))
    if key not in report.memo:
        solved = pair.solved
        assert solved is not None
        report.memo[key] = [
            flip_probability(
                counts, pair.solved_in, np.isin(np.arange(len(counts)), [*solved.both, *cell])
            )
            for counts, cell in (
                (pair.sides.base, solved.base_only),
                (pair.sides.trained, solved.trained_only),
            )
        ]
    chances: list[NDArray[np.float64]] = report.memo[key]
    return chances


def _ids(problems: list[str], links: dict[str, str]) -> ET.Element:
    """Ids one after the other, with links to those whose responses are shown."""
    cell = el("span")
    for i, problem in enumerate(problems[:_IDS]):
        link = links.get(problem)
        node = el("a", problem, href=link) if link else el("span", problem)
        node.tail = ", " if i + 1 < min(len(problems), _IDS) else ""
        cell.append(node)
    if len(problems) > _IDS:
        cell.append(el("span", f" and {len(problems) - _IDS:,} more, in coverage.csv"))
    return cell


def coverage_chart(pairs: Sequence[Comparison], colours: Colours) -> Chart:
    """Draw one bar per comparison, split into both, base only, trained only and neither."""
    x = Axis(0, 100, "share of problems solved at least once, %",
             tuple((float(v), str(v)) for v in (0, 25, 50, 75, 100)))  # fmt: skip
    panel = Panel(x, row_axis(len(pairs)), height=40 * len(pairs))
    for number, pair in enumerate(pairs):
        assert pair.solved is not None
        cells = ", ".join(f"{CELLS[name]} {count}" for name, count in pair.solved.counts.items())
        title = f"{pair.trained.label} − {pair.base.arm}, {pair.problem_set}"
        middle = panel.row(number, f"{title}: {cells}; p {equals_p(pair.solved.p_value)}")
        left = 0.0
        for name, share in pair.solved.shares.items():
            only = name in ("base_only", "trained_only")
            arm = pair.base.arm if name == "base_only" else pair.trained.arm
            right = left + 100 * share
            colour = colours[arm] if only else INK
            panel.bar((left, right), (middle - 0.18, middle + 0.22), colour, filled=only)
            left = right
    return Chart([panel], lambda: coverage_frame(pairs))


def coverage_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """One row per compared problem: its cell, and right samples of both arms."""
    parts = []
    for pair in pairs:
        if pair.solved is None:
            continue
        base, trained = pair.sides.base, pair.sides.trained
        cells = [np.asarray(getattr(pair.solved, name), np.int64) for name in CELLS]
        order = np.concatenate(cells)
        columns: dict[str, object] = {
            **pair.key,
            "samples": pair.solved_in,
            "cell": np.repeat(list(CELLS), [len(cell) for cell in cells]),
            "problem": np.array(pair.problems, object)[order],
            "base_n": base.n[order],
            "base_right": base.c[order],
            "trained_n": trained.n[order],
            "trained_right": trained.c[order],
        }
        parts.append(columns)
    return stack_rows(parts)


def _counted(report: Report) -> list[Comparison]:
    return [pair for pair in report.final if pair.solved is not None]


charts = single_chart("coverage", _counted, coverage_chart)

ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"coverage": coverage_frame(report.every_comparison)},
    metrics=("coverage", "McNemar p", "flip probability"),
    charts=charts,
)


def accuracy_figure(report: Report, pair: Comparison) -> Iterator[Node]:
    """The figure of one comparison."""
    caption = (
        "Problems by accuracy; exactly 0 and exactly 1 have bins of their own. Outlined: "
        f"{pair.base.arm}, filled: {pair.trained.arm}. Share of problems never solved, trained "
        f"minus base: {interval_text(pair.never_solved, sign=True)} points."
    )
    yield figure(caption, histogram_chart(pair, report.colours))


def histogram_chart(pair: Comparison, colours: Colours) -> Chart:
    """Draw the bars of base (outlined) and trained arm side by side, in the study's bins."""
    frame = histogram_frame([pair])
    panel = bars_panel(frame, colours[pair.base.arm], colours[pair.trained.arm])
    legend = tuple(Key(side.arm, colours[side.arm]) for side in (pair.base, pair.trained))
    return Chart([panel], frame, legend)


def bars_panel(frame: pd.DataFrame, base: str, trained: str, title: str = "") -> Panel:
    """Draw the problems per bin of both sides of a frame with side, bin and problems."""
    # Every third bin has its label: those of all would not fit on a telephone.
    ticks = tuple((float(i), name) for i, name in enumerate(BINS) if i % 3 == 0 or i == 11)
    x = Axis(-0.6, len(BINS) - 0.4, "accuracy c/n of a problem", ticks)
    panel = Panel(x, linear_axis([frame["problems"]], "problems", zero=True), title, 160)
    for side, colour, shift in (("base", base, -0.4), ("trained", trained, 0.02)):
        counts = frame.loc[frame["side"] == side, "problems"].tolist()
        for i, count in enumerate(counts):
            if count:
                text = f"{side}, {BINS[i]}: {count} problems"
                panel.bar((i + shift, i + shift + 0.38), (0, count), colour,
                          filled=side == "trained", text=text)  # fmt: skip
    return panel


def histogram_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """Problems per bin of accuracy, of both sides."""
    return stack_rows(
        {
            "problem_set": side.problem_set,
            "side": name,
            "arm": side.arm,
            "step": side.step,
            "bin": BINS,
            "problems": accuracy_histogram(*side.counts[rows].exchangeable),
        }
        for pair in pairs
        for name, side, rows in (
            ("base", pair.base, pair.rows[0]),
            ("trained", pair.trained, pair.rows[1]),
        )
    )


def accuracy_charts(report: Report) -> Iterator[tuple[str, Chart]]:
    """For the script of ``analysis/``: one chart a comparison."""
    for pair in report.final:
        chart = histogram_chart(pair, report.colours)
        chart.panels[0].title = f"{pair.trained.arm} − {pair.base.arm}, {pair.problem_set}"
        yield f"accuracy_histogram-{pair.slug}", chart


ACCURACY = Aspect(
    Part.COMPARISONS,
    comparison=accuracy_figure,
    tables=lambda report: {"accuracy_histogram": histogram_frame(report.final)},
    metrics=("accuracy histogram",),
    charts=accuracy_charts,
)
