"""Figures draw the numbers that they give, in the colours and strokes that were promised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection

from rlbhpc.report.figures.coverage import coverage_figure
from rlbhpc.report.figures.curves import pass_at_k_figure
from rlbhpc.report.figures.difference import difference_figure
from rlbhpc.report.figures.efficiency import delta_se_figure
from rlbhpc.report.figures.histogram import histogram_figure
from rlbhpc.report.figures.palette import Colours, bases_of, colours_of
from rlbhpc.report.figures.style import BASE_COLOUR, save, svg
from rlbhpc.report.gather import Report


def test_curves_draw_their_frame_base_dashed_and_trained_solid(report: Report) -> None:
    drawn = pass_at_k_figure(report.measured, bases_of(report), colours_of(report))
    (axes,) = drawn.figure.axes
    assert [line.get_linestyle() for line in axes.lines] == ["--", "-"]
    assert axes.lines[0].get_color() == BASE_COLOUR != axes.lines[1].get_color()
    for line, arm in zip(axes.lines, ("base", "rl"), strict=True):
        part = drawn.frame[drawn.frame["arm"] == arm]
        np.testing.assert_allclose(line.get_ydata(), 100 * part["pass_at_k"])
        np.testing.assert_array_equal(line.get_xdata(), part["k"])
    assert axes.get_ylim() == (0, 100)
    assert {text.get_text() for text in axes.texts} >= {"base", "rl, step 100"}


def test_the_hatched_range_is_that_of_the_longest_curve(report: Report) -> None:
    base, trained = (one for one in report.measured if one.curve is not None)
    assert trained.curve is not None
    few = trained.curve.k <= 16
    short = replace(
        trained, curve=replace(trained.curve, **{k: v[few] for k, v in vars(trained.curve).items()})
    )
    assert base.curve is not None
    drawn = pass_at_k_figure([base, short], bases_of(report), colours_of(report))
    (axes,) = drawn.figure.axes
    [hatched] = axes.patches
    assert hatched.get_extents().transformed(axes.transData.inverted()).x0 == pytest.approx(
        base.curve.k[-1] / 4
    )
    [tick] = [one for one in axes.collections if isinstance(one, PathCollection)]
    assert np.asarray(tick.get_offsets())[0, 0] == 4


def test_difference_draws_both_bands_and_the_crossing(report: Report) -> None:
    (one,) = report.final
    drawn = difference_figure(one, colours_of(report))
    (axes,) = drawn.figure.axes
    frame = drawn.frame
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * frame["difference"])
    np.testing.assert_allclose(
        frame["trained_pass_at_k"] - frame["base_pass_at_k"], frame["difference"], atol=1e-12
    )
    assert (frame["band_lower"] <= frame["lower"]).all()
    assert (frame["band_upper"] >= frame["upper"]).all()
    bars = [line.get_xdata() for line in axes.lines[2:]]
    assert len(bars) == len(one.conclusion.crossing.sets)


def test_histogram_and_coverage_count_every_problem(report: Report) -> None:
    (one,) = report.final
    colours = colours_of(report)
    histogram = histogram_figure(one, colours)
    assert histogram.frame.groupby("side")["problems"].sum().unique().tolist() == [38]
    heights = [bar.get_height() for bar in histogram.figure.axes[0].patches]
    assert heights == histogram.frame["problems"].tolist()
    coverage = coverage_figure([one], colours)
    assert sorted(coverage.frame["problem"]) == sorted(one.problems)
    widths = [bar.get_width() for bar in coverage.figure.axes[0].patches]
    assert np.isclose(sum(widths), 100)


def test_gap_draws_its_interval(report: Report) -> None:
    drawn = delta_se_figure(report.final, colours_of(report))
    row = drawn.frame.iloc[0]
    assert row["lower"] < row["delta_se"] < row["upper"]
    np.testing.assert_allclose(
        float(np.ravel(drawn.figure.axes[0].lines[0].get_xdata())[0]), [100 * row["delta_se"]]
    )


def test_an_arm_keeps_its_colour_whatever_else_is_drawn() -> None:
    whole = Colours(["base", "a", "b"], ["base"])
    assert whole["base"] == BASE_COLOUR
    assert len({whole["base"], whole["a"], whole["b"]}) == 3


def test_a_figure_is_written_with_its_numbers_and_how_it_was_made(
    report: Report, tmp_path: Path
) -> None:
    drawn = difference_figure(report.final[0], colours_of(report))
    paths = save(drawn, tmp_path, "difference", {"seed": 5})
    assert [path.suffix for path in paths] == [".pdf", ".png", ".csv", ".json"]
    assert paths[0].read_bytes().startswith(b"%PDF") and paths[1].read_bytes()[1:4] == b"PNG"
    pd.testing.assert_frame_equal(pd.read_csv(paths[2]), drawn.frame, check_exact=False)
    record = json.loads(paths[3].read_text())
    assert (record["seed"], record["rows"]) == (5, len(drawn.frame))


def test_an_inline_figure_has_no_style_and_no_address(report: Report) -> None:
    text = svg(difference_figure(report.final[0], colours_of(report)), "d")
    assert "style=" not in text and "http" not in text and "currentColor" in text
    assert "<style" not in text and "#101112" not in text
