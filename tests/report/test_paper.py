"""Figures for a paper: their width, what stays inside, and the files of each."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from rlbhpc.report import paper
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.report.chart import Chart, Panel, k_axis, percent_axis
from rlbhpc.report.gather import gather
from tests.report.rich import STEPS


@pytest.fixture(scope="module")
def rich(rich_run: Path) -> Report:
    return gather(rich_run)


@pytest.mark.parametrize("style", ["acl", "neurips"])
def test_all_texts_stay_inside_of_a_column(rich: Report, style: str) -> None:
    for aspect in aspects_of(rich):
        for name, chart in aspect.charts(rich) if aspect.charts else ():
            figure = paper.paper(chart, paper.STYLES[style])
            assert figure.get_figwidth() == paper.STYLES[style].width
            for text in figure.findobj(Text):
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1
                assert inside or not text.get_text(), (name, text.get_text())


def test_each_figure_has_files_for_a_paper(rich: Report, tmp_path: Path) -> None:
    written = paper.save_figures(rich, tmp_path, "icml")
    assert {path.suffix for path in written} == {".pdf", ".pgf", ".png", ".csv", ".json"}
    assert {path.stem for path in written} >= {"pass_at_k", "difference", "coverage"}
    pgf = (tmp_path / "coverage.pgf").read_text()
    assert "\\begin{pgfpicture}" in pgf and "3.25in" in pgf


def test_of_a_line_of_checkpoints_the_last_one_is_drawn(rich: Report) -> None:
    aspect = next(a for a in aspects_of(rich) if "pass@k" in a.metrics)
    assert aspect.charts is not None
    frame = next(iter(dict(aspect.charts(rich)).values())).frame
    assert set(frame.loc[frame["arm"] == "grpo", "step"]) == {STEPS[-1]}


def test_names_that_latex_would_take_for_commands_are_escaped(tmp_path: Path) -> None:
    panel = Panel(k_axis(4), percent_axis(), "a_b & 50 %")
    panel.line([1, 4], [10, 20], "#000000")
    chart = Chart([panel], pd.DataFrame({"k": [1]}))
    paper.save(chart, tmp_path, "odd", {})
    text = (tmp_path / "odd.pgf").read_text()
    assert r"a\_b \& 50 \%" in text


def test_curves_that_look_alike_share_an_entry_of_the_legend() -> None:
    panel = Panel(k_axis(4), percent_axis())
    for name, height in (("one", 10.0), ("two", 20.0)):
        panel.line([1, 4], [height, height], "#767676", dash="5 3")
        panel.end(np.array([height]), name, "#767676")
    figure = paper.paper(Chart([panel], lambda: pd.DataFrame()))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one, two"]
    assert mpl.rcParams["font.family"] != ["STIXGeneral"], "settings end with the figure"
