"""Look through a run: its problems with their counts, the samples of a problem, both sides of it.

:class:`OpenRun` lists what ``rlbhpc show`` prints, and compares what the pages of ``rlbhpc view``
do: two sides, of which each is an arm at a training step.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from rlbhpc.store.parts import FAILED
from rlbhpc.store.questions import Question, read_questions
from rlbhpc.store.reader import open_cube
from rlbhpc.store.samples import StoredSample
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout, entries
from rlbhpc.study.load import study_of
from rlbhpc.verify.verdict import Status

#: A problem with so many right samples at most, and at least one, is thin.
THIN: Final = 2


class ProblemRow(NamedTuple):
    """Counts of one problem at one step.

    ``n``: samples with a verdict. Those that failed to be generated or judged are not in it.
    """

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
    """Which problems and samples of a run to look at; None leaves all in.

    ``problem`` is a problem id with or without its set.
    """

    arm: str | None = None
    step: int | None = None
    problem: str | None = None
    sample: int | None = None


def _select_groups(groups: dict[Group, xr.Dataset], choice: Choice) -> dict[Group, xr.Dataset]:
    """Keep what was chosen of each group; a name that no group has is refused.

    A *group* is one arm (a model) on one problem set. ``choice``: names an arm, a step and a
    problem; None leaves all in. Groups without a chosen problem are left out.
    """
    if choice == Choice():
        return groups
    arms: list[str] = []
    steps: list[int] = []
    problems: list[str] = []
    selected = {}
    for name, group in groups.items():
        arms.append(name.arm)
        steps += group["step"].values.tolist()
        problems += group["problem"].values.tolist()
        chosen_steps = [step for step in group["step"].values if choice.step in {None, step}]
        chosen_problems = [
            problem
            for problem in group["problem"].values
            if choice.problem in {None, problem, problem.partition("/")[2]}
        ]
        if choice.arm in {None, name.arm} and chosen_steps and chosen_problems:
            selected[name] = group.sel(step=chosen_steps, problem=chosen_problems)
    _require_name("arm", choice.arm, arms)
    _require_name("step", choice.step, sorted(steps))
    local_ids = [problem.partition("/")[2] for problem in problems]
    if choice.problem not in local_ids:
        _require_name("problem", choice.problem, problems)
    return selected


def _require_name(noun: str, name: object, known_names: Sequence[object]) -> None:
    """Raise an error if ``name`` isn't a known name, and list those that are like it.

    ``noun``: what it is the name of, such as an arm. None names nothing.
    """
    if name is None or name in known_names:
        return
    names = list(map(str, dict.fromkeys(known_names)))
    shown = difflib.get_close_matches(str(name), names, n=3) or names[:5]
    hidden_count = len(names) - len(shown)
    more = f" and {hidden_count} more" if hidden_count > 0 else ""
    raise UserError(f"no {noun} {name!r} in this run; there are {', '.join(shown) or 'none'}{more}")


#: A problem is marked "cut" or "no answer" if at least this share of a side's samples is.
MARK_SHARE: Final = 0.1
#: A search ends after so many hits, or so many seconds.
MAX_HITS: Final = 100
SEARCH_SECONDS: Final = 5.0
# Problems whose samples are read together in a search.
_SEARCH_BATCH: Final = 16
# Characters that a hit shows before and after the words.
_CONTEXT_CHARACTERS: Final = 80


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

    def shuffle(self, problem: str, secret: str) -> Pair:
        """The same two sides in an order that the secret decides anew for each problem."""
        digest = hashlib.sha256(f"{secret} {problem}".encode()).digest()
        is_swapped = digest[0] % 2 == 1
        return Pair(self.right, self.left) if is_swapped else self


class Tally(NamedTuple):
    """How many samples of a problem on one side are judged, right, cut, without an answer.

    ``failed``: those that failed to be generated or judged. ``disagreeing`` are right by one of the
    strict and the lenient verdict alone; 0 in a run that stores one verdict.
    """

    n: int = 0
    right: int = 0
    failed: int = 0
    cut: int = 0
    no_answer: int = 0
    disagreeing: int = 0

    @property
    def rate(self) -> float:
        """Share of the judged samples that are right; NaN where there are none."""
        return self.right / self.n if self.n else float("nan")

    @property
    def is_never_right(self) -> bool:
        """Whether there are samples, none of them right."""
        return self.n > 0 and self.right == 0

    @property
    def is_thin(self) -> bool:
        """Whether the problem was solved, but hardly ever."""
        return 1 <= self.right <= THIN


class Hit(NamedTuple):
    """Words that a search found in a sample; or in the question, and then ``side`` is None."""

    problem: str
    side: Side | None
    sample: int
    before: str
    match: str
    after: str


class OpenRun:
    """An opened run, narrowed to a choice. It is a snapshot: open again to see what arrives later.

    ``groups``: the chosen problems and steps of each arm (a model) on each problem set: a Dataset
    with the dimensions problem and step, and also sample if single samples are stored and not only
    counts.
    """

    def __init__(self, folder: Path, choice: Choice = Choice()) -> None:
        """Open the run in ``folder``, and narrow it to what was chosen.

        ``files_state`` tells later whether new samples have arrived. *Tallies* are counts of
        samples by problem, made when a side (an arm at a step) is first asked for.
        """
        self.folder = folder
        self.layout = Layout(folder)
        self.files_state = read_files_state(self.layout)
        self._choice = choice
        self._tallies: dict[Side, dict[str, Tally]] = {}
        groups = {}
        for node in open_cube(folder).subtree:
            if node.attrs.get("kind") in {"samples", "counts"}:
                group = node.to_dataset()
                groups[Group(str(group["arm"].item()), str(group["problem_set"].item()))] = group
        self.groups = _select_groups(groups, choice)

    def problems(self) -> Iterator[ProblemRow]:
        """Problems with their counts, by arm, step and the order of the set."""
        for side in self.sides:
            for problem, tally in self.tallies(side).items():
                yield ProblemRow(*side, problem, tally.n, tally.right, tally.failed)

    def samples(self) -> Iterator[SampleRow]:
        """Yield the samples of the chosen problems without their texts, arm by arm."""
        for name, group in self.groups.items():
            problems = group["problem"].values.tolist()
            rows = samples.read_current_rows(
                self.layout, name, self._choice.step, problems, SampleRow._fields
            )
            for row in rows.to_pylist():
                row["verdict"] = Status(row["verdict"]).name.lower()
                row["finish"] = finish_name(row["finish"])
                yield SampleRow(**row)

    def responses(self) -> list[StoredSample]:
        """Return the chosen sample, or all samples, of the chosen problems with their texts."""
        sample_numbers = None if self._choice.sample is None else {self._choice.sample}
        responses = []
        for name, group in self.groups.items():
            wanted = dict.fromkeys(group["problem"].values.tolist(), sample_numbers)
            steps = set(group["step"].values.tolist())
            responses += samples.find_samples(self.layout, name, wanted, steps)
        return responses

    @cached_property
    def sides(self) -> list[Side]:
        """Every arm at every training step that is stored, the arms in the order of the study.

        An arm is a model of the study. A group has the samples of one arm on one problem set, at
        one or more steps.
        """
        study = study_of(self.layout)
        study_arms = list(study.arms) if study else []
        sides = {
            Side(name.arm, step)
            for name, group in self.groups.items()
            for step in group["step"].values.tolist()
        }

        def study_order(side: Side) -> tuple[int, Side]:
            # Arms that the study doesn't name come last.
            is_in_study = side.arm in study_arms
            arm_rank = study_arms.index(side.arm) if is_in_study else len(study_arms)
            return arm_rank, side

        return sorted(sides, key=study_order)

    @cached_property
    def last_sides(self) -> list[Side]:
        """Every arm at its last step."""
        last_by_arm = {side.arm: side for side in self.sides}
        return list(last_by_arm.values())

    @cached_property
    def pair(self) -> Pair:
        """The two sides that are compared unless the user asks for others.

        A *side* is an arm (a model of the study) at a training step; ``last_sides`` has each arm at
        its last one. Taken are the arms of the study's first comparison of which both have samples,
        else the first two arms, else the first and last step of the only one.
        """
        last_by_arm = {side.arm: side for side in self.last_sides}
        study = study_of(self.layout)
        for base, trained in study.comparisons() if study else []:
            if base in last_by_arm and trained in last_by_arm and base != trained:
                return Pair(last_by_arm[base], last_by_arm[trained])
        if len(self.last_sides) > 1:
            return Pair(*self.last_sides[:2])
        return Pair(self.sides[0], self.sides[-1])

    def side(self, name: str) -> Side:
        """Find a side by its name, ``arm:step``."""
        for side in self.sides:
            if str(side) == name:
                return side
        names = ", ".join(map(str, self.sides))
        raise UserError(f"{name!r} is no arm and step of this run; there are {names}")

    @cached_property
    def strata(self) -> dict[str, dict[str, str]]:
        """For each problem, what its set says of it, such as the level and the subject.

        A *group* has the samples of one arm (a model) on one problem set; ``STRATA`` are the names
        that a set may give values for. Problems without any value have an empty mapping.
        """
        strata: dict[str, dict[str, str]] = {}
        for group in self.groups.values():
            problems = group["problem"].values.tolist()
            for problem in problems:
                strata.setdefault(problem, {})
            for name in STRATA:
                if name in group.coords:
                    for problem, value in zip(problems, group[name].values.tolist(), strict=True):
                        if value:
                            strata[problem][name] = value
        return strata

    def require_problems(self, problems: Collection[str]) -> None:
        """Refuse an id of a problem that this run doesn't have, and a run without any."""
        if not self.groups:
            raise UserError(f"{self.folder}: no problems yet; look again once samples are there")
        for problem in problems:
            _require_name("problem", problem, list(self.strata))

    def tallies(self, side: Side) -> Mapping[str, Tally]:
        """Return counts of the samples of every problem that a side has; counted once, then kept.

        A *side* is an arm (a model) at a training step. A *group* has the samples of one arm on one
        problem set. A *tally* says how many samples of a problem are judged, right, cut off, and so
        on.
        """
        if side not in self._tallies:
            tallies: dict[str, Tally] = {}
            for name, group in self.groups.items():
                if name.arm == side.arm and side.step in group["step"].values:
                    tallies |= _tally_problems(group.sel(step=[side.step]))
            self._tallies[side] = tallies
        return self._tallies[side]

    def by_difference(self, pair: Pair) -> list[str]:
        """Every problem, those first whose rates differ most between the two sides of the pair.

        A *rate* is the share of right samples among those that are judged, NaN if there are none.
        Problems without a rate on both sides come last. Equal ones keep their order.
        """
        left_tallies, right_tallies = self.tallies(pair.left), self.tallies(pair.right)
        difference = {}
        for problem in self.strata:
            left_rate = left_tallies.get(problem, Tally()).rate
            right_rate = right_tallies.get(problem, Tally()).rate
            distance = abs(left_rate - right_rate)
            difference[problem] = -1.0 if np.isnan(distance) else distance
        return sorted(difference, key=difference.__getitem__, reverse=True)

    def marks(self, problem: str, pair: Pair) -> list[str]:
        """Return the names of the filters that find a problem when the pair is compared.

        ``pair``: two sides, left and right, each an arm at a training step. A *tally* counts the
        samples of a problem on one side: judged (``n``), right, cut off at the limit of tokens,
        without an answer, and those on which the strict and the lenient verdict disagree. So
        ``left.right`` is the number of right samples on the left side. *Thin* means solved, but
        hardly ever.
        """
        left = self.tallies(pair.left).get(problem, Tally())
        right = self.tallies(pair.right).get(problem, Tally())
        sampled = [tally for tally in (left, right) if tally.n]
        conditions = {
            "lost": left.right > 0 and right.is_never_right,
            "gained": right.right > 0 and left.is_never_right,
            "thin": left.is_thin or right.is_thin,
            "wrong": bool(sampled) and all(tally.is_never_right for tally in sampled),
            "cut": any(tally.cut >= MARK_SHARE * tally.n for tally in sampled),
            "no answer": any(tally.no_answer >= MARK_SHARE * tally.n for tally in sampled),
            "strict ≠ lenient": left.disagreeing > 0 or right.disagreeing > 0,
        }
        return [mark for mark, holds in conditions.items() if holds]

    def steps(self, arm: str) -> list[int]:
        """The steps of an arm."""
        return [side.step for side in self.sides if side.arm == arm]

    def verdicts(self, problem: str, side: Side) -> NDArray[np.int8]:
        """The verdict of every sample of a problem on one side, by sample number.

        ``side``: an arm at a training step. Empty where the side doesn't have the problem, or
        stores only counts. MISSING means that there is no such sample. A problem's id begins with
        the name of its set, and a group has the samples of one arm on one set.
        """
        group = self.groups.get(Group(side.arm, problem.partition("/")[0]))
        if (
            group is None
            or "verdict" not in group
            or problem not in group["problem"].values
            or side.step not in group["step"].values
        ):
            return np.empty(0, np.int8)
        verdicts = group["verdict"].sel(problem=problem, step=side.step)
        return np.asarray(verdicts.values, np.int8)

    def verdict_codes(self, problem: str, side: Side) -> str:
        """The verdicts as one character each, a dot where there is no sample."""
        verdicts = self.verdicts(problem, side).tolist()
        return "".join("." if code == Status.MISSING else str(code) for code in verdicts)

    def read(self, problem: str, side: Side, sample_numbers: Collection[int]) -> list[StoredSample]:
        """Read some samples of a problem with their texts."""
        group = Group(side.arm, problem.partition("/")[0])
        return samples.find_samples(self.layout, group, {problem: sample_numbers}, {side.step})

    @cached_property
    def questions(self) -> dict[str, Question]:
        """What the problems ask, by id: of each set by the first arm that stores it."""
        questions_of_set: dict[str, dict[str, Question]] = {}
        for name in self.groups:
            if not questions_of_set.get(name.problem_set):
                questions_of_set[name.problem_set] = read_questions(self.layout, *name)
        return {
            problem: question
            for questions in questions_of_set.values()
            for problem, question in questions.items()
        }

    def search(
        self, words: str, where: str, pair: Pair, first_problem: int = 0
    ) -> tuple[list[Hit], int]:
        """Find words, in any case of letters, in questions, answers or responses of both sides.

        ``pair``: the two sides, each an arm at a training step. ``where``: ``question``, ``answer``
        or ``response``. Problems are searched in batches from number ``first_problem`` on, until
        there are enough hits or the time is up. Returns the hits and the number of the problem to
        go on with, 0 at the end.
        """
        hits: list[Hit] = []
        problems = self.by_difference(pair)
        deadline = time.monotonic() + SEARCH_SECONDS
        for start in range(first_problem, len(problems), _SEARCH_BATCH):
            if len(hits) >= MAX_HITS or time.monotonic() > deadline:
                return hits, start
            batch = problems[start : start + _SEARCH_BATCH]
            if where == "question":
                hits += self._search_questions(words, batch)
                continue
            column = "answer" if where == "answer" else "text"
            # Both sides may be the same.
            for side in dict.fromkeys(pair):
                hits += self._search_samples(words, column, batch, side)
        return hits, 0

    def _search_questions(self, words: str, problems: list[str]) -> Iterator[Hit]:
        for problem in problems:
            if problem in self.questions:
                yield from _first_hit(problem, None, 0, self.questions[problem].question, words)

    def _search_samples(
        self, words: str, column: str, problems: list[str], side: Side
    ) -> Iterator[Hit]:
        """Find words in the samples that one side has of some problems.

        ``column``: ``answer`` or ``text``. ``side``: an arm at a training step. A problem's id
        begins with the name of its set, and each name of a group is an arm and a set. Only so many
        hits are taken of each set.
        """
        for name in self.groups:
            set_problems = [
                problem for problem in problems if problem.startswith(f"{name.problem_set}/")
            ]
            if name.arm != side.arm or not set_problems:
                continue
            columns = ["problem", "sample", column]
            rows = samples.read_current_rows(self.layout, name, side.step, set_problems, columns)
            has_words = pc.match_substring(rows[column], words, ignore_case=True)
            for row in rows.filter(has_words).slice(0, MAX_HITS).to_pylist():
                yield from _first_hit(row["problem"], side, row["sample"], row[column], words)


def _first_hit(
    problem: str, side: Side | None, sample: int, text: str, words: str
) -> Iterator[Hit]:
    """Yield where a text has the words for the first time, with some text around it; or nothing.

    ``side``: the arm and step that the text is from; None for the text of a question.
    """
    match = re.search(re.escape(words), text, re.IGNORECASE)
    if match is not None:
        yield Hit(
            problem=problem,
            side=side,
            sample=sample,
            before=text[max(0, match.start() - _CONTEXT_CHARACTERS) : match.start()],
            match=match[0],
            after=text[match.end() : match.end() + _CONTEXT_CHARACTERS],
        )


def read_files_state(layout: Layout) -> frozenset[tuple[str, int, int]]:
    """Return name, size and time of every file with samples; it changes whenever samples arrive.

    Jobs write samples to *journals*; finished ones are sealed into *parts*; *cubes* hold the arrays
    that are made from them.
    """
    folders = [layout.cubes]
    for arm, set_name in layout.groups():
        folders += [layout.journals(arm, set_name), layout.parts(arm, set_name)]
    state = set()
    for folder in folders:
        for path in entries(folder):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # sealed or swept a moment ago
            state.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(state)


def _tally_problems(group: xr.Dataset) -> dict[str, Tally]:
    """Count the samples of every problem in a group of one step, and return those with any.

    ``group``: one arm (a model) on one problem set. ``counts()`` gives ``n``, the judged samples,
    and ``c``, the right ones. Each column has one number per problem, under the name of the field
    of :class:`Tally` that it is for; single samples are counted where they are stored.
    """
    counts = group.rlb.counts()
    columns = {"n": counts["n"].values.reshape(-1), "right": counts["c"].values.reshape(-1)}
    if "verdict" in group:
        verdict = group["verdict"]
        sample_axis = verdict.dims.index("sample")

        def count_samples(is_counted: NDArray[np.bool_]) -> NDArray[np.int64]:
            counts: NDArray[np.int64] = is_counted.sum(sample_axis).reshape(-1)
            return counts

        is_failed = np.isin(verdict.values, FAILED)
        columns["failed"] = count_samples(is_failed)
        columns["cut"] = count_samples(group["finish"].values == Finish.LENGTH)
        columns["no_answer"] = count_samples(verdict.values == Status.NO_ANSWER)
        if "strict" in group and "lenient" in group:
            is_strict_right = group["strict"].values == Status.RIGHT
            is_lenient_right = group["lenient"].values == Status.RIGHT
            columns["disagreeing"] = count_samples(is_strict_right != is_lenient_right)
    tallies = {}
    for index, problem in enumerate(group["problem"].values.tolist()):
        tally = Tally(**{name: int(column[index]) for name, column in columns.items()})
        if any(tally):
            tallies[problem] = tally
    return tallies
