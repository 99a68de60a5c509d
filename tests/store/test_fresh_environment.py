"""A cube needs nothing of this package: zarr and xarray alone open it, without a warning."""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import pytest

from rlbhpc.store import tables
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.study.layout import Layout
from tests.store.made import ARM, SET, cells, journal, put_training, sample, samples

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"

READ = """
import json, sys, warnings
warnings.simplefilter("error")
import xarray as xr
tree = xr.open_datatree(sys.argv[1], engine="zarr")
cube = tree["base/math"].to_dataset().load()
for node in tree.subtree:
    node.to_dataset().load()
cell = cube.sel(problem="math/2", step=10)
print(json.dumps({
    "dtypes": {name: str(array.dtype) for name, array in cube.variables.items()},
    "groups": [node.path for node in tree.leaves],
    "verdict": cell.verdict.values.tolist(),
    "missing": cube.verdict.sel(problem="math/3", step=10).values.tolist(),
    "nan": bool(cube.logprob_sum.sel(problem="math/3", step=10).isnull().all()),
    "seed": cell.seed.values.tolist(),
    "arm": cube.arm.item(),
    "flags": cube.verdict.attrs["flag_meanings"].split(),
    "coords": sorted(cube.coords),
    "modules": sorted(m for m in sys.modules if m.partition(".")[0] in {"rlbhpc", "dask"}),
}))
"""

DTYPES = {
    "verdict": "int8", "finish": "int8", "n_tokens": "int32", "logprob_sum": "float32",
    "entropy_sum": "float32", "answer": "int64", "seed": "int64", "n": "int32", "c": "int32",
    "fingerprint": "int64", "step": "int32", "problem": "StringDType()", "arm": "StringDType()",
    "model": "StringDType()", "problem_set": "StringDType()", "guessable": "int8", "paper": "int8",
    "strict": "int8", "lenient": "int8", "n_answers": "int32", "right": "float32",
    "sample": "int64",
}  # fmt: skip


def locked(package: str) -> str:
    """The version that this repository is tested with."""
    lines = CONSTRAINTS.read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with zarr, xarray and what these two ask for."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    wanted = [locked("zarr"), locked("xarray")]
    command = [folder / "bin" / "python", "-m", "pip", "install", "-q", *wanted]
    done = subprocess.run(
        [*command, "-c", CONSTRAINTS], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"pip cannot install zarr and xarray here: {done.stderr[-300:]}")
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("planned", [True, False])
def test_plain_xarray_opens_a_cube(python: Path, tmp_path: Path, planned: bool) -> None:
    layout = Layout(tmp_path)
    if planned:
        grid = Grid("toy", provenance={"code": "abc"}).grown(cells(range(4), 9, (0, 10)))
        grid.save(layout.grid(ARM, SET))
    journal(layout, [*samples(range(4), 9), *samples(range(3), 9, (10,))], "a")
    put_training(layout, "toy-rl", [1, 2], {"reward": [0.5, 1]})
    tables.put_counts(layout, "published", SET, "pub", {(0, "math/1"): (10, 2)})
    compact(layout)
    script = [python, "-W", "error", "-c", READ, layout.cube]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen["dtypes"] == DTYPES
    assert sorted(seen["groups"]) == [
        "/answers/base/math", "/base/math", "/published/math", "/training/toy-rl",
    ]  # fmt: skip
    assert seen["verdict"] == [sample(2, i, 10).verdict for i in range(9)]
    assert seen["missing"] == [-1] * 9
    assert seen["nan"]
    assert seen["seed"] == [sample(2, i, 10).seed for i in range(9)]
    assert seen["arm"] == "base"
    assert seen["flags"][:3] == ["missing", "wrong", "right"]
    coords = ["arm", "guessable", "model", "problem", "problem_set", "sample", "step"]
    assert seen["coords"] == coords
    assert seen["modules"] == []
