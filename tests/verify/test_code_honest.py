"""Honest programs are right, however unusual; those that print something else are not."""

from __future__ import annotations

import random

import pytest

from rlbhpc.verify.code import livecodebench
from rlbhpc.verify.verdict import Status
from tests.verify.conftest import RecordingSandbox
from tests.verify.honest import AWKWARD, MISJUDGED_ELSEWHERE, WITH_FILES
from tests.verify.test_code_hostile import problem

NUMBERS = [[1], [3, 4], [10**12, -5, 0], list(range(-50, 60))]
SUMS = problem([(f"{len(a)}\n{' '.join(map(str, a))}\n", f"{sum(a)}\n") for a in NUMBERS])


def judge(text: str, sandbox: RecordingSandbox) -> Status:
    sandbox.outcomes.clear()
    judgement = livecodebench.judge(text, SUMS, sandbox)
    if judgement.status is not Status.RIGHT:
        print(judgement.reason, sandbox.outcomes[-1].stderr.decode())
    return judgement.status


@pytest.mark.parametrize("name", MISJUDGED_ELSEWHERE)
def test_styles_that_other_harnesses_misjudge(name: str, best: RecordingSandbox) -> None:
    text = MISJUDGED_ELSEWHERE[name]
    assert judge(text, best) is Status.RIGHT


@pytest.mark.slow
def test_awkward_honest_programs_at_every_tier(sandbox: RecordingSandbox, soak: bool) -> None:
    programs = {**MISJUDGED_ELSEWHERE, **AWKWARD}
    if sandbox.tier.name != "T1":
        programs |= WITH_FILES
    names = list(programs)
    if not (soak or (sandbox.tier.namespaces and sandbox.tier.landlock)):
        names = random.Random(1).sample(names, len(names) // 5)
    wrong = [n for n in names if judge(programs[n], sandbox) != Status.RIGHT]
    assert wrong == []


def test_there_are_enough() -> None:
    assert len(AWKWARD) + len(WITH_FILES) >= 20


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("input(); print(sum(map(int, input().split())) + 1)", Status.WRONG),
        ("print(", Status.WRONG),
        # Annotations are evaluated, as they are where nothing is imported from the future.
        ("input(); a = []\ndef f(x: a.append(sum(map(int, input().split())))): pass\nprint(*a)",
         Status.RIGHT),
        ("input(); print(sum(map(int, input().split()))); raise ValueError", Status.WRONG),
        ("import os\ninput(); print(sum(map(int, input().split())), flush=True); os.abort()",
         Status.WRONG),
        ("import time\ntime.sleep", Status.WRONG),
    ],
)  # fmt: skip
def test_wrong_programs(text: str, status: Status, best: RecordingSandbox) -> None:
    assert judge(text, best) is status
