"""Audit a run's style: a seeded sample of its responses under other readers and another grader."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rlbhpc.errors import UserError
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.again import Stored
from rlbhpc.verify.audit.second_look import Record
from rlbhpc.verify.audit.style import KIND, ArmAudit, StyleJudge
from rlbhpc.verify.kinds.math import FINGERPRINT
from rlbhpc.verify.verdict import Status

FORMAT: Final = "rlbhpc-audit-1"
_CHUNK: Final = 2000


class Side(NamedTuple):
    """A side of a comparison: an arm at one step on one problem set."""

    arm: str
    problem_set: str
    step: int


def audit_run(
    layout: Layout, sides: Sequence[Side], responses: int, seed: int, workers: int, listed: int
) -> dict[str, Any]:
    """Judge about ``responses`` stored responses of each side in every way.

    Of each problem equally many samples are drawn, by a seed that depends on the problem alone: of
    two arms with as many samples the same ones. Problems of other kinds than mathematics are left
    out. What is returned is also kept at :attr:`Layout.audit`, for the report.
    """
    study = Stored(layout, sides[0].arm, sides[0].step).study
    judge = StyleJudge(workers, study.file.verification.timeout)
    rows = []
    for side in sides:
        audit = _audited(Stored(layout, side.arm, side.step), side, judge, responses, seed, listed)
        if audit.responses:
            rows.append(_row(side, audit))
    if not rows:
        raise UserError(f"{layout.root}: no responses to mathematical problems; only those can be "
                        "read in several ways")  # fmt: skip
    record = {"format": FORMAT, "seed": seed, "grader": FINGERPRINT, "cells": rows}
    checked.write(layout.audit, record)
    return record


def _audited(
    stored: Stored, side: Side, judge: StyleJudge, responses: int, seed: int, listed: int
) -> ArmAudit:
    audit = ArmAudit(listed)
    problems = len(stored.study.problems(side.problem_set))
    per_problem = max(1, -(-responses // max(1, problems)))
    # Only samples that every problem was asked for: what stops at a right one ends in a right one.
    asked_of_each = stored.study.n(side.arm, side.problem_set)
    if stop_after := stored.study.stop_after(side.arm, side.problem_set):
        asked_of_each = min(asked_of_each, stop_after)
    waiting: list[Record] = []
    for group in stored.groups():
        if group.problem_set != side.problem_set:
            continue
        for _, records in stored.records(group, asked_of_each):
            waiting += _drawn(records, per_problem, seed)
            if len(waiting) >= _CHUNK:
                judge.judge(waiting, audit)
                waiting.clear()
    judge.judge(waiting, audit)
    return audit


def _drawn(records: Sequence[Record], most: int, seed: int) -> list[Record]:
    generated = [
        record
        for record in records
        if record.problem.verifier == KIND
        and record.verdict.status not in (Status.MISSING, Status.FAILED)
    ]
    if len(generated) <= most:
        return generated
    draw = random.Random(f"{seed} {generated[0].problem.id}")
    return [generated[index] for index in sorted(draw.sample(range(len(generated)), most))]


def _row(side: Side, audit: ArmAudit) -> dict[str, Any]:
    problems = list(audit.n)
    return {
        **side._asdict(),
        "responses": audit.responses,
        "problems": problems,
        "n": [audit.n[problem] for problem in problems],
        "right": {
            judging: [counts[problem] for problem in problems]
            for judging, counts in audit.right.items()
        },
        "differing": {judging: audit.differing[judging] for judging in audit.right},
        "witnesses": [
            {"problem": problem, "answer": answer, "witness": witness, "replay": said}
            for (problem, answer), (witness, said) in audit.witnesses.items()
        ],
        "differences": [difference._asdict() for difference in audit.differences],
    }
