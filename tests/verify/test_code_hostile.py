"""No hostile program gets a verdict it has not earned, or anything else, at any tier."""

from __future__ import annotations

import json
import random
import secrets
import threading

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import livecodebench
from rlbhpc.verify.sandbox.job import Cause, Job, Limits
from rlbhpc.verify.verdict import Status
from tests.verify.conftest import RecordingSandbox, World, open_sandbox
from tests.verify.hostile import HOSTILE, HOSTILE_CALLS

PROGRAMS = [(kind, name, text) for kind, texts in HOSTILE.items() for name, text in texts.items()]
MIB = 1 << 20


def problem(tests: list[tuple[str, str]], func_name: str = "") -> Problem:
    """A problem in the shape of LiveCodeBench's loader."""
    rows = [{"input": i, "output": o, "testtype": "stdin"} for i, o in tests]
    extras = {
        "format": "livecodebench",
        "func_name": func_name,
        "starter_code": "",
        "public_tests": json.dumps(rows[:1]),
        "tests": {"private_test_cases": json.dumps(rows[1:])},
    }
    return Problem("livecodebench/x", {"question": "?"}, "", "code", extras)


@pytest.fixture(autouse=True)
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short and small, so that two hundred programs that want everything are done soon."""
    monkeypatch.setattr(livecodebench, "SECONDS", 0.3)
    monkeypatch.setattr(Limits, "__init__", _tight_limits(Limits.__init__))


def _tight_limits(original):  # type: ignore[no-untyped-def]
    def init(self, cpu=6.0, memory=768 * MIB, output=2 * MIB, result=MIB, threads=64):  # type: ignore[no-untyped-def]
        original(self, cpu, memory, output, result, threads)

    return init


def chosen(programs: list, whole: bool) -> list:  # type: ignore[type-arg]
    """All programs, or a seeded tenth of them."""
    return programs if whole else random.Random(6).sample(programs, max(1, len(programs) // 10))


def assert_contained(
    name: str, text: str, func_name: str, sandbox: RecordingSandbox, world: World
) -> None:
    secret = f"EXPECTED-{secrets.token_hex(8)}"
    expected = json.dumps([secret]) if func_name else secret
    sandbox.outcomes.clear()
    verdict = livecodebench.judge(
        world.fill_in(text), problem([("7", expected), ("8", expected)], func_name), sandbox
    )
    said = b"".join(one.stdout + one.result for one in sandbox.outcomes)
    assert verdict.status in (Status.WRONG, Status.TIMEOUT), f"{name}: {verdict}"
    assert b"ESCAPED" not in said, f"{name}: {said[:200]!r}"
    assert secret.encode() not in said
    assert world.damage() == [], name
    # The next program finds a clean house and a sandbox that works.
    after = Job("import os\nprint(os.getcwd() == '/' or os.listdir('.'))")
    assert sandbox.run(after).stdout in (b"True\n", b"[]\n"), name


def test_there_are_enough_of_every_class() -> None:
    assert sum(map(len, HOSTILE.values())) + len(HOSTILE_CALLS) >= 60
    assert min(map(len, HOSTILE.values())) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_programs_at_the_best_tier(kind: str, best: RecordingSandbox, world: World) -> None:
    for name, text in HOSTILE[kind].items():
        assert_contained(name, text, "", best, world)


@pytest.mark.slow
def test_hostile_programs_at_every_tier(
    sandbox: RecordingSandbox, world: World, soak: bool
) -> None:
    for _, name, text in chosen(PROGRAMS, soak):
        assert_contained(name, text, "", sandbox, world)


def test_landlock_alone_holds_files(world: World) -> None:
    """At T2 nothing but Landlock tells one path from another, so each of these leans on it."""
    with open_sandbox("T2") as sandbox:
        for name, text in HOSTILE["files"].items():
            assert_contained(name, text, "", sandbox, world)


@pytest.mark.slow
def test_hostile_functions(sandbox: RecordingSandbox, world: World, soak: bool) -> None:
    for name, text in chosen(list(HOSTILE_CALLS.items()), soak or sandbox.tier.namespaces):
        assert_contained(name, text, "f", sandbox, world)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["512 MB of output", "fork bomb", "catch the error and go on"])
def test_a_hostile_neighbour_disturbs_no_verdict(name: str, best: RecordingSandbox) -> None:
    text = next(text for _, other, text in PROGRAMS if other == name)
    sums = problem([(f"{n}", f"{n * n}") for n in range(20)])
    over = threading.Event()
    statuses = []

    def neighbour() -> None:
        with open_sandbox("T1") as sandbox:
            while not over.is_set():
                sandbox.run(Job(text), limits=Limits(cpu=0.3))

    thread = threading.Thread(target=neighbour)
    thread.start()
    try:
        for _ in range(3):
            verdict = livecodebench.judge("print(int(input()) ** 2)", sums, best)
            statuses.append(verdict.status)
    finally:
        over.set()
        thread.join()
    assert statuses == [Status.RIGHT] * 3


def test_a_flood_is_cut_at_the_cap(best: RecordingSandbox) -> None:
    outcome = best.run(Job("while True: print('y' * 1000)"), limits=Limits(output=MIB))
    assert outcome.cause is Cause.OUTPUT
    assert len(outcome.stdout) == MIB
