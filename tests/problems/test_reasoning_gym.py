"""reasoning-gym: the same problems in every process, and its own scorers behind our walls."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.registry import load_set
from rlbhpc.problems.sets import generated
from rlbhpc.verify.kinds import reasoning_gym as reasoning_gym_verifier
from rlbhpc.verify.kinds.reasoning_gym import verify
from rlbhpc.verify.verdict import Status


def problems(task: str, count: int = 2, seed: int = 0) -> list[Problem]:
    return load_set("reasoning-gym", None, task, count, seed)


def judged(problem: Problem, answer: str) -> tuple[Status, str]:
    verdict = verify(problem.gold, f"<think>So …</think>\n<answer>{answer}</answer>", problem)
    return verdict.status, verdict.rule


@pytest.mark.slow
def test_problems_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # A generator that walks over a set of strings: another order under another hash seed.
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    first = problems("word_ladder", 3)
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    assert problems("word_ladder", 3) == first
    others = problems("word_ladder", 3, seed=1) + problems("train/word_ladder", 3)
    assert len({problem.id for problem in first + others}) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "wrong", "rule"),
    [
        ("knights_knaves", "nobody is a knave", "score 0"),
        ("simple_integration", "X**99 + C", "score 0"),  # evaluated by the scorer
        ("rearc", "1 1 1", "score 0.05"),  # its entry holds tuples, and a wrong grid earns a part
    ],
)
def test_the_scorer_of_the_task_decides(task: str, wrong: str, rule: str) -> None:
    for problem in problems(task):
        assert judged(problem, problem.gold) == (Status.RIGHT, "score 1")
        assert judged(problem, wrong) == (Status.WRONG, rule)
        box = verify(problem.gold, f"So it is \\boxed{{{wrong}}}.", problem)
        assert (box.status, box.rule) == (Status.WRONG, rule)
        assert verify(problem.gold, "I give up.", problem).status is Status.NO_ANSWER


# Writes the line of a perfect score to where the score is read from.
FORGED = """(eval)('_'+'_imp'+'ort_'+'_("os").write(3,b"{\\"returned\\":1.0,\\"cpu\\":0.0}\\n")')"""
PROGRAMS = [
    FORGED,
    "exec('raise SystemExit')",
    "__import__('os').abort()",
    "(lambda: 0)()",
    "[eval][0]('1')",
    "S('1')",
    "open('/etc/passwd').read()",
]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["countdown", "simple_integration"])
def test_an_answer_that_is_a_program_is_wrong(task: str) -> None:
    [problem] = problems(task, 1)
    for answer in PROGRAMS:
        assert judged(problem, answer) == (Status.WRONG, "no answer but code"), answer


def test_functions_of_an_expression_are_no_program() -> None:
    [problem] = problems("simple_integration", 1)
    same = problem.gold.replace(" + C", " + sqrt(4)*0 + (1 - cos(0))*exp(X) + C")
    assert judged(problem, same) == (Status.RIGHT, "score 1")
    assert re.match(r"reasoning-gym \d+ \([\d.]+, sandbox T\d", reasoning_gym_verifier.FINGERPRINT)
    assert judged(problem, f"{problem.gold} or 1")[1] == "no answer but code"


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["9**9**9**9", "(" * 5_000])
def test_any_text_gets_a_verdict(answer: str) -> None:
    [problem] = problems("countdown", 1)
    status, _ = judged(problem, answer)
    assert status in (Status.WRONG, Status.TIMEOUT)


@pytest.mark.parametrize(
    ("task", "limit", "message"),
    [
        (None, 5, "a task as `subset`, such as knights_knaves"),
        ("sudoku", None, "say how many problems with `limit`"),
        ("sudoko", 5, "no task 'sudoko'; allowed: ab, acre, "),
        ("puzzle24", 5, "is left out: its scorer does not look at the numbers"),
        ("all/sudoku", 5, "found all/sudoku"),
    ],
)
def test_what_is_missing_is_said(task: str | None, limit: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_set("reasoning-gym", None, task, limit)


def test_a_task_that_runs_out_says_how_many_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_TRIES", 0)
    reply = generated._generate("gcd", "test", 200, 0)
    assert re.fullmatch(r"has no more than about \d+ problems; lower `limit`", reply["failed"])


def test_a_generator_that_fails_is_told_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Traceback:' >&2\necho 'ValueError: no more' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(
        UserError, match=r"task sudoku could not be generated \(ValueError: no more\)"
    ):
        problems("sudoku")


def test_without_the_package_the_message_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generated, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match=r"'\.\[gym\]'"):
        problems("sudoku")


@pytest.mark.slow
def test_every_task_is_scored_as_the_package_scores_it(soak: bool) -> None:
    """The package's own answer, and another text, by each of its scorers, inside and outside."""
    import reasoning_gym as package
    from reasoning_gym.factory import DATASETS

    tasks = sorted(DATASETS.keys() - generated.LEFT_OUT.keys())
    for task in tasks if soak else tasks[::10]:
        score = package.get_score_answer_fn(task)
        for problem in problems(task, 1):
            assert json.loads(json.dumps(dict(problem.extras))) == problem.extras
            entry = ast.literal_eval(problem.extras["entry"])
            for answer in (problem.gold or "?", "17"):
                status, rule = judged(problem, answer)
                try:
                    expected = score(answer, entry)
                except TypeError:  # boxnet's, of a number where it wants a plan
                    assert rule == "not an answer of this task"
                    continue
                assert status is (Status.RIGHT if expected >= 1 else Status.WRONG), task
                assert rule == f"score {expected:.3g}", task
