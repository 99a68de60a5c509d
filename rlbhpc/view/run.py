"""Look through a run: its problems with their counts, the samples of a problem."""

from __future__ import annotations

import difflib
import hashlib
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.engines.completion import Finish, finish_name
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import STRATA
from rlbhpc.store import samples
from rlbhpc.store.questions import Question, read_questions
from rlbhpc.store.reader import open_cube
from rlbhpc.store.samples import StoredSample
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout, entries
from rlbhpc.study.load import study_of
from rlbhpc.verify.verdict import Status


class ProblemRow(NamedTuple):
    """One problem at one step; what failed is neither right nor wrong, and not in ``n``."""

    arm: str
    step: int
    problem: str
    n: int
    right: int
    failed: int


class SampleRow(NamedTuple):
    """One sample, without its text."""

    arm: str
    step: int
    problem: str
    sample: int
    verdict: str
    finish: str
    n_tokens: int
    seed: int


@dataclass(frozen=True)
class Choice:
    """Which part of a run to look at; None leaves all in.

    ``problem`` is a problem id with or without its set; ``thin`` keeps problems that were solved
    at most twice at a step, ``wrong`` samples that are not right.
    """

    arm: str | None = None
    step: int | None = None
    problem: str | None = None
    sample: int | None = None
    thin: bool = False
    wrong: bool = False


#: Right samples up to which a problem is thin.
THIN: Final = 2
# Samples looked at together; bounds the memory.
_CELLS_AT_ONCE: Final = 1 << 22


class Browser:
    """An opened run, narrowed to a choice: ``tree`` is all of it, ``groups`` what was chosen."""

    def __init__(self, folder: Path, choice: Choice) -> None:
        self.layout = Layout(folder)
        self._choice = choice
        self._questions: dict[tuple[str, str], dict[str, Question]] = {}
        self.tree = open_cube(folder)
        groups = [
            node.to_dataset()
            for node in self.tree.subtree
            if node.attrs.get("kind") in {"samples", "counts"}
        ]
        self.groups = _narrowed(groups, choice)

    def problems(self) -> Iterator[ProblemRow]:
        """Problems with their counts, by arm, step and the order of the set."""
        for group in self.groups:
            for _, rows in self._cells(group):
                yield from (row for _, row in rows)

    def samples(self) -> Iterator[SampleRow]:
        """Samples without their texts, by arm, step, problem and number."""
        for group in self.groups:
            if "verdict" not in group:
                continue
            at_once = max(1, _CELLS_AT_ONCE // max(1, group.sizes["sample"]))
            for step, rows in self._cells(group):
                for first in range(0, len(rows), at_once):
                    yield from self._of_problems(group, step, rows[first : first + at_once])

    def _cells(self, group: xr.Dataset) -> Iterator[tuple[int, list[tuple[int, ProblemRow]]]]:
        """Chosen problems of each step, with their positions; the step's position beside them."""
        counts = group.rlb.counts()
        n, right = counts["n"].values, counts["c"].values
        failed = np.zeros_like(n)
        if "verdict" in group:
            is_failed = group["verdict"].isin([Status.FAILED, Status.ERROR])
            failed = is_failed.sum("sample").transpose("problem", "step").values
        problems = group["problem"].values.tolist()
        for j, step in enumerate(group["step"].values.tolist()):
            rows = []
            for i in np.flatnonzero(n[:, j] + failed[:, j]).tolist():
                numbers = [int(array[i, j]) for array in (n, right, failed)]
                if not (self._choice.thin and right[i, j] > THIN):
                    rows.append((i, ProblemRow(_arm(group), step, problems[i], *numbers)))
            yield j, rows

    def _of_problems(
        self, group: xr.Dataset, step: int, rows: list[tuple[int, ProblemRow]]
    ) -> Iterator[SampleRow]:
        cells = group[["verdict", "finish", "n_tokens", "seed"]].isel(
            problem=[i for i, _ in rows], step=step
        )
        verdict, finish, tokens, seed = (array.values for array in cells.data_vars.values())
        chosen = verdict != Status.MISSING
        if self._choice.wrong:
            chosen &= verdict != Status.RIGHT
        for i, sample in np.argwhere(chosen).tolist():
            row = rows[i][1]
            yield SampleRow(
                row.arm,
                row.step,
                row.problem,
                sample,
                Status(int(verdict[i, sample])).name.lower(),
                finish_name(int(finish[i, sample])),
                int(tokens[i, sample]),
                int(seed[i, sample]),
            )

    def question_of(self, key: SampleKey) -> Question | None:
        """What the problem of a sample asks; None where it isn't stored."""
        set_name = key.problem.partition("/")[0]
        place = (key.arm, set_name)
        if place not in self._questions:
            self._questions[place] = read_questions(self.layout, *place)
        return self._questions[place].get(key.problem)

    def responses(self) -> list[StoredSample]:
        """Whole samples of the chosen problem with the chosen number."""
        responses = []
        for group in self.groups:
            set_name = str(group["problem_set"].item())
            number = self._choice.sample
            own = {
                problem: None if number is None else {number}
                for problem in group["problem"].values.tolist()
                if problem.startswith(f"{set_name}/")
            }
            steps = set(group["step"].values.tolist())
            responses += samples.find_samples(self.layout, Group(_arm(group), set_name), own, steps)
        return responses


def _narrowed(groups: list[xr.Dataset], choice: Choice) -> list[xr.Dataset]:
    if choice.arm is not None:
        arms = [_arm(group) for group in groups]
        groups = [group for group in groups if _arm(group) == choice.arm]
        _require(groups, f"no arm {choice.arm!r}", choice.arm, arms)
    if choice.step is not None:
        steps = {str(step) for group in groups for step in group["step"].values.tolist()}
        groups = [group for group in groups if choice.step in group["step"].values]
        _require(groups, f"no step {choice.step}", str(choice.step), sorted(steps, key=int))
        groups = [group.sel(step=[choice.step]) for group in groups]
    if choice.problem is None:
        return [group for group in groups if group.sizes["problem"]]
    ids = [group["problem"].values.tolist() for group in groups]
    matching = [[p for p in own if choice.problem in {p, p.partition("/")[2]}] for own in ids]
    every = [problem for own in ids for problem in own]
    _require(any(matching), f"no problem {choice.problem!r}", choice.problem, every)
    both = zip(groups, matching, strict=True)
    return [group.sel(problem=problems) for group, problems in both if problems]


def _arm(group: xr.Dataset) -> str:
    return str(group["arm"].item())


def _require(match: object, message: str, name: str, names: list[str]) -> None:
    if match:
        return
    near = difflib.get_close_matches(name, names, n=3) or names[:5]
    more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    raise UserError(f"{message} in this run; there are {', '.join(near) or 'none'}{more}")


# ---- run -----------------------------------------------------------------------------------------
# A run as it is looked at: its sides, the counts of every problem, the samples of one.


#: Share of a side's samples that are cut, or have no answer, from which a problem is found by it.
MANY: Final = 0.1
#: Hits that a search gives, and seconds that it reads responses for.
HITS: Final = 100
SEARCH_SECONDS: Final = 5.0
_SEARCHED_TOGETHER: Final = 16
_AROUND: Final = 80


class Side(NamedTuple):
    """An arm at a training step."""

    arm: str
    step: int

    def __str__(self) -> str:
        return f"{self.arm}:{self.step}"

    @property
    def label(self) -> str:
        """Name it for a reader; step 0 is the base and goes without saying."""
        return f"{self.arm}, step {self.step}" if self.step else self.arm


class Pair(NamedTuple):
    """The two sides that are compared."""

    left: Side
    right: Side

    def hidden(self, problem: str, secret: str) -> Pair:
        """The same two in an order that the secret decides anew for each problem."""
        digest = hashlib.sha256(f"{secret} {problem}".encode()).digest()
        return Pair(self.right, self.left) if digest[0] % 2 else self


class Tally(NamedTuple):
    """Samples of a problem on one side: judged, right, cut, without an answer, read in two ways.

    ``disagreeing`` are right by one of the strict and the lenient verdict alone; 0 in a run that
    stores one verdict.
    """

    n: int = 0
    right: int = 0
    cut: int = 0
    no_answer: int = 0
    disagreeing: int = 0

    @property
    def rate(self) -> float:
        """Share of the judged samples that are right; NaN where there are none."""
        return self.right / self.n if self.n else float("nan")


class Hit(NamedTuple):
    """What a search found in a sample, or in the question where there is no side."""

    problem: str
    side: Side | None
    sample: int
    before: str
    match: str
    after: str


class OpenRun(Browser):
    """An opened run. It is a snapshot: what arrives later is seen by opening again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Choice())
        self.folder = folder
        self.state = state_of(self.layout)
        self._tallies: dict[Side, dict[str, Tally]] = {}
        if not self.groups:
            raise UserError(f"{folder}: no problems yet; look again once samples are there")

    @cached_property
    def _by_name(self) -> dict[Group, xr.Dataset]:
        return {
            Group(str(group["arm"].item()), str(group["problem_set"].item())): group
            for group in self.groups
        }

    @cached_property
    def sides(self) -> list[Side]:
        """Every arm at every step, the arms as the study has them."""
        study = study_of(self.layout)
        order = list(study.arms) if study else []
        arms = {arm: len(order) for arm, _ in self._by_name} | {a: i for i, a in enumerate(order)}
        sides = {
            Side(arm, step)
            for (arm, _), group in self._by_name.items()
            for step in group["step"].values.tolist()
        }
        return sorted(sides, key=lambda side: (arms[side.arm], side))

    @cached_property
    def last_sides(self) -> list[Side]:
        """Every arm at its last step."""
        return list({side.arm: side for side in self.sides}.values())

    @cached_property
    def pair(self) -> Pair:
        """The first comparison of the study, else the first two arms, or steps of the only one."""
        last = {side.arm: side for side in self.last_sides}
        study = study_of(self.layout)
        for base, trained in study.comparisons() if study else []:
            if base in last and trained in last and base != trained:
                return Pair(last[base], last[trained])
        if len(last) > 1:
            return Pair(*self.last_sides[:2])
        return Pair(self.sides[0], self.sides[-1])

    def side(self, text: str) -> Side:
        """Read what names a side: ``arm:step``."""
        named = [side for side in self.sides if str(side) == text]
        if not named:
            names = ", ".join(map(str, self.sides))
            raise UserError(f"{text!r} is no arm and step of this run; there are {names}")
        return named[0]

    @cached_property
    def strata(self) -> dict[str, dict[str, str]]:
        """What the set says of each problem, such as its level, by id and by name."""
        strata: dict[str, dict[str, str]] = {}
        for group in self.groups:
            problems = group["problem"].values.tolist()
            words = {name: group[name].values.tolist() for name in STRATA if name in group.coords}
            for i, problem in enumerate(problems):
                strata.setdefault(problem, {}).update(
                    {name: of_set[i] for name, of_set in words.items() if of_set[i]}
                )
        return strata

    def tallies(self, side: Side) -> Mapping[str, Tally]:
        """Count the samples of every problem that a side has."""
        if side not in self._tallies:
            tallies: dict[str, Tally] = {}
            for (arm, _), group in self._by_name.items():
                if arm == side.arm and side.step in group["step"].values:
                    tallies |= _tallies(group.sel(step=[side.step]))
            self._tallies[side] = tallies
        return self._tallies[side]

    def by_difference(self, pair: Pair) -> list[str]:
        """Every problem, those first whose rates differ most; among equal ones in their order."""
        left, right = self.tallies(pair.left), self.tallies(pair.right)

        def difference(problem: str) -> float:
            both = left.get(problem, Tally()), right.get(problem, Tally())
            distance = abs(both[0].rate - both[1].rate)
            return -1.0 if np.isnan(distance) else distance

        return sorted(self.strata, key=difference, reverse=True)

    def marks(self, problem: str, pair: Pair) -> list[str]:
        """The filters by which a problem is found."""
        left, right = (self.tallies(side).get(problem, Tally()) for side in pair)
        both = (left, right)
        holds = {
            "lost": left.right and right.n and not right.right,
            "gained": right.right and left.n and not left.right,
            "thin": any(1 <= side.right <= THIN for side in both),
            "wrong": any(side.n for side in both) and not any(side.right for side in both),
            "cut": any(side.n and side.cut >= MANY * side.n for side in both),
            "no answer": any(side.n and side.no_answer >= MANY * side.n for side in both),
            "strict ≠ lenient": any(side.disagreeing for side in both),
        }
        return [name for name, is_so in holds.items() if is_so]

    def steps(self, arm: str) -> list[int]:
        """The steps of an arm."""
        return [side.step for side in self.sides if side.arm == arm]

    def verdicts(self, problem: str, side: Side) -> NDArray[np.int8]:
        """The verdict of every sample of a problem, by number; none where only counts are known."""
        group = self._by_name.get(Group(side.arm, problem.partition("/")[0]))
        if group is None or "verdict" not in group:
            return np.empty(0, np.int8)
        if problem not in group["problem"].values or side.step not in group["step"].values:
            return np.empty(0, np.int8)
        cell = group["verdict"].sel(problem=problem, step=side.step)
        return np.asarray(cell.values, np.int8)

    def verdict_codes(self, problem: str, side: Side) -> str:
        """The verdicts as one character each, a dot where there is no sample."""
        verdicts = self.verdicts(problem, side).tolist()
        return "".join("." if code == Status.MISSING else str(code) for code in verdicts)

    def read(self, problem: str, side: Side, numbers: Collection[int]) -> list[StoredSample]:
        """Read some samples of a problem whole."""
        group = Group(side.arm, problem.partition("/")[0])
        return samples.find_samples(self.layout, group, {problem: numbers}, {side.step})

    def question(self, problem: str) -> Question | None:
        """What a problem asks, as the first arm with it has it."""
        set_name = problem.partition("/")[0]
        asked = (
            self.question_of(SampleKey(group.arm, 0, problem, 0))
            for group in self._by_name
            if group.problem_set == set_name
        )
        return next(filter(None, asked), None)

    def search(self, words: str, where: str, pair: Pair, first: int = 0) -> tuple[list[Hit], int]:
        """Find words, in any case of letters, in questions, answers or responses of both sides.

        Samples are read from the ``first`` problem on until there are enough hits or the time is
        up. Gives the hits and the number of the problem to go on with, 0 at the end.
        """
        hits: list[Hit] = []
        problems = self.by_difference(pair)
        ends = time.monotonic() + SEARCH_SECONDS
        for start in range(first, len(problems), _SEARCHED_TOGETHER):
            if len(hits) >= HITS or time.monotonic() > ends:
                return hits, start
            some = problems[start : start + _SEARCHED_TOGETHER]
            if where == "question":
                for problem in some:
                    asked = self.question(problem)
                    hits += _hits(problem, None, 0, asked.question if asked else "", words)
                continue
            column = "answer" if where == "answer" else "text"
            for side in dict.fromkeys(pair):
                hits += self._search_samples(words, column, some, side)
        return hits, 0

    def _search_samples(
        self, words: str, column: str, problems: list[str], side: Side
    ) -> Iterator[Hit]:
        for group in self._by_name:
            of_set = [name for name in problems if name.startswith(f"{group.problem_set}/")]
            if group.arm != side.arm or not of_set:
                continue
            columns = ["problem", "sample", column]
            rows = samples.read_current_rows(self.layout, group, side.step, of_set, columns)
            matching = rows.filter(pc.match_substring(rows[column], words, ignore_case=True))
            for row in matching.slice(0, HITS).to_pylist():
                yield from _hits(row["problem"], side, row["sample"], row[column], words)


def _hits(problem: str, side: Side | None, sample: int, text: str, words: str) -> list[Hit]:
    """Where a text has the words for the first time."""
    match = re.search(re.escape(words), text, re.IGNORECASE)
    if match is None:
        return []
    start, stop = match.span()
    before, after = text[max(0, start - _AROUND) : start], text[stop : stop + _AROUND]
    return [Hit(problem, side, sample, before, match[0], after)]


def state_of(layout: Layout) -> frozenset[tuple[str, int, int]]:
    """Files of samples with their sizes and times: another state is a run with more in it."""
    folders = [layout.cubes]
    for arm, set_name in layout.groups():
        folders += [layout.journals(arm, set_name), layout.parts(arm, set_name)]
    state = set()
    for path in (path for folder in folders for path in entries(folder)):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # sealed or swept a moment ago
        state.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(state)


def _tallies(group: xr.Dataset) -> dict[str, Tally]:
    """Count the samples of every problem in a group of one step."""
    counts = group.rlb.counts()
    problems = group["problem"].values.tolist()
    columns = [counts[name].values.reshape(-1) for name in ("n", "c")]
    if "verdict" in group:
        judged = group["verdict"].values
        marked = [group["finish"].values == Finish.LENGTH, judged == Status.NO_ANSWER]
        if {"strict", "lenient"} <= {*group.data_vars}:
            strict, lenient = group["strict"].values, group["lenient"].values
            marked.append((strict == Status.RIGHT) != (lenient == Status.RIGHT))
        axis = group["verdict"].dims.index("sample")
        columns += [mark.sum(axis).reshape(-1) for mark in marked]
    return {
        problem: Tally(*(int(column[i]) for column in columns))
        for i, problem in enumerate(problems)
        if any(column[i] for column in columns)
    }
