"""Batches and their cache: one judgement per distinct pair, the same verdicts as one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify import verify
from rlbhpc.verify.answer.extract import extract
from rlbhpc.verify.kinds import math
from rlbhpc.verify.kinds.math import FINGERPRINT, distinct
from rlbhpc.verify.running.batch import BatchVerifier, verify_many
from rlbhpc.verify.verdict import Status, Verdict


def problem(name: str, gold: str) -> Problem:
    return Problem(f"made/{name}", {"question": name}, gold, "math")


def items(count: int = 400, seed: int = 1):
    draw = random.Random(seed)
    problems = [problem("a", "42"), problem("b", r"\frac12"), problem("c", "(1,2)")]
    answers = ["42", "41", "0.5", r"\frac{1}{2}", "(1, 2)", "(2,1)", "x", r"\int_0^1 x dx", ""]
    for _ in range(count):
        one = draw.choice(problems)
        text = draw.choice(answers)
        yield one.gold, f"We see that $\\boxed{{{text}}}$.", one


def test_a_batch_says_what_single_calls_say():
    batch = list(items())
    assert [(v.status, v.rule, v.answer) for v in verify_many("math", batch)] == [
        (v.status, v.rule, v.answer) for v in (verify("math", *item) for item in batch)
    ]


def test_each_distinct_pair_is_judged_once():
    verifier = BatchVerifier("math")
    batch = list(items())
    verifier.verify_many(batch)
    pairs = {(gold, distinct(response)) for gold, response, _ in batch}
    assert verifier.tally.judged == len(pairs)
    verifier.verify_many(batch)
    assert verifier.tally.judged == len(pairs)
    assert verifier.tally.responses == 2 * len(batch)
    assert verifier.tally.factor == pytest.approx(2 * len(batch) / len(pairs))


def test_equal_answers_to_different_problems_are_different_pairs():
    ours, theirs = problem("a", "5"), problem("b", "6")
    verdicts = verify_many("math", [(p.gold, r"\boxed{5}", p) for p in (ours, theirs)])
    assert [verdict.right for verdict in verdicts] == [True, False]


def test_what_a_problem_says_of_its_gold_tells_pairs_apart():
    plain = problem("a", "45")
    timed = replace(plain, extras={"unit": "minute"})
    batch = [("45", r"\boxed{\frac34\text{ hours}}", p) for p in (plain, timed)]
    assert [verdict.right for verdict in verify_many("math", batch)] == [False, True]


def test_a_batch_that_cannot_be_read_leaves_nothing_unjudged():
    """Nor does one that a notebook interrupts."""
    verifier = BatchVerifier("math")
    items = [("5", "It is \\boxed{5}.", None), ("5", None, None)]
    with pytest.raises(TypeError):
        verifier.verify_many(items)
    assert verifier.verify_many(items[:1])[0].right


def test_an_answer_is_sought_once(monkeypatch):
    sought = []
    monkeypatch.setattr(math, "extract", lambda *asked: sought.append(asked[0]) or extract(*asked))
    responses = [r"\boxed{5}", r"\boxed{6}", r"So \boxed{6}", "none"]
    BatchVerifier("math").verify_many([("5", response, None) for response in responses])
    assert sought == responses


def test_a_verifier_that_raises_is_an_error_and_is_tried_again(monkeypatch):
    verifier = BatchVerifier("math")
    calls = []

    item = ("5", r"\boxed{6-1}", None)

    def failing(*item):
        calls.append(item)
        raise ZeroDivisionError("ours")

    with monkeypatch.context() as patch:
        patch.setattr("rlbhpc.verify.kinds.math.compare", failing)
        assert verifier.verify_many([item])[0].status is Status.ERROR
    assert verifier.verify_many([item])[0].status is Status.RIGHT
    assert len(calls) == 1


def test_verdicts_are_shared_objects_with_the_graders_name():
    verdicts = verify_many("math", [("5", r"\boxed{5}", None)] * 3)
    assert verdicts[0] is verdicts[1] is verdicts[2]
    expected = Verdict(Status.RIGHT, "5", "5", "box/text", FINGERPRINT)
    assert verdicts[0] == expected


STATED = [("#### 18", True), ("The total is 18.", False), ("The answer is 18.", True)]


def test_one_answer_stated_and_unstated_has_two_verdicts():
    batch = [("18", response, None, "eos") for response, _ in STATED]
    verdicts = BatchVerifier("math").verify_many(batch)
    assert [verdict.status for verdict in verdicts] == [Status.RIGHT] * 3
    assert [verdict.stated for verdict in verdicts] == [stated for _, stated in STATED]
    assert [verdict.strict for verdict in verdicts] == [
        Status.RIGHT if stated else Status.NO_ANSWER for _, stated in STATED
    ]


@pytest.mark.parametrize("kind", ["math", "visual", "choice"])
@pytest.mark.parametrize("response", ["Now it is $B$.", "The answer is B."])
def test_whether_an_answer_was_stated_is_known_of_each_kind_that_extracts(kind, response):
    verdict = verify(kind, "B", response, None, "eos")
    assert verdict.right
    assert (verdict.strict is Status.RIGHT) == verdict.stated == response.startswith("The answer")


@pytest.mark.parametrize("status", [Status.ERROR, Status.TIMEOUT])
def test_strictness_leaves_the_faults_of_a_verifier_alone(status):
    assert Verdict(status, stated=False).strict is status
