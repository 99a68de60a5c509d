"""Numbers as files and pages print them: rounded from values without noise."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlbhpc.report.claim import CLAIM
from rlbhpc.report.gather import gather
from rlbhpc.report.phrases import file_number, interval_text, percent_text, points_text
from rlbhpc.report.write import write_report
from rlbhpc.stats import Interval
from rlbhpc.stats.interval import Target
from tests.report.stored_runs import make_thin

ULP = 2**-53


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (4.342578081052146e-183, 0.0),
        (-1e-17, 0.0),
        (0.001953125, 0.00195312),
        (0.001953125 * (1 + 2 * ULP), 0.00195312),
        (0.001953125 * (1 - 2 * ULP), 0.00195312),
        (12345678.0, 12345678.0),
        (math.inf, math.inf),
    ],
)
def test_a_figure_has_no_noise(value: float, printed: float) -> None:
    assert file_number(value) == printed
    assert math.copysign(1, file_number(value)) == 1


def test_equal_values_are_printed_alike_whatever_their_last_bits() -> None:
    for value in (0.0625, 0.4375, 0.0005):
        nearby = value * (1 + 4 * ULP * np.arange(-2, 3))
        assert len({percent_text(v) for v in nearby}) == 1
        assert len({points_text(-v) for v in nearby}) == 1
        intervals = [Interval(v, v, v, Target.FIXED, "m") for v in nearby]
        assert len({interval_text(interval) for interval in intervals}) == 1


def test_nothing_is_less_than_nothing() -> None:
    assert points_text(-0.0002) == "+0.0"
    assert percent_text(-0.0002) == "0.0"
    tiny = Interval(-1e-17, -0.0002, -0.0, Target.FIXED, "m")
    assert interval_text(tiny, sign=True) == "+0.0 [+0.0, +0.0]"
    assert tiny.sign == 0, "which −1e-17 is not below"
    assert not np.signbit(tiny.upper)


def test_no_file_of_a_report_holds_noise(tmp_path: Path) -> None:
    make_thin(tmp_path / "run")
    paths = write_report(gather(tmp_path / "run"))
    tables = [pd.read_csv(path) for path in paths if path.suffix == ".csv"]
    columns = [table[name] for table in tables for name in table.select_dtypes("float")]
    values = [value for column in columns for value in column.dropna()]
    card = next(path for path in paths if path.name == CLAIM)
    json.loads(card.read_text(), parse_float=lambda text: values.append(float(text)))
    assert len(values) > 400
    assert [value for value in values if value != file_number(value)] == []
