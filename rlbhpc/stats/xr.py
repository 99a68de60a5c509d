"""The same statistics on labelled data: dims by name in, attributes that say what was done out.

The input is a Dataset with ``n`` and ``c`` over ``problem`` and any other dimensions (step, arm),
as a cube gives it. Each function works along ``problem`` and keeps the others. Bounds stand along
``ci_bound`` with values "lower" and "upper"; attributes record estimator, target, method,
probability, replicates and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats import coverage_table, curve, difference, histogram
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.interval import CI_BOUND, CI_BOUNDS, PROB, Interval
from rlbhpc.stats.metrics import metric
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.stats.weights import REPLICATES, ProblemWeights

#: The dimension that every mean is over.
PROBLEM: Final = "problem"

_ESTIMATOR: Final = "1 - C(n - c, k) / C(n, k), mean over problems"


def draw_weights(
    data: xr.Dataset,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
    cluster: str | None = None,
) -> ProblemWeights:
    """Draw bootstrap weights for the problems of a Dataset.

    ``data``: anything with a ``problem`` dimension. ``rng``: generator that decides. ``cluster``:
    coordinate over problems whose equal values are resampled together.
    """
    labels = None if cluster is None else data[cluster].to_numpy()
    return ProblemWeights.draw(data.sizes[PROBLEM], rng, replicates, labels)


def pass_curve(
    data: xr.Dataset, weights: ProblemWeights, k: ArrayLike | None = None, prob: float = PROB
) -> xr.Dataset:
    """Mean pass@k over problems with its population interval.

    Gives ``pass_at_k``, ``bounds``, ``sound``, ``support`` and ``informative`` over the other
    dimensions and ``k``.
    """
    sizes = curve.as_sizes(_reach(data) if k is None else k)

    def one(counts: Counts) -> dict[str, NDArray[Any]]:
        whole = curve.pass_curve(counts, weights, sizes, prob)
        return _parts("pass_at_k", whole.interval) | {
            "support": whole.support,
            "informative": whole.informative,
        }

    result = _over_rest(data, one, sizes)
    method = curve.pass_curve(next(_rows(data))[1], weights, sizes, prob).interval
    return result.assign_attrs(_attributes(_ESTIMATOR, method, weights))


def difference_curve(
    base: xr.Dataset,
    trained: xr.Dataset,
    weights: ProblemWeights,
    k: ArrayLike | None = None,
    prob: float = PROB,
) -> xr.Dataset:
    """Trained minus base mean pass@k, with pointwise and simultaneous bounds.

    ``base``: counts of the base over ``problem`` alone. ``trained``: counts of the trained model;
    other dimensions are kept. Problems are matched by label and must be the same set. ``weights, k,
    prob``: as in :func:`rlbhpc.stats.difference.difference_curve`.
    """
    reference, other = _matched(base, trained)
    if set(reference["n"].dims) != {PROBLEM}:
        raise UserError(
            f"the base has dimensions {reference['n'].dims}; select one step and one arm of it"
        )
    counts = _counts(reference)
    reach = min(counts.reach, _reach(other))
    sizes = curve.as_sizes(reach if k is None else k)

    def one(row: Counts) -> dict[str, NDArray[Any]]:
        whole = difference.difference_curve(counts, row, weights, sizes, prob)
        return _parts("difference", whole.pointwise) | {
            "band": whole.band.bounds,
            "support": whole.support,
            "informative": whole.informative,
            "p_moved": np.asarray(whole.p_moved),
        }

    result = _over_rest(other, one, sizes)
    first = next(_rows(other))[1]
    method = difference.difference_curve(counts, first, weights, sizes, prob).pointwise
    return result.assign_attrs(_attributes(f"difference of {_ESTIMATOR}", method, weights))


def per_problem(name: str, data: xr.Dataset, k: ArrayLike, **options: Any) -> xr.DataArray:
    """Apply a metric of the registry that takes (n, c, k) to every problem.

    ``name``: name or alias, for example ``"pass@k"``, ``"pass^k"`` or ``"G-Pass@k"``. ``data``:
    counts. ``k``: draw sizes; a scalar gives no dimension ``k``. ``options``: further arguments of
    the metric, such as ``tau``.
    """
    entry = metric(name)
    if entry.needs != ("n", "c") or not entry.samples_per_k:
        raise UserError(f"{entry.name} is no function of n, c and k; call {entry.where} itself")
    rule = _rule(data)
    if rule and entry.function is not pass_at_k:
        for _, counts in _rows(data):
            counts.refuse_stopped(entry.name)
    sizes = np.asarray(k, np.int64)
    columns = [
        xr.apply_ufunc(
            lambda n, c, *rule, s=size: entry.function(n, c, s, *rule, **options),
            data["n"],
            data["c"],
            *rule,
        )
        for size in np.atleast_1d(sizes).tolist()
    ]
    result: xr.DataArray = columns[0] if sizes.ndim == 0 else xr.concat(columns, dim="k")
    if sizes.ndim:
        result = result.transpose(..., "k").assign_coords(k=sizes)
    return result.rename(entry.name).assign_attrs(estimator=entry.formula, **options)


def coverage(base: xr.Dataset, trained: xr.Dataset) -> xr.DataArray:
    """Cell of every problem in the coverage table: both, base_only, trained_only or neither.

    The attributes hold the counts of the cells and the exact McNemar p-value.
    """
    reference, other = _matched(base, trained)
    table = coverage_table.coverage_of(_counts(reference), _counts(other))
    cells = np.empty(reference.sizes[PROBLEM], dtype=np.dtypes.StringDType())
    for name in table.counts:
        cells[getattr(table, name)] = name
    coords = {PROBLEM: reference[PROBLEM]} if PROBLEM in reference.coords else {}
    return xr.DataArray(cells, coords, [PROBLEM], "coverage").assign_attrs(
        **table.counts, p_value=table.p_value, target="these samples of these problems"
    )


def accuracy_histogram(data: xr.Dataset) -> xr.DataArray:
    """Count problems by accuracy along a new dimension ``accuracy``."""
    # Counts.places, with any other dimensions.
    stopped = (data["c"] == data["stop_after"]) & (data["stop_after"] > 0) if _rule(data) else 0
    result: xr.DataArray = xr.apply_ufunc(
        histogram.accuracy_histogram,
        data["n"] - stopped,
        data["c"] - stopped,
        input_core_dims=[[PROBLEM], [PROBLEM]],
        output_core_dims=[["accuracy"]],
        vectorize=True,
    )
    return result.rename("problems").assign_coords(accuracy=list(histogram.BINS))


def _counts(data: xr.Dataset) -> Counts:
    for name in ("n", "c"):
        if name not in data:
            raise UserError(f"the Dataset has no variable {name!r}; take its counts first")
    rule = (values.to_numpy() for values in _rule(data))
    return Counts.of(data["n"].to_numpy(), data["c"].to_numpy(), *rule)


def _rule(data: xr.Dataset) -> list[xr.DataArray]:
    """Where sampling stops, and where it would have ended; nothing where n was fixed."""
    if "stop_after" not in data or not data["stop_after"].any():
        return []
    return [data["stop_after"], data["n_max" if "n_max" in data else "n"]]


def _reach(data: xr.Dataset) -> int:
    return min(counts.reach for _, counts in _rows(data))


def _rows(data: xr.Dataset) -> Iterator[tuple[dict[Hashable, int], Counts]]:
    if "n" not in data or PROBLEM not in data["n"].dims:
        raise UserError(f"counts need a variable 'n' over {PROBLEM!r}; take the counts first")
    rest = {dim: size for dim, size in data["n"].sizes.items() if dim != PROBLEM}
    for index in np.ndindex(*rest.values()):
        index_of = dict(zip(rest, index, strict=True))
        yield index_of, _counts(data.isel(index_of))


def _over_rest(
    data: xr.Dataset,
    function: Callable[[Counts], dict[str, NDArray[Any]]],
    k: NDArray[np.int64],
) -> xr.Dataset:
    """Call ``one`` at every position of the other dimensions and put its arrays together."""
    rest = [dim for dim in data["n"].dims if dim != PROBLEM]
    shape = [data.sizes[dim] for dim in rest]
    arrays: dict[str, NDArray[Any]] = {}
    for index, counts in _rows(data):
        for name, values in function(counts).items():
            if name not in arrays:
                arrays[name] = np.empty((*shape, *values.shape), values.dtype)
            arrays[name][tuple(index.values())] = values
    dims = {1: ["k"], 2: ["k", CI_BOUND], 0: []}
    variables = {name: ([*rest, *dims[v.ndim - len(rest)]], v) for name, v in arrays.items()}
    # Without the rule of stopping, which another arm may not have.
    coords = {str(dim): data[dim].variable for dim in rest if dim in data.coords}
    return xr.Dataset(variables, coords | {"k": k, CI_BOUND: list(CI_BOUNDS)})


def _parts(name: str, interval: Interval) -> dict[str, NDArray[Any]]:
    return {name: interval.estimate, "bounds": interval.bounds, "sound": interval.sound}


def _attributes(estimator: str, interval: Interval, weights: ProblemWeights) -> dict[str, Any]:
    return {
        "estimator": estimator,
        "target": str(interval.target),
        "ci_kind": interval.method,
        "ci_prob": interval.prob,
        "replicates": weights.replicates,
        "resampled_units": weights.units,
        "seed": weights.seed,
        "notes": "; ".join(interval.notes),
    }


def _matched(base: xr.Dataset, trained: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Bring two Datasets into one order of problems; refuse different sets."""
    if PROBLEM not in base.coords or PROBLEM not in trained.coords:
        return base, trained
    base_ids, trained_ids = base[PROBLEM].to_numpy(), trained[PROBLEM].to_numpy()
    odd = sorted(set(base_ids.tolist()) ^ set(trained_ids.tolist()))
    if odd:
        raise UserError(
            f"{len(odd)} problems are in one arm only, the first {odd[0]!r}; "
            "select the common problems of both arms"
        )
    return base, trained.sel({PROBLEM: base_ids})


@xr.register_dataset_accessor("rlb_stats")  # type: ignore[no-untyped-call]
class StatsAccessor:
    """The functions of this module as methods of a Dataset of counts."""

    def __init__(self, data: xr.Dataset) -> None:
        self._data = data

    def pass_curve(
        self, weights: ProblemWeights, k: ArrayLike | None = None, prob: float = PROB
    ) -> xr.Dataset:
        """Mean pass@k with its interval, see :func:`pass_curve`."""
        return pass_curve(self._data, weights, k, prob)

    def difference_from(
        self,
        base: xr.Dataset,
        weights: ProblemWeights,
        k: ArrayLike | None = None,
        prob: float = PROB,
    ) -> xr.Dataset:
        """These counts minus those of a base, see :func:`difference_curve`."""
        return difference_curve(base, self._data, weights, k, prob)

    def per_problem(self, name: str, k: ArrayLike, **options: Any) -> xr.DataArray:
        """Apply a metric of the registry to every problem, see :func:`per_problem`."""
        return per_problem(name, self._data, k, **options)

    def accuracy_histogram(self) -> xr.DataArray:
        """Problems by accuracy, see :func:`accuracy_histogram`."""
        return accuracy_histogram(self._data)
