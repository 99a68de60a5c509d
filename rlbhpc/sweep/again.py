"""Judge anew what a run holds: its samples with their problems, graded by the grader of today."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from rlbhpc.store.seal import token_policy
from rlbhpc.store.sources import Group, Sources, groups_of_run
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of
from rlbhpc.study.schema import Verification
from rlbhpc.study.study import Study
from rlbhpc.sweep.judge import VerifiersByKind, rule_without_place
from rlbhpc.verify.running.batch import Item
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

    ``arm, step``: keep to one arm, or one step; None leaves all in.
    """

    layout: Layout
    arm: str | None = None
    step: int | None = None

    @cached_property
    def _study(self) -> Study | None:
        """The study of the run; None where samples were imported."""
        return study_of(self.layout)

    @cached_property
    def _purged_notes(self) -> list[Note]:
        return purged_notes(Sources.survey(self.layout))

    def groups(self) -> list[Group]:
        """Arms on problem sets that are looked at; refuses an arm that has none.

        Samples that only the cube has left cannot be looked at, which is told.

        A *group* is one arm on one problem set.
        """
        left_out.warn_left_out(self.layout.root, self._purged_notes)
        groups = groups_of_run(self.layout)
        chosen = [group for group in groups if self.arm in {None, group.arm}]
        if not chosen:
            arms = ", ".join(sorted({group.arm for group in groups}))
            raise UserError(f"{self.layout.root}: no samples of arm {self.arm!r}; there are {arms}")
        return chosen

    def records(self, group: Group) -> Iterator[list[Record]]:
        """Read the samples of a group: those of one problem at one step at a time."""
        problems = self._read_problems(group)
        for table in tables_by_cell(self.layout, group, _COLUMNS):
            step = table["step"][0].as_py()
            if self.step in {None, step}:
                yield _make_records(group, problems, table)

    def rewrite(
        self, group: Group, judge: Callable[[Sequence[Record]], list[Verdict]], into: Layout
    ) -> int:
        """Write a group into another run with the verdicts that ``judge`` gives; returns how many.

        A *group* is one arm on one problem set. A *record* is one stored sample with its problem
        and verdict. ``into``: folders of the other run. ``token_policy`` tells which samples keep
        their values per token.
        """
        problems = self._read_problems(group)

        def judge_table(table: pa.Table) -> list[Verdict]:
            return judge(_make_records(group, problems, table))

        tokens = token_policy(self.layout)
        return rewrite(self.layout, into, group, judge_table, tokens, self.verification.decides)

    @property
    def verification(self) -> Verification:
        """How the study wants answers to be judged; of imported samples nobody said."""
        return Verification() if self._study is None else self._study.file.verification

    def _read_problems(self, group: Group) -> dict[str, Problem]:
        """The problems of a group (an arm on a problem set) by id, as the study has them.

        Imported samples have no study; their problems are made of the questions and reference
        answers that were stored with them. Those without a reference answer are left out.
        """
        if self._study is not None and group.arm in self._study.arms:
            return {problem.id: problem for problem in self._study.problems(group.problem_set)}
        questions = stored_questions(self.layout, group.arm, group.problem_set)
        return {
            name: Problem(name, {"question": question.question}, question.gold, "")
            for name, question in questions.items()
            if question.gold is not None
        }


def _make_records(group: Group, problems: Mapping[str, Problem], table: pa.Table) -> list[Record]:
    """Records of some stored rows; refuses rows whose problem has no reference answer.

    A *record* is one stored sample with its problem and verdict. ``group``: arm and problem set of
    the rows. ``problems``: by id. The store keeps only the canonical form of an answer, so it
    stands for both. ``lenient``: status that the row had if a value that the response does not
    state as its answer counted too.
    """
    unknown = set(table["problem"].to_pylist()) - problems.keys()
    if unknown:
        raise UserError(
            f"{group}: no reference answer of {min(unknown)} is stored, so its samples "
            "can't be judged; import files that have the answers"
        )
    records = []
    for row in table.to_pylist():
        verdict = Verdict(
            status=Status(row["verdict"]),
            answer=row["answer"],
            canonical=row["answer"],
            rule=row["rule"],
            grader=row["grader"],
        )
        record = Record(
            key=SampleKey(group.arm, row["step"], row["problem"], row["sample"]),
            problem=problems[row["problem"]],
            response=row["text"],
            verdict=verdict,
            finish=finish_name(row["finish"]),
            lenient=Status(row["lenient"]),
        )
        records.append(record)
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
    _samples_by_answer: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)

    def add(self, problem: str, before: Verdict, after: Verdict) -> None:
        """Count one sample with its verdicts of the two graders.

        Where one says right and the other does not, the answer and the words of both verdicts are
        counted too, so that each distinct disagreement is listed once.
        """
        self.table[before.status, after.status] += 1
        change = self.problems.setdefault(problem, ProblemChange(problem))
        change.n += 1
        change.right_before += before.right
        change.right_after += after.right
        if before.right != after.right:
            answer = after.answer or before.answer or before.canonical
            key = (problem, answer, _verdict_words(before), _verdict_words(after))
            self._samples_by_answer[key] += 1

    @property
    def disagreements(self) -> list[Disagreement]:
        """Every distinct answer on which right and not right differ, the most frequent first."""
        counts = self._samples_by_answer.most_common()
        return [Disagreement(*key, samples) for key, samples in counts]

    @property
    def changed(self) -> list[ProblemChange]:
        """Problems whose number of right samples differs, the most different first."""
        changed = [
            change for change in self.problems.values() if change.right_before != change.right_after
        ]
        return sorted(changed, key=lambda change: -abs(change.right_after - change.right_before))

    def counts(self) -> tuple[list[int], list[int], list[int]]:
        """Samples, right before and right after of each problem: two curves of pass@k."""
        changes = self.problems.values()
        return (
            [change.n for change in changes],
            [change.right_before for change in changes],
            [change.right_after for change in changes],
        )


def _verdict_words(verdict: Verdict) -> str:
    return f"{verdict.status.name.lower()} ({verdict.rule})"


class Regrader:
    """Verifies stored responses again and compares with the stored verdicts.

    ``kind_of``: tells which verifier judges a problem; without it the problem's own kind does, in
    the version that runs now. ``verification``: how the study wants answers to be judged: the
    reading that decides is compared. ``workers`` is that of :class:`BatchVerifier`.
    """

    def __init__(
        self,
        kind_of: Callable[[Problem], str] | None,
        verification: Verification,
        workers: int = 1,
    ) -> None:
        """Prepare verifiers, which are made at their first use, and an empty comparison.

        ``kind_of``: names the verifier of a problem; by default its own. ``workers``: processes of
        each.
        """
        self._kind_of = kind_of or (lambda problem: problem.verifier)
        self._verification = verification
        self._verifiers = VerifiersByKind(workers, verification.timeout)
        self.result = Comparison()

    def judge(self, records: Sequence[Record]) -> list[Verdict]:
        """Judge some records and note what changed; gives the new verdicts, in order.

        A *record* is one stored sample with its problem and verdict. Records are judged together by
        kind of verifier. Samples that are missing or failed keep their verdict: there is nothing to
        judge. ``verdict.under(decides)`` is the status by the reading that decides in the study,
        which the stored one is too.
        """
        kinds = [
            None if record.verdict.status in _UNJUDGED else self._kind_of(record.problem)
            for record in records
        ]
        judged = self._verifiers.verify(kinds, [record.item for record in records])
        verdicts = [
            verdict or record.verdict for record, verdict in zip(records, judged, strict=True)
        ]
        for record, verdict in zip(records, verdicts, strict=True):
            deciding_status = verdict.under(self._verification.decides)
            deciding_verdict = replace(verdict, status=deciding_status)
            self.result.add(record.problem.id, record.verdict, deciding_verdict)
        return verdicts

    def judge_for_store(self, records: Sequence[Record]) -> list[Verdict]:
        """The same as a sweep would store it, so that an unchanged verdict leaves its row alone."""
        verdicts = self.judge(records)
        return [replace(verdict, rule=rule_without_place(verdict.rule)) for verdict in verdicts]


def grade_again(
    stored: StoredRun, kind_of: Callable[[Problem], str] | None, into: Layout | None, workers: int
) -> dict[Group, Comparison]:
    """Judge a run again with a grader; with ``into``, keep what it says as another run.

    ``stored``: the samples of the run. ``kind_of``: names the verifier of a problem; None takes its
    own. ``into``: folders of the new run; None keeps nothing. Gives the comparison of old and new
    verdicts for each group, which is one arm on one problem set. The mark in the new run says from
    which run it was made, and is set to done at the end.
    """
    if into is not None:
        _begin_copy(stored, into)
    comparisons = {}
    for group in stored.groups():
        regrader = Regrader(kind_of, stored.verification, workers)
        if into is None:
            for records in stored.records(group):
                regrader.judge(records)
        else:
            stored.rewrite(group, regrader.judge_for_store, into)
        comparisons[group] = regrader.result
    if into is not None:
        put(into.regraded, _mark_text(stored, done=True).encode())
    return comparisons


def _begin_copy(stored: StoredRun, into: Layout) -> None:
    """Give the other run the same study and the same grids.

    A folder that holds anything is taken only if an earlier call for the same run was interrupted
    in it: its parts are written again, and nobody has used them yet.

    ``_mark_text`` is what the file ``into.regraded`` holds: the run that the copy is made from, and
    whether it is done. *Grids* list which samples of each arm and problem set are asked for.
    """
    if stored.arm is not None or stored.step is not None:
        raise UserError("--into writes a whole run; leave --arm and --step out")
    study = study_of(stored.layout)
    unfinished_mark = _mark_text(stored, done=False)
    if into.root.exists() and any(into.root.iterdir()):
        if not into.regraded.is_file() or into.regraded.read_text() != unfinished_mark:
            raise UserError(f"--into {into.root}: holds something already; give a new folder")
        shutil.rmtree(into.root / "parts", ignore_errors=True)
    into.root.mkdir(parents=True, exist_ok=True)
    put(into.regraded, unfinished_mark.encode())
    for name in ("grids", "studies", "questions", "tables", "looks.json"):
        original = stored.layout.root / name
        if original.is_dir():
            shutil.copytree(original, into.root / name, dirs_exist_ok=True)
        elif original.is_file():
            shutil.copyfile(original, into.root / name)
    if study is not None:
        into.study.write_text(study.to_json())


def _mark_text(stored: StoredRun, *, done: bool) -> str:
    """Content of the file that says from which run another one was judged, and whether whole."""
    return json.dumps({"from": str(stored.layout.root.resolve()), "done": done}) + "\n"
