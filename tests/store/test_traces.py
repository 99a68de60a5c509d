"""Traces of responses of several turns in journals, parts and cubes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rlbhpc import open_cube
from rlbhpc.engines.completion import written_by_model
from rlbhpc.store import cube_schema, sample_rows
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.store.seal import seal
from rlbhpc.study.keys import Sampling, Turns
from rlbhpc.study.layout import Layout
from tests.store import made, reading

N = 6
TURNS = {"turns": {"limit": 4, "tools": ["calculator"]}}


def traced(sample: Sample) -> Sample:
    """The sample as an episode; every third has one turn and no call."""
    calls = sample.key.sample % 3
    segments = [["model", 3, "2+2?"], ["tool", 2, "4\n"]] * calls + [["model", 5]]
    numbers = {
        "n_turns": calls + 1, "n_tool_calls": calls, "n_tool_tokens": 2 * calls, "n_failed_calls": 0
    }  # fmt: skip
    return replace(sample, trace=json.dumps(numbers | {"segments": segments}))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    grid = Grid("made", provenance={"sampling": TURNS}).grown(made.cells(range(2), N))
    grid.save(layout.grid(made.ARM, made.SET))
    rows = made.samples(range(2), N)
    # The first problem's samples could not be drawn: they have no trace, and those behind them do.
    rows = [traced(row) if row.key.problem.endswith("1") else row for row in rows]
    made.journal(layout, rows, "a")
    return layout


def test_traces_are_read_from_journals_parts_and_cube_alike(layout: Layout) -> None:
    before = reading.rows(layout, made.ARM, made.SET).table
    grid = Grid.load(layout.grid(made.ARM, made.SET))
    assert grid is not None
    seal(layout, made.ARM, made.SET, grid, "all")
    sealed = reading.rows(layout, made.ARM, made.SET).table
    assert sealed.equals(before)
    assert [bool(trace) for trace in sealed["trace"].to_pylist()] == [False] * N + [True] * N
    compact(layout)
    assert validate_cube(layout.cube) == []
    group = open_cube(layout.root)[f"{made.ARM}/{made.SET}"]
    expected = [i % 3 + 1 for i in range(N)]
    assert group["n_turns"].values[:, :, 0].tolist() == [[-1] * N, expected]
    assert group["n_tool_tokens"].values[1, :, 0].tolist() == [2 * (i % 3) for i in range(N)]


def test_a_plain_sample_holds_no_byte_of_a_trace(tmp_path: Path) -> None:
    plain = made.sample(0, 1)
    body, with_trace = sample_rows.encode(plain), sample_rows.encode(replace(plain, trace="{}"))
    assert with_trace == body + b"{}"
    layout = Layout(tmp_path)
    made.journal(layout, made.samples([0], 2), "a")
    grid = Grid("made").grown(made.cells([0], 2))
    grid.save(layout.grid(made.ARM, made.SET))
    seal(layout, made.ARM, made.SET, grid, "all")
    (part,) = layout.parts(made.ARM, made.SET).glob("*.parquet")
    assert "trace" not in pq.read_schema(part).names
    compact(layout)
    assert "n_turns" not in open_cube(layout.root)[f"{made.ARM}/{made.SET}"]


def test_the_models_own_tokens_are_known_by_the_trace() -> None:
    trace = json.dumps({"segments": [["model", 2, ""], ["tool", 3, "x"], ["model", 1]]})
    mask = written_by_model(trace, 6)
    assert mask.tolist() == [True, True, False, False, False, True]
    assert np.all(written_by_model("", 4))


def test_turns_enter_what_was_asked_for_only_where_they_are_set() -> None:
    plain = Sampling(1.0, 1.0, 64)
    asked = replace(plain, turns=Turns(4, ("calculator",), "blocks")).record()
    assert "turns" not in plain.record()
    assert asked["turns"] == {"limit": 4, "tools": ["calculator"], "format": "blocks"}
    assert next(v.name for v in cube_schema.traced_variables({"sampling": asked})) == "n_turns"
