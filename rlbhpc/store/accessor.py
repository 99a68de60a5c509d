"""The ``.rlb`` methods of Datasets and trees: counts, pass@k and texts of what a cube holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.stats.counts import Counts
from rlbhpc.stats.curve import as_sizes, pass_curve, whole_sizes
from rlbhpc.stats.difference import difference_curve
from rlbhpc.stats.interval import CI_BOUND, CI_BOUNDS, PROB, ProblemWeights, Target
from rlbhpc.stats.pass_at_k import pass_at_k
from rlbhpc.store import samples
from rlbhpc.store.cube_schema import (
    CELLS,
    COUNT_VARIABLES,
    LOOKS,
    N_OF_ALL,
    SAMPLES,
    STOP_AFTER,
    provenance,
)
from rlbhpc.store.derive import count_verdicts, up_to_stop
from rlbhpc.store.sample_rows import COLUMNS
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: The variable that statistics count, unless told otherwise.
VERDICT: Final = "verdict"
#: Variables with the verdicts of both readings of a response.
READINGS: Final = ("strict", "lenient")
_BOUNDS: Final = ["k", CI_BOUND]

# Columns of the table of all samples; the run and the problem set come before the step.
_TABLE_COLUMNS: Final = (
    "arm", "step", "problem", "sample", "verdict", "strict", "lenient", "finish", "n_tokens",
    "logprob_sum", "entropy_sum", "answer", "rule",
)  # fmt: skip

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
        stop_after = _shared_number(dataset, STOP_AFTER.name)
        verdict = _keep_fair_samples(dataset, stop_after)[by].variable
        # A selection may have dropped dimensions: a single sample, problem or step.
        dims: list[str] = [dim for dim in CELLS if dim in verdict.dims]
        dims += [str(dim) for dim in verdict.dims if dim not in SAMPLES]
        shape = [verdict.sizes[dim] for dim in dims]
        n = np.zeros(shape, np.int32)
        c = np.zeros(shape, np.int32)
        # A tile is a part of the array, as a slice for each dimension.
        for tile in _tiles(verdict):
            # Loaded before it is transposed: xarray would read a lazy transpose cell by cell.
            values = verdict[tile].load().transpose(*dims, ...).to_numpy()
            values = np.nan_to_num(values, nan=Status.MISSING).astype(np.int8, copy=False)
            if values.ndim == len(dims):  # of a single sample
                values = values[..., np.newaxis]
            tile_index = tuple(tile.get(dim, slice(None)) for dim in dims)
            n[tile_index], c[tile_index] = count_verdicts(up_to_stop(values, stop_after), axis=-1)
        if by in READINGS:
            self._reject_unjudged(by)
        if stop_after and by != VERDICT:
            self._reject_ended_by_another(by, n, c, stop_after)
        coordinates = {
            name: values for name, values in dataset.coords.items() if set(values.dims) <= set(dims)
        }
        if stop_after:
            coordinates["n_max"] = xr.DataArray(verdict.sizes.get("sample", 1))
        variables = {
            variable.name: (dims, values, dict(variable.attrs))
            for variable, values in zip(COUNT_VARIABLES, (n, c), strict=True)
        }
        return xr.Dataset(variables, coordinates, dataset.attrs)

    def pass_at_k(
        self, k: ArrayLike, by: str = VERDICT, over: str | None = None, ragged: bool = False
    ) -> xr.DataArray:
        """Unbiased pass@k per problem and step; NaN where fewer than k samples exist.

        *pass@k* is the probability that at least one of k samples of a problem, drawn without
        replacement, is right. ``k``: draw sizes; a scalar gives no dimension ``k``. ``by``: whose
        verdicts count, see :meth:`counts`. ``over="problem"`` gives the mean, pass@k of the set,
        which is NaN where any problem has fewer than k samples. Without it, problems of which some
        have k samples and some fewer are refused: xarray's mean would leave these out, and say
        nothing. ``ragged``: give them all the same, NaN among them.
        """
        counts = self.counts(by)
        numbers = whole_sizes(k)
        if (numbers < 1).any():
            raise UserError(f"k: found {k!r}; allowed: whole numbers from 1")
        sizes = xr.DataArray(numbers, dims=["k"] if numbers.ndim else [])
        # Where problems end at so many right samples: that number, and the most samples.
        n, c, *stopping = _count_arrays(counts)
        result: xr.DataArray = xr.apply_ufunc(pass_at_k, n, c, sizes, *stopping, keep_attrs=False)
        if over is not None:
            result = result.mean(over, skipna=False)
        elif not ragged and "problem" in result.dims:
            has_too_few = result.isnull()
            is_ragged = has_too_few.any("problem") & ~has_too_few.all("problem")
            if is_ragged.any():
                raise UserError(
                    f"k: found {k!r}; the problems have {int(n.min())} to {int(n.max())} samples, "
                    "and a mean would be of those that have enough. Give over='problem' for a mean "
                    "that is NaN then, ragged=True for the values, or a smaller k"
                )
        result = result.rename("pass_at_k").assign_coords(k=sizes)
        return result.assign_attrs(long_name="pass@k", estimator="1 - C(n - c, k) / C(n, k)")

    def difference_from(
        self, base: xr.Dataset, k: ArrayLike, by: str = VERDICT, prob: float = PROB, seed: int = 0
    ) -> xr.Dataset:
        """Mean pass@k minus that of a base, paired by problem.

        ``base``: its samples or counts, one step and one arm of them, on the same problems. ``by``:
        whose verdicts count, see :meth:`counts`. ``prob``: probability of the intervals. ``seed``:
        of the bootstrap over problems. Gives the ``difference``, its ``bounds`` at each k, the
        ``band`` that holds for all k together, and ``p_moved``, the probability of as large a
        difference where nothing moved.
        """
        counts = self.counts(by)
        reference = base.rlb.counts(by)
        if reference["n"].dims != ("problem",):
            raise UserError(f"the base has dimensions {reference['n'].dims}; select one step of it")
        problems = counts["problem"].values.tolist()
        unpaired = sorted(set(problems) ^ set(reference["problem"].values.tolist()))
        if unpaired:
            raise UserError(
                f"{len(unpaired)} problems are in one arm only, the first {unpaired[0]!r}; "
                "select the common problems of both arms"
            )
        base_counts = Counts.of(*_count_arrays(reference.sel(problem=problems)))

        def compare(
            trained: Counts, weights: ProblemWeights, sizes: NDArray[np.int64]
        ) -> tuple[ArrayLike, ...]:
            curve = difference_curve(base_counts, trained, weights, sizes, prob)
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

    def texts(
        self, problem: str, sample: int | Sequence[int] | None = None, step: int | None = None
    ) -> xr.DataArray:
        """Read responses from parts and journals.

        ``sample, step``: which; all that this Dataset has where not given. Gives strings over
        (sample, step), empty where there is no sample; a scalar argument gives no dimension.
        Raises :class:`UserError` where arms or runs are joined: one must be selected, of the first.
        """
        for name in ("seed", "fingerprint", "sample"):
            self._require(name)
        joined_dims = [dim for dim in self._dataset["seed"].dims if dim not in SAMPLES]
        if joined_dims:
            dim = joined_dims[0]
            raise UserError(f"texts are those of one {dim}: select it first, as `.sel` does")
        selection = {"problem": problem} if step is None else {"problem": problem, "step": step}
        try:
            selected = self._dataset.sel(selection)
        except KeyError:
            raise UserError(
                f"texts: found {selection}; this Dataset has the problems "
                f"{', '.join(map(str, self._dataset['problem'].values[:3]))}, … and the steps "
                f"{self._dataset['step'].values.tolist()}"
            ) from None
        indices = np.atleast_1d(selected["sample"].values if sample is None else sample)
        steps = np.atleast_1d(selected["step"].values)
        layout = _run_layout(self._dataset)
        matches = samples.find_samples(
            layout, _group_of(self._dataset), {problem: indices.tolist()}, set(steps.tolist())
        )
        fingerprints = np.atleast_1d(selected["fingerprint"].values)
        fingerprint_of_step = dict(zip(steps.tolist(), fingerprints, strict=True))
        texts: dict[tuple[int, int], str] = {}
        for stored, _ in matches:
            # A join with holes turned whole numbers into floats.
            fingerprint = fingerprints.dtype.type(stored.fingerprint)
            if fingerprint_of_step[stored.key.step] != fingerprint:
                raise UserError(
                    f"{problem}: the samples in {layout.root} answer another request; "
                    "open the run that these come from, and take its texts before it is joined"
                )
            texts[stored.key.sample, stored.key.step] = stored.text
        values = np.array(
            [[texts.get((int(index), int(at_step)), "") for at_step in steps] for index in indices],
            object,
        )
        coordinates = {"sample": indices, "step": steps, "problem": problem}
        result = xr.DataArray(values, coordinates, ("sample", "step"), "text")
        if isinstance(sample, int):
            result = result.squeeze("sample")
        return result if step is None else result.squeeze("step")

    def _require(self, name: str) -> None:
        if name not in self._dataset.variables:
            raise UserError(
                f"this Dataset has no variable {name!r}; take a group <arm>/<problem set> of "
                "the tree that rlbhpc.open_cube returns"
            )

    def _reject_unjudged(self, by: str) -> None:
        """Refuse verdicts that some samples do not have: their n would be smaller, unsaid.

        ``by``: name of the variable with these verdicts. A code of 0 or more is a verdict; -1 is
        none.
        """
        if VERDICT not in self._dataset:
            return
        unjudged_count = 0
        for tile in _tiles(self._dataset[by].variable):
            exists = self._dataset[VERDICT].variable[tile].load() >= 0
            is_unjudged = self._dataset[by].variable[tile].load() < 0
            unjudged_count += int((exists & is_unjudged).sum())
        if unjudged_count:
            raise UserError(
                f"{by}: {unjudged_count:,} samples were not judged so; `rlbhpc verify RUN --into "
                "NEW` judges all anew"
            )

    def _reject_ended_by_another(
        self, by: str, n: NDArray[np.int32], c: NDArray[np.int32], stop_after: int
    ) -> None:
        """Refuse verdicts of a grader that calls fewer samples right than the one that ended them.

        ``by``: the variable with these verdicts. ``n, c``: samples and right ones by them.
        ``stop_after``: right samples at which a problem's samples end, by the verdicts of
        :data:`VERDICT`. A stricter grader would have drawn more samples there, which do not exist.
        A more lenient one would have ended each problem earlier, and all up to there exists.
        """
        ended = self.counts()["c"].values == stop_after
        # Fewer right samples by this grader, and it could have had more.
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
        curves_of_groups = []
        for node in self.counts(by).subtree:
            if "n" not in node.data_vars or "problem" not in node["n"].dims:
                continue
            counts = node.to_dataset(inherit=False)
            curve = _over_problems(counts, estimate, dims, k, prob, seed)
            arm, _, problem_set = node.path.strip("/").rpartition("/")
            curves_of_groups.append(curve.expand_dims(arm=[arm], problem_set=[problem_set]))
        if not curves_of_groups:
            raise UserError("the tree has no group with samples or counts")
        curves = xr.combine_by_coords(
            curves_of_groups, join="outer", combine_attrs="drop_conflicts"
        )
        assert isinstance(curves, xr.Dataset)
        return curves

    def samples(self, texts: bool = False) -> pa.Table:
        """One table with a row a sample, over all runs, arms, problem sets and steps.

        Verdicts and the reason why a response ended are words, answers are texts. ``texts``: the
        responses, too. Rows are read from journals and parts, so the tree must be that of a run.
        ``.to_pandas()`` and ``polars.from_arrow`` turn the table into a frame.

        Examples
        --------
        >>> rows = rlbhpc.open_cube("runs/math").rlb.samples()  # doctest: +SKIP
        >>> rows.to_pandas().groupby(["arm", "step"]).n_tokens.mean()  # doctest: +SKIP
        """
        columns = [*_TABLE_COLUMNS, "text"] if texts else list(_TABLE_COLUMNS)
        tables = []
        for node in self._tree.subtree:
            if not {VERDICT, "fingerprint"} <= {*node.data_vars}:
                continue
            dataset = node.to_dataset(inherit=False)
            layout = _run_layout(dataset)
            group = _group_of(dataset)
            rows = samples.read_current_rows(layout, group, None, None, columns)
            for name in ("verdict", "strict", "lenient", "finish"):
                index = rows.schema.get_field_index(name)
                rows = rows.set_column(index, name, _code_words(rows[name], name))
            rows = _add_label(rows, 1, "problem_set", group.problem_set)
            tables.append(_add_label(rows, 0, "run", layout.root.resolve().name))
        if not tables:
            raise UserError("the tree has no group with samples")
        return pa.concat_tables(tables).unify_dictionaries()

    def unguessable(self) -> xr.DataTree:
        """Leave guessable problems out of every group; see :meth:`DatasetAccessor.unguessable`."""
        return self._map(lambda dataset: dataset.rlb.unguessable())

    def _map(self, function: Callable[[xr.Dataset], xr.Dataset], by: str = VERDICT) -> xr.DataTree:
        """Apply a function to each group that has the variable ``by``; give the tree of results.

        For ordinary verdicts, groups of imported counts have ``n`` instead and are taken, too.
        """
        results = {}
        for node in self._tree.subtree:
            has_counts = by == VERDICT and "n" in node.data_vars
            if by in node.data_vars or has_counts:
                results[node.path] = function(node.to_dataset())
        return xr.DataTree.from_dict(results)


def _group_of(dataset: xr.Dataset) -> Group:
    """The arm and problem set of a Dataset."""
    return Group(str(dataset["arm"].item()), str(dataset["problem_set"].item()))


def _run_layout(dataset: xr.Dataset) -> Layout:
    """The folder of the run that a Dataset was opened from, by which its responses are found.

    A cube alone does not hold them: that is an error.
    """
    source = dataset.encoding.get("source")
    if source is None or not Layout(Path(source)).groups():
        raise UserError(
            "the responses stand beside the cube, in the folder of the run: open that with "
            "rlbhpc.open_cube(<folder of the run>)"
        )
    return Layout(Path(source))


def _add_label(rows: pa.Table, index: int, name: str, label: str) -> pa.Table:
    """Add a column that has one text in every row."""
    return rows.add_column(index, name, pa.array([label] * len(rows), pa.string()))


def _code_words(codes: pa.ChunkedArray, name: str) -> pa.DictionaryArray:
    """Turn the codes of a column into the words that its attributes in the cube have for them."""
    attrs = COLUMNS[name].attrs
    words = attrs["flag_meanings"].split()
    indices = np.searchsorted(attrs["flag_values"], codes.to_numpy())
    return pa.DictionaryArray.from_arrays(indices.astype(np.int32), words)


def _count_arrays(counts: xr.Dataset) -> list[xr.DataArray]:
    """The arguments of :meth:`Counts.of`: n and c, and where sampling stops, if it does."""
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
    """Apply a statistic over the problems at each step, with the same bootstrap weights.

    ``counts``: n and c over (problem, step), maybe with more dimensions. ``statistic`` gets the
    counts of one step, the weights of the problems in each replicate, and the draw sizes ``k``.
    ``dims``: the names of the values that it gives, with their dimensions. ``prob``: probability of
    its intervals, noted in the result. ``seed``: of the weights; equal ones make arms comparable.
    """
    sizes = as_sizes(k)
    weights = ProblemWeights.draw(counts.sizes["problem"], np.random.default_rng(seed))
    # Coordinates such as `stop_after` go: another arm may not have them.
    inputs = [array.reset_coords(drop=True) for array in _count_arrays(counts)]
    values = xr.apply_ufunc(
        lambda *arrays: statistic(Counts.of(*arrays), weights, sizes),
        *inputs,
        # Arrays of where sampling stops may be scalars.
        input_core_dims=[["problem"] if "problem" in array.dims else [] for array in inputs],
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


def _shared_number(dataset: xr.Dataset, coordinate: str) -> int:
    """The value of a coordinate that all joined arms share; 0 where none has it.

    The coordinate says where sampling stops, so arms with different values cannot be counted as
    one.
    """
    if coordinate not in dataset:
        return 0
    values = np.unique(dataset[coordinate].values)
    if len(values) > 1:
        raise UserError("these arms end their problems by different rules; count each by itself")
    return int(values[0])


def _keep_fair_samples(dataset: xr.Dataset, stop_after: int) -> xr.Dataset:
    """Keep the samples that every problem was to have, whatever came out.

    ``stop_after``: right samples at which a problem's samples end; 0 if they do not. *Looks* are
    checks of early results that asked for more samples of some problems; ``n_of_all`` is how many
    all problems have without them. Samples behind these exist only where earlier ones asked for
    them, so a selection that has some of them, and not all before, is refused.
    """
    looks = provenance(dataset.attrs).get(LOOKS)
    if isinstance(looks, list):
        raise UserError(
            "this cube was made by an earlier version, which did not store what the looks of "
            "`rlbhpc plan --until` began with; run `rlbhpc sample` and `rlbhpc compact`"
        )
    n_of_all = _shared_number(dataset, N_OF_ALL) or (looks["n"] if looks else 0)
    if not stop_after and not n_of_all:
        return dataset
    indices = np.atleast_1d(dataset["sample"].values)
    n = n_of_all or len(indices)
    # So many first samples exist whatever came out.
    unconditional = stop_after or n
    if (indices < unconditional).all():
        return dataset
    if (indices != np.arange(len(indices))).any():
        raise UserError(
            f"{dataset['arm'].item()}/{dataset['problem_set'].item()}: samples behind the first "
            f"{unconditional} exist where earlier ones say so; select the first m with "
            f"`isel(sample=slice(m))`, or any of the first {unconditional}"
        )
    return dataset.isel(sample=slice(n))


def _tiles(verdict: xr.Variable) -> Iterator[dict[str, slice]]:
    """Cut an array of verdicts into regions, each small enough to hold in memory.

    A region has whole chunks along the problems, one step and all samples. Gives it as a slice for
    each dimension that the array has.
    """
    sizes = verdict.sizes
    chunk_problems = verdict.encoding.get("preferred_chunks", {}).get("problem", 1)
    problems_that_fit = _CELLS_AT_ONCE // max(1, sizes.get("sample", 1))
    problems = max(1, problems_that_fit // chunk_problems) * chunk_problems
    for first in range(0, sizes.get("problem", 1), problems):
        for step in range(sizes.get("step", 1)):
            tile = {"problem": slice(first, first + problems), "step": slice(step, step + 1)}
            yield {dim: part for dim, part in tile.items() if dim in sizes}
