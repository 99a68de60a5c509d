"""Look through a run: its problems with their counts, the samples of a problem."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.store import samples
from rlbhpc.store.questions import Question, read_questions
from rlbhpc.store.reader import open_cube
from rlbhpc.store.samples import Found
from rlbhpc.store.sources import Group
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
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

    def responses(self) -> list[Found]:
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
            responses += samples.find(self.layout, Group(_arm(group), set_name), own, steps)
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
