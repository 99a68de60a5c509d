"""Labelled wrappers: dims by name, attributes, alignment."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from rlbhpc.errors import UserError
from rlbhpc.stats import Counts, ProblemWeights, difference_curve, pass_curve
from rlbhpc.stats import xr as labelled


@pytest.fixture
def data() -> xr.Dataset:
    rng = np.random.default_rng(0)
    c = rng.binomial(16, rng.beta(0.5, 1, (3, 24)))
    return xr.Dataset(
        {"n": (("step", "problem"), np.full((3, 24), 16)), "c": (("step", "problem"), c)},
        {"step": [0, 50, 100], "problem": [f"set/{i:02d}" for i in range(24)]},
    )


def test_curves_keep_other_dims_and_say_what_they_are(data: xr.Dataset) -> None:
    weights = labelled.draw_weights(data, np.random.default_rng(7), 300)
    found = labelled.pass_curve(data, weights, [1, 4, 16])
    assert found["pass_at_k"].dims == ("step", "k")
    assert found["bounds"].dims == ("step", "k", "ci_bound")
    assert found["ci_bound"].values.tolist() == ["lower", "upper"]
    assert found.attrs["seed"] == "7"
    assert found.attrs["replicates"] == 300
    assert found.attrs["target"] == "problems like these"
    assert "1 - C(n - c, k) / C(n, k)" in found.attrs["estimator"]
    plain = pass_curve(Counts.of(16, data["c"].isel(step=1)), weights, [1, 4, 16])
    assert (found["bounds"].sel(step=50).values == plain.interval.bounds).all()
    # Attributes must survive being written.
    assert all(isinstance(value, str | int | float) for value in found.attrs.values())


def test_differences_match_problems_by_label(data: xr.Dataset) -> None:
    weights = labelled.draw_weights(data, np.random.default_rng(7), 300)
    base, trained = data.sel(step=0), data.sel(step=[50, 100])
    shuffled = trained.isel(problem=np.random.default_rng(1).permutation(24))
    found = labelled.difference_curve(base, shuffled, weights)
    plain = difference_curve(
        Counts.of(16, base["c"]), Counts.of(16, trained["c"].sel(step=100)), weights
    )
    assert found["band"].sel(step=100).values == pytest.approx(plain.band.bounds)
    assert float(found["p_moved"].sel(step=100)) == plain.p_moved
    with pytest.raises(UserError, match="2 problems are in one arm only, the first 'set/00'"):
        labelled.difference_curve(base, trained.isel(problem=slice(2, None)), weights)
    with pytest.raises(UserError, match="select one step"):
        labelled.difference_curve(data, trained, weights)


def test_registry_metrics_by_name(data: xr.Dataset) -> None:
    found = labelled.per_problem("G-Pass@k", data, [2, 4], tau=0.5)
    assert found.dims == ("step", "problem", "k")
    assert found.attrs["tau"] == 0.5
    assert labelled.per_problem("pass@k", data, 1).mean() == pytest.approx(
        float((data["c"] / 16).mean())
    )
    with pytest.raises(UserError, match="is no function of n, c and k"):
        labelled.per_problem("perplexity", data, 1)


def test_stopped_samples_are_counted_by_their_rule_or_refused_by_name(data: xr.Dataset) -> None:
    stopped = data.assign(
        n=data["n"].where(data["c"] < 2, 9), c=data["c"].clip(max=2)
    ).assign_coords(stop_after=2, n_max=16)
    weights = labelled.draw_weights(data, np.random.default_rng(0))
    curve = labelled.pass_curve(stopped, weights)
    assert curve["k"].values[-1] == 16
    assert curve["pass_at_k"].sel(k=16).values == pytest.approx(
        (data["c"] > 0).mean("problem").values
    )
    first = labelled.per_problem("pass@k", stopped, 1)
    assert np.nanmax(first.where(stopped["c"] == 2)) == pytest.approx(1 / 8)
    found = labelled.accuracy_histogram(stopped)
    assert (found.sum("accuracy") == data.sizes["problem"]).all()
    with pytest.raises(UserError, match="G-Pass@k needs a fixed number of samples"):
        labelled.per_problem("G-Pass@k", stopped, 2, tau=0.5)


def test_coverage_names_every_problem(data: xr.Dataset) -> None:
    table = labelled.coverage(data.sel(step=0), data.sel(step=100))
    base, trained = data["c"].sel(step=0) > 0, data["c"].sel(step=100) > 0
    assert ((table == "both") == (base & trained)).all()
    assert table.attrs["base_only"] == int((base & ~trained).sum())
    assert table.sel(problem="set/03").item() in {"both", "base_only", "trained_only", "neither"}


def test_histogram_has_the_bins_of_the_study(data: xr.Dataset) -> None:
    found = labelled.accuracy_histogram(data)
    assert found.dims == ("step", "accuracy")
    assert (found.sum("accuracy") == 24).all()
    assert (found.sel(accuracy="0") == (data["c"] == 0).sum("problem")).all()


def test_clusters_come_from_a_coordinate(data: xr.Dataset) -> None:
    grouped = data.assign_coords(source=("problem", ["a", "b", "c"] * 8))
    weights = labelled.draw_weights(grouped, np.random.default_rng(0), cluster="source")
    assert weights.units == 3
    assert not labelled.pass_curve(grouped, weights, [1])["sound"].any()


def test_what_has_no_counts_is_refused() -> None:
    weights = ProblemWeights.draw(1, np.random.default_rng(0))
    with pytest.raises(UserError, match="take the counts first"):
        labelled.pass_curve(xr.Dataset({"x": ("problem", [1])}), weights)
