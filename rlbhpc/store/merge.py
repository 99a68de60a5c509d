"""Join stores of one study that were filled in different places.

Everything is compared before anything is copied: a refused merge leaves no trace. Files keep
their names, so that a merge that was interrupted, or is made twice, ends the same.

The audit
    * A sample that both stores have must be the same in both; else it is an error that names
      both files, since two clusters that draw different samples from one seed are not the same
      instrument, and which of them to believe is for people to say.
    * A problem that both stores have must have been asked in the same way (fingerprint).
    * Two samples that share a seed, or whose responses agree token by token, are reported:
      sampling them was meant to be independent.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import left_out, parts, snapshot
from rlbhpc.store.frames import FILE_HEADER_SIZE, DamagedError
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.questions import put_questions, stored_questions
from rlbhpc.store.snapshot import DistinctSamples, Snapshot
from rlbhpc.study.keys import Cell
from rlbhpc.study.layout import Layout

# What shows whether two responses to one problem agree token by token.
_COMPARED: Final = [*Cell._fields, "sample", "n_tokens", "logprob_sum", "text"]
# Shorter responses may well be equal by chance.
_LONG: Final = 32
_CHUNK: Final = 16 << 20


@dataclass(frozen=True)
class Merging:
    """What :func:`merge` did.

    ``copied``: new files of the store. ``added``: samples that it did not have before. ``twins``:
    pairs of samples with one seed, or with one response of at least 32 tokens. ``left_out``: files
    that are too damaged to copy. ``skipped``: what could not be read.
    """

    copied: tuple[Path, ...]
    added: int
    twins: tuple[str, ...]
    left_out: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


class _Pair(NamedTuple):
    """One arm and problem set on both sides."""

    arm: str
    set_name: str
    ours: Snapshot
    theirs: Snapshot


def merge(into: Layout, source: Layout) -> Merging:
    """Copy into one store what another one has.

    Raises :class:`UserError` when the two contradict each other. Nothing was copied then.
    """
    groups = source.groups()
    if not groups:
        raise UserError(f"{source.root}: holds no samples; give the folder of a run")
    pairs = [
        _Pair(*group, snapshot.take(into, *group), snapshot.take(source, *group, verify=True))
        for group in groups
    ]
    added = 0
    twins: list[str] = []
    skipped: list[Skipped] = []
    for pair in pairs:
        _same_requests(pair, into, source)
        ours, theirs = pair.ours, pair.theirs
        joined = Snapshot(
            ours.journals + theirs.journals,
            ours.parts + theirs.parts,
            ours.skipped + theirs.skipped,
        )
        both = DistinctSamples(joined, ["seed", "n_tokens", "logprob_sum", "text"])
        _no_contradiction(both, into)
        added += both.count - DistinctSamples(pair.ours).count
        twins.extend(_twins(both))
        skipped.extend(both.skipped)
    copied: list[Path] = []
    for pair in pairs:
        copied.extend(_copy_group(pair, into))
        _plan(pair, into, source)
    copied.extend(
        _copy(source.attempts / name, into.attempts / name)
        for name in files.list_names(source.attempts, ".json")
        if not (into.attempts / name).exists()
    )
    left_out = [path for pair in pairs for path in _left_out(pair, source)]
    return Merging(tuple(copied), added, tuple(twins), tuple(left_out), tuple(skipped))


def _same_requests(pair: _Pair, into: Layout, source: Layout) -> None:
    """Refuse when a problem that both have was asked in two ways."""
    ours = _requests(pair.ours, Grid.load(into.grid(pair.arm, pair.set_name)))
    theirs = _requests(pair.theirs, Grid.load(source.grid(pair.arm, pair.set_name)))
    differing = [key for key in ours if key in theirs and not ours[key] & theirs[key]]
    if differing:
        step, problem = differing[0]
        raise UserError(
            f"{source.root}: {problem} (arm {pair.arm}, step {step}"
            f"{_more(len(differing), 'problem')}) was asked in another way than in {into.root}: "
            "another model, prompt, sampling setting or problem text; merge only stores of one "
            "study, planned by one version of it"
        )


def _requests(now: Snapshot, grid: Grid | None) -> dict[tuple[int, str], set[int]]:
    requests: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    listed = [*(journal.cells for journal in now.journals), *(part.cells for part in now.parts)]
    for cells in listed:
        for cell in cells:
            requests[cell.step, cell.problem].add(cell.fingerprint)
    for key, fingerprint in grid.fingerprints.items() if grid else ():
        requests[key].add(fingerprint)
    return requests


def _no_contradiction(both: DistinctSamples, into: Layout) -> None:
    """Refuse when the two stores have different samples of one key."""
    conflicts = [
        conflict
        for conflict in both.conflicts
        if conflict.counts.is_relative_to(into.root) != conflict.other.is_relative_to(into.root)
    ]
    if conflicts:
        raise UserError(
            f"{conflicts[0]}{_more(len(conflicts), 'sample')}. Nothing was copied. Whichever was "
            "not meant to be drawn must go: remove its file, or merge a store without it"
        )


def _more(count: int, what: str) -> str:
    return f", and {count - 1} more {what}{'s' * (count > 2)}" if count > 1 else ""


def _twins(both: DistinctSamples) -> Iterator[str]:
    """Find samples that share a seed, and responses that agree token by token."""
    keys = both.keys
    seeds = both.read(np.arange(both.count), ["seed"])["seed"].to_numpy()
    order = np.argsort(seeds, kind="stable")
    # Imported samples have no seed, −1, where their files tell none.
    same = (np.diff(seeds[order]) == 0) & (seeds[order][1:] >= 0)
    for i in np.flatnonzero(same).tolist():
        a, b = sorted(order[i : i + 2].tolist())
        rows = keys.take([a, b]).to_pylist()
        cell = Cell(*(rows[0][name] for name in Cell._fields))
        what = (
            f"the second ({rows[1]['problem']}, step {rows[1]['step']}) has the seed of the first"
        )
        yield _pair(cell, rows[0]["sample"], rows[1]["sample"], what)
    # Rows come cell by cell; a cell may have more text than is held at once.
    for cell, responses in groupby(_long_responses(both), itemgetter(0)):
        alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for _, response, sample in responses:
            alike[response].append(sample)
        for samples in alike.values():
            if len(samples) > 1:
                what = f"{len(samples)} responses agree token by token"
                yield _pair(cell, samples[0], samples[1], what)


def _long_responses(both: DistinctSamples) -> Iterator[tuple[Cell, tuple[Any, ...], int]]:
    """Cell, what two that agree have in common, and number of each long response."""
    for _, table in both.batches(np.arange(both.count), _COMPARED):
        long = table.filter(pc.greater_equal(table["n_tokens"], _LONG))
        columns = (long[name].to_pylist() for name in _COMPARED)
        for *cell, sample, tokens, logprob, text in zip(*columns, strict=True):
            yield Cell(*cell), (tokens, str(logprob), hash(text)), sample


def _pair(cell: Cell, first: int, second: int, what: str) -> str:
    place = f"(arm {cell.arm}, step {cell.step})"
    return f"{cell.problem} no. {first} and {second} {place}: {what}"


def _copy_group(pair: _Pair, into: Layout) -> Iterator[Path]:
    folder = into.parts(pair.arm, pair.set_name)
    for part in pair.theirs.parts:
        here = folder / part.path.name
        if not part.damaged and not _sound(here):
            yield _copy(part.path, here)
    folder = into.journals(pair.arm, pair.set_name)
    for journal in pair.theirs.journals:
        here = folder / journal.path.name
        if journal.salt and not _has(here, journal.path, journal.size):
            yield _copy(journal.path, here, size=journal.size)


def _left_out(pair: _Pair, source: Layout) -> Iterator[Path]:
    intact = {part.path for part in pair.theirs.parts if not part.damaged}
    folder = source.parts(pair.arm, pair.set_name)
    for name in files.list_names(folder, parts.ENDING):
        if folder / name not in intact:
            yield folder / name
    for journal in pair.theirs.journals:
        if journal.size > FILE_HEADER_SIZE and not journal.salt:
            yield journal.path


def _sound(part: Path) -> bool:
    """Whether a part is there, with the footer that its name tells of, and not known as damaged."""
    try:
        parts.contents(part)
    except (FileNotFoundError, DamagedError):
        return False
    return not left_out.damaged_places(part)


def _has(here: Path, theirs_path: Path, size: int) -> bool:
    """Whether a journal is here with all that it has there.

    An attempt's journal only grows, so one of two copies begins with the other.
    """
    try:
        with files.open_descriptor(here) as ours, files.open_descriptor(theirs_path) as theirs:
            offset, own_size = 0, os.fstat(ours).st_size
            while offset < min(size, own_size):
                length = min(_CHUNK, size - offset, own_size - offset)
                if files.read_at(ours, length, offset) != files.read_at(theirs, length, offset):
                    raise UserError(
                        f"{here} and {theirs_path} have one name and different content; an "
                        "attempt's journal is written once, so one of them was damaged or renamed: "
                        "remove it"
                    )
                offset += length
    except FileNotFoundError:
        return False
    return own_size >= size


def _copy(source_path: Path, here: Path, size: int | None = None) -> Path:
    """Copy a file under its name: whole, synced, and read back if it is a part."""
    with files.open_descriptor(source_path) as source, files.atomic_writer(here) as sink:
        stop = os.fstat(source).st_size if size is None else size
        while sink.tell() < stop:
            data = files.read_at(source, min(_CHUNK, stop - sink.tell()), sink.tell())
            if not data:
                raise OSError(f"{source_path} became shorter while it was copied")
            sink.write(data)
    if here.suffix == parts.ENDING and (damage := parts.verify(here)):
        here.unlink(missing_ok=True)
        raise UserError(f"{damage[0]}; copy it again", TRY_AGAIN)
    left_out.forget_damage(here)
    return here


def _plan(pair: _Pair, into: Layout, source: Layout) -> None:
    theirs = Grid.load(source.grid(pair.arm, pair.set_name))
    if theirs is None:
        return
    path = into.grid(pair.arm, pair.set_name)
    ours = Grid.load(path)
    grid = ours.grown(theirs.cells(pair.arm)) if ours else theirs
    texts = stored_questions(source, pair.arm, pair.set_name)
    provenance = {**grid.provenance, **put_questions(into, pair.arm, pair.set_name, texts)}
    grid = replace(grid, provenance=provenance)
    if grid != ours:
        grid.save(path)
