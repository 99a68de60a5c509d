"""What a problem set says of its problems, and how often the base is right: coordinates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlbhpc
import rlbhpc.xarray
from rlbhpc.errors import UserError
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
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
    cells = {Cell("base", 0, problem, 7): N for problem in IDS}
    grid = Grid("base", provenance=provenance).grown(cells)
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
    group = json.loads((layout.cube / "base" / SET / "zarr.json").read_text())
    assert group["attributes"]["coordinates"] == "arm model problem_set guessable level"
    assert "subject" not in plain.coords
    assert json.loads(before.attrs["provenance"]) == {"prompt": "p"}, "each word stands once"
    groups = rlbhpc.open_cube(tmp_path)[f"base/{SET}"].to_dataset()["c"].groupby("level").sum()
    assert groups.sel(level="1").item() == 2 * (0 + 3 + 6)


def dataset(verdicts: np.ndarray, provenance: object = None, stop_after: int = 0) -> xr.Dataset:
    """Verdicts of problems and samples, as a cube shows them."""
    rule: dict[str, object] = {"stop_after": stop_after} if stop_after else {}
    if provenance or stop_after:
        rule["sample"] = np.arange(verdicts.shape[1])
    return xr.Dataset(
        {"verdict": (("problem", "sample", "step"), verdicts[..., None].astype(np.int8))},
        {
            "problem": [f"p{i}" for i in range(len(verdicts))], "step": [0],
            "arm": "a", "problem_set": "s", **rule,
        },
        {"provenance": json.dumps({"looks": provenance} if provenance else {})},
    )  # fmt: skip


def test_looks_of_an_earlier_version_are_one_line() -> None:
    with pytest.raises(UserError, match=r"run `rlbhpc sample` and `rlbhpc compact`"):
        dataset(np.zeros((2, 8)), [{"arm": "a"}]).rlb.counts()
