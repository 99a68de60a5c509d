"""Derive one group of a cube from its samples, band by band.

A *band* is one chunk of problems at one step with all samples: a pure function of the set of its
rows, in whatever order they come.

Compaction writes the bands to disk, a reader of a run that is still growing into memory. Both
call this, so that they cannot disagree about which of two samples counts, or which are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlbhpc.errors import UserError
from rlbhpc.store import cube, cube_schema, sample_rows
from rlbhpc.store.cube import Version
from rlbhpc.store.cube_schema import STRING
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.store.snapshot import DistinctSamples
from rlbhpc.store.sources import Group, GroupFiles, Sources
from rlbhpc.verify.verdict import Status

if TYPE_CHECKING:
    import zarr


#: Columns of a row that a band needs.
BAND_COLUMNS: Final = (
    "problem",
    "sample",
    "fingerprint",
    *(name for name, column in sample_rows.COLUMNS.items() if column.cube),
)

# Plain integers: NumPy compares bytes with an enum as 64-bit integers, at a quarter of the speed.
_RIGHT: Final = int(Status.RIGHT)
_LAST_JUDGED: Final = int(max(cube_schema.JUDGED))


class BandPlace(NamedTuple):
    """Which band: its row of chunks along the problems, and the position of its step."""

    chunk_row: int
    step_index: int

    def __str__(self) -> str:
        return f"{self.chunk_row}/{self.step_index}"


class BandValues(NamedTuple):
    """Arrays of a band, the step as their last dimension of size one, and its table of answers."""

    arrays: dict[str, NDArray[Any]]
    answers: dict[str, NDArray[Any]]


def build_band(rows: pa.Table, grid: Grid, place: BandPlace) -> BandValues:
    """Put the samples of a band into arrays, and list its distinct answers.

    A *band* is one chunk of problems at one step, with all their samples. ``rows``: samples of that
    step with :data:`BAND_COLUMNS`, each key once. ``grid``: the axes of the group, and for each
    problem the hash of the request that is asked for now, its *fingerprint*. Rows of other
    problems, or with another fingerprint, do not count.

    Arrays of samples are (problem, sample, 1), counts are (problem, 1): the last axis is the step.
    Where there is no sample, an array has the fill value of its variable.
    """
    problems = grid.problems_of_row(place.chunk_row)
    step = grid.steps[place.step_index]
    # -1 stands for a problem that is not asked at this step, and matches no sample.
    requested = np.array([grid.fingerprints.get((step, name), -1) for name in problems], np.int64)
    problem_indices, is_counted = find_positions(rows["problem"], problems)
    is_counted &= np.asarray(rows["fingerprint"]) == requested[problem_indices]
    rows = rows.filter(pa.array(is_counted))
    problem_indices = problem_indices[is_counted]
    # Places in an array of (problem, sample) that is laid out flat.
    flat_positions = problem_indices * grid.n + np.asarray(rows["sample"]).astype(np.int64)

    answer_ids, answers = _count_answers(rows["answer"], problem_indices)
    problems_of_answers = answers["problem"]
    answers["problem"] = np.array(problems, STRING)[problems_of_answers]
    answers["step"] = np.full(len(problems_of_answers), step)
    right = cube_schema.RIGHT_BY_VERDICT[np.asarray(rows["verdict"])]
    traced = cube_schema.traced_variables(grid.provenance)
    derived_columns = {"answer": answer_ids, "right": right}
    if traced:
        derived_columns |= _read_traces(rows[sample_rows.TRACE].to_pylist(), traced)
    arrays: dict[str, NDArray[Any]] = {}
    for variable in (*cube_schema.SAMPLE_VARIABLES, *traced):
        values = derived_columns.get(variable.name)
        if values is None:
            values = np.asarray(rows[variable.name])
        flat = np.full(len(problems) * grid.n, variable.fill, variable.dtype)
        flat[flat_positions] = values
        arrays[variable.name] = flat.reshape(len(problems), grid.n, 1)
    arrays["n"], arrays["c"] = count_verdicts(arrays["verdict"], axis=1)
    arrays["fingerprint"] = requested[:, np.newaxis]
    n_answers = np.bincount(problems_of_answers, minlength=len(problems))
    arrays["n_answers"] = n_answers[:, np.newaxis]
    return BandValues(arrays, answers)


def _read_traces(
    traces: list[str], variables: Sequence[cube_schema.Variable]
) -> dict[str, NDArray[Any]]:
    """Numbers in the traces of samples, by variable; the fill value for a sample without one."""
    numbers_of_samples = [json.loads(trace) if trace else {} for trace in traces]
    values = {}
    for variable in variables:
        column = [numbers.get(variable.name, variable.fill) for numbers in numbers_of_samples]
        values[variable.name] = np.array(column)
    return values


def up_to_stop(verdict: NDArray[np.int8], stop_after: int) -> NDArray[np.int8]:
    """Keep the verdicts up to the ``stop_after``-th right one, along the last axis; 0 keeps all.

    The last axis is that of the sample index. Verdicts count in its order, and none behind a
    missing one: what counts then follows from the samples, not from which of them was drawn first.
    Verdicts that are left out become ``MISSING``.
    """
    if not stop_after:
        return verdict
    is_right = verdict == _RIGHT
    # Right samples before each one, itself excluded.
    right_before = np.cumsum(is_right, axis=-1) - is_right
    has_no_gap = np.logical_and.accumulate(verdict != Status.MISSING, axis=-1)
    is_kept = (right_before < stop_after) & has_no_gap
    return np.where(is_kept, verdict, np.int8(Status.MISSING))


def count_verdicts(
    verdict: NDArray[np.int8], axis: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count judged samples n and right ones c along one axis of an array of verdict codes.

    A sample is *judged* if its code is 0 to 3 (:data:`cube_schema.JUDGED`). Missing samples (-1)
    and those where generation or the verifier failed (4, 5) are not counted.
    """
    # Along the last axis NumPy sums several times faster.
    verdict = np.ascontiguousarray(np.moveaxis(verdict, axis, -1))
    # Judged verdicts are 0 to 3, so one unsigned comparison also drops -1.
    is_judged = verdict.view(np.uint8) <= _LAST_JUDGED
    n: NDArray[np.int32] = np.sum(is_judged, axis=-1, dtype=np.int32)
    c: NDArray[np.int32] = np.sum(verdict == _RIGHT, axis=-1, dtype=np.int32)
    return n, c


def find_positions(
    column: pa.ChunkedArray, names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find each value of a column in ``names``: its position there, and whether it is there at all.

    ``column``: dictionary-encoded texts. Gives two arrays with one entry per row. The position is 0
    for a value that is not in ``names``, so that the array can index at once; the second array says
    which of these positions are real.
    """
    found = pc.index_in(column.cast(pa.string()), pa.array(names, pa.string()))
    positions = found.fill_null(-1).to_numpy().astype(np.int64)
    return np.maximum(positions, 0), positions >= 0


def _count_answers(
    column: pa.ChunkedArray, problem_indices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Give each sample the id of its answer, and count each problem's distinct answers.

    ``column``: the answer text of each sample, empty or null if it has none. ``problem_indices``:
    the problem of each sample. Gives the answer id of each sample, -1 for none, and a table with
    one row per pair of problem and answer, sorted by problem and id: ``problem`` (its index),
    ``answer`` (its id), ``text`` (shortened) and ``count`` (samples with it).
    """
    encoded = pc.dictionary_encode(column.combine_chunks())
    codes = np.asarray(encoded.indices)
    texts = encoded.dictionary.to_pylist()
    id_of_text = np.array([cube_schema.answer_id(text) if text else -1 for text in texts], np.int64)
    ids, id_rank_of_text = np.unique(id_of_text, return_inverse=True)
    answered = np.flatnonzero(id_of_text[codes] >= 0)
    # One number for each pair of problem and answer, which sorts as the pair does.
    pairs = problem_indices[answered] * len(ids) + id_rank_of_text[codes[answered]]
    pairs, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    problems, id_ranks = np.divmod(pairs, len(ids))
    shortened = np.array([cube_schema.shorten_answer(text) for text in texts], STRING)
    table = {
        "problem": problems,
        "answer": ids[id_ranks],
        "text": shortened[codes[answered[first]]],
        "count": counts,
    }
    return id_of_text[codes], table


#: Takes files over from the base, by their paths below its root, and says whether it could.
TakeOver = Callable[[Iterable[Path]], bool]
_MAX_NAMED_FILES: Final = 3


@dataclass(frozen=True)
class Base:
    """An earlier version of the cube, and what it was made from.

    ``reusable`` says whether its chunk files may be taken over; where not, it still tells which
    samples there were.
    """

    store: Path
    root: zarr.Group
    sources: Mapping[str, Any]
    reusable: bool

    @classmethod
    def open(cls, version: Version | None, *, rebuild: bool = False) -> Base | None:
        """Open a version of the cube to build on; None if it cannot be read or there is none.

        A *version* is one immutable copy of the cube with a list of the files it was made from, its
        sources; a copy of a cube without that list is nothing to build on. ``rebuild``: take no
        chunk file over from it, and use it only to find lost samples. An older schema has the same
        effect.
        """
        if version is None or not version.sources:
            return None
        try:
            root = cube.open_checked(version.store)
        except (UserError, FileNotFoundError):
            return None
        same_schema = version.sources.get("schema_version") == cube_schema.SCHEMA_VERSION
        return cls(version.store, root, version.sources, same_schema and not rebuild)

    def was_made_from(self, sources: Sources) -> bool:
        """Whether it may stay, since it was made from the same."""
        return self.reusable and bool(self.sources["inputs"] == sources.inputs)

    def sample_counts(self, group: Group) -> Mapping[str, int]:
        """Files that a group was made from, with the samples of each."""
        counts: Mapping[str, int] = self.sources["inputs"]["groups"].get(str(group), {})
        return counts

    def notes_by_band(self, group: Group) -> dict[str, list[Note]]:
        """What was left out of each band of a group."""
        stored = self.sources.get("left_out", {}).get(str(group), {})
        return {band: [Note(*note) for note in notes] for band, notes in stored.items()}

    def damaged_bands(self, group: Group) -> set[str]:
        """Bands of a group that damage kept samples out of, which may be readable by now."""
        return {
            band
            for band, notes in self.notes_by_band(group).items()
            if any(note.kind == DAMAGED for note in notes)
        }

    def grid(self, group: Group) -> Grid | None:
        """Axes of a group; None where it has none or they cannot be read."""
        try:
            return cube.read_grid(self.root, str(group))
        except Exception:  # every layer down to the disk has its own exception for damaged bytes
            return None


def all_notes(sources: Mapping[str, Any], without: Iterable[Group] = ()) -> list[Note]:
    """List what a version of the cube leaves out, over all groups but those in ``without``.

    ``sources`` is what the version stores about its making. Its ``left_out`` has the notes of each
    group (an arm on a problem set) by band: a note says what was left out and why.
    """
    excluded = {str(group) for group in without}
    notes = []
    for group, notes_by_band in sources.get("left_out", {}).items():
        if group not in excluded:
            notes += [Note(*note) for band in notes_by_band.values() for note in band]
    return notes


class Derivation:
    """A group in the making.

    ``base``: the version before; None if there is none. ``derived, kept``: bands that were derived
    from rows, and bands that were taken over from the base. ``gone``: files that the base was made
    from and that are not there any more. ``lost``: by problem, how many samples the base has and no
    file holds any more. ``notes``: what was left out, by band.
    """

    def __init__(self, files: GroupFiles, base: Base | None) -> None:
        """Prepare to derive one group from its files.

        ``files``: the journals and parts of one arm on one problem set, with its grid, which says
        what is asked for. ``base``: the version of the cube before, if there is one.
        """
        self.grid = files.grid
        self.derived: set[BandPlace] = set()
        self.kept: set[BandPlace] = set()
        self.lost: dict[str, int] = {}
        self.notes: dict[str, list[Note]] = {}
        self._group = files.group
        self._files = files
        self._base = base
        self._base_grid = base.grid(files.group) if base else None
        self._base_notes = base.notes_by_band(files.group) if base else {}
        self.gone = files.files_gone(base.sample_counts(files.group)) if base else []

    def write(self, root: zarr.Group, take_over: TakeOver) -> None:
        """Write every band of the group, and its table of answers, into a new cube.

        A *band* is one chunk of problems at one step, with all their samples. A band that no new
        source touches is taken over from the base, the version before: ``take_over`` links its
        chunk files and says whether that worked. All others are derived from their rows. The loops
        go by step, then by row of chunks, because the table of answers has its rows in that order.
        """
        target = cube.create_samples(root, *self._group, self.grid)
        answers = AnswerTable(root, self._group)
        base_answers = self._open_base_answers()
        unchanged = self._unchanged_bands() if base_answers else set()
        for step_index in range(len(self.grid.steps)):
            for chunk_row in range(self.grid.chunk_rows):
                place = BandPlace(chunk_row, step_index)
                if base_answers and place in unchanged and self._take_over(place, take_over):
                    first_problem = chunk_row * self.grid.chunk.problems
                    problem_count = len(self.grid.problems_of_row(chunk_row))
                    answers.add(base_answers.rows(step_index, first_problem, problem_count))
                else:
                    answers.add(self._derive_band(target, place))
        answers.write()
        self._count_lost_samples(target)

    def _open_base_answers(self) -> BaseAnswers | None:
        """The base's table of answers; None where it cannot be used."""
        if self._base is None or not self._base.reusable:
            return None
        return BaseAnswers.open(self._base, self._group)

    def _take_over(self, place: BandPlace, take_over: TakeOver) -> bool:
        """Reuse a band of the base, the cube's version before; whether that worked.

        ``take_over`` links the band's chunk files into the new cube; it returns False if one is
        damaged or lost. Where the band is not reused, the caller derives it from its rows.
        """
        files = cube.band_files(str(self._group), self.grid, *place)
        if not self._base_is_as_good(place) or not take_over(files):
            return False
        self.kept.add(place)
        self._keep_notes(place, self._base_notes.get(str(place), []))
        return True

    def _derive_band(self, target: zarr.Group, place: BandPlace) -> dict[str, NDArray[Any]]:
        """Derive a band from its rows and write its arrays; the rows of its answers."""
        self.derived.add(place)
        values, notes = self._read_band(place)
        cube.write_band(target, self.grid, *place, values.arrays)
        self._keep_notes(place, notes)
        return values.answers

    def _keep_notes(self, place: BandPlace, notes: list[Note]) -> None:
        if notes:
            self.notes[str(place)] = notes

    def _base_is_as_good(self, place: BandPlace) -> bool:
        """Whether the base, the cube's version before, holds all of a band that can be read now.

        It does unless damage kept samples out of the band when the base was made: the damaged file
        may have been restored since. So the band is read once more, and its samples (verdict code 0
        or more; -1 is missing) are counted against those in the base.
        """
        assert self._base is not None
        if str(place) not in self._base.damaged_bands(self._group):
            return True
        problems = self.grid.problems_of_row(place.chunk_row)
        first = place.chunk_row * self.grid.chunk.problems
        present = _read_presence(self._base.root[str(self._group)], place.step_index)
        values, _ = self._read_band(place)
        count = (values.arrays["verdict"] >= 0).sum()
        return bool(count <= present[first : first + len(problems)].sum())

    def _read_band(self, place: BandPlace) -> tuple[BandValues, list[Note]]:
        """Build a band from its rows on disk, with notes on what was left out of it.

        A *band* is one chunk of problems at one step. Damaged samples are found now and left out.
        """
        problems = set(self.grid.problems_of_row(place.chunk_row))
        steps = {self.grid.steps[place.step_index]}
        columns = BAND_COLUMNS
        if cube_schema.traced_variables(self.grid.provenance):
            columns = (*columns, sample_rows.TRACE)
        samples = DistinctSamples(
            self._files.snapshot, columns, problems=problems, steps=steps, verify=True
        )
        rows = samples.read(np.arange(samples.count), columns)
        return build_band(rows, self.grid, place), samples.notes

    def _unchanged_bands(self) -> set[BandPlace]:
        """Find the bands of the base that can be reused, as no new or changed file touches them.

        The *base* is the cube's version before; its counts are the samples of each file it was made
        from. None can be reused if one of these files is gone, or if the axes or chunks of the base
        do not have the same place in the new grid. A row of chunks that got more problems is not
        reused either.
        """
        base, base_grid, grid = self._base, self._base_grid, self.grid
        if base is None or base_grid is None:
            return set()
        base_counts = base.sample_counts(self._group)
        # A file that is gone took samples along unless others hold them too: look at all bands.
        if not base_counts.keys() <= self._files.sample_counts.keys():
            return set()
        if not grid.extends(base_grid) or grid.sample_chunks > base_grid.sample_chunks:
            return set()
        unchanged = set()
        for chunk_row in range(base_grid.chunk_rows):
            if grid.problems_of_row(chunk_row) == base_grid.problems_of_row(chunk_row):
                for step_index in range(len(base_grid.steps)):
                    unchanged.add(BandPlace(chunk_row, step_index))
        return unchanged - self._changed_bands(base_counts, base_grid)

    def _changed_bands(self, base_counts: Mapping[str, int], base_grid: Grid) -> set[BandPlace]:
        """Find bands with samples in new or grown files, or with another request than in the base.

        ``base_counts``: the files that the base was made from, with the samples of each.
        ``base_grid``: the axes of the base, and the fingerprint (hash of the request) of each step
        and problem.
        """
        grid = self.grid
        changed_files = [
            name
            for name, count in self._files.sample_counts.items()
            if base_counts.get(name) != count
        ]
        changed = {(cell.step, cell.problem) for cell in self._files.last_samples(changed_files)}
        for cell_key, fingerprint in grid.fingerprints.items():
            if base_grid.fingerprints.get(cell_key) != fingerprint:
                changed.add(cell_key)
        problem_index = {problem: index for index, problem in enumerate(grid.problems)}
        step_index = {step: index for index, step in enumerate(grid.steps)}
        return {
            BandPlace(problem_index[problem] // grid.chunk.problems, step_index[step])
            for step, problem in changed
        }

    def _count_lost_samples(self, target: zarr.Group) -> None:
        """Count the samples that the base has and that no file holds any more, into :attr:`lost`.

        ``target``: the new group, already written. There is nothing to do unless files of the base
        are gone. *Presence* is an array of (problem, sample): whether a sample exists. The two
        presences are compared problem by problem. Old samples of a problem that is asked in another
        way now do not count any more, so they are not lost.
        """
        if not self.gone or self._base is None or self._base_grid is None:
            return
        base_group = self._base.root[str(self._group)]
        for step_index, step in enumerate(self._base_grid.steps):
            base_presence = _read_presence(base_group, step_index)
            presence_of_problem = self._presence_of_problems(target, step)
            for problem, was_present in zip(self._base_grid.problems, base_presence, strict=False):
                key = (step, problem)
                fingerprint = self.grid.fingerprints.get(key)
                if fingerprint not in (None, self._base_grid.fingerprints.get(key)):
                    continue
                is_present = presence_of_problem.get(problem, np.zeros(0, bool))
                width = min(len(was_present), len(is_present))
                kept = was_present[:width] & is_present[:width]
                lost = int(was_present.sum() - kept.sum())
                if lost:
                    self.lost[problem] = self.lost.get(problem, 0) + lost

    def _presence_of_problems(self, target: zarr.Group, step: int) -> dict[str, NDArray[np.bool_]]:
        """Which samples the new group has at a step, by problem."""
        if step not in self.grid.steps:
            return {}
        presence = _read_presence(target, self.grid.steps.index(step))
        return dict(zip(self.grid.problems, presence, strict=False))


class AnswerTable:
    """The table of answers of a group in the making; rows are written many at a time."""

    def __init__(self, root: zarr.Group, group: Group) -> None:
        """Create the empty table ``answers/<arm>/<set>`` in a new cube.

        Rows wait in :attr:`_pending` until there are enough for a chunk.
        """
        path = f"{cube_schema.ANSWERS}/{group}"
        self._target = cube.create_group(root, path, cube_schema.ANSWERS, {})
        cube.create_arrays(
            self._target, cube_schema.ANSWER_VARIABLES, {"row": 0}, cube.TABLE_CHUNKS
        )
        self._pending: list[Mapping[str, NDArray[Any]]] = []
        self._pending_rows = 0

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add rows behind those that were added before."""
        self._pending.append(rows)
        self._pending_rows += len(rows["answer"])
        if self._pending_rows >= cube.TABLE_CHUNKS["row"]:
            self.write()

    def write(self) -> None:
        """Append the rows that wait to the table in the cube, and forget them."""
        if self._pending_rows:
            for variable in cube_schema.ANSWER_VARIABLES:
                values = np.concatenate([rows[variable.name] for rows in self._pending])
                cube.append(self._target, variable.name, values)
        self._pending.clear()
        self._pending_rows = 0


@dataclass(frozen=True)
class BaseAnswers:
    """The table of answers of a group in the base.

    ``row_bounds``: where the rows of each problem begin, step by step, and the number of rows.
    """

    arrays: Mapping[str, Any]
    problem_count: int
    row_bounds: NDArray[np.int64]

    @classmethod
    def open(cls, base: Base, group: Group) -> BaseAnswers | None:
        """Open a group's table of answers; None if there is none or one of its chunks is damaged.

        ``n_answers``, an array of (problem, step), says how many rows of the table each problem
        has. The table lists them step by step, hence the transpose before the running sum.
        """
        n_answers: Any = base.root.get(f"{group}/n_answers")
        if n_answers is None or not cube.is_intact(base.store, n_answers):
            return None
        table: Any = base.root[f"{cube_schema.ANSWERS}/{group}"]
        arrays = dict(table.arrays())
        if not all(cube.is_intact(base.store, array) for array in arrays.values()):
            return None
        # Row at which each (step, problem) begins, and the number of rows at the end.
        row_bounds = np.append(0, np.cumsum(n_answers[...].T))
        return cls(arrays, n_answers.shape[0], row_bounds)

    def rows(
        self, step_index: int, first_problem: int, problem_count: int
    ) -> dict[str, NDArray[Any]]:
        """The rows of consecutive problems at a step."""
        first = step_index * self.problem_count + first_problem
        start, stop = self.row_bounds[[first, first + problem_count]].tolist()
        return {name: np.asarray(array[start:stop]) for name, array in self.arrays.items()}


def _read_presence(group: Any, step_index: int | slice) -> NDArray[np.bool_]:
    """Whether each sample is in a group of a cube at one step: an array of (problem, sample).

    A slice of steps gives a third axis. The result is empty if the verdicts cannot be read.
    """
    # Every layer down to the disk has its own exception for damaged bytes.
    with suppress(Exception):
        return np.asarray(group["verdict"][:, :, step_index]) >= 0
    return np.zeros((0, 0), bool)


def derive(
    root: zarr.Group,
    sources: Sources,
    base: Base | None,
    groups: Iterable[Group],
    take_over: TakeOver,
) -> dict[Group, Derivation]:
    """Write groups of samples into a cube, in a folder or in memory.

    ``sources``: all journals and parts of the run. ``base``: the cube's version before. ``groups``:
    which arms and problem sets to write. ``take_over``: links chunk files of the base into the new
    cube and says whether that worked. Gives for each group what was derived, reused and left out.

    Raises :class:`PurgedError` if the base has samples that no file holds any more, or was made by
    a plan that is gone.
    """
    derivations = {group: Derivation(sources.files[group], base) for group in groups}
    for derivation in derivations.values():
        derivation.write(root, take_over)
    if base is not None:
        _reject_lost_samples(base, sources, derivations)
        _reject_lost_plans(base, sources)
    return derivations


class PurgedError(UserError):
    """What the cube has is in no file any more."""

    def __init__(self, message: str, samples: int) -> None:
        super().__init__(message)
        self.samples = samples


def _reject_lost_plans(base: Base, sources: Sources) -> None:
    """Refuse to replace a cube made by a plan when the plan's file is gone.

    A *plan* is the saved grid of an arm on a problem set: which samples are asked for. Without it,
    the new cube would hold whatever samples lie there. ``plans`` has the checksum of each group's
    plan, empty where there is none. Raises :class:`PurgedError`, which names the missing file.
    """
    plans: Mapping[str, str] = base.sources["inputs"]["plans"]
    for group in sources.groups:
        if plans.get(str(group)) and not sources.inputs["plans"][str(group)]:
            raise PurgedError(
                f"{sources.layout.grid(*group)}: gone, and the cube was made by it. The cube stays "
                "as it is. `rlbhpc sample` or `launch` writes it again, and of imported samples "
                "`rlbhpc import` of their files; to go on without it, remove this cube first",
                1,
            )


def _reject_lost_samples(
    base: Base, sources: Sources, derivations: Mapping[Group, Derivation]
) -> None:
    """Refuse a cube with fewer samples than the one before because files were removed.

    ``base``: the version before. ``derivations``: the new groups; each one's ``lost`` counts by
    problem the samples that no file holds any more, and its ``gone`` names the files. A group of
    the base that has no files at all now has lost all its samples. It is no loss if a problem is
    asked in another way now, or if other files hold the samples of a file that is gone.

    Raises :class:`PurgedError`, which names the files and what they held.
    """
    lost: dict[str, int] = {}
    gone: list[str] = []
    for name, sample_counts in base.sources["inputs"]["groups"].items():
        group = Group(*name.split("/"))
        derivation = derivations.get(group)
        if derivation is not None and derivation.lost:
            for problem, count in derivation.lost.items():
                lost[f"{group.arm}: {problem}"] = count
            gone += derivation.gone
        elif group not in sources.groups and sample_counts:
            lost[f"{group.arm}: all of {group.problem_set}"] = sum(sample_counts.values())
            gone += sample_counts
    if not lost:
        return
    names = ", ".join(gone[:_MAX_NAMED_FILES])
    if len(gone) > _MAX_NAMED_FILES:
        names += f" and {len(gone) - _MAX_NAMED_FILES} more"
    total = sum(lost.values())
    first_problem = next(iter(lost))
    raise PurgedError(
        f"{sources.layout.cube}: {total:,} samples of it are in no journal or part any more (the "
        f"first: {first_problem}); gone: {names}. The cube stays as it is. Put the files back, or "
        "let `rlbhpc sample` draw the samples again; to go on without them, remove this cube first",
        total,
    )
