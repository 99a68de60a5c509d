"""The verifier's contract: statuses, provenance, refusal below the floor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.kinds import code
from rlbhpc.verify.registry import verify
from rlbhpc.verify.running.batch import verify_many
from rlbhpc.verify.sandbox.job import Limits, Tier
from rlbhpc.verify.sandbox.probe import Report
from rlbhpc.verify.verdict import Status
from tests.verify.code.generated import evalplus as evalplus_problems
from tests.verify.test_code_hostile import problem

SQUARES = problem([(str(n), str(n * n)) for n in range(3)])


@contextmanager
def long_numbers() -> Iterator[None]:
    """Let this process write numbers of any length as text."""
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(most)


FENCED = "```python\nprint(int(input()) ** 2)\n```"


def test_a_verdict_says_everything() -> None:
    verdict = verify("code", "", f"Sure.\n{FENCED}\n", SQUARES)
    assert verdict.status is Status.RIGHT
    assert verdict.answer == "print(int(input()) ** 2)"
    assert verdict.canonical.startswith("sha256:")
    assert verdict.rule == "3 tests"
    assert verdict.grader == code.FINGERPRINT
    assert "sandbox T" in verdict.grader
    assert verdict.seconds > 0


def test_other_statuses() -> None:
    assert (
        verify("code", "", "```python\nprint(1)\n```", SQUARES).rule == "test 1 of 3: other output"
    )
    assert verify("code", "", "<think>hm", SQUARES).status is Status.NO_ANSWER
    assert verify("code", "", FENCED, None).status is Status.ERROR
    broken = Problem("x/1", {"question": "?"}, "", "code", {"format": "livecodebench"})
    assert verify("code", "", FENCED, broken).status is Status.ERROR


def test_no_code_is_no_answer() -> None:
    evalplus = evalplus_problems(mbpp=False)[0][0]
    for prose in ("I do not know.", "The answer is 42.", "\ufeff"):
        for judged in (SQUARES, evalplus):
            assert verify("code", "", prose, judged).status is Status.NO_ANSWER, prose
    assert verify("code", "", "```text\n42\n```", SQUARES).status is Status.NO_ANSWER


def test_a_byte_order_mark_and_indented_fences() -> None:
    for text in (f"\ufeff{FENCED}", FENCED.replace("print", "\ufeffprint")):
        assert verify("code", "", text, SQUARES).right
    listed = "1. Squares:\n\n   " + FENCED.replace("\n", "\n   ")
    assert verify("code", "", listed, SQUARES).right
    assert verify("code", "", listed.replace("   ", "\t"), SQUARES).right


LONG = 7**6000


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("from collections import deque\n    return deque(range(x))", "[0, 1, 2]"),
        ("import numpy as np\n    return np.arange(x)", "[0, 1, 2]"),
        ("import numpy as np\n    return np.eye(2)[0] / x", "[0.33333333, 0]"),
        ("return {'a': (x, 0.1 + 0.2), 'b': [(1,)]}", '{"a": [3, 0.3], "b": [[1]]}'),
        ("return 7 ** (x * 2000)", "LONG"),
        ("return [str(7 ** (x * 2000)), -7 ** 6000]", '["LONG", -LONG]'),
    ],
)
def test_returned_values_of_many_kinds(body: str, output: str) -> None:
    with long_numbers():
        output = output.replace("LONG", str(LONG))
    task = problem([("3", output)] * 2, "f")
    verdict = verify("code", "", f"```python\ndef f(x):\n    {body}\n```", task)
    assert verdict.right, verdict
    wrong = verify("code", "", "```python\ndef f(x):\n    return 7 ** 5999\n```", task)
    assert wrong.status is Status.WRONG


def test_output_may_be_as_long_as_the_expected_one() -> None:
    million = "\n".join(str(n) for n in range(1_500_000))
    task = problem([("1500000", million)] * 2)
    right = "n = int(input())\nprint('\\n'.join(map(str, range(n))))"
    assert len(million) > Limits.output
    assert verify("code", "", f"```python\n{right}\n```", task).right


def test_output_may_be_four_times_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "output", 10)
    task = problem([("", "x" * 20)] * 2)
    rules = [
        verify("code", "", f"```python\nprint('x' * 20 + ' ' * {blanks})\n```", task).rule
        for blanks in (59, 60)
    ]
    # How the program ended beside the cap is a race.
    assert (rules[0], rules[1][:19]) == ("2 tests", "test 1 of 2: output")


def test_trailing_blanks_make_no_other_program() -> None:
    one = verify("code", "", FENCED, SQUARES)
    other = verify("code", "", FENCED.replace("2\n", "2\n\n   \n"), SQUARES)
    assert one.canonical == other.canonical
    assert code.distinct(f"Sure.\n{FENCED}") == code.distinct(f"{FENCED}\nNo other.")


def test_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_idle_sandboxes", {})
    wrong = "```python\nprint(0)\n```"
    items = [("", FENCED if n % 3 else wrong, SQUARES) for n in range(30)]
    verdicts = verify_many("code", items, workers=2)
    assert [v.right for v in verdicts] == [bool(n % 3) for n in range(30)]
    assert len(code._idle_sandboxes[""]) == 2, "each worker has a sandbox of its own"


def test_below_the_floor_it_refuses_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Report(Tier(), False, "T1: no seccomp", (), 0.1, "here")
    monkeypatch.setattr(code, "self_test", lambda: nothing)
    monkeypatch.setattr(code, "_idle_sandboxes", {})
    code.reached_tier.cache_clear()
    try:
        with pytest.raises(UserError, match=r"T1: no seccomp.*unsafe: true"):
            verify("code", "", FENCED, SQUARES)
        monkeypatch.setenv(code.UNSAFE, "1")
        verdict = verify("code", "", FENCED, SQUARES)
        assert verdict.right
        assert "sandbox T0-unsafe" in verdict.grader
    finally:
        code.reached_tier.cache_clear()
