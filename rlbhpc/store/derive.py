"""Derive one group of a cube from its samples, band by band.

A *band* is one chunk of problems at one step with all samples: a pure function of the set of its
rows, in whatever order they come.

Compaction writes the bands to disk, a reader of a run that is still growing into memory. Both
call this, so that they cannot disagree about which of two samples counts, or which are missing.
"""

from __future__ import annotations

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
from rlbhpc.store import cube, cube_schema, sample
from rlbhpc.store.cube import Version
from rlbhpc.store.cube_schema import STRING
from rlbhpc.store.grid import UNPLANNED, Grid
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.store.snapshot import DistinctSamples
from rlbhpc.store.sources import Group, Rows, Sources
from rlbhpc.verify.verdict import Status

if TYPE_CHECKING:
    import zarr


#: Columns of a row that a band needs.
BAND_COLUMNS: Final = (
    "problem",
    "sample",
    "fingerprint",
    *(name for name, column in sample.COLUMNS.items() if column.cube),
)

# Plain integers: NumPy compares bytes with an enum as 64-bit integers, at a quarter of the speed.
_RIGHT: Final = int(Status.RIGHT)
_LAST_JUDGED: Final = int(max(cube_schema.JUDGED))


class Band(NamedTuple):
    """Arrays of a band, the step as their last dimension of size one, and its table of answers."""

    arrays: dict[str, NDArray[Any]]
    answers: dict[str, NDArray[Any]]


def build_band(
    rows: pa.Table, problems: Sequence[str], fingerprints: Sequence[int], step: int, n: int
) -> Band:
    """Put the samples of a band in their places.

    ``rows``: samples of one step with :data:`COLUMNS`, each key once. Those of other problems, or
    with another fingerprint than the one that is asked for, do not count. ``problems,
    fingerprints``: the problems of the band and what is asked for of each. ``n``: length of the
    sample axis.
    """
    places, kept = positions(rows["problem"], problems)
    required = np.asarray(fingerprints, np.int64)
    kept &= np.asarray(rows["fingerprint"]) == required[places]
    rows, places = rows.filter(pa.array(kept)), places[kept]
    cell = places * n + np.asarray(rows["sample"]).astype(np.int64)

    answer_ids, answered, answers = _count_answers(rows["answer"], places)
    answers["problem"] = np.array(problems, STRING)[answered]
    answers["step"] = np.full(len(answered), step)
    right = cube_schema.RIGHT_BY_VERDICT[np.asarray(rows["verdict"])]
    derived = {"answer": answer_ids, "right": right}
    arrays: dict[str, NDArray[Any]] = {}
    for variable in cube_schema.SAMPLE_VARIABLES:
        name = variable.name
        flat = np.full(len(problems) * n, variable.fill, variable.dtype)
        flat[cell] = derived[name] if name in derived else np.asarray(rows[name])
        arrays[name] = flat.reshape(len(problems), n, 1)
    arrays["n"], arrays["c"] = count_verdicts(arrays["verdict"], axis=1)
    arrays["fingerprint"] = required[:, None]
    arrays["n_answers"] = np.bincount(answered, minlength=len(problems))[:, None]
    return Band(arrays, answers)


def up_to_stop(verdict: NDArray[np.int8], stop_after: int) -> NDArray[np.int8]:
    """Keep the samples up to the ``stop_after``-th right one, along the last axis.

    In the order of the index, and none behind a missing one: what counts follows from the samples
    and not from which of them came first. Those left out become missing. 0 keeps all.
    """
    if not stop_after:
        return verdict
    right = verdict == _RIGHT
    kept = np.cumsum(right, axis=-1) - right < stop_after
    kept &= np.logical_and.accumulate(verdict != Status.MISSING, axis=-1)
    return np.where(kept, verdict, np.int8(Status.MISSING))


def count_verdicts(
    verdict: NDArray[np.int8], axis: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Count judged samples and right ones along an axis of verdict codes."""
    # Along the last axis NumPy sums several times faster.
    rows = np.ascontiguousarray(np.moveaxis(verdict, axis, -1))
    # JUDGED is 0 … 3, so one unsigned comparison also drops −1.
    n: NDArray[np.int32] = np.sum(rows.view(np.uint8) <= _LAST_JUDGED, axis=-1, dtype=np.int32)
    return n, np.sum(rows == _RIGHT, axis=-1, dtype=np.int32)


def positions(
    column: pa.ChunkedArray, names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find where each value stands in ``names``, and whether it does (0 where not)."""
    if len(column) == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    column = column.unify_dictionaries().combine_chunks()
    place: Mapping[str, int] = {name: i for i, name in enumerate(names)}
    of_value = np.array([place.get(v, -1) for v in column.dictionary.to_pylist()], np.int64)
    places = of_value[np.asarray(column.indices)]
    return np.maximum(places, 0), places >= 0


def _count_answers(
    column: pa.ChunkedArray, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Give ids of answers, −1 for none, and a row for each answer to a problem, by its position.

    ``places``: the position of each answer's problem. Rows are in the order of problems and ids.
    """
    encoded = pc.dictionary_encode(column.combine_chunks())
    codes = np.asarray(encoded.indices)
    texts = encoded.dictionary.to_pylist()
    id_of = np.array([cube_schema.answer_id(text) if text else -1 for text in texts], np.int64)
    ids, rank_of = np.unique(id_of, return_inverse=True)
    answered = np.flatnonzero(id_of[codes] >= 0)
    pairs = places[answered] * len(ids) + rank_of[codes[answered]]
    pairs, first, count = np.unique(pairs, return_index=True, return_counts=True)
    problem, rank = np.divmod(pairs, len(ids))
    shown = np.array([cube_schema.shown(text) for text in texts], STRING)
    rows = {"answer": ids[rank], "text": shown[codes[answered[first]]], "count": count}
    return id_of[codes], problem, rows


#: Row of chunks and position of the step.
Place = tuple[int, int]
#: Takes files over from the base, by their paths below its root, and says whether it could.
Keep = Callable[[Iterable[Path]], bool]
_NAMED: Final = 3


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
    def of(cls, version: Version | None, *, rebuild: bool = False) -> Base | None:
        """Open a version; None where nothing may be concluded from it."""
        if version is None:
            return None
        try:
            root = cube.open_checked(version.store)
        except (UserError, FileNotFoundError):
            return None
        sources = version.sources or _unknown_sources(version, root)
        same_schema = sources.get("schema_version") == cube_schema.SCHEMA_VERSION
        return cls(version.store, root, sources, same_schema and not rebuild)

    def is_of(self, sources: Sources) -> bool:
        """Whether it may stay, since it was made from the same."""
        return self.reusable and bool(self.sources["inputs"] == sources.inputs)

    def files(self, group: Group) -> Mapping[str, int]:
        """Files that a group was made from, with the samples of each."""
        files: Mapping[str, int] = self.sources["inputs"]["groups"].get(str(group), {})
        return files

    def notes(self, group: Group, place: Place) -> list[Note]:
        """What was left out of a band."""
        bands = self.sources.get("left_out", {}).get(str(group), {})
        return [Note(*note) for note in bands.get(_name(place), [])]

    def lacks(self, group: Group) -> bool:
        """Whether damage kept samples of a group out, which may be readable by now."""
        bands = self.sources.get("left_out", {}).get(str(group), {})
        return any(_damaged(map(Note._make, notes)) for notes in bands.values())

    def grid(self, group: Group) -> Grid | None:
        """Axes of a group; None where it has none or they cannot be read."""
        try:
            return cube.read_grid(self.root, str(group))
        except Exception:  # every layer down to the disk has its own exception for damaged bytes
            return None

    def samples(self, group: str) -> int:
        """How many samples a group has."""
        return _samples(self.root.get(group))


def all_notes(sources: Mapping[str, Any], without: Iterable[Group] = ()) -> list[Note]:
    """What was left out of a whole version but for some groups, by what it was made from."""
    others = set(map(str, without))
    groups = [bands for name, bands in sources.get("left_out", {}).items() if name not in others]
    return [Note(*note) for bands in groups for notes in bands.values() for note in notes]


def _damaged(notes: Iterable[Note]) -> bool:
    return any(note.kind == DAMAGED for note in notes)


class Derivation:
    """A group in the making.

    ``base``: the version before; None if there is none. ``derived, kept``: bands that were derived
    from rows, and bands that were taken over from the base. ``gone``: files that the base was made
    from and that are not there any more. ``lost``: how many samples of a problem the base has and
    no file holds any more. ``notes``: what was left out, by band.
    """

    def __init__(self, rows: Rows, base: Base | None) -> None:
        self.grid = rows.grid
        self.derived: set[Place] = set()
        self.kept: set[Place] = set()
        self.lost: dict[str, int] = {}
        self.notes: dict[str, list[Note]] = {}
        self._rows = rows
        self._base = base
        self._old = base.grid(rows.group) if base else None
        self.gone = rows.gone(base.files(rows.group)) if base else []

    def write(self, root: zarr.Group, keep: Keep) -> None:
        """Write every band, and the table of answers, in the order of that table's rows."""
        group = self._rows.group
        target = cube.create_samples(root, *group, self.grid)
        answers = AnswerTable(root, group, self._base, keep)
        untouched = self._untouched() if answers.has_base else set()
        for step in range(len(self.grid.steps)):
            for row in range(self.grid.rows):
                place = (row, step)
                files = cube.band_files(str(group), self.grid.blocks, row, step)
                if self._base and place in untouched and self._is_as_good(place) and keep(files):
                    self.kept.add(place)
                    notes = self._base.notes(group, place)
                    answers.take(step, row * self.grid.chunk.problems, len(self.grid.row(row)))
                else:
                    self.derived.add(place)
                    values, notes = self._band(row, step)
                    cube.write_band(target, self.grid, row, step, values.arrays)
                    answers.add(values.answers)
                if notes:
                    self.notes[_name(place)] = notes
        answers.start()
        self._count_lost(target)

    def _is_as_good(self, place: Place) -> bool:
        """Whether the base holds all of a band that can be read now.

        A file of which damage kept samples out may have been put back, or the disk be well again.
        """
        if self._base is None or not _damaged(self._base.notes(self._rows.group, place)):
            return True
        row, step = place
        first = row * self.grid.chunk.problems
        rows = slice(first, first + len(self.grid.row(row)))
        held = _present(self._base.root[str(self._rows.group)], step)[rows]
        values, _ = self._band(row, step)
        return bool((values.arrays["verdict"] >= 0).sum() <= held.sum())

    def _band(self, row: int, step: int) -> tuple[Band, list[Note]]:
        """A band from its rows, and what was left out of it."""
        grid = self.grid
        problems = grid.row(row)
        required = [grid.fingerprints.get((grid.steps[step], problem), -1) for problem in problems]
        view = DistinctSamples(
            self._rows.now,
            BAND_COLUMNS,
            problems=set(problems),
            steps={grid.steps[step]},
            verify=True,
        )
        table = view.read(np.arange(view.count), BAND_COLUMNS)
        return build_band(table, problems, required, grid.steps[step], grid.n), view.notes

    def _untouched(self) -> set[Place]:
        """Bands of the base that no new source touches."""
        old, grid, rows, base = self._old, self.grid, self._rows, self._base
        # A file that is gone took samples along unless others hold them too: look at all of them.
        if base is None or old is None or not base.reusable:
            return set()
        sources = base.files(rows.group)
        if not set(sources) <= set(rows.files):
            return set()
        if not grid.extends(old) or grid.blocks > old.blocks:
            return set()
        bands = {
            (row, step)
            for row in range(old.rows)
            if grid.row(row) == old.row(row)
            for step in range(len(old.steps))
        }
        row_of = {problem: i // grid.chunk.problems for i, problem in enumerate(grid.problems)}
        step_at = {step: i for i, step in enumerate(grid.steps)}
        changed = [name for name, mark in rows.files.items() if sources.get(name) != mark]
        touched = {(cell.step, cell.problem) for cell in rows.cells(changed)}
        touched |= {k for k, v in grid.fingerprints.items() if old.fingerprints.get(k) != v}
        return bands - {(row_of[problem], step_at[step]) for step, problem in touched}

    def _count_lost(self, target: zarr.Group) -> None:
        """Count samples that the base has and that no file holds any more, by problem."""
        old, grid = self._old, self.grid
        if not self.gone or self._base is None:
            return
        if old is None:
            lost = self._base.samples(str(self._rows.group)) - _samples(target)
            if lost > 0:
                self.lost["problems that its axes do not name any more"] = lost
            return
        row_of = {problem: i for i, problem in enumerate(grid.problems)}
        for j, step in enumerate(old.steps):
            before = _present(self._base.root[str(self._rows.group)], j)
            position = grid.steps.index(step) if step in grid.steps else -1
            after = _present(target, position) if position >= 0 else np.zeros((0, 0), bool)
            for problem, there_before in zip(old.problems, before, strict=False):
                i = row_of.get(problem, -1)
                same = grid.fingerprints.get((step, problem)) in {
                    None,
                    old.fingerprints.get((step, problem)),
                }
                if same and (i // grid.chunk.problems, position) not in self.kept:
                    there_after = np.zeros_like(there_before)
                    if i >= 0 and position >= 0:
                        length = min(len(there_before), after.shape[1])
                        there_after[:length] = after[i, :length]
                    if samples := int(np.count_nonzero(there_before & ~there_after)):
                        self.lost[problem] = self.lost.get(problem, 0) + samples


class AnswerTable:
    """The table of answers of a group in the making.

    Rows come in their order. Those that the base has at the same place, from the first on, stay in
    its files as far as they fill whole chunks: a step that is added adds rows at the end.

    ``has_base``: whether rows can be taken over from the base.
    """

    def __init__(self, root: zarr.Group, group: Group, base: Base | None, keep: Keep) -> None:
        self._path = f"{cube_schema.ANSWERS}/{group}"
        self._target = cube.create_group(root, self._path, cube_schema.ANSWERS, {})
        self._keep = keep
        self._started = False
        # Rows, from the first on, that stand at the same place in the base.
        self._unchanged = 0
        self.has_base = base is not None and base.reusable and self._open(base, group)

    def _open(self, base: Base, group: Group) -> bool:
        """Find where the rows of each problem begin; False where a chunk of the table is bad."""
        n_answers: Any = base.root.get(f"{group}/n_answers")
        if n_answers is None or not cube.is_intact(base.store, n_answers):
            return False
        self._problems = n_answers.shape[0]
        self._starts = [0, *np.cumsum(n_answers[...].T).tolist()]
        self._old = dict(base.root[self._path].arrays())  # type: ignore[union-attr]
        return all(cube.is_intact(base.store, array) for array in self._old.values())

    def take(self, step: int, first: int, problems: int) -> None:
        """Add the rows of a run of problems at a step, as the base has them."""
        place = step * self._problems + first
        start, stop = self._starts[place], self._starts[place + problems]
        if start == self._unchanged and not self._started:
            self._unchanged = stop
        else:
            self.add(self._rows(start, stop))

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add rows."""
        self.start()
        for name, values in rows.items():
            cube.append(self._target, name, values)

    def start(self) -> None:
        """Create the arrays, behind the chunks of the base that stay."""
        if self._started:
            return
        self._started = True
        length = cube.TABLE_CHUNKS["row"]
        names = [variable.name for variable in cube_schema.ANSWER_VARIABLES]
        chunks = range(self._unchanged // length)
        files = [Path(self._path, name, "c", str(chunk)) for name in names for chunk in chunks]
        first = len(chunks) * length if files and self._keep(files) else 0
        sizes = {"row": first}
        cube.create_arrays(self._target, cube_schema.ANSWER_VARIABLES, sizes, cube.TABLE_CHUNKS)
        if first < self._unchanged:
            self.add(self._rows(first, self._unchanged))

    def _rows(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        return {name: np.asarray(array[start:stop]) for name, array in self._old.items()}


def _unknown_sources(version: Version, root: zarr.Group) -> Mapping[str, Any]:
    """Sources of a cube that lost the list of them: a file that is gone, so samples are counted.

    A plan leaves what the samples stand on, and chunks of another size.
    """
    gone = {f"{version.folder.name}/{cube.SOURCES}": 0}
    nodes: Any = root.members(max_depth=None)
    groups = {name: node for name, node in nodes if node.attrs.get("kind") == "samples"}
    plans = {
        name: "unknown"
        for name, node in groups.items()
        if cube_schema.provenance(node.attrs) or node["verdict"].chunks[:2] != UNPLANNED
    }
    return {"inputs": {"groups": dict.fromkeys(groups, gone), "plans": plans, "tables": {}}}


def _samples(group: Any) -> int:
    return int(_present(group, slice(None)).sum())


def _present(group: Any, step: int | slice) -> NDArray[np.bool_]:
    """Which samples a group of a cube has; none where no array can be read."""
    arrays = []
    # Two, since a chunk of one may be damaged, or lost, which Zarr shows as missing samples.
    for name in ("verdict", "seed"):
        # Every layer down to the disk has its own exception for damaged bytes.
        with suppress(Exception):
            arrays.append(np.asarray(group[name][:, :, step]) >= 0)
    return np.logical_or.reduce(arrays) if arrays else np.zeros((0, 0), bool)


def derive(
    root: zarr.Group, sources: Sources, base: Base | None, groups: Iterable[Group], keep: Keep
) -> dict[Group, Derivation]:
    """Write groups of samples into a cube, in a folder or in memory.

    Raises :class:`PurgedError` if the base has samples that no file holds any more, or a plan that
    is gone.
    """
    derivations = {group: Derivation(sources.rows[group], base) for group in groups}
    for derivation in derivations.values():
        derivation.write(root, keep)
    if base is not None:
        _refuse_purged(base, sources, derivations)
        _refuse_planless(base, sources)
    return derivations


class PurgedError(UserError):
    """What the cube has is in no file any more."""

    def __init__(self, message: str, samples: int) -> None:
        super().__init__(message)
        self.samples = samples


def _refuse_planless(base: Base, sources: Sources) -> None:
    """Refuse a cube of all that is there in place of one of what was asked for.

    Raises :class:`PurgedError` naming a plan that the cube was made by and that is gone.
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


def _refuse_purged(base: Base, sources: Sources, derivations: Mapping[Group, Derivation]) -> None:
    """Refuse a cube with fewer samples than the one before, because files were removed.

    Raises :class:`PurgedError` naming the files and what they held. A problem that is asked in
    another way now, or a file whose samples others hold too, is no reason.
    """
    lost: dict[str, int] = {}
    gone: list[str] = []
    for name, files in base.sources["inputs"]["groups"].items():
        group = Group(*name.split("/"))
        if group in derivations:
            lost |= {f"{group.arm}: {p}": n for p, n in derivations[group].lost.items()}
            gone += derivations[group].gone if derivations[group].lost else []
        elif group not in sources.groups and (samples := base.samples(name)):
            lost[f"{group.arm}: all of {group.problem_set}"] = samples
            gone += files
    if not lost:
        return
    names = ", ".join(gone[:_NAMED]) + (f" and {len(gone) - _NAMED} more" if gone[_NAMED:] else "")
    first = next(iter(lost))
    path = sources.layout.cube
    raise PurgedError(
        f"{path}: {sum(lost.values()):,} samples of it are in no journal or part any more (the "
        f"first: {first}); gone: {names}. The cube stays as it is. Put the files back, or let "
        "`rlbhpc sample` draw the samples again; to go on without them, remove this cube first",
        sum(lost.values()),
    )


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"
