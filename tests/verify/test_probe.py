"""The verifier of partial prompts: completion and answer, told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlbhpc.problems.problem import Problem, make_probe
from rlbhpc.verify.kinds import probe
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Status

QUESTION = "Ann has 3 red\n and 4 blue balls. How many balls has she?"
PROBE = make_probe(Problem("set/1", {"question": QUESTION}, "7", "math", {"level": "1"}), 0.45)


@pytest.mark.parametrize(
    ("response", "status", "outcome"),
    [
        (
            " blue balls.  How many\nballs has she? So \\boxed{7}",
            Status.RIGHT,
            "completed, answered",
        ),
        (" blue balls. How many balls has she? It is \\boxed{8}", Status.RIGHT, "completed"),
        (" blue balls. How many balls has she?", Status.RIGHT, "completed"),
        (" green balls. How many balls has she? \\boxed{7}", Status.WRONG, "answered"),
        (" blue balls. How many balls has", Status.WRONG, "neither"),
        ("The answer is 7", Status.WRONG, "answered"),
        ("", Status.WRONG, "neither"),
    ],
)
def test_completion_and_answer_are_told_apart(response: str, status: Status, outcome: str) -> None:
    verdict = verify("probe", PROBE.gold, response, PROBE)
    assert (verdict.status, verdict.canonical, verdict.answer) == (status, outcome, outcome)
    assert verdict.rule == ("completed" if status is Status.RIGHT else "other")
    assert verdict.grader == probe.FINGERPRINT


def test_a_fault_of_the_questions_own_verifier_is_no_outcome() -> None:
    whole = {**PROBE.extras["whole"], "verifier": "countdown"}
    verdict = verify("probe", PROBE.gold, "x", replace(PROBE, extras={"whole": whole}))
    assert verdict.status is Status.ERROR
    assert "raised ValueError: gold answer '7' is not of the form" in verdict.rule
