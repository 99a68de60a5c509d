"""Look again at what a run holds: its samples with their problems, graded once more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.files import put
from rlbhpc.problems.problem import Problem
from rlbhpc.store import left_out
from rlbhpc.store.left_out import Note
from rlbhpc.store.questions import stored_questions
from rlbhpc.store.reader import purged
from rlbhpc.store.samples import rewrite, tables_by_cell
from rlbhpc.store.sources import Group, Sources, of_run
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import stored_study, study_of
from rlbhpc.study.schema import Storage, Verification
from rlbhpc.study.study import Study
from rlbhpc.sweep.judge import deciding
from rlbhpc.verify.audit.second_look import Comparison, Record, Regrader
from rlbhpc.verify.verdict import Status, Verdict

_COLUMNS: Final = (
    "step", "problem", "sample", "fingerprint", "verdict", "answer", "rule", "grader", "text",
    "finish",
)  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """The samples of a run with their problems.

    ``arm`` and ``step`` keep to a part of them; None leaves all in.
    """

    layout: Layout
    arm: str | None = None
    step: int | None = None

    @cached_property
    def _purged(self) -> list[Note]:
        return purged(Sources.survey(self.layout))

    def groups(self) -> list[Group]:
        """Arms on problem sets that are looked at; refuses an arm that has none.

        Samples that only the cube has left cannot be looked at, which is told.
        """
        left_out.tell(self.layout.root, self._purged)
        groups = of_run(self.layout)
        chosen = [group for group in groups if self.arm in {None, group.arm}]
        if not chosen:
            arms = ", ".join(sorted({group.arm for group in groups}))
            raise UserError(f"{self.layout.root}: no samples of arm {self.arm!r}; there are {arms}")
        return chosen

    def records(
        self, group: Group, before: int | None = None
    ) -> Iterator[tuple[int, list[Record]]]:
        """Read the samples of a group by step: those of one problem at a time.

        ``before`` leaves out those whose index is not below it.
        """
        for stored in tables_by_cell(self.layout, group, _COLUMNS):
            early = stored
            if before is not None:
                early = stored.filter(pc.less(stored["sample"], before))
            step = stored["step"][0].as_py()
            if len(early) and self.step in {None, step}:
                yield step, self._records(group, early)

    def steps(self, group: Group) -> Iterator[tuple[int, Iterator[Record]]]:
        """Read the samples of a group, step by step."""
        for step, of_step in groupby(self.records(group), key=itemgetter(0)):
            yield step, (record for _, records in of_step for record in records)

    def judged(
        self, group: Group, judge: Callable[[Sequence[Record]], list[Verdict]], into: Layout
    ) -> int:
        """Write a group into another run with the verdicts that ``judge`` gives."""

        def verdicts(table: pa.Table) -> list[Verdict]:
            return judge(self._records(group, table))

        study = study_of(self.layout)
        tokens = Storage().tokens if study is None else study.file.storage.tokens
        return rewrite(self.layout, into, group, verdicts, tokens)

    @cached_property
    def verification(self) -> Verification:
        """How the study wants answers to be judged; of imported samples nobody said."""
        study = study_of(self.layout)
        return Verification() if study is None else study.file.verification

    @cached_property
    def study(self) -> Study:
        """The study as it was last run."""
        try:
            return stored_study(self.layout.study)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{self.layout.study}: no such file; give the folder of a run that was sampled, "
                "for its problems are needed"
            ) from None

    @cached_property
    def _problems(self) -> dict[Group, dict[str, Problem]]:
        return {}

    def _read_problems(self, group: Group) -> dict[str, Problem]:
        """The problems of a group: the study's, or what was stored of those of imported samples."""
        study = study_of(self.layout)
        if study is not None and group.arm in study.arms:
            return {problem.id: problem for problem in study.problems(group.problem_set)}
        stored = stored_questions(self.layout, group.arm, group.problem_set)
        return {
            name: Problem(name, {"question": question.question}, question.gold, "")
            for name, question in stored.items()
            if question.gold is not None
        }

    def _records(self, group: Group, table: pa.Table) -> list[Record]:
        if group not in self._problems:
            self._problems[group] = self._read_problems(group)
        problems = self._problems[group]
        if lacking := set(table["problem"].to_pylist()) - problems.keys():
            raise UserError(
                f"{group}: no reference answer of {min(lacking)} is stored, so its samples "
                "can't be judged; import files that have the answers"
            )
        columns = (table[name].to_pylist() for name in _COLUMNS[1:2] + _COLUMNS[4:])
        return [
            Record(
                problems[problem],
                text or "",
                Verdict(Status(verdict), answer or "", answer or "", rule or "", grader or ""),
                finish_name(finish),
            )
            for problem, verdict, answer, rule, grader, text, finish in zip(*columns, strict=True)
        ]


def grade_again(
    stored: Stored, kind: Callable[[Problem], str] | None, into: Layout | None, workers: int
) -> dict[Group, Comparison]:
    """Judge a run again with a grader; with ``into``, keep what it says as another run."""
    if into is not None:
        _begin(stored, into)
    comparisons = {}
    for group in stored.groups():
        regrader = Regrader(kind, workers, stored.verification.timeout)
        if into is None:
            for _, records in stored.records(group):
                regrader.judge(records)
        else:
            stored.judged(group, partial(_as_stored, regrader), into)
        comparisons[group] = regrader.result
    if into is not None:
        _mark(stored, into, done=True)
    return comparisons


def _as_stored(regrader: Regrader, records: Sequence[Record]) -> list[Verdict]:
    """New verdicts as a sweep would store them, so that an unchanged one leaves its row alone."""
    return [replace(new, rule=deciding(new.rule)) for new in regrader.judge(records)]


def _begin(stored: Stored, into: Layout) -> None:
    """Give the other run the same study and the same grids.

    A folder that holds anything is taken only if an earlier call for the same run was interrupted
    in it: what stands there then is a part of what is written now, and nobody has used it yet.
    """
    if stored.arm is not None or stored.step is not None:
        raise UserError("--into writes a whole run; leave --arm and --step out")
    study = study_of(stored.layout)
    if into.root.exists() and any(into.root.iterdir()):
        if not into.regraded.is_file() or into.regraded.read_text() != _note(stored, done=False):
            raise UserError(f"--into {into.root}: holds something already; give a new folder")
        shutil.rmtree(into.root / "parts", ignore_errors=True)
    into.root.mkdir(parents=True, exist_ok=True)
    _mark(stored, into, done=False)
    for name in ("grids", "studies", "questions", "tables", "looks.json"):
        source = stored.layout.root / name
        if source.is_dir():
            shutil.copytree(source, into.root / name, dirs_exist_ok=True)
        elif source.is_file():
            shutil.copyfile(source, into.root / name)
    if study is not None:
        into.study.write_text(study.to_json())


def _mark(stored: Stored, into: Layout, *, done: bool) -> None:
    put(into.regraded, _note(stored, done=done).encode())


def _note(stored: Stored, *, done: bool) -> str:
    return json.dumps({"from": str(stored.layout.root.resolve()), "done": done}) + "\n"
