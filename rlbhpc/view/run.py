"""Look through a run: its problems with their counts, the samples of a problem, both sides of it.

:class:`Browser` lists what ``rlbhpc show`` prints. :class:`OpenRun` adds what the pages of
``rlbhpc view`` compare: two sides, of which each is an arm at a training step.
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
from rlbhpc.store.questions import Question, read_questions
from rlbhpc.store.reader import open_cube
from rlbhpc.store.samples import StoredSample
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout, entries
from rlbhpc.study.load import study_of
from rlbhpc.verify.verdict import Status

#: A problem with so many right samples at most, and at least one, is thin.
THIN: Final = 2
# Samples that are looked at together; bounds the memory.
_CELLS_AT_ONCE: Final = 1 << 22


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


class Browser:
    """An opened run, narrowed to a choice: ``groups`` has the chosen problems of each arm."""

    def __init__(self, folder: Path, choice: Choice) -> None:
        """Open the run in ``folder``, and narrow it to the problems that were chosen.

        ``tree``: all that the run has stored. A *group* of it is one arm (a model) on one problem
        set: a Dataset with the dimensions problem and step, and also sample if single samples are
        stored and not only counts.
        """
        self.layout = Layout(folder)
        self.tree = open_cube(folder)
        self._choice = choice
        self._questions: dict[tuple[str, str], dict[str, Question]] = {}
        all_groups = [
            node.to_dataset()
            for node in self.tree.subtree
            if node.attrs.get("kind") in {"samples", "counts"}
        ]
        self.groups = _select_groups(all_groups, choice)

    def problems(self) -> Iterator[ProblemRow]:
        """Problems with their counts, by arm, step and the order of the set."""
        for group in self.groups:
            for step_rows in _count_problems(group):
                yield from step_rows

    def samples(self) -> Iterator[SampleRow]:
        """Yield the chosen samples without their texts, by arm, step, problem and number.

        A *group* has the samples of one arm on one problem set; one that stores only counts has no
        single samples. Problems are read in batches, so that not too many values are in memory at
        once.
        """
        for group in self.groups:
            if "verdict" not in group:
                continue
            batch_size = max(1, _CELLS_AT_ONCE // max(1, group.sizes["sample"]))
            for rows in _count_problems(group):
                for start in range(0, len(rows), batch_size):
                    yield from self._list_samples(group, rows[start : start + batch_size])

    def _list_samples(self, group: xr.Dataset, rows: Sequence[ProblemRow]) -> Iterator[SampleRow]:
        """Yield the samples of some problems at one step.

        ``group``: one arm on one problem set, with dimensions problem, step and sample. ``rows``:
        the problems, all of one step. The arrays taken from it have a row for each problem and a
        column for each sample number; MISSING means that there is no such sample.
        """
        cells = group.sel(problem=[row.problem for row in rows], step=rows[0].step)
        verdict = cells["verdict"].values
        finish = cells["finish"].values
        n_tokens = cells["n_tokens"].values
        seed = cells["seed"].values
        for row_index, sample in np.argwhere(verdict != Status.MISSING).tolist():
            row = rows[row_index]
            cell = row_index, sample
            yield SampleRow(
                arm=row.arm,
                step=row.step,
                problem=row.problem,
                sample=sample,
                verdict=Status(int(verdict[cell])).name.lower(),
                finish=finish_name(int(finish[cell])),
                n_tokens=int(n_tokens[cell]),
                seed=int(seed[cell]),
            )

    def question_of(self, key: SampleKey) -> Question | None:
        """What the problem of a sample asks; None where it isn't stored."""
        set_name = key.problem.partition("/")[0]
        group_name = (key.arm, set_name)
        if group_name not in self._questions:
            self._questions[group_name] = read_questions(self.layout, key.arm, set_name)
        return self._questions[group_name].get(key.problem)

    def responses(self) -> list[StoredSample]:
        """Return the chosen samples of the chosen problem with their texts.

        ``_choice.sample``: the number of one sample, or None for all. A *group* has the samples of
        one arm (a model) on one problem set; ids of problems begin with the set's name.
        """
        number = self._choice.sample
        sample_numbers = None if number is None else {number}
        responses = []
        for group in self.groups:
            set_name = str(group["problem_set"].item())
            problems = [
                problem
                for problem in group["problem"].values.tolist()
                if problem.startswith(f"{set_name}/")
            ]
            steps = set(group["step"].values.tolist())
            samples_by_problem = dict.fromkeys(problems, sample_numbers)
            responses += samples.find_samples(
                self.layout, _group_name(group), samples_by_problem, steps
            )
        return responses


def _count_problems(group: xr.Dataset) -> Iterator[list[ProblemRow]]:
    """Yield, for each step of a group, the rows of its problems that have samples.

    A *group* is one arm (a model) on one problem set. ``n`` and ``right`` are the numbers of judged
    and of right samples, ``failed`` of those that failed to be generated or judged. All three
    arrays have the axes problem and step.
    """
    counts = group.rlb.counts()
    n, right = counts["n"].values, counts["c"].values
    failed = np.zeros_like(n)
    if "verdict" in group:
        is_failed = group["verdict"].isin([Status.FAILED, Status.ERROR])
        failed = is_failed.sum("sample").transpose("problem", "step").values
    arm = _group_name(group).arm
    problems = group["problem"].values.tolist()
    for step_index, step in enumerate(group["step"].values.tolist()):
        has_samples = (n[:, step_index] + failed[:, step_index]) > 0
        yield [
            ProblemRow(
                arm=arm,
                step=step,
                problem=problems[index],
                n=int(n[index, step_index]),
                right=int(right[index, step_index]),
                failed=int(failed[index, step_index]),
            )
            for index in np.flatnonzero(has_samples).tolist()
        ]


def _group_name(group: xr.Dataset) -> Group:
    return Group(str(group["arm"].item()), str(group["problem_set"].item()))


def _select_groups(groups: list[xr.Dataset], choice: Choice) -> list[xr.Dataset]:
    """Keep what was chosen of each group; a name that no group has is refused.

    A *group* is one arm (a model) on one problem set. ``choice``: names an arm, a step and a
    problem; None leaves all in. Groups without a chosen problem are left out.
    """
    if choice.arm is not None:
        arms = [_group_name(group).arm for group in groups]
        _require_name(f"no arm {choice.arm!r}", choice.arm, arms)
        groups = [group for group in groups if _group_name(group).arm == choice.arm]
    if choice.step is not None:
        steps = {step for group in groups for step in group["step"].values.tolist()}
        step_names = [str(step) for step in sorted(steps)]
        _require_name(f"no step {choice.step}", str(choice.step), step_names)
        groups = [
            group.sel(step=[choice.step]) for group in groups if choice.step in group["step"].values
        ]
    if choice.problem is not None:
        groups = _select_problem(groups, choice.problem)
    return [group for group in groups if group.sizes["problem"]]


def _select_problem(groups: list[xr.Dataset], problem: str) -> list[xr.Dataset]:
    """Keep one problem of each group, by its id with or without the set.

    A *group* is one arm (a model) on one problem set. Ids are ``set/name``, so the name alone may
    match in several sets. A problem that no group has is refused.
    """
    all_ids: list[str] = []
    selected = []
    for group in groups:
        ids = group["problem"].values.tolist()
        all_ids += ids
        matching = [name for name in ids if problem in {name, name.partition("/")[2]}]
        selected.append(group.sel(problem=matching))
    if not any(group.sizes["problem"] for group in selected):
        _require_name(f"no problem {problem!r}", problem, all_ids)
    return selected


def _require_name(message: str, name: str, known_names: list[str]) -> None:
    """Raise an error if ``name`` isn't a known name, and list those that are like it.

    ``message``: how the error begins, such as "no arm 'x'".
    """
    if name in known_names:
        return
    shown = difflib.get_close_matches(name, known_names, n=3) or known_names[:5]
    hidden_count = len(known_names) - len(shown)
    more = f" and {hidden_count} more" if hidden_count > 0 else ""
    raise UserError(f"{message} in this run; there are {', '.join(shown) or 'none'}{more}")


# --- a run as its pages show it ------------------------------------------------------------------

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


class OpenRun(Browser):
    """An opened run. It is a snapshot: what arrives later is seen by opening again."""

    def __init__(self, folder: Path) -> None:
        """Open all of a run; refuse one without any problem.

        ``files_state`` tells later whether new samples have arrived. A *group* is one arm (a model)
        on one problem set. *Tallies* are counts of samples by problem, made when a side (an arm at
        a step) is first asked for.
        """
        super().__init__(folder, Choice())
        self.folder = folder
        self.files_state = read_files_state(self.layout)
        self._tallies: dict[Side, dict[str, Tally]] = {}
        self._groups_by_name = {_group_name(group): group for group in self.groups}
        if not self.groups:
            raise UserError(f"{folder}: no problems yet; look again once samples are there")

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
            for name, group in self._groups_by_name.items()
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
        for group in self.groups:
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
        """Refuse an id of a problem that this run doesn't have."""
        for problem in problems:
            _require_name(f"no problem {problem!r}", problem, list(self.strata))

    def tallies(self, side: Side) -> Mapping[str, Tally]:
        """Return counts of the samples of every problem that a side has; counted once, then kept.

        A *side* is an arm (a model) at a training step. A *group* has the samples of one arm on one
        problem set. A *tally* says how many samples of a problem are judged, right, cut off, and so
        on.
        """
        if side not in self._tallies:
            tallies: dict[str, Tally] = {}
            for name, group in self._groups_by_name.items():
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
        group = self._groups_by_name.get(Group(side.arm, problem.partition("/")[0]))
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

    def question(self, problem: str) -> Question | None:
        """What a problem asks, by the first arm that stores it; None if none does.

        A problem's id begins with the name of its set; step and sample number don't matter here.
        """
        set_name = problem.partition("/")[0]
        for name in self._groups_by_name:
            if name.problem_set == set_name:
                question = self.question_of(SampleKey(name.arm, 0, problem, 0))
                if question is not None:
                    return question
        return None

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
            question = self.question(problem)
            if question is not None:
                yield from _first_hit(problem, None, 0, question.question, words)

    def _search_samples(
        self, words: str, column: str, problems: list[str], side: Side
    ) -> Iterator[Hit]:
        """Find words in the samples that one side has of some problems.

        ``column``: ``answer`` or ``text``. ``side``: an arm at a training step. A problem's id
        begins with the name of its set, and each name of a group is an arm and a set. Only so many
        hits are taken of each set.
        """
        for name in self._groups_by_name:
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
