"""HumanEval+ and MBPP+ beyond the plain case."""

from __future__ import annotations

from typing import Any

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import evalplus
from rlbhpc.verify.code.programs import Strictness
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


def judged(program: str, problem: Problem, sandbox: RecordingSandbox) -> list[Status]:
    """The sound verdict and the compatible one."""
    return [evalplus.judge(program, problem, sandbox, how).status for how in Strictness]


@pytest.mark.parametrize(
    ("program", "sound", "compat"),
    [
        ("def f(x): return x / 2", RIGHT, RIGHT),
        ("def f(x): return x * 0.5 + 1e-9", RIGHT, RIGHT),
        ("def f(x): return x // 2", WRONG, WRONG),
        # Right on the base inputs alone.
        ("def f(x): return x / 2 if 0 < x < 9 else 0", WRONG, WRONG),
        # A completion of the prompt.
        ("    return x / 2", RIGHT, RIGHT),
        # The prompt's imports: there, unless the program stands alone.
        ("def f(x): return math.ldexp(x, -1)", RIGHT, WRONG),
        # Prose and broken lines after the program.
        ("def f(x):\n    return x / 2\n\nThis works, since it's half.", RIGHT, RIGHT),
        # Example uses that fail.
        ("def f(x):\n    return x / 2\nassert f(2) == 2\nf(input())", RIGHT, RIGHT),
        # A helper, and a top-level loop that the sanitizer throws away.
        ("def g(x):\n    return x / 2\ndef f(x):\n    return g(x)", RIGHT, RIGHT),
        ("T = []\nfor i in range(3): T.append(2)\ndef f(x):\n    return x / T[0]", RIGHT, WRONG),
        # State that one call leaves to the next.
        (
            "n = []\ndef f(x):\n    n.append(x)\n    return x / 2 if len(n) == 1 else 0",
            RIGHT,
            WRONG,
        ),
        ("def f(x): raise SystemExit", WRONG, WRONG),
        ("def f(x):\n    while x: pass\n    return 1", Status.TIMEOUT, Status.TIMEOUT),
        ("def f(", WRONG, WRONG),
        ("", WRONG, WRONG),
    ],
)
def test_verdicts(
    program: str, sound: Status, compat: Status, best: RecordingSandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(evalplus, "MIN_CALL_SECONDS", 0.3)
    evalplus._tasks.clear()
    assert judged(program, HALF, best) == [sound, compat]


def test_inputs_are_copies(best: RecordingSandbox) -> None:
    problem = task("    x.sort()\n    return x\n", [[[3, 1]]], [[[2, 1]]])
    assert judged("def f(x):\n    return sorted(x)", problem, best) == [RIGHT, RIGHT]


def test_special_rules_of_mbpp(best: RecordingSandbox) -> None:
    diff = task(
        "    assert isinstance(x, tuple)\n    return x\n", [[[1, 2]]], [[[3]]],
        entry_point="Diff", id="mbpp+/Mbpp/2",
    )  # fmt: skip
    assert (
        judged("def Diff(x):\n    return [2, 1, 1] if len(x) > 1 else {3}", diff, best)
        == [RIGHT] * 2
    )
    elsewhere = task("    return x\n", [[[1, 2]]], [[[3]]], entry_point="Diff")
    assert judged("def Diff(x): return x[::-1]", elsewhere, best) == [WRONG] * 2
    check = task(
        "    return x or None\n", [[""], ["a"]], [["b"]], entry_point="check_str",
        id="mbpp+/Mbpp/10002",
    )  # fmt: skip
    found = "import re\ndef check_str(x):\n    return re.match('.', x)"
    assert judged(found, check, best) == [RIGHT] * 2
    assert judged("def check_str(x):\n    return object()", check, best) == [WRONG] * 2


def test_tuples_sets_and_long_numbers_travel(best: RecordingSandbox) -> None:
    body = "    return (x, {x, x + 1}, {'k': (x,)}, x ** 300, x / 3, complex(x, 1), None)\n"
    problem = task(body, [[2]], [[3]])
    assert judged(f"def f(x):\n{body}", problem, best) == [RIGHT] * 2
    assert judged(f"def f(x):\n{body.replace('(x, {', '[x, {').replace('None)', 'None]')}", problem,
                  best) == [WRONG] * 2  # fmt: skip


def test_a_broken_reference_is_nobodys_wrong_answer(best: RecordingSandbox) -> None:
    problem = task("    return 1 / x\n", [[1]], [[0]])
    with pytest.raises(Exception, match="reference failed on input 1 of plus_input"):
        evalplus.judge("def f(x): return 1", problem, best, Strictness.SOUND)
