"""The audit that makes style visible: the same responses under other readers and another grader.

Each response is judged under every pair of an extraction policy
(:mod:`rlbhpc.verify.audit.policies`) and a grader: the ``math`` verifier, or Math-Verify alone. The
first pair is how the project judges and what the others are held against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.audit.policies import POLICIES
from rlbhpc.verify.audit.second_look import MATH_VERIFY, Record
from rlbhpc.verify.audit.witness_replay import UNKNOWN
from rlbhpc.verify.audit.witness_replay import WORKER as REPLAY
from rlbhpc.verify.registry import ending
from rlbhpc.verify.running.batch import BatchVerifier
from rlbhpc.verify.running.pool import SECONDS, shared_pool
from rlbhpc.verify.verdict import Verdict

KIND: Final = "math"
GRADERS: Final = ("ours", "math-verify")
JUDGINGS: Final = tuple(f"{policy}, {grader}" for policy in POLICIES for grader in GRADERS)
REFERENCE: Final = JUDGINGS[0]


class Difference(NamedTuple):
    """One response that another judging sees otherwise than the reference."""

    judging: str
    problem: str
    gold: str
    answer: str
    right: bool
    response: str


@dataclass
class ArmAudit:
    """What became of the sampled responses of one arm at one step on one problem set.

    ``responses``: how many were judged. ``n, right``: per problem: judged responses, and right ones
    by judging. ``differing``: by judging, how many it sees otherwise than the reference.
    ``differences``: those responses, at most ``listed`` of each judging. ``witnesses``: what right
    answers of the reference judging rest on, each distinct one with what its replay says
    (:mod:`rlbhpc.verify.audit.witness_replay`), or empty where there is none.
    """

    listed: int
    responses: int = 0
    n: Counter[str] = field(default_factory=Counter)
    right: dict[str, Counter[str]] = field(default_factory=lambda: {j: Counter() for j in JUDGINGS})
    differing: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    witnesses: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


class StyleJudge:
    """Judges responses under every pair of policy and grader, each distinct answer once."""

    def __init__(self, workers: int = 1, seconds: float = SECONDS) -> None:
        self._ours = BatchVerifier(KIND)
        self._pool = shared_pool(MATH_VERIFY, workers, seconds)
        self._replays = shared_pool(REPLAY, workers, seconds)
        self._opinions: dict[tuple[str, str], bool] = {}

    def judge(self, records: Sequence[Record], into: ArmAudit) -> None:
        """Judge records and add what is found to an audit."""
        verdicts = self._ours.verify_many([record.item for record in records])
        answers = {
            name: [read(r.response, **ending(read, r.finish)) for r in records]
            for name, read in POLICIES.items()
        }
        by_judging = {REFERENCE: [verdict.right for verdict in verdicts]}
        for name, texts in answers.items():
            pairs = [(r.problem, text) for r, text in zip(records, texts, strict=True)]
            if name != "ours":
                by_judging[f"{name}, ours"] = self._by_ours(pairs)
            by_judging[f"{name}, math-verify"] = self._by_math_verify(pairs)
        for index, record in enumerate(records):
            into.responses += 1
            into.n[record.problem.id] += 1
            for judging in JUDGINGS:
                policy = judging.partition(", ")[0]
                right = by_judging[judging][index]
                into.right[judging][record.problem.id] += right
                if right != by_judging[REFERENCE][index]:
                    _note(into, record, judging, answers[policy][index], right)

        self._replay(records, verdicts, into)

    def _replay(
        self, records: Sequence[Record], verdicts: Sequence[Verdict], into: ArmAudit
    ) -> None:
        new = {}
        for record, verdict in zip(records, verdicts, strict=True):
            place = (record.problem.id, verdict.canonical)
            if verdict.right and place not in into.witnesses:
                new[place] = verdict.witness
        results = self._replays.run(list(new.values()))
        for (place, witness), result in zip(new.items(), results, strict=True):
            said = str(result.value) if result.outcome == "done" else UNKNOWN
            into.witnesses[place] = (witness, said if witness else "")

    def _by_ours(self, pairs: Sequence[tuple[Problem, str]]) -> list[bool]:
        items = [
            (problem.gold, f"\\boxed{{{text}}}" if text else "", problem) for problem, text in pairs
        ]
        return [verdict.right for verdict in self._ours.verify_many(items)]

    def _by_math_verify(self, pairs: Sequence[tuple[Problem, str]]) -> list[bool]:
        """Math-Verify's own word; what it cannot read or finish is not right."""
        keys = [(problem.gold, text) for problem, text in pairs]
        new = [key for key in dict.fromkeys(keys) if key[1] and key not in self._opinions]
        payloads = [{"gold": gold, "answer": text} for gold, text in new]
        for key, result in zip(new, self._pool.run(payloads), strict=True):
            # A veto is this project's doubt about a yes of Math-Verify.
            self._opinions[key] = result.outcome == "done" and (
                bool(result.value["equal"]) or str(result.value["why"]).startswith("veto")
            )
        return [self._opinions.get(key, False) for key in keys]


def _note(into: ArmAudit, record: Record, judging: str, answer: str, right: bool) -> None:
    into.differing[judging] += 1
    if into.differing[judging] <= into.listed:
        problem = record.problem
        into.differences.append(
            Difference(judging, problem.id, problem.gold, answer, right, record.response)
        )
