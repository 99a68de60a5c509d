"""What a problem set is to the rest: something that loads problems, and a place to fetch it from.

A new set is one module in ``sets/`` that says how a record becomes a problem, and one line in
``registry.py``.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rlbhpc import plugins
from rlbhpc.errors import USAGE, UserError
from rlbhpc.files import explain
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import Record, data_files, read_records


@dataclass(frozen=True)
class Source:
    """Where ``rlbhpc stage`` fetches a set.

    Either files of a data set ``repo`` on the hub, chosen by glob ``patterns``, or plain ``urls``.
    """

    repo: str = ""
    patterns: tuple[str, ...] = ("*",)
    urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """Which problems of a set are meant.

    ``name`` begins the ids of the problems. ``path`` is a data file (JSONL, gzipped JSONL, JSON,
    Parquet, Arrow) or a folder of them: one that ``rlbhpc stage`` filled, one that ``datasets``
    saved to disk, or a snapshot of the hub. ``subset`` is a split of the files (``train``,
    ``test``), a subset that the set defines (a date window of LiveCodeBench), a hash split
    (``train[2000]`` and its complement ``holdout[2000]``, with another seed ``train[2000,7]``), or
    a chain of these: ``train/holdout[500]``. ``limit`` problems are chosen by ``seed``, and a
    smaller limit gives a subset of a larger one. The seed does not move hash splits, so that two
    studies with different seeds can't train on each other's holdout. ``dropped`` gets the place of
    every record that repeats another whole; without it such a record is refused.
    """

    name: str
    path: Path | None
    subset: str | None = None
    limit: int | None = None
    seed: int = 0
    dropped: list[str] | None = None

    @property
    def count(self) -> int:
        """How many problems a set is to generate: ``limit``, which a generated set needs."""
        if self.limit is None or self.limit < 1:
            raise UserError(
                f"problem set {self.name!r} is generated: say how many problems with `limit`"
            )
        return self.limit


class ProblemSet(ABC):
    """A problem set of the registry."""

    source: Source | None = None

    @abstractmethod
    def load(self, selection: Selection) -> list[Problem]:
        """Problems of the set, each id once."""


Parse = Callable[[str, Record], Problem | None]
Narrow = Callable[[Sequence[Problem], str], list[Problem] | None]


def _no_subset(problems: Sequence[Problem], subset: str) -> None:
    """Know no subset: for the sets that have none of their own."""


@dataclass(frozen=True)
class FileSet(ProblemSet):
    """A set that is read from files.

    ``parse`` gives None for a record that is not part of the set. The first of ``splits`` is read
    by default. ``narrow`` gives the set's own subset of a name, None for a name that is not its;
    ``subsets`` are those names, for messages, and ``subset_needed`` says why a study must give
    one. ``big`` fields stay in their file until they are read (:mod:`rlbhpc.problems.record`).
    """

    parse: Parse
    source: Source
    splits: tuple[str, ...] = ()
    narrow: Narrow = _no_subset
    subsets: tuple[str, ...] = ()
    subset_needed: str = ""
    big: tuple[str, ...] = ()

    def load(self, selection: Selection) -> list[Problem]:
        """Read the problems that are selected, in the order of the files.

        ``subset`` is a chain such as ``train/holdout[500]``: first perhaps a split of the files,
        then steps that each keep a part of the problems. ``dropped`` collects the places of
        repeated records; if it is None, they are refused. ``limit`` problems are drawn by ``seed``.
        `_drop_repeats` keeps each id once, and `_take_subset` does one step.
        """
        name, path, subset = selection.name, selection.path, selection.subset
        if path is None:
            raise UserError(
                f"problem set {name!r} needs a path: a file, or a folder that "
                f"`rlbhpc stage {name}` filled"
            )
        if self.subset_needed and not subset:
            raise UserError(f"problem set {name!r} needs a subset: {self.subset_needed}")
        subset_steps = subset.split("/") if subset else []
        split_name = None
        if subset_steps and subset_steps[0] in self.splits:
            split_name = subset_steps.pop(0)
        files = _files_of_split(path, self.splits, split_name)
        problems = _drop_repeats(self._parse_files(name, files), path, selection.dropped)
        for step in subset_steps:
            problems = self._take_subset(name, problems, step)
        return draw_limit(problems, selection.limit, selection.seed)

    def _take_subset(self, name: str, problems: list[Problem], subset: str) -> list[Problem]:
        """Return the problems that one step of a chain such as ``train/holdout[500]`` keeps.

        A step is a split by hash (``train[N]``, ``holdout[N]``), or a subset that this set defines
        itself through ``narrow``.
        """
        chosen = split_by_name(problems, subset)
        if chosen is None:
            chosen = self.narrow(problems, subset)
        if chosen is None:
            allowed = ", ".join((*self.splits, *self.subsets, "train[N]", "holdout[N]"))
            raise UserError(f"problem set {name!r} has no subset {subset!r}; allowed: {allowed}")
        return chosen

    def _parse_files(self, name: str, files: Iterable[Path]) -> Iterable[tuple[Problem, Record]]:
        """Yield the problems of all files, each with the record that it was made from.

        ``parse`` gives None for a record that is not part of the set.
        """
        for file in files:
            for record in read_records(file):
                with in_one_line(f"{record.place}: reading it as a problem"):
                    problem = self.parse(name, record)
                if problem is not None:
                    yield problem, record


@contextmanager
def in_one_line(action: str) -> Iterator[None]:
    """Turn any error inside the block into a `UserError` of one line that begins with ``action``.

    Such errors mostly come from a data file or a Python file of the user.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Another try may help where it is a file system that fails.
        code = explain(error, Path()).code if isinstance(error, OSError) else USAGE
        raise UserError(f"{action}: {plugins.describe_exception(error)}", code) from error


def make_problem(
    set_name: str,
    local_id: str,
    question: str,
    gold: str,
    verifier: str,
    extras: Mapping[str, Any] | None = None,
    images: tuple[bytes, ...] = (),
    solution: str = "",
) -> Problem:
    """Make a problem with an id that does not depend on the order of a file.

    ``gold`` is the reference answer, ``verifier`` names what judges answers, and ``extras`` are
    what it needs to know. Where the set has no ids (``local_id`` is empty) the id is a hash of
    question, answer and images, so it stays when records are sorted, sharded or added.
    """
    problem = Problem(
        f"{set_name}/{local_id}", {"question": question}, gold, verifier, extras or {}, images,
        solution,
    )  # fmt: skip
    if local_id:
        return problem
    parts = [question, problem.gold, *(hashlib.sha256(image).hexdigest() for image in images)]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return replace(problem, id=f"{set_name}/{digest[:16]}")


def _files_of_split(path: Path, splits: tuple[str, ...], split_name: str | None) -> list[Path]:
    """Return the data files of a split, such as ``test``; without a name, of the set's first one.

    Files are told apart by the words in their names and folders. If none has a word of ``splits``,
    or the path is a single file, all of them count.
    """
    files = data_files(path)
    labelled = [file for file in files if not _words_in_path(file, path).isdisjoint(splits)]
    is_named_file = path.is_file() and split_name is None
    if not labelled or is_named_file:
        return files
    split_name = split_name or splits[0]
    chosen = [file for file in labelled if split_name in _words_in_path(file, path)]
    if not chosen:
        names = ", ".join(str(file.relative_to(path.parent)) for file in labelled[:5])
        raise UserError(f"{path}: no file of the split {split_name!r} in it; found: {names}")
    return chosen


def _words_in_path(file: Path, path: Path) -> set[str]:
    """The words in the name of a file, and in its folders below ``path``."""
    name = file.name if path.is_file() else file.relative_to(path).as_posix()
    words = re.split(r"[^a-z0-9]+", name.lower())
    # test2.jsonl is a further part of the split `test`.
    return {word.rstrip("0123456789") for word in words}


def _drop_repeats(
    parsed: Iterable[tuple[Problem, Record]], path: Path, dropped: list[str] | None
) -> list[Problem]:
    """Return all problems, each id once: two samples of one problem id would overwrite each other.

    A record that repeats another whole is refused, or left out and its place noted in ``dropped``.
    Two different problems under one id are always refused. ``parsed`` has each problem with the
    record that it is from, whose ``place`` is file and number. ``content_hash`` is over all of a
    problem but its id.
    """
    problems: dict[str, Problem] = {}
    places: dict[str, str] = {}
    for problem, record in parsed:
        if not problem.fields["question"].strip():
            raise UserError(f"{record.place}: the question is empty")
        if not problem.id.partition("/")[2].strip() or not problem.id.isprintable():
            raise UserError(f"{record.place}: {problem.id!r} is no usable problem id")
        if problem.id not in problems:
            problems[problem.id] = problem
            places[problem.id] = record.place
            continue
        is_repeated = problems[problem.id].content_hash == problem.content_hash
        if dropped is None or not is_repeated:
            first_place = places[problem.id]
            raise UserError(_repeat_complaint(record.place, first_place, problem.id, is_repeated))
        dropped.append(record.place)
    if not problems:
        raise UserError(f"{path}: no problem in it")
    return list(problems.values())


def _repeat_complaint(place: str, first_place: str, problem: str, is_repeated: bool) -> str:
    """Say what to do about an id that occurs twice.

    ``is_repeated`` tells a whole record given twice from two problems under one id.
    """
    if is_repeated:
        return (
            f"{place}: the same problem as {first_place} (id {problem!r}); set `duplicates: drop` "
            "for this problem set to leave out repeated records, or delete one of the two"
        )
    return (
        f"{place}: another problem than {first_place} under the same id {problem!r}; give each an "
        "`id` of its own"
    )


# ---- own -----------------------------------------------------------------------------------------
# A problem set of your own without a line of Python: a study says what its fields are called.


_PROBLEM_FIELDS: Final = ("question", "gold", "id", "solution")


def own_set(fields: Mapping[str, str]) -> FileSet:
    """Return a problem set for records of the user's own, whose fields have these names.

    ``fields`` maps ``question``, and possibly ``gold`` (the answer), ``id`` and ``solution``, to
    the names of the fields in the file. Any other name becomes an extra of the problem.
    """
    if "question" not in fields:
        raise UserError("`fields` says not which field holds the question: {question: NAME, …}")

    def parse(set_name: str, record: Record) -> Problem:
        """Turn one record into a problem, by the names of fields that the user gave.

        ``texts`` are the parts that every problem has; all other fields go to the extras. The
        methods of a record refuse one that lacks a field.
        """
        texts = dict.fromkeys(_PROBLEM_FIELDS, "")
        extras = {}
        for name, record_field in fields.items():
            if name in texts:
                texts[name] = record.text(record_field)
            else:
                extras[name] = record.need(record_field)
        return make_problem(
            set_name,
            local_id=texts["id"],
            question=texts["question"],
            gold=texts["gold"],
            verifier="math",
            extras=extras,
            solution=texts["solution"],
        )

    return FileSet(parse, Source(), splits=("test", "train"))


# ---- subset --------------------------------------------------------------------------------------
# Which problems of a set are meant: hash splits, seeded limits, duplicates, digests.
#
# Everything here ranks problems by a hash of their id. So a selection does not depend on the order
# of a file, and adding one problem to a set moves at most one other across a boundary.


_SPLIT: Final = re.compile(r"(train|holdout)\[([0-9]{1,9})(?:,([0-9]{1,18}))?\]")


def split(
    problems: Sequence[Problem], n_train: int, seed: int = 0
) -> tuple[list[Problem], list[Problem]]:
    """Cut a set in two by a hash of the ids: ``n_train`` problems, and the rest (the holdout).

    Both halves keep the order of ``problems``. The same ids and seed give the same halves.
    `_first_by_hash` gives the ids with the lowest hashes.
    """
    if not 0 < n_train < len(problems):
        raise UserError(
            f"a split of {len(problems)} problems needs 1 to {len(problems) - 1} for training; "
            f"found {n_train}"
        )
    train = _first_by_hash(problems, n_train, "split", seed)
    return (
        [problem for problem in problems if problem.id in train],
        [problem for problem in problems if problem.id not in train],
    )


def split_by_name(problems: Sequence[Problem], subset: str) -> list[Problem] | None:
    """Return the half that ``train[N]`` or ``holdout[N,SEED]`` means; None for any other name.

    ``N`` is the size of the training half. Without a seed it is 0.
    """
    match = _SPLIT.fullmatch(subset)
    if match is None:
        return None
    half, n_train, seed = match.groups(default="0")
    train, holdout = split(problems, int(n_train), int(seed))
    return train if half == "train" else holdout


def draw_limit(problems: Sequence[Problem], limit: int | None, seed: int) -> list[Problem]:
    """Draw at most ``limit`` problems: a seeded subset, not a prefix.

    Files are often sorted by subject or difficulty, so their beginning is no fair sample. A smaller
    limit with the same seed is a subset of a larger one. `_first_by_hash` gives the ids with the
    lowest hashes.
    """
    if limit is None or limit >= len(problems):
        return list(problems)
    if limit < 1:
        raise UserError(f"limit {limit}: at least one problem is needed")
    chosen = _first_by_hash(problems, limit, "limit", seed)
    return [problem for problem in problems if problem.id in chosen]


def keep_listed(problems: Sequence[Problem], file: Path) -> list[Problem]:
    """Keep the problems whose ids stand in a file, one a line.

    An id is ``"<set>/<local id>"``. Only the local id is compared, because the set may have had
    another name where the file was written.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise UserError(f"{file}: found no id; needed: one a line")
    # A line may also be a local id alone.
    listed_ids = {line.partition("/")[2] or line for line in ids}
    kept = []
    missing = set(listed_ids)
    for problem in problems:
        local_id = problem.id.partition("/")[2]
        if local_id in listed_ids:
            kept.append(problem)
            missing.discard(local_id)
    if missing:
        raise UserError(
            f"{file}: {len(missing)} of {len(listed_ids)} ids are no problem "
            f"of the set, such as {min(missing)}"
        )
    return kept


def digest(problems: Iterable[Problem]) -> str:
    """16 hex digits over ids and contents, whatever their order: which problems exactly."""
    lines = sorted(f"{problem.id}\t{problem.content_hash}" for problem in problems)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _first_by_hash(problems: Sequence[Problem], count: int, purpose: str, seed: int) -> set[str]:
    """Ids of the ``count`` problems that rank first by hash.

    The purpose enters the hash: otherwise a limit inside a split would favour one side of it.
    """

    def rank(problem: Problem) -> bytes:
        return hashlib.sha256(f"{purpose}\0{seed}\0{problem.id}".encode()).digest()

    return {problem.id for problem in sorted(problems, key=rank)[:count]}
