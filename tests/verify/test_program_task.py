"""Tasks on programs: each kind right and wrong, and proposals that must not pass."""

from __future__ import annotations

import json

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.registry import load_set
from rlbhpc.problems.sets.generated import KINDS, make_proposing_task, make_solving_task
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Status, Verdict

TRIPLET = {
    "program": "def f(x):\n    return [x, x * 2]",
    "inputs": ["[1]", "[2]", "[3]", "[4]"],
    "outputs": ["[1, 2]", "[2, 4]", "[3, 6]", "[4, 8]"],
    "message": "doubles",
}


def solved(kind: str, response: str) -> str:
    problem = make_solving_task("t", kind, TRIPLET)  # type: ignore[arg-type]
    return verify(problem.verifier, problem.gold, response, problem).status.name


SOLUTIONS = {
    "deduction": {
        "[1, 2]": "RIGHT",
        "so <answer>[1,2]</answer>": "RIGHT",
        "output: [1, 2.0]": "WRONG",
        "one and two": "NO_ANSWER",
        "[" * 100_000: "NO_ANSWER",
        "": "NO_ANSWER",
    },
    "abduction": {
        "[1]": "RIGHT",
        "[2]": "WRONG",
        "1": "WRONG",  # no list of arguments
        "[1, 2]": "WRONG",  # the call raises
    },
    "induction": {
        "```python\ndef f(x):\n    return [x, x + x]\n```": "RIGHT",
        "def f(x):\n    return [x, 2]": "WRONG",
        "def f(x):\n    return": "WRONG",
        "def f(x:": "WRONG",
        "it doubles": "NO_ANSWER",
    },
}


@pytest.mark.parametrize("kind", SOLUTIONS)
def test_solutions(kind: str) -> None:
    statuses = {response: solved(kind, response) for response in SOLUTIONS[kind]}
    assert statuses == SOLUTIONS[kind]


def test_half_of_the_examples_are_hidden() -> None:
    problem = make_solving_task("t", "induction", TRIPLET)
    question = problem.fields["question"]
    assert "[2] -> [2, 4]" in question and "[3]" not in question and "doubles" in question
    by_heart = "def f(x):\n    return {1: [1, 2], 2: [2, 4]}[x]"
    assert solved("induction", by_heart) == "WRONG"


def proposed(response: str, kind: str = "deduction") -> Verdict:
    problem = make_proposing_task("t", kind, [TRIPLET], 1)  # type: ignore[arg-type]
    return verify(problem.verifier, "", response, problem)


def test_a_valid_proposal_is_a_triplet() -> None:
    verdict = proposed("def f(a, b):\n    return {'sum': (a + b,)}\ninput: [3,  4]")
    assert verdict.right
    assert json.loads(verdict.canonical) == {
        "program": "def f(a, b):\n    return {'sum': (a + b,)}",
        "inputs": ["[3, 4]"],
        "outputs": ['{"sum": [7]}'],
    }
    found = proposed("input: [1]\ninput: [1]\ninput: [5]\nmessage: twice", "induction")
    assert json.loads(found.canonical)["outputs"] == ["[1, 2]", "[5, 10]"]
    assert json.loads(found.canonical)["message"] == "twice"


@pytest.mark.parametrize(
    ("response", "rule"),
    [
        ("def f(x):\n    import random\n    return random.random()\ninput: [1]", "banned import"),
        ("def f(x):\n    return str(object())\ninput: [1]", "not determined"),
        ("def f(x):\n    while True: pass\ninput: [1]", "time"),
        ("def f(x):\n    return 'a' * 1000\ninput: [1]", "value too long"),
        ("def f(x):\n    return 'a' * 65000\ninput: [1]", "value too long"),
        ("def f(x):\n    return 'a' * 66000\ninput: [1]", "ended by output"),
        ("def f(x):\n    return 1j\ninput: [1]", "no JSON"),
        ("def f(x):\n    return x\ninput: [1, 2]", "raised TypeError"),
        ("def f(x):\n    return open('/etc/passwd').read()\ninput: [1]", "raised"),
    ],
)
def test_an_invalid_proposal_is_wrong(response: str, rule: str) -> None:
    verdict = proposed(response)
    assert verdict.status is Status.WRONG and verdict.rule.startswith(rule)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ("def f(x):\n    return x", "deduction"),
        ("input: [1]", "deduction"),
        ("def f(x):\n    return x\ninput: one", "abduction"),
        ("input: [1]\ninput: [2]", "induction"),
        ("input: [1]\nmessage: one is too few", "induction"),
        ("", "induction"),
    ],
)
def test_what_has_no_form_is_no_proposal(response: str, kind: str) -> None:
    assert proposed(response, kind).status is Status.NO_ANSWER


def test_generated_tasks_are_solved_by_their_gold_answers() -> None:
    test, train = (load_set("program-tasks", None, half, 30) for half in ("test", "train"))
    for problem in test:
        assert verify(problem.verifier, problem.gold, problem.gold, problem).right
    programs = [{p.extras["program"] for p in half} for half in (test, train)]
    assert not programs[0] & programs[1]
    assert [p.extras["kind"] for p in test[:3]] == list(KINDS)
    for problem in test:
        message = problem.extras.get("message", "")
        assert bool(message) == (problem.extras["kind"] == "induction")
        assert message in problem.fields["question"]
        assert all(sign in problem.extras["program"] for sign in message.split(", then ") if sign)
    assert load_set("program-tasks", None, "test", 12) == test[:12]
    with pytest.raises(UserError, match="with `limit`"):
        load_set("program-tasks", None, "test")
