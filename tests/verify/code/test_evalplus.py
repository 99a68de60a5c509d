"""HumanEval+ and MBPP+ beyond the plain case."""

from __future__ import annotations

from typing import Any

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import evalplus
from rlbhpc.verify.verdict import Status
from tests.verify.conftest import RecordingSandbox

RIGHT, WRONG = Status.RIGHT, Status.WRONG


def task(canonical: str, base: list[Any], plus: list[Any], **more: Any) -> Problem:
    """A task whose function is ``f`` unless ``entry_point`` says otherwise."""
    entry = more.get("entry_point", "f")
    extras = {
        "format": "evalplus", "prompt": f'import math\n\ndef {entry}(x):\n    """ Do. """\n',
        "entry_point": entry, "canonical_solution": canonical, "contract": "", "atol": 0,
        "tests": {"base_input": base, "plus_input": plus},
    } | {name: value for name, value in more.items() if name != "id"}  # fmt: skip
    return Problem(more.get("id", "humaneval+/HumanEval/0"), {"question": "?"}, "", "code", extras)


HALF = task("    return x / 2\n", [[2], [3]], [[10**15], [-1]])


def judged(program: str, problem: Problem, sandbox: RecordingSandbox) -> Status:
    return evalplus.judge(program, problem, sandbox).status


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("def f(x): return x / 2", RIGHT),
        ("def f(x): return x * 0.5 + 1e-9", RIGHT),
        ("def f(x): return x // 2", WRONG),
        # Right on the base inputs alone.
        ("def f(x): return x / 2 if 0 < x < 9 else 0", WRONG),
        # A completion of the prompt.
        ("    return x / 2", RIGHT),
        # The prompt's imports are there.
        ("def f(x): return math.ldexp(x, -1)", RIGHT),
        # Prose and broken lines after the program.
        ("def f(x):\n    return x / 2\n\nThis works, since it's half.", RIGHT),
        # Example uses that fail.
        ("def f(x):\n    return x / 2\nassert f(2) == 2\nf(input())", RIGHT),
        # A helper, and a top-level loop.
        ("def g(x):\n    return x / 2\ndef f(x):\n    return g(x)", RIGHT),
        ("T = []\nfor i in range(3): T.append(2)\ndef f(x):\n    return x / T[0]", RIGHT),
        # State that one call would leave to the next.
        ("n = []\ndef f(x):\n    n.append(x)\n    return x / 2 if len(n) == 1 else 0", RIGHT),
        ("def f(x): raise SystemExit", WRONG),
        ("def f(x):\n    while x: pass\n    return 1", Status.TIMEOUT),
        ("def f(", WRONG),
        ("", WRONG),
    ],
)
def test_verdicts(
    program: str, status: Status, best: RecordingSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evalplus, "MIN_CALL_SECONDS", 0.3)
    evalplus._tasks.clear()
    assert judged(program, HALF, best) is status


def test_inputs_are_copies(best: RecordingSandbox) -> None:
    problem = task("    x.sort()\n    return x\n", [[[3, 1]]], [[[2, 1]]])
    assert judged("def f(x):\n    return sorted(x)", problem, best) is RIGHT


def test_special_rules_of_mbpp(best: RecordingSandbox) -> None:
    diff = task(
        "    assert isinstance(x, tuple)\n    return x\n", [[[1, 2]]], [[[3]]],
        entry_point="Diff", id="mbpp+/Mbpp/2",
    )  # fmt: skip
    assert judged("def Diff(x):\n    return [2, 1, 1] if len(x) > 1 else {3}", diff, best) is RIGHT
    elsewhere = task("    return x\n", [[[1, 2]]], [[[3]]], entry_point="Diff")
    assert judged("def Diff(x): return x[::-1]", elsewhere, best) is WRONG
    check = task(
        "    return x or None\n", [[""], ["a"]], [["b"]], entry_point="check_str",
        id="mbpp+/Mbpp/10002",
    )  # fmt: skip
    found = "import re\ndef check_str(x):\n    return re.match('.', x)"
    assert judged(found, check, best) is RIGHT
    assert judged("def check_str(x):\n    return object()", check, best) is WRONG


def test_tuples_sets_and_long_numbers_travel(best: RecordingSandbox) -> None:
    body = "    return (x, {x, x + 1}, {'k': (x,)}, x ** 300, x / 3, complex(x, 1), None)\n"
    problem = task(body, [[2]], [[3]])
    assert judged(f"def f(x):\n{body}", problem, best) is RIGHT
    assert judged(f"def f(x):\n{body.replace('(x, {', '[x, {').replace('None)', 'None]')}", problem,
                  best) is WRONG  # fmt: skip


def test_a_broken_reference_is_nobodys_wrong_answer(best: RecordingSandbox) -> None:
    problem = task("    return 1 / x\n", [[1]], [[0]])
    with pytest.raises(Exception, match="reference failed on input 1 of plus_input"):
        evalplus.judge("def f(x): return 1", problem, best)
