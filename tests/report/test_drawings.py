"""Drawings, axes and the phrases of a report, whole."""

from __future__ import annotations

import math
from xml.etree.ElementTree import tostring

import numpy as np
import pytest

from rlbhpc.report.chart import (
    Axis,
    Chart,
    Colours,
    k_axis,
    linear_axis,
    log_axis,
    row_axis,
    spread_heights,
    step_axis,
)
from rlbhpc.report.paper import paper
from rlbhpc.report.phrases import (
    adjusted_p,
    count_text,
    interval_columns,
    interval_text,
    interval_texts,
    number_text,
    p_value,
    percent_text,
    points_text,
    printable,
    probability_text,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval
from tests.report.drawn import every_mark, paper_lines
from tests.report.golden import agree

NAN = math.nan
AXES: list[Axis] = [
    *(k_axis(reach) for reach in (1, 2, 3, 31, 32, 63, 64, 2048, 4096)),
    *(linear_axis([values], "l", zero=zero) for zero in (False, True)
      for values in ([], [NAN], [7], [0], [1, 2], [-3.2, 5.1], [0.25, 0.27], [10, 1000])),
    *(log_axis([values], "l") for values in
      ([], [-1, 0, NAN], [3], [1, 1.04], [1, 1.2], [1, 3], [1, 3.01], [0.02, 900], [2, 1e7])),
    *(step_axis(steps) for steps in ([], [5], [0, 50], [10, 10, 30], range(0, 700, 100))),
    row_axis(3),
]  # fmt: skip


def test_axes_are_as_they_were_found_right() -> None:
    agree("axes", map(repr, AXES))
    axis = k_axis(64)
    assert axis.place([0.5, 1, 8, 64, 100]).tolist() == pytest.approx([0, 0, 0.5, 1, 1])


def test_every_mark_is_drawn_on_a_page_and_on_paper() -> None:
    chart = every_mark()
    agree(
        "marks_page",
        tostring(figure("Caption.", chart), "unicode").replace("><", ">\n<").split("\n"),
    )
    agree("marks_paper", paper_lines(paper(chart)))
    assert not paper(Chart(chart.panels[1:2], chart.numbers)).legends
    assert chart.frame["x"].tolist() == [1, 2] and chart.frame is chart.frame


def interval(estimate: float, sound: bool = True) -> Interval:
    return Interval(
        np.array(estimate), np.array(estimate - 0.1), np.array(estimate + 0.1), "t", "m", 0.9,
        np.array(sound),
    )  # fmt: skip


def test_numbers_in_words() -> None:
    some = Interval(
        *np.array([[0.1, 0.2], [0.0, 0.1], [0.2, 0.3]]), "t", "m", 0.9, np.array([True, False])
    )
    assert [
        [percent_text(NAN), percent_text(0.1234)]
        + [points_text(value) for value in (NAN, 0.1, -0.0123)],
        [p_value(p) for p in (0, 0.0004, 0.0005, 0.01, 0.9994, 0.9995, 1)],
        [probability_text(p) for p in (0, 0.001, 0.0049, 0.005, 0.5, 0.994, 0.996, 1)],
        [adjusted_p(0.01, 0.02, n) for n in (1, 2)] + [adjusted_p(0.0001, NAN, 2)],
        [interval_text(None), *(interval_text(some, i, sign=not i) for i in (1, 0)),
         interval_text(interval(0.5))],
        interval_texts([1, 4, 8], np.array([1, 8]), some),
        [number_text(interval(NAN)), number_text(interval(1234.5), 1),
         number_text(interval(0.5, sound=False))],
        [count_text(1, "problem"), count_text(0, "problem"), count_text(2000, "problem")],
        [printable("a\nb\tc\x1b"), printable("a\nb\tc\x1b", lines=True), printable("plain")],
    ] == [
        ["–", "12.3", "–", "+10.0", "-1.2"],
        ["< .001", "< .001", "= .001", "= .010", "= .999", "= 1", "= 1"],
        ["= 0", "< .005", "< .005", "= .01", "= .50", "= .99", "> .995", "= 1"],
        ["= .010", "= .010, = .020 by Holm over 2 comparisons", "< .001"],
        ["–", "20.0 [10.0, 30.0] ?", "+10.0 [+0.0, +20.0]", "50.0 [40.0, 60.0]"],
        ["10.0 [0.0, 20.0]", "–", "20.0 [10.0, 30.0] ?"],
        ["–", "1,234.5 [1,234.4, 1,234.6]", "0.50 [0.40, 0.60] ?"],
        ["1 problem", "0 problems", "2,000 problems"],
        ["a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}",
         "a\nb\tc\N{REPLACEMENT CHARACTER}", "plain"],
    ]  # fmt: skip
    assert list(interval_columns("value", None, "its_", sound=True)) == [
        "value",
        "its_lower",
        "its_upper",
        "sound",
    ]


def test_a_model_has_the_colour_of_its_arm_and_colours_begin_anew() -> None:
    arms = [f"arm{i}" for i in range(8)]
    colours = Colours(["base", *arms], ["base"], {"model": "arm1"})
    assert [colours[arm] for arm in arms[:2]] == [colours[arm] for arm in arms[6:]]
    assert colours["model"] == colours["arm1"] != colours["stranger"] == colours["base"]
    assert [(key.name, key.dash) for key in colours.legend(["base", "arm0", "base"])] == [
        ("base", "5 3"), ("arm0", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("heights", "places"),
    [
        ([], []),
        ([5.0], [5.0]),
        ([-5.0, 105.0], [0.0, 100.0]),
        ([50.0, 50.0], [45.0, 55.0]),
        ([50.0, 60.0, 90.0], [50.0, 60.0, 90.0]),
        ([98.0, 99.0], [90.0, 100.0]),
    ],
)
def test_names_move_no_further_than_they_must(heights: list[float], places: list[float]) -> None:
    assert spread_heights(heights, 10.0, 0.0, 100.0).tolist() == pytest.approx(places)
