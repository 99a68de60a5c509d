"""The second look: thin lists, regrading, two graders side by side, marks of guessing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify import verify
from rlbhpc.verify.audit.guess import guessable
from rlbhpc.verify.audit.second_look import (
    Record,
    Regrader,
    compare_graders,
    thin_list,
)
from rlbhpc.verify.audit.style import ArmAudit, StyleJudge
from rlbhpc.verify.running.batch import BatchVerifier
from rlbhpc.verify.verdict import Status, Verdict


def problem(name: str, gold: str = "5", kind: str = "math") -> Problem:
    return Problem(f"made/{name}", {"question": name}, gold, kind)


def records(one: Problem, answers: list[str], right: bool | None = None) -> Iterator[Record]:
    for answer in answers:
        response = f"So \\boxed{{{answer}}}."
        verdict = verify(one.verifier, one.gold, response, one)
        if right is not None:
            verdict = Verdict(Status.RIGHT if right else Status.WRONG, answer, answer, "stored")
        yield Record(one, response, verdict)


def test_the_thin_list_holds_what_was_hardly_ever_solved():
    stored = [
        *records(problem("never"), ["4"] * 20),
        *records(problem("once"), ["4"] * 19 + ["5"]),
        *records(problem("twice"), ["4"] * 8 + ["5", "10/2"]),
        *records(problem("often"), ["5"] * 3 + ["4"]),
    ]
    thin = thin_list(stored)
    assert [(entry.problem.id, entry.n, entry.right) for entry in thin] == [
        ("made/once", 20, 1), ("made/twice", 10, 2), ("made/twice", 10, 2),
    ]  # fmt: skip
    assert {entry.second for entry in thin} == {"agrees"}
    assert "\\boxed{5}" in thin[0].response
    assert [entry.problem.id for entry in thin_list(stored, at_most=1)] == ["made/once"]


def test_the_second_path_disagrees_with_a_false_positive():
    """A verdict that should not stand: the second look shares nothing that could repeat it."""
    stored = [
        *records(problem("a"), ["4"] * 9, right=False),
        *records(problem("a"), ["6"], right=True),
        *records(problem("b", "east"), [r"\text{seat}"], right=True),
        *records(problem("c", "5"), [r"\begin{oops}"], right=True),
        *records(problem("d", "B", "choice"), ["A"], right=True),
    ]
    opinions = {entry.problem.id: (entry.second, entry.why) for entry in thin_list(stored)}
    assert opinions == {
        "made/a": ("disagrees", "math-verify: symbolic"),
        "made/b": ("disagrees", "math-verify: symbolic"),
        "made/c": ("cannot tell", "{'equal': False, 'why': 'unparsed'}"),
        "made/d": ("disagrees", "again: box/option"),
    }


def regraded(stored, kind=None):
    regrader = Regrader(kind)
    regrader.judge(stored)
    return regrader.result


def test_regrading_shows_what_changed_per_problem_and_for_the_curve():
    one, two = problem("one"), problem("two", "B", "choice")
    stored = [
        *records(one, ["5", "6"]),
        *records(one, ["7", "7"], right=True),
        *records(two, ["B"]),
    ]
    change = regraded(stored)
    assert change.counts() == ([4, 1], [3, 1], [1, 1])
    assert [moved.problem for moved in change.changed] == ["made/one"]
    assert change.table[Status.RIGHT, Status.WRONG] == 2
    assert [(d.answer, d.samples) for d in change.disagreements] == [("7", 2)]
    assert regraded(list(records(one, ["5", "6"]))).changed == []


def test_two_graders_side_by_side():
    one = problem("one", "5")
    graded = records(one, ["5", "500", "500", "4"])
    table = compare_graders(graded, BatchVerifier("math"), BatchVerifier("math-paper"))
    (disagreement,) = table.disagreements
    assert (disagreement.answer, disagreement.samples) == ("500", 2)
    assert disagreement.before.startswith("wrong")
    assert disagreement.after == "right (box/gold · 100)"
    assert table.counts() == ([4], [1], [3])


def test_a_lenient_grader_beside_the_sound_one_over_a_store():
    stored = list(records(problem("one"), ["5", "500", "0.05"]))
    change = regraded(stored, lambda problem: "math-paper")
    assert change.counts() == ([3], [1], [3])


def test_marks_of_guessing():
    n = np.array([100, 100, 100, 100, 0, 1000])
    right = np.array([0, 1, 4, 5, 0, 1])
    assert guessable(n, right).tolist() == [False, True, True, False, False, True]
    assert guessable(n, right, below=0.02).tolist() == [False, True, False, False, False, True]
    with pytest.raises(UserError, match="between 0 and n"):
        guessable([5], [6])
    with pytest.raises(UserError, match="allowed is a share"):
        guessable([5], [1], below=0)


# --- the second grader's time -------------------------------------------------------------------


def test_the_audit_gives_math_verify_the_studys_time_and_counts_a_timeout_as_not_right(monkeypatch):
    """A comparison that takes a second is no answer within a tenth of it, four times as long."""
    monkeypatch.setattr(
        "rlbhpc.verify.audit.style.MATH_VERIFY", "tests.verify.pool_tasks:busy_second"
    )
    problem = Problem("made/1", {"question": "?"}, "5", "math")
    record = Record(problem, r"\boxed{5}", verify("math", "5", r"\boxed{5}"))
    right = {}
    for seconds in (0.1, 30.0):
        audit = ArmAudit(listed=1)
        StyleJudge(seconds=seconds).judge([record], audit)
        right[seconds] = audit.right["ours, math-verify"]["made/1"]
    assert right == {0.1: 0, 30.0: 1}


def test_an_arms_audit_as_a_whole():
    problem = Problem("made/1", {"question": "?"}, "5", "math")
    responses = [r"\boxed{5}", r"\boxed{5}, and 3 cases", r"\boxed{5}. And 4 cases.", "It is 6."]
    audit = ArmAudit(listed=1)
    judge = StyleJudge()
    for response in responses:
        judge.judge([Record(problem, response, Verdict(Status.MISSING))], audit)
    assert (audit.responses, audit.n["made/1"]) == (4, 4)
    assert {judging: right["made/1"] for judging, right in audit.right.items()} == {
        "ours, ours": 3, "ours, math-verify": 3, "last box, ours": 3, "last box, math-verify": 3,
        "last value, ours": 1, "last value, math-verify": 1,
    }  # fmt: skip
    assert audit.differing == {"last value, ours": 2, "last value, math-verify": 2}
    assert [tuple(one) for one in audit.differences] == [
        (f"last value, {grader}", "made/1", "5", "3", False, responses[1])
        for grader in ("ours", "math-verify")
    ]
    assert audit.witnesses == {("made/1", "5"): ('"5"', "equal text")}
