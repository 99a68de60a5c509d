"""What a problem set says of its problems, and how often the base is right: coordinates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xarray as xr

import rlbhpc
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Cell, Grid
from rlbhpc.store.sample import Sample
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.store.writer import JournalWriter
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

SET = "math"
IDS = [f"{SET}/{i}" for i in range(8)]
N = 16
LEVELS = {problem: str(1 + i % 3) for i, problem in enumerate(IDS[:-1])}


def run(folder: Path) -> Layout:
    """A run that solves problem i in 2 i of 16 samples; the last problem has no level."""
    layout = Layout(folder)
    provenance = {"strata": {"level": LEVELS}, "prompt": "p"}
    grid = Grid.plan("base", [Cell(0, problem, 7) for problem in IDS], N, provenance)
    grid.save(layout.grid("base", SET))
    with JournalWriter(layout.journals("base", SET), "one") as writer:
        for i, problem in enumerate(IDS):
            for j in range(N):
                key = SampleKey("base", 0, problem, j)
                verdict = Status.RIGHT if j < 2 * i else Status.WRONG
                writer.append(Sample(key, 7, sample_seed(1, key), verdict, 0, 3, -1.0, 1.0))
    return layout


def test_levels_are_coordinates_for_every_reader(tmp_path: Path) -> None:
    layout = run(tmp_path)
    words = [*LEVELS.values(), ""]
    before = rlbhpc.open_cube(tmp_path)[f"base/{SET}"]
    assert before.coords["level"].values.tolist() == words
    compact(layout)
    assert validate_cube(layout.cube) == []
    plain = xr.open_datatree(layout.cube, engine="zarr")[f"base/{SET}"]
    assert plain.coords["level"].values.tolist() == words
    assert plain.coords["level"].dims == ("problem",)
    assert "subject" not in plain.coords
    assert json.loads(before.attrs["provenance"]) == {"prompt": "p"}, "each word stands once"
    groups = rlbhpc.open_cube(tmp_path)[f"base/{SET}"].to_dataset()["c"].groupby("level").sum()
    assert groups.sel(level="1").item() == 2 * (0 + 3 + 6)


def test_quarters_of_the_base(tmp_path: Path) -> None:
    run(tmp_path)
    base = rlbhpc.open_cube(tmp_path)[f"base/{SET}"].to_dataset()
    sorted_ = base.isel(problem=slice(None, None, -1)).rlb.with_base_rate(base)
    assert sorted_["base_quantile"].values.tolist() == [3, 3, 2, 2, 1, 1, 0, 0]
    halves = base.rlb.with_base_rate(base.isel(problem=slice(2, None)), parts=2)
    assert halves["base_quantile"].values.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1]
    assert np.issubdtype(halves["base_quantile"].dtype, np.integer)
