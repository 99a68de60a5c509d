"""Join stores of one study that were filled in different places.

Everything is compared before anything is copied: a refused merge leaves no trace. Files keep
their names, so that a merge that was interrupted, or is made twice, ends the same.

* A sample that both stores have must be the same in both; otherwise the merge is refused with the
  names of both files. Two clusters that draw different samples from one seed are not the same
  instrument, and people have to say which of them to believe.
* A problem that both stores have must have been asked in the same way (fingerprint).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from rlbhpc import files
from rlbhpc.errors import TRY_AGAIN, UserError
from rlbhpc.store import left_out, parts
from rlbhpc.store.frames import DamagedError
from rlbhpc.store.grid import Grid
from rlbhpc.store.left_out import Skipped
from rlbhpc.store.questions import put_questions, stored_questions
from rlbhpc.store.snapshot import DistinctSamples, Snapshot, take_snapshot
from rlbhpc.study.layout import Layout

_COPY_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Merging:
    """What :func:`merge` did.

    ``copied``: new files of the store. ``added``: samples that it did not have before. ``skipped``:
    what could not be read; files that are damaged are not copied.
    """

    copied: tuple[Path, ...]
    added: int
    skipped: tuple[Skipped, ...]


class _GroupPair(NamedTuple):
    """One arm and problem set, as the target has it and as the source has it."""

    arm: str
    set_name: str
    target: Snapshot
    source: Snapshot


def merge(target: Layout, source: Layout) -> Merging:
    """Copy into the target store what the source store has.

    Each *group* is an arm on a problem set. First all groups are compared: requests and samples.
    Only then are parts, journals, grids and attempt records copied, so that a refused merge
    leaves no trace. :class:`DistinctSamples` lists each sample once, whichever store has it.

    Raises :class:`UserError` when the two contradict each other. Nothing was copied then.
    """
    groups = source.groups()
    if not groups:
        raise UserError(f"{source.root}: holds no samples; give the folder of a run")
    pairs = [
        _GroupPair(
            *group, take_snapshot(target, *group), take_snapshot(source, *group, verify=True)
        )
        for group in groups
    ]
    added = 0
    skipped: list[Skipped] = []
    for pair in pairs:
        _reject_differing_requests(pair, target, source)
        together = Snapshot(
            journals=pair.target.journals + pair.source.journals,
            parts=pair.target.parts + pair.source.parts,
            skipped=pair.target.skipped + pair.source.skipped,
        )
        samples = DistinctSamples(together)
        _reject_conflicts(samples, target)
        added += samples.count - DistinctSamples(pair.target).count
        skipped += samples.skipped
    copied: list[Path] = []
    for pair in pairs:
        copied += _copy_group(pair, target)
        _merge_grids(pair, target, source)
    for name in files.list_names(source.attempts, ".json"):
        if not (target.attempts / name).exists():
            copied.append(_copy(source.attempts / name, target.attempts / name))
    return Merging(tuple(copied), added, tuple(skipped))


def _reject_differing_requests(pair: _GroupPair, target: Layout, source: Layout) -> None:
    """Refuse if a problem that both stores have was asked in two ways.

    A problem's requests are the fingerprints (hashes of model, prompt, sampling and text) under
    which a store has sampled or planned it, by (step, problem). The stores agree if they share one.
    """
    target_requests = _fingerprints(pair.target, target.grid(pair.arm, pair.set_name))
    source_requests = _fingerprints(pair.source, source.grid(pair.arm, pair.set_name))
    differing = [
        cell
        for cell in target_requests.keys() & source_requests.keys()
        if not target_requests[cell] & source_requests[cell]
    ]
    if differing:
        step, problem = min(differing)
        raise UserError(
            f"{source.root}: {problem} (arm {pair.arm}, step {step}"
            f"{_and_more(len(differing), 'problem')}) was asked in another way than in "
            f"{target.root}: another model, prompt, sampling setting or problem text; merge only "
            "stores of one study, planned by one version of it"
        )


def _fingerprints(snapshot: Snapshot, grid_path: Path) -> dict[tuple[int, str], set[int]]:
    """Fingerprints under which each (step, problem) was sampled or planned in one store.

    A *fingerprint* is the hash of a request: model, prompt, sampling and problem text. Files list
    the *cells* that they have samples of, each a problem at a step under one fingerprint.
    ``grid_path``: the saved plan, if there is one.
    """
    fingerprints: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for file in snapshot.files:
        for cell in file.cells:
            fingerprints[cell.step, cell.problem].add(cell.fingerprint)
    grid = Grid.load(grid_path)
    if grid is not None:
        for cell_key, fingerprint in grid.fingerprints.items():
            fingerprints[cell_key].add(fingerprint)
    return fingerprints


def _reject_conflicts(samples: DistinctSamples, target: Layout) -> None:
    """Refuse if the two stores have different samples of one key.

    ``samples``: those of both stores together. Its conflicts are pairs of different samples with
    one key; only those with one sample in each store matter here.
    """
    conflicts = []
    for conflict in samples.conflicts:
        counted_in_target = conflict.counted_file.is_relative_to(target.root)
        ignored_in_target = conflict.ignored_file.is_relative_to(target.root)
        if counted_in_target != ignored_in_target:
            conflicts.append(conflict)
    if conflicts:
        raise UserError(
            f"{conflicts[0]}{_and_more(len(conflicts), 'sample')}. Nothing was copied. Whichever "
            "was not meant to be drawn must go: remove its file, or merge a store without it"
        )


def _and_more(count: int, noun: str) -> str:
    """Words for the things that a message does not name; empty where there is only one."""
    if count == 1:
        return ""
    plural = "s" if count > 2 else ""
    return f", and {count - 1} more {noun}{plural}"


def _copy_group(pair: _GroupPair, target: Layout) -> Iterator[Path]:
    """Copy the parts and journals of a group that the target lacks, and give the copies.

    A journal is copied up to the size that it had when it was listed; it may have grown since. One
    without a salt (the number that its frames begin with) cannot be read and is left.
    """
    folder = target.parts(pair.arm, pair.set_name)
    for part in pair.source.parts:
        copy = folder / part.path.name
        if not part.damaged and not _is_sound_part(copy):
            yield _copy(part.path, copy)
    folder = target.journals(pair.arm, pair.set_name)
    for journal in pair.source.journals:
        copy = folder / journal.path.name
        # A journal only grows, so the longer of two copies has all.
        if journal.salt and _size_of(copy) < journal.size:
            yield _copy(journal.path, copy, size=journal.size)


def _is_sound_part(part: Path) -> bool:
    """Whether a part is there, with the footer that its name tells of, and not known as damaged."""
    try:
        parts.read_listing(part)
    except (FileNotFoundError, DamagedError):
        return False
    return not left_out.damaged_places(part)


def _size_of(path: Path) -> int:
    """Bytes of a file; -1 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _copy(original: Path, copy: Path, size: int | None = None) -> Path:
    """Copy a file, or its first ``size`` bytes, and give the copy.

    It appears in one step, synced. A part, which has checksums, is read back and checked.
    """
    with files.open_descriptor(original) as fd, files.atomic_writer(copy) as sink:
        stop = os.fstat(fd).st_size if size is None else size
        while sink.tell() < stop:
            data = files.read_at(fd, min(_COPY_BYTES, stop - sink.tell()), sink.tell())
            if not data:
                raise OSError(f"{original} became shorter while it was copied")
            sink.write(data)
    if copy.suffix == parts.ENDING:
        damage = parts.verify(copy)
        if damage:
            copy.unlink(missing_ok=True)
            raise UserError(f"{damage[0]}; copy it again", TRY_AGAIN)
    left_out.forget_damage(copy)
    return copy


def _merge_grids(pair: _GroupPair, target: Layout, source: Layout) -> None:
    """Add to the target's grid and questions what the source's plan asks for.

    A *grid* is the saved plan of an arm on a problem set: which samples are asked for. ``stored``
    names the file of the questions and goes into the grid's provenance.
    """
    source_grid = Grid.load(source.grid(pair.arm, pair.set_name))
    if source_grid is None:
        return
    path = target.grid(pair.arm, pair.set_name)
    target_grid = Grid.load(path)
    grid = source_grid
    if target_grid is not None:
        grid = target_grid.grown(source_grid.cells(pair.arm))
    questions = stored_questions(source, pair.arm, pair.set_name)
    stored = put_questions(target, pair.arm, pair.set_name, questions)
    grid = replace(grid, provenance={**grid.provenance, **stored})
    if grid != target_grid:
        grid.save(path)
