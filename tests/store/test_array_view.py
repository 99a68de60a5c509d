"""What xarray's users do with a Dataset works on those of a cube: join, plot, save, cut."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rlbhpc
from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, ProblemWeights, difference_curve
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.study.layout import Layout
from tests.store import made
from tests.store.made import SET, sample, samples
from tests.store.test_scan import grid
from tests.store.test_strata import dataset as strata_dataset

P, N = 5, 6
STEPS = {"base": (0,), "rl": (50, 100)}


def make_run(folder: Path) -> Layout:
    layout = Layout(folder)
    for arm, steps in STEPS.items():
        grid(P, N, steps).save(layout.grid(arm, SET))
        with JournalWriter(layout.journals(arm, SET), "a") as writer:
            for row in samples(range(P), N, steps):
                writer.append(replace(row, key=row.key._replace(arm=arm)))
    compact(layout)
    return layout


@pytest.fixture(params=["compacted", "grown"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> xr.DataTree:
    """A run as it was compacted, and one with samples that came since."""
    layout = make_run(tmp_path / "run")
    if request.param == "grown":
        with JournalWriter(layout.journals("rl", SET), "later") as writer:
            for row in samples(range(P, P + 1), N, STEPS["rl"]):
                writer.append(replace(row, key=row.key._replace(arm="rl")))
    return rlbhpc.open_cube(layout.root)


def dataset(tree: xr.DataTree, arm: str) -> xr.Dataset:
    return tree[f"{arm}/{SET}"].to_dataset()


def test_arms_are_joined(tree: xr.DataTree) -> None:
    base, rl = dataset(tree, "base"), dataset(tree, "rl")
    both = xr.concat([base, rl], "arm", join="outer", fill_value={"verdict": -1})
    assert both.arm.values.tolist() == ["base", "rl"]
    assert both.step.values.tolist() == [0, 50, 100]
    verdicts = both.verdict.sel(arm="rl", step=50, problem=base.problem)
    np.testing.assert_array_equal(verdicts, rl.verdict.sel(step=50, problem=base.problem))
    assert (both.verdict.sel(arm="base", step=50) == -1).all()


def test_arms_with_other_numbers_of_samples_are_joined(tmp_path: Path) -> None:
    """The same samples stand side by side; what one arm has not is no sample."""
    more = make_run(tmp_path / "more")
    with JournalWriter(more.journals("rl", SET), "more") as writer:
        for row in samples(range(P), N + 3, STEPS["rl"]):
            writer.append(replace(row, key=row.key._replace(arm="rl")))
    alone = {arm: dataset(rlbhpc.open_cube(more.root), arm) for arm in STEPS}
    assert alone["base"].sizes["sample"] < alone["rl"].sizes["sample"]
    both = xr.concat(list(alone.values()), "arm", join="outer")
    counts = both.rlb.counts()
    for arm, one in alone.items():
        ours = counts.sel(arm=arm, step=one.step, problem=one.problem)
        for name in ("n", "c"):
            np.testing.assert_array_equal(ours[name], one.rlb.counts()[name])
    last = int(alone["rl"].sample[-1])
    first = str(alone["rl"].problem[0].item())
    with pytest.raises(UserError, match="texts are those of one arm"):
        both.rlb.texts(first)
    texts = both.sel(arm="rl").rlb.texts(first)
    assert texts.sel(sample=last, step=50).item() == sample(0, last, 50).text
    assert both.sel(arm="base").rlb.texts(first, last, 0).item() == ""


def test_texts_of_joined_runs_are_not_those_of_the_first(tmp_path: Path) -> None:
    runs = {}
    for name, fingerprint in (("one", 7), ("other", 8)):
        layout = Layout(tmp_path / name)
        asked = made.cells([0], N, fingerprint=fingerprint)
        Grid("model").grown(asked).save(layout.grid("base", SET))
        made.journal(layout, [sample(0, i, fingerprint=fingerprint) for i in range(N)], "a")
        runs[name] = dataset(rlbhpc.open_cube(layout.root), "base")
    joined = xr.concat(list(runs.values()), xr.Variable("run", list(runs)))
    first = made.problem(0)
    with pytest.raises(UserError, match="texts are those of one run"):
        joined.rlb.texts(first)
    assert joined.sel(run="one").rlb.texts(first, 1, 0).item() == sample(0, 1).text
    with pytest.raises(UserError, match="take its texts before it is joined"):
        joined.sel(run="other").rlb.texts(first, 1, 0)


def test_what_is_joined_or_masked_counts_as_it_did_alone(tree: xr.DataTree) -> None:
    """A hole is no sample and no wrong one, and an arm stays an arm."""
    alone = {arm: dataset(tree, arm) for arm in STEPS}
    both = xr.concat(list(alone.values()), "arm", join="outer").rlb.counts()
    for arm, one in alone.items():
        counts = one.rlb.counts()
        ours = both.sel(arm=arm, step=one.step, problem=one.problem)
        for name in ("n", "c"):
            np.testing.assert_array_equal(ours[name], counts[name])
    assert (both.n.sel(arm="base", step=50) == 0).all()
    base = alone["base"]
    first = base.problem[0]
    masked = base.where(base.problem == first).rlb.counts().n
    assert (masked.sel(problem=first) == base.rlb.counts().n.sel(problem=first)).all()
    assert masked.sum() == masked.sel(problem=first).sum()
    assert (base.reindex(problem=["math/none"]).rlb.counts().n == 0).all()


@pytest.mark.parametrize("places", [(0, 1), (1, 0)])
def test_what_looks_asked_for_is_no_fair_sample_of_joined_arms(
    tmp_path: Path, places: tuple[int, int]
) -> None:
    """Looks at one arm ask for more samples of some problems; the other arm knows of no looks."""
    layout = make_run(tmp_path / "run")
    plan = replace(grid(P, N, (0,)), provenance={"looks": {"n": N - 2, "more": []}})
    plan.save(layout.grid("base", SET))
    tree = rlbhpc.open_cube(layout.root)
    arms = [dataset(tree, "base"), dataset(tree, "rl")]
    counts = xr.concat([arms[i] for i in places], "arm", join="outer").rlb.counts()
    first = arms[0].isel(sample=slice(N - 2)).rlb.counts()
    for name in ("n", "c"):
        ours = counts[name].sel(arm="base", step=0)
        np.testing.assert_array_equal(ours, first[name].sel(step=0))
    other = arms[0].assign_coords(n_of_all=N - 3)
    with pytest.raises(UserError, match="by different rules; count each by itself"):
        xr.concat([arms[0], other], "arm").rlb.counts()


def test_a_selection_of_nothing_has_no_samples(tree: xr.DataTree) -> None:
    base = dataset(tree, "base")
    for selection in ({"sample": []}, {"sample": [], "step": 0}, {"sample": slice(N, None)}):
        counts = base.isel(selection).rlb.counts()
        assert (counts.n == 0).all() and (counts.c == 0).all()
        assert counts.sizes["problem"] == P
    assert base.isel(problem=[], sample=[0, 2])["n_tokens"].to_numpy().shape[:2] == (0, 2)


@pytest.mark.parametrize("name", ["seed", "fingerprint", "sample"])
def test_texts_of_what_cannot_name_them_are_refused(tree: xr.DataTree, name: str) -> None:
    with pytest.raises(UserError, match=f"this Dataset has no variable '{name}'"):
        dataset(tree, "base").drop_vars(name).rlb.texts(made.problem(0))


@pytest.mark.parametrize("k", [2.5, [1, 2.5], "a", [1.0, np.nan]])
def test_a_size_that_is_no_whole_number_is_refused(tree: xr.DataTree, k: object) -> None:
    for asked in (tree.rlb.curves, tree.rlb.pass_at_k, dataset(tree, "base").rlb.pass_at_k):
        with pytest.raises(UserError, match=r"^k: found .*; allowed: whole numbers from 1$"):
            asked(k)


def test_arrays_are_plotted(tree: xr.DataTree) -> None:
    assert dataset(tree, "base").verdict.isel(step=0).plot() is not None
    assert dataset(tree, "rl").rlb.pass_at_k([1, 2]).sel(step=50).plot() is not None
    curves = tree.rlb.curves([1, 2]).pass_at_k.sel(problem_set=SET)
    for some in (curves, curves.sel(arm=["base"], step=[0])):
        assert some.plot(x="k", hue="arm", col="step", xscale="log") is not None


def test_a_dataset_is_saved_and_read_back(tree: xr.DataTree, tmp_path: Path) -> None:
    for arm in STEPS:
        found = dataset(tree, arm)
        found.to_netcdf(tmp_path / f"{arm}.nc", engine="h5netcdf")
        with xr.open_dataset(tmp_path / f"{arm}.nc", engine="h5netcdf") as read:
            xr.testing.assert_equal(read.load(), found.load())
            assert read.attrs["kind"] == "samples"


def test_a_whole_tree_is_saved_and_read_back(tree: xr.DataTree, tmp_path: Path) -> None:
    tree.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as read:
        for arm in STEPS:
            xr.testing.assert_equal(dataset(read, arm).load(), dataset(tree, arm).load())
        assert read.attrs["left_out"] == tree.attrs["left_out"] == "{}"
        xr.testing.assert_equal(read.rlb.curves(1), tree.rlb.curves(1))


@pytest.mark.skipif(importlib.util.find_spec("dask") is None, reason="dask is an optional extra")
def test_a_dataset_is_cut_into_pieces(tree: xr.DataTree) -> None:
    whole = dataset(tree, "rl")
    pieces = whole.chunk({"problem": 2})
    assert pieces.verdict.chunks is not None
    xr.testing.assert_identical(pieces.verdict.sum("sample").compute(), whole.verdict.sum("sample"))
    xr.testing.assert_identical(pieces.rlb.counts().load(), whole.rlb.counts())


def test_curves_of_all_arms_sets_and_steps(tree: xr.DataTree) -> None:
    curves = tree.rlb.curves([1, 2])
    assert set(curves.pass_at_k.dims) == {"arm", "problem_set", "step", "k"}
    assert curves.arm.values.tolist() == ["base", "rl"]
    counts = dataset(tree, "rl").rlb.counts().sel(step=100)
    enough = counts.n.values >= 2
    expected = pass_at_k(counts.n.values, counts.c.values, 1).mean()
    found = curves.sel(arm="rl", problem_set=SET, step=100)
    assert found.pass_at_k.sel(k=1).item() == pytest.approx(expected)
    assert found.support.sel(k=2).item() == enough.sum()
    assert found.bounds.sel(k=1).shape == (2,)
    assert found.bounds.sel(k=1).isnull().all(), "so few problems have no interval that holds"
    assert curves.pass_at_k.sel(arm="base", step=50).isnull().all()
    assert "seed" in curves.attrs
    xr.testing.assert_identical(curves, tree.rlb.curves([1, 2], seed=0))
    assert not curves.identical(tree.rlb.curves([1, 2], seed=1))


def test_several_runs_are_one_tree(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name).root for name in ("first", "second")]
    (folders[1] / "journals" / "rl" / SET / "a.journal").write_bytes(b"damaged")
    with pytest.warns(rlbhpc.errors.LeftOutWarning):
        tree = rlbhpc.open_cube([str(folder) for folder in folders])
    assert [*tree.children] == ["first", "second"]
    assert sum(json.loads(tree.attrs["left_out"]).values()) > 0
    curves = tree.rlb.curves(1)
    assert curves.arm.values.tolist() == ["first/base", "first/rl", "second/base", "second/rl"]
    with pytest.raises(UserError, match="two runs are called first"):
        rlbhpc.open_cube([folders[0], folders[0]])
    with pytest.raises(UserError, match="names no run"):
        rlbhpc.open_cube([])


def test_differences_are_paired_by_the_problems_names(tree: xr.DataTree) -> None:
    base, rl = dataset(tree, "base").sel(step=0), dataset(tree, "rl")
    rl = rl.sel(problem=base.problem.values)
    shuffled = rl.isel(problem=np.random.default_rng(1).permutation(P))
    found = shuffled.rlb.difference_from(base, [1, 2], seed=7)
    assert found.difference.dims == ("step", "k")
    assert found.bounds.dims == found.band.dims == ("step", "k", "ci_bound")
    counts = {"base": base.rlb.counts(), "rl": rl.rlb.counts().sel(step=100)}
    arms = {name: Counts.of(c.n.values, c.c.values) for name, c in counts.items()}
    weights = ProblemWeights.draw(P, np.random.default_rng(7))
    expected = difference_curve(arms["base"], arms["rl"], weights, [1, 2])
    again = rl.rlb.difference_from(counts["base"], [1, 2], seed=7).sel(step=100)
    np.testing.assert_allclose(again.difference, expected.pointwise.estimate)
    np.testing.assert_allclose(again.bounds, expected.pointwise.bounds)
    np.testing.assert_allclose(again.band, expected.band.bounds)
    assert again.p_moved.item() == expected.p_moved
    np.testing.assert_allclose(found.difference.sel(step=100), again.difference)
    assert all(isinstance(value, str | int | float) for value in found.attrs.values())
    with pytest.raises(UserError, match=r"2 problems are in one arm only, the first 'math/0'"):
        rl.isel(problem=slice(2, None)).rlb.difference_from(base, 1)
    with pytest.raises(UserError, match="select one step"):
        rl.rlb.difference_from(dataset(tree, "base"), 1)


def test_curves_know_where_sampling_stopped(tmp_path: Path) -> None:
    """A problem that ended at its second right sample counts as one that had all."""
    verdicts = np.array([[1, 1, -1, -1], [0, 1, 0, 1], [0, 0, 0, 0]], np.int8)
    stopped = strata_dataset(verdicts, stop_after=2)
    tree = xr.DataTree.from_dict({"a/s": stopped})
    curves = tree.rlb.curves([1, 4]).isel(arm=0, problem_set=0, step=0)
    counts = stopped.rlb.counts().isel(step=0)
    expected = Counts.of(counts.n.values, counts.c.values, 2, 4).pass_at_k([1, 4]).mean(axis=0)
    np.testing.assert_allclose(curves.pass_at_k, expected)
    assert "n_max" not in curves.coords
