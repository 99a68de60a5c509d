"""Charts hold the numbers that they give, and both drawings show what the chart says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import numpy as np
import pandas as pd
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.checkpoints import checkpoints_chart
from rlbhpc.report.aspects.coverage import coverage_chart
from rlbhpc.report.aspects.difference import difference_chart, differences_chart
from rlbhpc.report.aspects.pass_at_k import pass_at_k_chart
from rlbhpc.report.chart import (
    BASE_COLOUR,
    DASHED,
    Area,
    Chart,
    Colours,
    Dots,
    Panel,
    Stroke,
    k_axis,
    linear_axis,
    log_axis,
    spread_heights,
    step_axis,
)
from rlbhpc.report.gather import gather
from rlbhpc.report.paper import paper, save
from rlbhpc.report.svg import figure
from tests.report.made import SET, make_study, put_counts
from tests.report.scripts import script

HISTOGRAM = script("accuracy_histogram")
GAP = script("delta_se")


def marks(panel: Panel, kind: type) -> list:
    return [mark for mark in panel.marks if isinstance(mark, kind)]


def test_curves_hold_their_frame_base_dashed_and_trained_solid(report: Report) -> None:
    chart = pass_at_k_chart({SET: list(report.measured_arms)}, report.colours)
    (panel,) = chart.panels
    lines = marks(panel, Stroke)
    assert [line.dash for line in lines] == [DASHED, ""]
    assert lines[0].colour == BASE_COLOUR != lines[1].colour
    for line, arm in zip(lines, ("base", "rl"), strict=True):
        part = chart.frame[chart.frame["arm"] == arm]
        np.testing.assert_allclose(line.y, 100 * part["pass_at_k"])
        np.testing.assert_array_equal(line.x, part["k"])
    assert (panel.y.low, panel.y.high) == (0, 100)
    # A curve is named by its arm alone, where it ends and in the legend.
    assert [end.name for end in panel.ends] == [key.name for key in chart.legend] == ["base", "rl"]
    assert panel.ends[0].y == lines[0].y[-1]


def test_the_shaded_range_is_that_of_the_longest_curve(report: Report) -> None:
    base, trained = (arm for arm in report.measured_arms if arm.curve is not None)
    assert trained.curve is not None and base.curve is not None
    few = trained.curve.k <= 16
    short = replace(
        trained, curve=replace(trained.curve, **{k: v[few] for k, v in vars(trained.curve).items()})
    )
    (panel,) = pass_at_k_chart({SET: [base, short]}, report.colours).panels
    assert marks(panel, Area)[0].x[0] == pytest.approx(base.curve.k[-1] / 4)
    (quarter,) = marks(panel, Dots)
    assert quarter.x.tolist() == [4]


def test_panels_of_the_grid_share_their_axes(report: Report) -> None:
    arms = list(report.measured_arms)
    first, second = pass_at_k_chart({"a": arms[:1], "b": arms}, report.colours).panels
    assert (first.x, first.y) == (second.x, second.y)


def test_difference_draws_both_bands_and_the_crossing(report: Report) -> None:
    (pair,) = report.last_comparisons
    chart = difference_chart(pair, report.colours)
    (panel,) = chart.panels
    frame = chart.frame
    level, curve, *crossings = marks(panel, Stroke)
    assert level.y.tolist() == [0, 0]
    np.testing.assert_allclose(curve.y, 100 * frame["difference"])
    np.testing.assert_allclose(
        frame["trained_pass_at_k"] - frame["base_pass_at_k"], frame["difference"], atol=1e-12
    )
    assert frame["lower"].isna().tolist() == (frame["k"] == 1).tolist(), "as the answer has it"
    bounded = frame[frame["k"] > 1]
    assert (bounded["band_lower"] <= bounded["lower"]).all()
    assert (bounded["band_upper"] >= bounded["upper"]).all()
    assert len(crossings) == len(pair.crossing.sets)


def test_a_difference_of_single_samples_is_a_dot_with_its_interval(tmp_path: Path) -> None:
    """A line and a band through one point left the figure empty."""
    study = make_study(tmp_path, 40, 1)
    put_counts(study, "base", [0, 1] * 20, 1)
    put_counts(study, "rl", [1] * 15 + [0, 1] * 12 + [0], 1, 100)
    report = gather(tmp_path)
    (pair,) = report.last_comparisons
    (panel,) = difference_chart(pair, report.colours).panels
    (dot,), bar = marks(panel, Dots), marks(panel, Stroke)[1]
    assert (dot.x.tolist(), dot.y.tolist()) == ([1], [100 * pair.net.estimate])
    assert bar.y[:2].tolist() == [100 * pair.net.low, 100 * pair.net.high]


def test_a_difference_without_an_interval_is_inside_its_figure(tmp_path: Path) -> None:
    """An axis held intervals alone, and what lies outside is drawn on its edge."""
    study = make_study(tmp_path, 40, 1)
    put_counts(study, "base", [0, 1] * 20, 1)
    put_counts(study, "rl", [*[0, 1] * 19, 1, 1], 1, 100)
    report = gather(tmp_path)
    (pair,) = report.last_comparisons
    (panel,) = differences_chart([pair], report.colours).panels
    assert marks(panel, Dots)[0].y.tolist() == [2.5] and np.isnan(pair.net.low)
    assert panel.y.low <= 2.5 <= panel.y.high


def test_histogram_and_coverage_count_every_problem(report: Report) -> None:
    (pair,) = report.last_comparisons
    histogram = HISTOGRAM.histogram_chart(pair, report.colours)
    assert histogram.frame.groupby("side")["problems"].sum().unique().tolist() == [38]
    heights = [bar.high[0] for bar in marks(histogram.panels[0], Area)]
    assert heights == [count for count in histogram.frame["problems"].tolist() if count]
    assert HISTOGRAM.bars_panel(histogram.frame.assign(problems=5), "", "").y.low == 0
    coverage = coverage_chart([pair], report.colours)
    assert sorted(coverage.frame["problem"]) == sorted(pair.problems)
    widths = [bar.x[1] - bar.x[0] for bar in marks(coverage.panels[0], Area)]
    assert np.isclose(sum(widths), 100)


def test_a_base_of_the_same_line_stands_at_its_own_step(tmp_path: Path) -> None:
    study = make_study(tmp_path, 4, 4, steps=(50, 100, 150))
    for step in (50, 100, 150):
        put_counts(study, "rl", [0, 1, 2, 3], 4, step)
    report = gather(tmp_path, [("rl", "rl")])
    _, over = checkpoints_chart(report.lineages[0], report.colours).panels
    assert marks(over, Dots)[0].x.tolist() == [50, 100, 150]


def test_gap_draws_its_interval(report: Report) -> None:
    chart = GAP.delta_se_chart(GAP.gaps(report), report.colours)
    row = chart.frame.iloc[0]
    assert row["lower"] < row["delta_se"] < row["upper"]
    (dot,), (bar,) = (marks(chart.panels[0], kind) for kind in (Dots, Stroke))
    np.testing.assert_allclose(dot.x, [100 * row["delta_se"]])
    np.testing.assert_allclose(bar.x[:2], [100 * row["lower"], 100 * row["upper"]])


def test_an_arm_keeps_its_colour_whatever_else_is_drawn() -> None:
    whole = Colours(["base", "a", "b"], ["base"])
    assert whole["base"] == BASE_COLOUR
    assert len({whole["base"], whole["a"], whole["b"]}) == 3
    assert (whole.dash("base"), whole.dash("a")) == (DASHED, "")


def test_a_figure_is_written_with_its_numbers_and_how_it_was_made(
    report: Report, tmp_path: Path
) -> None:
    chart = difference_chart(report.last_comparisons[0], report.colours)
    save(made_up(), tmp_path / "deep" / "out", "other", {})
    paths = save(chart, tmp_path / "deep" / "out", "difference", {"seed": 5})
    assert [path.suffix for path in paths] == [".pdf", ".pgf", ".png", ".csv", ".json"]
    assert paths[0].read_bytes().startswith(b"%PDF") and paths[2].read_bytes()[1:4] == b"PNG"
    assert int.from_bytes(paths[2].read_bytes()[16:20]) == 1400, "7 inches at 200 dots"
    pd.testing.assert_frame_equal(pd.read_csv(paths[3]), chart.frame, check_exact=False)
    record = json.loads(paths[4].read_text())
    assert (record["seed"], record["rows"]) == (5, len(chart.frame))


def made_up() -> Chart:
    """A panel with every kind of mark."""
    panel = Panel(k_axis(1024), linear_axis([[0, 10]], "points"), "made up")
    panel.line([1, 32, 1024], [0, 5, 10], "#0072B2", name="grpo <b>")
    panel.line([1, 2, 4, 8], [1, np.nan, 3, 4], "#0072B2")
    panel.band([1, 32, 1024], [0, 4, 9], [1, 6, 10], "#0072B2")
    panel.points([4], [2], "#D55E00", [1], [3], hollow=True)
    panel.shade_large_k(1024)
    panel.end(10, "grpo <b>", "#0072B2")
    panel.end(9.9, "a name that is far too long for its place", "#D55E00")
    return Chart([panel], pd.DataFrame({"x": [1]}))


def parts(element: Element, tag: str) -> list[Element]:
    return list(element.iter(tag))


def test_the_page_draws_points_at_their_places() -> None:
    drawn = figure("Caption.", made_up())
    (data,) = [svg for svg in parts(drawn, "svg") if svg.get("class") == "data"]
    line, broken = [p.get("d") or "" for p in parts(data, "path")][:2]
    # k = 32 lies in the middle of 1 to 1,024; heights count from the top.
    assert line == "M0 1000L500 500L1000 0"
    assert broken.count("M") == 2, "a line is interrupted where a value is missing"
    texts = ["".join(text.itertext()) for text in parts(drawn, "text")]
    assert {"1", "4", "1,024", "■ grpo <b>"} <= set(texts)
    assert "<b>" not in tostring(drawn, "unicode")
    places = [float((t.get("y") or "").rstrip("%")) for t in parts(drawn, "text")
              if t.get("class") == "end"]  # fmt: skip
    assert abs(places[0] - places[1]) > 6, "names stand apart"


def test_an_inline_figure_has_no_style_and_no_address(report: Report) -> None:
    text = tostring(
        figure("", difference_chart(report.last_comparisons[0], report.colours)), "unicode"
    )
    assert "style=" not in text and "http" not in text and "currentColor" in text


def test_a_figure_is_as_small_as_its_numbers(report: Report) -> None:
    """Text stays text, and a coordinate has four digits: a figure takes a few kilobytes."""
    text = tostring(
        figure("", difference_chart(report.last_comparisons[0], report.colours)), "unicode"
    )
    assert len(text) < 8000
    assert not re.search(
        r"\d\.\d\d", " ".join(re.findall(r' d="([^"]*)"', text)).replace("h.01", "")
    )


def test_paper_shows_the_same_chart() -> None:
    (axes,) = paper(made_up()).axes
    assert axes.get_xscale() == "log" and axes.get_xlim() == (1, 1024)
    assert [line.get_ydata().tolist() for line in axes.lines[:1]] == [[0, 5, 10]]
    assert {text.get_text() for text in axes.texts} == {"k > n/4"}
    (legend,) = axes.figure.legends
    assert legend.get_texts()[0].get_text() == "grpo <b>"
    assert [tick.get_text() for tick in axes.get_xticklabels()][-1] == "1,024"


@pytest.mark.parametrize(
    ("axis", "low", "high"),
    [
        (linear_axis([[-3.2, 5.1]], "", zero=True), -5.0, 7.5),
        (linear_axis([[0, 0]], "", zero=True), 0.0, 1.0),
        (linear_axis([[np.nan]], ""), 0.0, 1.0),
        (linear_axis([[7.0]], ""), 6.0, 8.0),
        (log_axis([[0, np.nan, 2, 900]], ""), 2.0 / 450**0.02, 900.0 * 450**0.02),
        (log_axis([[3.0]], ""), 3 / 1.05, 3 * 1.05),
    ],
)
def test_axes_hold_their_values_and_end_at_round_numbers(axis, low: float, high: float) -> None:
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert 1 <= len(axis.ticks) <= 7
    assert all(low * (1 - 1e-9) <= value or value >= low - 1e-9 for value, _ in axis.ticks)


def test_axes_label_the_largest_step() -> None:
    assert step_axis(list(range(0, 1100, 100))).ticks[-1] == (1000, "1,000")
    assert len(k_axis(2048).ticks) <= 6 and len(k_axis(1).ticks) == 1


def test_labels_stand_apart_and_move_little() -> None:
    heights = [10.0, 11.0, 12.0, 50.0, 99.0, 99.5]
    places = spread_heights(heights, 6.5, 0.0, 100.0)
    assert (np.diff(places) >= 6.5 - 1e-9).all()
    assert places[3] == 50 and places[0] >= 0 and places[-1] <= 100
    assert places[:3].mean() == pytest.approx(11)
    assert spread_heights([], 6.5, 0.0, 100.0).tolist() == []
    assert len(spread_heights([1.0] * 40, 6.5, 0.0, 100.0)) == 40


def test_a_curve_of_single_samples_is_a_dot_with_its_interval(tmp_path: Path) -> None:
    study = make_study(tmp_path, 4, 1)
    put_counts(study, "base", [1, 0, 0, 1], 1)
    put_counts(study, "rl", [1, 1, 0, 1], 1, 100)
    report = gather(tmp_path)
    (panel,) = pass_at_k_chart({SET: list(report.measured_arms)}, report.colours).panels
    assert [(dots.x.tolist(), dots.y.tolist()) for dots in marks(panel, Dots)] == [
        ([1.0], [50.0]),
        ([1.0], [75.0]),
    ]
    for bar, arm in zip(marks(panel, Stroke), report.measured_arms, strict=True):
        assert arm.curve is not None
        ends = [100 * arm.curve.interval.lower[0], 100 * arm.curve.interval.upper[0]]
        np.testing.assert_allclose(bar.y[:2], ends)
