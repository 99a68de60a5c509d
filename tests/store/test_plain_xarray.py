"""What an analyst does with a cube that xarray opened by itself, and with one of an older schema.

``schema-2.tar.gz`` is a run as schema version 2 left it: three problems with up to four samples
each, in chunks of two samples, of which some were never drawn and some could not be judged.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlbhpc
from rlbhpc.errors import UserError
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store import cube
from rlbhpc.store.compact import compact
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.layout import Layout
from tests.store import made
from tests.store.made import ARM, SET, contents, journal, sample, samples
from tests.store.test_scan import grid

OLD = Path(__file__).with_name("schema-2.tar.gz")
#: n and c of each group of the old run, problem by problem.
OLD_COUNTS = {
    "base/math": ([[1], [3], [1]], [[1], [1], [0]]),
    "quick/math": ([[1], [3], [3]], [[1], [1], [0]]),
    "rl/math": ([[2, 2], [1, 3], [2, 3]], [[0, 1], [1, 0], [0, 1]]),
    "pub/math": ([[8], [4]], [[3], [0]]),
}
GROUP = f"{ARM}/{SET}"
# Problems 0 to 2 have 16 samples, all right; 3 to 5 have half of them, all wrong.
P, N = 6, 16


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "schema-2"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "run")
    grid(P, N, (0,)).save(layout.grid(ARM, SET))
    rows = [
        replace(sample(p, i), verdict=int(p < 3)) for p in range(P) for i in range(N)
        if p < 3 or i < N // 2
    ]  # fmt: skip
    journal(layout, rows, "a")
    compact(layout)
    return layout


@pytest.fixture(params=["zarr", "rlbhpc"])
def tree(request: pytest.FixtureRequest, layout: Layout) -> xr.DataTree:
    """A cube as xarray opens it, and as this package does."""
    if request.param == "zarr":
        return xr.open_datatree(layout.cube, engine="zarr")
    return rlbhpc.open_cube(layout.root)


def test_a_sample_is_one_row_however_many_chunks_there_are(old: Path) -> None:
    for made_anew in (False, True):
        if made_anew:
            compact(Layout(old))
        dataset = rlbhpc.open_cube(old)["rl/math"].to_dataset()
        frame = dataset.to_dataframe()
        assert len(frame) == 3 * 4 * 2
        assert (frame["verdict"] == 1).sum() == (dataset["verdict"] == 1).sum() == 4
        assert dataset.chunk("auto").verdict.chunks is not None


def test_missing_samples_are_not_called_wrong(tree: xr.DataTree) -> None:
    dataset = tree[GROUP].to_dataset()
    assert dataset.right.dtype == np.float32
    assert dataset.right.attrs.keys() == {"long_name"}, "the codes of `verdict` are others"
    assert dataset.right.attrs["long_name"].startswith("1 where the verdict is right")
    assert (dataset.right.isnull() == (dataset.verdict == -1)).all()
    assert dataset.right.mean("sample").values.ravel().tolist() == [1, 1, 1, 0, 0, 0]
    assert dataset.right.mean().item() == pytest.approx(3 / 4.5)
    assert dataset["right"].chunk({"problem": 2}).mean("sample").compute().sum() == 3


def test_what_says_nothing_of_the_model_is_neither_right_nor_wrong(old: Path) -> None:
    dataset = rlbhpc.open_cube(old)["rl/math"].to_dataset()
    expected = np.array([0, 1, 0, 0, np.nan, np.nan, np.nan])[dataset.verdict.values]
    np.testing.assert_array_equal(dataset.right.values, expected)
    np.testing.assert_array_equal(dataset.right[1, ::-2, [1]].values, expected[1, ::-2, [1]].T)


def test_a_mean_over_problems_is_of_all_or_of_none(tree: xr.DataTree) -> None:
    dataset = tree[GROUP].to_dataset()
    for methods in (dataset.rlb, tree.rlb):
        with pytest.raises(UserError, match=r"8 to 16 samples"):
            methods.pass_at_k([1, 16])
    of_set = dataset.rlb.pass_at_k([1, 8, 16], over="problem").isel(step=0)
    np.testing.assert_array_equal(of_set, [0.5, 0.5, np.nan])
    assert dataset.rlb.pass_at_k(16, ragged=True).isnull().sum() == 3
    assert dataset.rlb.pass_at_k(8).mean("problem").item() == 0.5
    assert dataset.rlb.pass_at_k(N + 1).isnull().all(), "nobody has so many: no mean of some"
    assert dataset.isel(problem=slice(3)).rlb.pass_at_k(16).mean("problem").item() == 1
    assert dataset.isel(problem=0).rlb.pass_at_k(16).item() == 1
    whole = tree.rlb.pass_at_k(16, over="problem")[GROUP]
    assert np.isnan(whole["pass_at_k"].item())


def test_methods_on_a_tree_that_xarray_opened(layout: Layout, tmp_path: Path) -> None:
    plain, ours = xr.open_datatree(layout.cube, engine="zarr"), rlbhpc.open_cube(layout.root)
    for name in ("n", "c"):
        counts = plain.rlb.counts()[GROUP][name]
        np.testing.assert_array_equal(counts, ours.rlb.counts()[GROUP][name])
        np.testing.assert_array_equal(counts, ours[GROUP][name])
    found, expected = plain.rlb.curves([1, 8]), ours.rlb.curves([1, 8])
    np.testing.assert_array_equal(found.pass_at_k, expected.pass_at_k)
    np.testing.assert_array_equal(found.bounds, expected.bounds)
    with pytest.raises(UserError, match="in the folder of the run"):
        plain[GROUP].to_dataset().rlb.texts(made.problem(0), 0)


def test_what_xarray_opened_becomes_netcdf_and_comes_back(layout: Layout, tmp_path: Path) -> None:
    plain = xr.open_datatree(layout.cube, engine="zarr")
    plain.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    plain[GROUP].to_dataset().to_netcdf(tmp_path / "group.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as tree:
        back = tree[GROUP].to_dataset().load()
        text = tree[f"answers/{GROUP}"]["text"].values.tolist()
        assert text == plain[f"answers/{GROUP}"]["text"].values.tolist()
    with xr.open_dataset(tmp_path / "group.nc", engine="h5netcdf") as group:
        for name in ("verdict", "right", "seed", "sample", "n"):
            expected = plain[GROUP][name]
            assert back[name].dtype == group[name].dtype == expected.dtype
            np.testing.assert_array_equal(back[name], expected)
            np.testing.assert_array_equal(group[name], expected)
    np.testing.assert_array_equal(back.rlb.counts().n, plain[GROUP].n)


def test_xarray_loads_the_methods_and_the_engine_by_itself(layout: Layout, tmp_path: Path) -> None:
    """The entry point that `pyproject.toml` declares, in a process that imports xarray alone."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "site" / "rlbhpc-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rlbhpc\nVersion: 1\n")
    lines = [f"{n} = {at}" for n, at in project["entry-points"]["xarray.backends"].items()]
    (installed / "entry_points.txt").write_text("\n".join(["[xarray.backends]", *lines]))
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import importlib.util; importlib.util.find_spec('xarray')\n"
        "import xarray as xr\n"
        "plain = xr.open_datatree(sys.argv[2] + '/cube.zarr')\n"
        "assert 'rlbhpc.store.accessor' not in sys.modules, 'every program would wait for it'\n"
        f"print(plain.rlb.counts()['{GROUP}'].n.values.sum())\n"
        "run = xr.open_datatree(sys.argv[2], engine='rlbhpc', chunks={})\n"
        f"print(run['{GROUP}'].to_dataset().rlb.counts().n.values.sum())\n"
        f"some = dict(group='{GROUP}', engine='rlbhpc', drop_variables=['seed', 'none'])\n"
        "print('seed' in xr.open_dataset(sys.argv[2], **some))\n"
        "print(xr.DataTree().rlb)\n"
    )
    command = [sys.executable, "-W", "error", "-c", script, installed.parent, layout.root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second, dropped, *methods = done.stdout.splitlines()
    assert (first, second, dropped) == ("72", "72", "False")
    assert {"curves", "pass_at_k"} <= {*methods[0].replace(",", "").split()}


def test_an_old_cube_opens_with_the_right_counts(old: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(old / "cube.zarr", tmp_path / "bare.zarr")
    trees = [rlbhpc.open_cube(old), rlbhpc.open_cube(bare), xr.open_datatree(bare, engine="zarr")]
    looks = {"rl/math": slice(3)}
    for tree in trees:
        for group, (n, c) in OLD_COUNTS.items():
            dataset = tree[group].to_dataset()
            counts = dataset.rlb.counts()
            assert (counts.n.values.tolist(), counts.c.values.tolist()) == (n, c), group
            if group != "pub/math":
                verdict = dataset.verdict.isel(sample=looks.get(group, slice(None))).values
                judged = (verdict >= 0) & (verdict <= 3)
                assert judged.sum(axis=1).tolist() == n
        curves = tree.rlb.curves(1)
        expected = pass_at_k(*map(np.array, OLD_COUNTS["quick/math"]), 1).mean()
        assert curves.pass_at_k.sel(arm="quick", step=0, k=1).item() == pytest.approx(expected)
    ours = trees[0]
    assert ours["base/math"]["level"].values.tolist() == ["1", "", "3"]
    assert ours["answers/base/math"].vocabulary.dims == ("problem", "block", "step")
    assert "block" not in ours["base/math"].to_dataset().dims
    assert ours["training/toy-rl"].reward.values.tolist() == [0.1, 0.2, 0.3]
    assert ours["scores/rl/math/base"].logprob_sum.values.ravel().tolist() == [-3.5]
    assert len(validate_cube(old)) == 1


def test_an_old_cube_with_newer_samples_shows_both(old: Path) -> None:
    layout = Layout(old)
    before = rlbhpc.open_cube(old)
    rows = [replace(sample(2, i), verdict=1) for i in (2, 3)]
    journal(layout, rows, "later")
    live = rlbhpc.open_cube(old)
    assert live["base/math"].n.values.ravel().tolist() == [1, 3, 3]
    assert live["answers/base/math"].text.dims == ("row",)
    assert live["rl/math"].to_dataset().load().identical(before["rl/math"].to_dataset().load())
    compact(layout)
    done = rlbhpc.open_cube(old)
    # A group without news is the old cube's until it is derived anew.
    later = ["n_answers", "strict", "lenient"]
    for path in ("base/math", "answers/base/math", "rl/math"):
        xr.testing.assert_equal(
            done[path].to_dataset().load().drop_vars(later, errors="ignore"),
            live[path].to_dataset().load().drop_vars(later, errors="ignore"),
        )
    assert validate_cube(old) == []
    first = contents(layout.cube)
    compact(layout, rebuild=True)
    assert contents(layout.cube) == first


@pytest.mark.parametrize("rows", [3, 1 << 17])
def test_a_table_of_answers_that_grows_is_as_one_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Whatever chunks stay, and whether a step, a problem or a sample came."""
    monkeypatch.setitem(cube.TABLE_CHUNKS, "row", rows)
    layout, whole = Layout(tmp_path / "grown"), Layout(tmp_path / "whole")
    parts = [
        samples(range(2), 5), samples(range(2), 5, (50,)), samples(range(2), 5, (100,)),
        samples([2], 5, (0, 50)), [sample(1, i, 50) for i in range(5, 9)], [],
    ]  # fmt: skip
    for i, part in enumerate(parts):
        journal(layout, part, f"part-{i}")
        live = rlbhpc.open_cube(layout.root)[f"answers/{GROUP}"].to_dataset().load()
        compact(layout)
        done = rlbhpc.open_cube(layout.root)[f"answers/{GROUP}"].to_dataset().load()
        assert live.identical(done)
        assert validate_cube(layout.root) == []
    journal(whole, [row for part in parts for row in part], "a")
    compact(whole)
    assert contents(layout.cube) == contents(whole.cube)


@pytest.mark.parametrize("name", [f"answers/{GROUP}/text/c/0", f"{GROUP}/n_answers/c/0/0"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_table_of_answers_is_derived_anew(tmp_path: Path, name: str, lost: bool) -> None:
    layout, whole = Layout(tmp_path / "damaged"), Layout(tmp_path / "whole")
    journal(layout, samples(range(2), 5), "a")
    compact(layout)
    chunk = layout.cube.resolve() / name
    data = chunk.read_bytes()
    chunk.unlink()
    if not lost:
        chunk.write_bytes(data[:-1] + b"?")
    journal(layout, samples([2], 5, (9,)), "b")
    live = rlbhpc.open_cube(layout.root)[f"answers/{GROUP}"].to_dataset().load()
    compact(layout)
    assert live.identical(rlbhpc.open_cube(layout.root)[f"answers/{GROUP}"].to_dataset().load())
    journal(whole, [*samples(range(2), 5), *samples([2], 5, (9,))], "a")
    compact(whole)
    assert contents(layout.cube) == contents(whole.cube)


def test_texts_that_are_not_there_say_what_is(layout: Layout) -> None:
    dataset = rlbhpc.open_cube(layout.root)[GROUP].to_dataset()
    for wanted in (("s0", 0), (made.problem(0), 0, 7)):
        with pytest.raises(UserError, match=r"math/0, math/1, math/2.*steps \[0\]"):
            dataset.rlb.texts(*wanted)


def test_a_copy_that_xarray_wrote_is_named_as_one(layout: Layout, tmp_path: Path) -> None:
    plain = xr.open_datatree(layout.cube, engine="zarr")
    plain.to_zarr(tmp_path / "copy.zarr", zarr_format=3, consolidated=True)
    with pytest.raises(UserError, match=r"another program.*xarray\.open_datatree"):
        rlbhpc.open_cube(tmp_path / "copy.zarr")
    again = xr.open_datatree(tmp_path / "copy.zarr", engine="zarr")
    assert again.rlb.counts()[GROUP].n.values.sum() == 72
