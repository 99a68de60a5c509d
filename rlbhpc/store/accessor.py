"""The ``.rlb`` methods of Datasets and trees: counts, pass@k and texts of what a cube holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes, pass_curve, whole_sizes
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.interval import CI_BOUND, CI_BOUNDS, PROB, ProblemWeights, Target
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store import derive, reader, samples
from rlbhpc.store.cube_schema import CELLS, COUNT_VARIABLES, LOOKS, N_OF_ALL, STOP_AFTER, provenance
from rlbhpc.store.reader import LOW_RATE
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: The variable that statistics count, unless told otherwise.
VERDICT: Final = "verdict"
#: Variables with the verdicts of both readings of a response.
READINGS: Final = ("strict", "lenient")
_BOUNDS: Final = ["k", CI_BOUND]

# Verdicts read at a time: bounds the memory, and is enough to keep several chunks in flight.
_CELLS_AT_ONCE: Final = 1 << 23


class _Methods:
    def __repr__(self) -> str:
        return ".rlb: " + ", ".join(name for name in dir(self) if not name.startswith("_"))


class DatasetAccessor(_Methods):
    """Methods on one group of a cube, or on any selection from one."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def counts(self, by: str = VERDICT) -> xr.Dataset:
        """Count samples ``n`` and right ones ``c`` per problem and step.

        Verdicts are counted as they are selected: after ``isel(sample=slice(256))`` the counts
        are those of 256 samples. They are read a few tiles at a time, never all at once.
        Dimensions beside the samples stay, such as the ``arm`` of joined arms; NaN, where a join or
        ``where`` left a hole, is no sample. A group of imported counts has no verdicts and gives
        its counts as they are. Where sampling stops (coordinate ``stop_after``) the samples up to
        there count, and ``n_max`` is where it would have ended otherwise. Where looks asked for
        more samples of some problems, the first n of all count.

        ``by``: whose verdicts: ``"verdict"``, the ones that decide in the study; ``"strict"``, by
        which an answer must be stated; ``"lenient"``, which else takes the last value of a finished
        response; or ``"paper"`` for those of the published study's grader, where the study asked
        for them.
        """
        dataset = self._dataset
        if by == VERDICT and VERDICT not in dataset:
            self._require("n")
            return dataset[["n", "c"]]
        self._require(by)
        stop_after = _common(dataset, STOP_AFTER.name)
        verdict = _fair(dataset, stop_after)[by].variable
        # A selection may have dropped dimensions: a single sample, problem or step.
        dims = sorted({*map(str, verdict.dims)} - {"sample"}, key=[*CELLS, *verdict.dims].index)
        shape = [verdict.sizes[dim] for dim in dims]
        n, c = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        for place in _tiles(verdict):
            # Loaded before it is transposed: xarray would read a lazy transpose cell by cell.
            tile = verdict[place].load().transpose(*dims, ...).to_numpy()
            tile = np.nan_to_num(tile, nan=Status.MISSING).astype(np.int8, copy=False)
            index = tuple(place.get(dim, slice(None)) for dim in dims)
            if tile.ndim == len(dims):  # of a single sample
                tile = tile[..., np.newaxis]
            tile = derive.up_to_stop(tile, stop_after)
            n[index], c[index] = derive.count_verdicts(tile, -1)
        if by in READINGS:
            self._reject_unjudged(by)
        if stop_after and by != VERDICT:
            self._reject_ended_by_another(by, n, c, stop_after)
        coords = {k: v for k, v in dataset.coords.items() if {*v.dims} <= {*dims}}
        if stop_after:
            coords["n_max"] = xr.DataArray(verdict.sizes.get("sample", 1))
        variables = {
            spec.name: (dims, values, dict(spec.attrs))
            for spec, values in zip(COUNT_VARIABLES, (n, c), strict=True)
        }
        return xr.Dataset(variables, coords, dataset.attrs)

    def pass_at_k(
        self, k: ArrayLike, by: str = VERDICT, over: str | None = None, ragged: bool = False
    ) -> xr.DataArray:
        """Unbiased pass@k per problem and step; NaN where fewer than k samples exist.

        ``k``: draw sizes; a scalar gives no dimension ``k``. ``by``: whose verdicts count, see
        :meth:`counts`. ``over="problem"`` gives the mean, pass@k of the set, which is NaN where any
        problem has fewer than k samples. Without it, problems of which some have k samples and
        some fewer are refused: xarray's mean would leave these out, and say nothing. ``ragged``:
        give them all the same, NaN among them.
        """
        counts = self.counts(by)
        drawn = whole_sizes(k)
        if (drawn < 1).any():
            raise UserError(f"k: found {k!r}; allowed: whole numbers from 1")
        sizes = xr.DataArray(drawn, dims=["k"] if drawn.ndim else [])
        n, c, *rule = _count_arrays(counts)
        result: xr.DataArray = xr.apply_ufunc(pass_at_k, n, c, sizes, *rule, keep_attrs=False)
        if over is not None:
            result = result.mean(over, skipna=False)
        elif not ragged and "problem" in result.dims:
            lacking = result.isnull()
            if (lacking.any("problem") & ~lacking.all("problem")).any():
                least, most = int(counts["n"].min()), int(counts["n"].max())
                raise UserError(
                    f"k: found {k!r}; the problems have {least} to {most} samples, and a mean "
                    "would be of those that have enough. Give over='problem' for a mean that is "
                    "NaN then, ragged=True for the values, or a smaller k"
                )
        return (
            result.rename("pass_at_k")
            .assign_coords(k=sizes)
            .assign_attrs(long_name="pass@k", estimator="1 - C(n - c, k) / C(n, k)")
        )

    def difference_from(
        self, base: xr.Dataset, k: ArrayLike, by: str = VERDICT, prob: float = PROB, seed: int = 0
    ) -> xr.Dataset:
        """Mean pass@k minus that of a base, paired by problem.

        ``base``: its samples or counts, one step and one arm of them. ``by, prob, seed``: as in
        :meth:`TreeAccessor.curves`. Gives the ``difference``, its ``bounds`` at each k, the
        ``band`` for all k together, and ``p_moved``, the probability of as large a difference
        where nothing moved.
        """
        counts, reference = self.counts(by), base.rlb.counts(by)
        if reference["n"].dims != ("problem",):
            raise UserError(f"the base has dimensions {reference['n'].dims}; select one step of it")
        problems, of_base = (data["problem"].values.tolist() for data in (counts, reference))
        if unpaired := sorted({*problems} ^ {*of_base}):
            raise UserError(
                f"{len(unpaired)} problems are in one arm only, the first {unpaired[0]!r}; "
                "select the common problems of both arms"
            )
        base_counts = Counts.of(*_count_arrays(reference.sel(problem=problems)))

        def compare(
            trained: Counts, weights: ProblemWeights, k: NDArray[np.int64]
        ) -> tuple[ArrayLike, ...]:
            curve = difference_curve(base_counts, trained, weights, k, prob)
            pointwise = curve.pointwise
            return pointwise.estimate, pointwise.bounds, curve.band.bounds, curve.p_moved

        dims = {"difference": ["k"], "bounds": _BOUNDS, "band": _BOUNDS, "p_moved": []}
        return _over_problems(counts, compare, dims, k, prob, seed)

    def unguessable(self) -> xr.Dataset:
        """Leave out the problems that are answered now and then without reasoning.

        Those of which nothing is known stay: in a run without an arm whose prompt is ``no-think``
        that is all of them.
        """
        self._require("guessable")
        return self._dataset.isel(problem=np.flatnonzero(self._dataset["guessable"].values != 1))

    def with_base_rate(self, base: xr.Dataset, parts: int = 4) -> xr.Dataset:
        """Add the coordinate ``base_quantile``: from 0, the problems that the base solves least.

        Even samples of the base (step 0, or its only step) sort the problems. Compare odd samples
        only: the luck of the samples that sort is not that of the others. −1 where the base has no
        sample.
        """
        step = base["step"].values.tolist()
        first = base.isel(step=step.index(0) if 0 in step else 0)
        stop_after = _common(base, STOP_AFTER.name)
        # Of problems that stop, the samples that each has whatever comes out.
        first = _fair(first, stop_after).isel(sample=slice(0, stop_after or None, 2))
        counts = first.drop_vars(["stop_after", "sample"], errors="ignore").rlb.counts()
        rates = (counts["c"] / counts["n"].where(counts["n"] > 0)).reindex(
            problem=self._dataset["problem"]
        )
        known = rates.values[~np.isnan(rates.values)]
        shares = np.linspace(0, 1, parts + 1)[1:-1]
        edges = np.unique(np.quantile(known, shares)) if len(known) else known
        part = np.searchsorted(edges, rates.values)
        values = np.where(np.isnan(rates.values), -1, part).astype(np.int8)
        return self._dataset.assign_coords(base_quantile=("problem", values))

    def texts(
        self, problem: str, sample: int | Sequence[int] | None = None, step: int | None = None
    ) -> xr.DataArray:
        """Read responses from parts and journals.

        ``sample, step``: which; all that this Dataset has where not given. Gives strings over
        (sample, step), empty where there is no sample; a scalar argument gives no dimension.
        Raises :class:`UserError` where arms or runs are joined: one must be selected, of the first.
        """
        dataset = self._dataset
        for name in ("seed", "fingerprint", "sample"):
            self._require(name)
        if more := [str(dim) for dim in dataset["seed"].dims if dim not in (*CELLS, "sample")]:
            raise UserError(f"texts are those of one {more[0]}: select it first, as `.sel` does")
        wanted = {"problem": problem} if step is None else {"problem": problem, "step": step}
        try:
            chosen = dataset.sel(wanted)
        except KeyError:
            raise UserError(
                f"texts: found {wanted}; this Dataset has the problems "
                f"{', '.join(map(str, dataset['problem'].values[:3]))}, … and the steps "
                f"{dataset['step'].values.tolist()}"
            ) from None
        numbers = np.atleast_1d(chosen["sample"].values if sample is None else sample)
        steps = np.atleast_1d(chosen["step"].values)
        group = Group(str(dataset["arm"].item()), str(dataset["problem_set"].item()))
        source = dataset.encoding.get("source")
        if source is None or not Layout(Path(source)).groups():
            raise UserError(
                "the responses stand beside the cube, in the folder of the run: open that with "
                "rlbhpc.open_cube(<folder of the run>)"
            )
        numbers_of = {problem: numbers.tolist()}
        matches = samples.find_samples(Layout(Path(source)), group, numbers_of, set(steps.tolist()))
        fingerprints = np.atleast_1d(chosen["fingerprint"].values)
        requests = dict(zip(steps.tolist(), fingerprints, strict=True))
        # A join with holes turns whole numbers into floats.
        as_stored = fingerprints.dtype.type
        if any(requests[row.key.step] != as_stored(row.fingerprint) for row, _ in matches):
            raise UserError(
                f"{problem}: the samples in {source} answer another request; "
                "open the run that these come from, and take its texts before it is joined"
            )
        texts = {(row.key.sample, row.key.step): row.text for row, _ in matches}
        values = [[texts.get((int(n), int(s)), "") for s in steps] for n in numbers]
        result = xr.DataArray(
            np.array(values, object),
            {"sample": numbers, "step": steps, "problem": problem},
            ("sample", "step"),
            "text",
        )
        given = {"sample": isinstance(sample, int), "step": step is not None}
        return result.squeeze([dim for dim, scalar in given.items() if scalar])

    def _require(self, name: str) -> None:
        if name not in self._dataset.variables:
            raise UserError(
                f"this Dataset has no variable {name!r}; take a group <arm>/<problem set> of "
                "the tree that rlbhpc.open_cube returns"
            )

    def _reject_unjudged(self, by: str) -> None:
        """Refuse verdicts that some samples do not have: their n would be smaller, unsaid."""
        if VERDICT not in self._dataset:
            return
        unjudged = 0
        for place in _tiles(self._dataset[by].variable):
            exists = self._dataset[VERDICT].variable[place].load() >= 0
            unjudged += int((exists & (self._dataset[by].variable[place].load() < 0)).sum())
        if unjudged:
            raise UserError(
                f"{by}: {unjudged:,} samples were not judged so; `rlbhpc verify RUN --into NEW` "
                "judges all anew"
            )

    def _reject_ended_by_another(
        self, by: str, n: NDArray[np.int32], c: NDArray[np.int32], stop_after: int
    ) -> None:
        """Refuse verdicts of a grader that calls fewer samples right than the one that ended them.

        A more lenient one would have ended each problem earlier, and all up to there exists.
        """
        ended = self.counts()["c"].values == stop_after
        unfinished = ended & (c < stop_after) & (n < self._dataset.sizes.get("sample", 1))
        if unfinished.any():
            raise UserError(
                f"{by}: {int(unfinished.sum())} problems ended at {stop_after} samples that are "
                f"right by {VERDICT!r} and have fewer by {by!r}: that is no rule for these; take "
                f"the first {stop_after} of each, `isel(sample=slice({stop_after}))`"
            )


class TreeAccessor(_Methods):
    """The same methods on all groups of samples and counts of a tree."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def counts(self, by: str = VERDICT) -> xr.DataTree:
        """Count samples and right ones in every group; see :meth:`DatasetAccessor.counts`."""
        return self._map(lambda dataset: dataset.rlb.counts(by), by)

    def pass_at_k(self, k: ArrayLike, by: str = VERDICT, **options: Any) -> xr.DataTree:
        """Estimate pass@k in every group; see :meth:`DatasetAccessor.pass_at_k`."""
        return self._map(lambda dataset: dataset.rlb.pass_at_k(k, by, **options).to_dataset(), by)

    def curves(
        self, k: ArrayLike, by: str = VERDICT, prob: float = PROB, seed: int = 0
    ) -> xr.Dataset:
        """Mean pass@k of every arm, problem set and step, each with its interval.

        ``by``: whose verdicts count, see :meth:`DatasetAccessor.counts`. ``prob, seed``: of the
        intervals; arms with the same problems share their bootstrap weights. Gives ``pass_at_k``,
        its ``bounds`` and its ``support``, the problems with k samples, over (arm, problem_set,
        step, k). NaN where an arm has no such set or step, and where k is more than a problem's
        samples. Of several runs, arms are ``run/arm``.

        Examples
        --------
        >>> curves = rlbhpc.open_cube("runs/math").rlb.curves([1, 256])  # doctest: +SKIP
        >>> of_set = curves.pass_at_k.sel(problem_set="math500")  # doctest: +SKIP
        >>> of_set.plot(x="k", hue="arm", col="step", xscale="log")  # doctest: +SKIP
        """

        def estimate(
            counts: Counts, weights: ProblemWeights, k: NDArray[np.int64]
        ) -> tuple[ArrayLike, ...]:
            curve = pass_curve(counts, weights, k, prob)
            return curve.interval.estimate, curve.interval.bounds, curve.support

        dims = {"pass_at_k": ["k"], "bounds": _BOUNDS, "support": ["k"]}
        parts = []
        for node in self.counts(by).subtree:
            if "n" not in node.data_vars or "problem" not in node["n"].dims:
                continue
            counts = node.to_dataset(inherit=False)
            curve = _over_problems(counts, estimate, dims, k, prob, seed)
            arm, _, problem_set = node.path.strip("/").rpartition("/")
            parts.append(curve.expand_dims(arm=[arm], problem_set=[problem_set]))
        if not parts:
            raise UserError("the tree has no group with samples or counts")
        curves = xr.combine_by_coords(parts, join="outer", combine_attrs="drop_conflicts")
        assert isinstance(curves, xr.Dataset)
        return curves

    def unguessable(self) -> xr.DataTree:
        """Leave guessable problems out of every group; see :meth:`DatasetAccessor.unguessable`."""
        return self._map(lambda dataset: dataset.rlb.unguessable())

    def guessable(self, below: float = LOW_RATE) -> xr.DataTree:
        """Mark guessable problems anew, by another rate than the 5 % that the cube stands on."""
        marked = reader.mark_guessable(
            {node.path: node.to_dataset() for node in self._tree.subtree}, below
        )
        return xr.DataTree.from_dict(marked)

    def _map(self, function: Callable[[xr.Dataset], xr.Dataset], by: str = VERDICT) -> xr.DataTree:
        """Apply a function to the groups with verdicts of a kind, or with counts of the first."""
        wanted = {VERDICT, "n"} if by == VERDICT else {by}
        results = {
            node.path: function(node.to_dataset())
            for node in self._tree.subtree
            if wanted & {*node.data_vars}
        }
        return xr.DataTree.from_dict(results)


def _count_arrays(counts: xr.Dataset) -> list[xr.DataArray]:
    """Take n and c, and the rule by which sampling stops where there is one."""
    names = [name for name in ("n", "c", "stop_after", "n_max") if name in counts]
    return [counts[name] for name in names]


def _over_problems(
    counts: xr.Dataset,
    statistic: Callable[[Counts, ProblemWeights, NDArray[np.int64]], tuple[ArrayLike, ...]],
    dims: dict[str, list[str]],
    k: ArrayLike,
    prob: float,
    seed: int,
) -> xr.Dataset:
    """Give the values of a statistic, by their names, at each step, with the same weights."""
    sizes = as_sizes(k)
    weights = ProblemWeights.draw(counts.sizes["problem"], np.random.default_rng(seed))
    # Without coordinates such as the rule of stopping, which another arm may not have.
    inputs = [array.reset_coords(drop=True) for array in _count_arrays(counts)]
    values = xr.apply_ufunc(
        lambda *arrays: statistic(Counts.of(*arrays), weights, sizes),
        *inputs,
        input_core_dims=[[dim for dim in array.dims if dim == "problem"] for array in inputs],
        output_core_dims=[*dims.values()],
        vectorize=True,
        keep_attrs=False,
    )
    result = xr.Dataset(dict(zip(dims, values, strict=True)), {"k": sizes, CI_BOUND: [*CI_BOUNDS]})
    return result.assign_attrs(
        estimator="1 - C(n - c, k) / C(n, k), mean over problems",
        target=str(Target.POPULATION),
        ci_prob=prob,
        replicates=weights.replicates,
        seed=weights.seed,
    )


def _common(dataset: xr.Dataset, rule: str) -> int:
    """A number that all joined arms share, 0 where none has it."""
    values = np.unique(dataset[rule].values) if rule in dataset else [0]
    if len(values) > 1:
        raise UserError("these arms end their problems by different rules; count each by itself")
    return int(values[0])


def _fair(dataset: xr.Dataset, stop_after: int) -> xr.Dataset:
    """Keep the samples that every problem was to have; refuse a selection that is no fair one."""
    looks = provenance(dataset.attrs).get(LOOKS)
    if isinstance(looks, list):
        raise UserError(
            "this cube was made by an earlier version, which did not store what the looks of "
            "`rlbhpc plan --until` began with; run `rlbhpc sample` and `rlbhpc compact`"
        )
    n_of_all = _common(dataset, N_OF_ALL) or (looks["n"] if looks else 0)
    if not stop_after and not n_of_all:
        return dataset
    numbers = np.atleast_1d(dataset["sample"].values)
    n = n_of_all or len(numbers)
    of_all = stop_after or n
    if (numbers < of_all).all():
        return dataset
    if (numbers != np.arange(len(numbers))).any():
        raise UserError(
            f"{dataset['arm'].item()}/{dataset['problem_set'].item()}: samples behind the first "
            f"{of_all} exist where earlier ones say so; select the first m with "
            f"`isel(sample=slice(m))`, or any of the first {of_all}"
        )
    return dataset.isel(sample=slice(n))


def _tiles(verdict: xr.Variable) -> Iterator[dict[str, slice]]:
    """Cut an array into regions along its chunks, each small enough to hold in memory."""
    chunks = verdict.encoding.get("preferred_chunks", {})
    sizes = verdict.sizes
    chunk = chunks.get("problem", 1)
    rows = max(1, _CELLS_AT_ONCE // max(1, sizes.get("sample", 1)) // chunk) * chunk
    for first in range(0, sizes.get("problem", 1), rows):
        for step in range(sizes.get("step", 1)):
            place = {"problem": slice(first, first + rows), "step": slice(step, step + 1)}
            yield {dim: part for dim, part in place.items() if dim in sizes}
