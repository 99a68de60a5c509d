"""Looking again at what was accepted: the thin list, a new grader, two graders side by side.

A verifier that accepts one wrong answer in a thousand "solves" 64 % of the unsolvable problems at
k = 1,024. So what decides a large-k curve is the list of problems that were solved once or twice:
it is short, and every entry deserves a second look by other means, and then by a person.

All functions take an iterable of :class:`Record`, so that a store can stream through them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.answer.extract import extract
from rlbhpc.verify.running.batch import BatchVerifier, Item
from rlbhpc.verify.running.pool import SECONDS, shared_pool, verify_apart
from rlbhpc.verify.verdict import Status, Verdict

#: Math-Verify alone, in a killable worker: the second grader of mathematics.
MATH_VERIFY: Final = "rlbhpc.verify.audit.second_grader:decide"
_CHUNK: Final = 20_000
# What no verifier had a say in.
_UNJUDGED: Final = frozenset((Status.MISSING, Status.FAILED))


class Record(NamedTuple):
    """One stored sample: its problem, what the model wrote, the verdict, and how it ended."""

    problem: Problem
    response: str
    verdict: Verdict
    finish: str = ""

    @property
    def item(self) -> Item:
        """What a verifier is asked about it."""
        return self.problem.gold, self.response, self.problem, self.finish


# --- the thin list -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThinEntry:
    """One accepted response to a problem that was hardly ever solved.

    ``second`` is what a second path says of it: ``agrees``, ``disagrees`` or ``cannot tell``, and
    ``why`` the rule by which it says so.
    """

    problem: Problem
    n: int
    right: int
    response: str
    verdict: Verdict
    second: str
    why: str


def thin_list(
    records: Iterable[Record], at_most: int = 2, seconds: float = SECONDS
) -> list[ThinEntry]:
    """List accepted responses to problems with 1 … ``at_most`` right samples, each looked at again.

    Mathematics is compared again by Math-Verify alone, which shares no code with the ``math``
    verifier's reading; every other kind is verified afresh. The rarest come first. ``seconds`` is
    that of :class:`BatchVerifier`.
    """
    sampled: Counter[str] = Counter()
    right: Counter[str] = Counter()
    kept: dict[str, list[Record]] = {}
    for record in records:
        name = record.problem.id
        sampled[name] += 1
        if record.verdict.right:
            right[name] += 1
            if right[name] <= at_most:
                kept.setdefault(name, []).append(record)
            else:
                kept.pop(name, None)
    names = sorted(
        (name for name in kept if right[name] <= at_most),
        key=lambda name: (right[name] / sampled[name], name),
    )
    found = [(name, record) for name in names for record in kept[name]]
    opinions = second_opinions([record for _, record in found], seconds)
    return [
        ThinEntry(
            record.problem, sampled[name], right[name], record.response, record.verdict, *opinion
        )
        for (name, record), opinion in zip(found, opinions, strict=True)
    ]


def second_opinions(records: Sequence[Record], seconds: float) -> list[tuple[str, str]]:
    """Say of each accepted record whether another path accepts it too, and by what rule."""
    opinions: list[tuple[str, str]] = [("cannot tell", "")] * len(records)
    algebra = [index for index, record in enumerate(records) if record.problem.verifier == "math"]
    payloads = []
    for index in algebra:
        extracted = extract(records[index].response, records[index].finish)
        answer = extracted.text if extracted is not None else ""
        payloads.append({"gold": records[index].problem.gold, "answer": answer})
    for index, result in zip(algebra, shared_pool(MATH_VERIFY).run(payloads), strict=True):
        if result.outcome != "done" or result.value["why"] == "unparsed":
            opinions[index] = ("cannot tell", str(result.value or result.outcome))
        else:
            word = "agrees" if result.value["equal"] else "disagrees"
            opinions[index] = (word, f"math-verify: {result.value['why']}")
    for index, record in enumerate(records):
        if record.problem.verifier != "math":
            again = verify_apart(record.problem, record.response, record.finish, seconds)
            word = "agrees" if again.right else "disagrees"
            if again.status in {Status.TIMEOUT, Status.ERROR}:
                word = "cannot tell"
            opinions[index] = (word, f"again: {again.rule}")
    return opinions


# --- another grader ------------------------------------------------------------------------------


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
    version that runs now. ``workers`` and ``seconds`` are those of :class:`BatchVerifier`.
    """

    def __init__(
        self, kind: Callable[[Problem], str] | None = None, workers: int = 1,
        seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        self._kind = kind or (lambda problem: problem.verifier)
        self._workers = workers
        self._seconds = seconds
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
            self.result.note(record.problem.id, record.verdict, new)
        return after

    def _grader(self, kind: str) -> BatchVerifier:
        if kind not in self._graders:
            self._graders[kind] = BatchVerifier(kind, workers=self._workers, seconds=self._seconds)
        return self._graders[kind]


def compare_graders(
    records: Iterable[Record], first: BatchVerifier, second: BatchVerifier
) -> Comparison:
    """Put two graders side by side on the same responses."""
    result = Comparison()
    remaining = iter(records)
    while chunk := list(islice(remaining, _CHUNK)):
        calls = [record.item for record in chunk]
        pairs = zip(first.verify_many(calls), second.verify_many(calls), strict=True)
        for record, (before, after) in zip(chunk, pairs, strict=True):
            result.note(record.problem.id, before, after)
    return result
