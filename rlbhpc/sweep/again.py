"""Judge anew what a run holds: its samples with their problems, graded by the grader of today."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final, NamedTuple

import pyarrow as pa

from rlbhpc.engines.completion import finish_name
from rlbhpc.errors import UserError
from rlbhpc.files import put
from rlbhpc.problems.problem import Problem
from rlbhpc.store import left_out
from rlbhpc.store.left_out import Note
from rlbhpc.store.questions import stored_questions
from rlbhpc.store.reader import purged_notes
from rlbhpc.store.samples import rewrite, tables_by_cell
from rlbhpc.store.sources import Group, Sources, groups_of_run
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.schema import Storage, Verification
from rlbhpc.sweep.judge import rule_without_place
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.verdict import Status, Verdict

_COLUMNS: Final = (
    "step", "problem", "sample", "fingerprint", "verdict", "lenient", "answer", "rule", "grader",
    "text", "finish",
)  # fmt: skip
# What no verifier had a say in.
_UNJUDGED: Final = frozenset((Status.MISSING, Status.FAILED))


class Record(NamedTuple):
    """One stored sample: its problem, what the model wrote, the verdict, and how it ended.

    ``verdict`` is the one that decides in the study. ``lenient``: its status had also the last
    value of the response counted; MISSING in stores of older versions.
    """

    key: SampleKey
    problem: Problem
    response: str
    verdict: Verdict
    finish: str = ""
    lenient: Status = Status.MISSING

    @property
    def item(self) -> Item:
        """What a verifier is asked about it."""
        return self.problem.gold, self.response, self.problem, self.finish


@dataclass(frozen=True)
class StoredRun:
    """The samples of a run with their problems.

    ``arm`` and ``step`` keep to a part of them; None leaves all in.
    """

    layout: Layout
    arm: str | None = None
    step: int | None = None

    @cached_property
    def _purged(self) -> list[Note]:
        return purged_notes(Sources.survey(self.layout))

    def groups(self) -> list[Group]:
        """Arms on problem sets that are looked at; refuses an arm that has none.

        Samples that only the cube has left cannot be looked at, which is told.
        """
        left_out.warn_left_out(self.layout.root, self._purged)
        groups = groups_of_run(self.layout)
        chosen = [group for group in groups if self.arm in {None, group.arm}]
        if not chosen:
            arms = ", ".join(sorted({group.arm for group in groups}))
            raise UserError(f"{self.layout.root}: no samples of arm {self.arm!r}; there are {arms}")
        return chosen

    def records(self, group: Group) -> Iterator[list[Record]]:
        """Read the samples of a group: those of one problem at one step at a time."""
        for table in tables_by_cell(self.layout, group, _COLUMNS):
            step = table["step"][0].as_py()
            if self.step in {None, step}:
                yield self._records(group, table)

    def judged(
        self, group: Group, judge: Callable[[Sequence[Record]], list[Verdict]], into: Layout
    ) -> int:
        """Write a group into another run with the verdicts that ``judge`` gives."""

        def verdicts(table: pa.Table) -> list[Verdict]:
            return judge(self._records(group, table))

        study = study_of(self.layout)
        tokens = Storage().tokens if study is None else study.file.storage.tokens
        return rewrite(self.layout, into, group, verdicts, tokens, self.verification.decides)

    @cached_property
    def verification(self) -> Verification:
        """How the study wants answers to be judged; of imported samples nobody said."""
        study = study_of(self.layout)
        return Verification() if study is None else study.file.verification

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
        columns = {name: table[name].to_pylist() for name in _COLUMNS}
        records = []
        for index, problem in enumerate(columns["problem"]):
            key = SampleKey(group.arm, columns["step"][index], problem, columns["sample"][index])
            answer = columns["answer"][index] or ""
            verdict = Verdict(
                Status(columns["verdict"][index]), answer, answer,
                columns["rule"][index] or "", columns["grader"][index] or "",
            )  # fmt: skip
            text = columns["text"][index] or ""
            finish = finish_name(columns["finish"][index])
            lenient = Status(columns["lenient"][index])
            records.append(Record(key, problems[problem], text, verdict, finish, lenient))
        return records


# --- two graders ---------------------------------------------------------------------------------


@dataclass
class ProblemChange:
    """One problem under two graders: its samples, and how many were right under each."""

    problem: str
    n: int = 0
    right_before: int = 0
    right_after: int = 0


class Disagreement(NamedTuple):
    """One answer on which two graders differ, and how many samples gave it."""

    problem: str
    answer: str
    before: str
    after: str
    samples: int


@dataclass
class Comparison:
    """Two graders over the same samples.

    ``table``: number of samples by (status before, status after). ``problems``: one entry a
    problem, in order of appearance: the counts that both curves are drawn from.
    """

    table: Counter[tuple[Status, Status]] = field(default_factory=Counter)
    problems: dict[str, ProblemChange] = field(default_factory=dict)
    _differing: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def note(self, problem: str, before: Verdict, after: Verdict) -> None:
        """Count one sample."""
        self.table[before.status, after.status] += 1
        change = self.problems.setdefault(problem, ProblemChange(problem))
        change.n += 1
        change.right_before += before.right
        change.right_after += after.right
        if before.right != after.right:
            answer = after.answer or before.answer or before.canonical
            said = [f"{v.status.name.lower()} ({v.rule})" for v in (before, after)]
            self._differing[problem, answer, said[0], said[1]] += 1

    @property
    def disagreements(self) -> list[Disagreement]:
        """Every distinct answer on which right and not right differ, the most frequent first."""
        return [Disagreement(*key, count) for key, count in self._differing.most_common()]

    @property
    def changed(self) -> list[ProblemChange]:
        """Problems whose number of right samples differs, the most different first."""
        moved = [p for p in self.problems.values() if p.right_before != p.right_after]
        return sorted(moved, key=lambda p: -abs(p.right_after - p.right_before))

    def counts(self) -> tuple[list[int], list[int], list[int]]:
        """Samples, right before and right after for each problem: two curves of pass@k."""
        problems = self.problems.values()
        return (
            [p.n for p in problems],
            [p.right_before for p in problems],
            [p.right_after for p in problems],
        )


class Regrader:
    """Verifies stored responses again and compares with the stored verdicts.

    ``kind``: says which verifier judges a problem; without it the problem's own kind does, in the
    version that runs now. ``verification``: how the study wants answers to be judged: the reading
    that decides is compared. ``workers`` is that of :class:`BatchVerifier`.
    """

    def __init__(
        self, kind: Callable[[Problem], str] | None, verification: Verification, workers: int = 1
    ) -> None:
        self._kind = kind or (lambda problem: problem.verifier)
        self._decides = verification.decides
        self._seconds = verification.timeout
        self._workers = workers
        self._graders: dict[str, BatchVerifier] = {}
        self.result = Comparison()

    def judge(self, records: Sequence[Record]) -> list[Verdict]:
        """Judge some records and note what changed; a failed generation stays what it is."""
        after = [record.verdict for record in records]
        by_kind: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            if record.verdict.status not in _UNJUDGED:
                by_kind.setdefault(self._kind(record.problem), []).append(index)
        for kind, places in by_kind.items():
            items = [records[index].item for index in places]
            for index, new in zip(places, self._grader(kind).verify_many(items), strict=True):
                after[index] = new
        for record, new in zip(records, after, strict=True):
            deciding_verdict = replace(new, status=new.under(self._decides))
            self.result.note(record.problem.id, record.verdict, deciding_verdict)
        return after

    def _grader(self, kind: str) -> BatchVerifier:
        if kind not in self._graders:
            self._graders[kind] = BatchVerifier(kind, workers=self._workers, seconds=self._seconds)
        return self._graders[kind]


def grade_again(
    stored: StoredRun, kind: Callable[[Problem], str] | None, into: Layout | None, workers: int
) -> dict[Group, Comparison]:
    """Judge a run again with a grader; with ``into``, keep what it says as another run."""
    if into is not None:
        _begin(stored, into)
    comparisons = {}
    for group in stored.groups():
        regrader = Regrader(kind, stored.verification, workers)
        if into is None:
            for records in stored.records(group):
                regrader.judge(records)
        else:
            stored.judged(group, partial(_as_stored, regrader), into)
        comparisons[group] = regrader.result
    if into is not None:
        _mark(stored, into, done=True)
    return comparisons


def _as_stored(regrader: Regrader, records: Sequence[Record]) -> list[Verdict]:
    """New verdicts as a sweep would store them, so that an unchanged one leaves its row alone."""
    return [replace(new, rule=rule_without_place(new.rule)) for new in regrader.judge(records)]


def _begin(stored: StoredRun, into: Layout) -> None:
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


def _mark(stored: StoredRun, into: Layout, *, done: bool) -> None:
    put(into.regraded, _note(stored, done=done).encode())


def _note(stored: StoredRun, *, done: bool) -> str:
    return json.dumps({"from": str(stored.layout.root.resolve()), "done": done}) + "\n"
