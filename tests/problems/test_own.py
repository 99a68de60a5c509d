"""Sets of one's own, probes of questions, worked examples: small cases, whole."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem, make_probe, whole_problem
from rlbhpc.problems.problemset import Selection, make_problem, own_set
from rlbhpc.problems.prompts import draw_shots, worked_answer
from rlbhpc.problems.registry import get_set
from tests.problems import shapes

RECORD = {"q": "1 + 1?", "a": 2, "key": "x1", "how": "Count.", "level": [1, 2]}
EVERYTHING = {"question": "q", "gold": "a", "id": "key", "solution": "how", "difficulty": "level"}


def own(fields: dict[str, str], folder: Path) -> list[Problem]:
    return own_set(fields).load(Selection("mine", shapes.parquet([RECORD], folder)))


def test_fields_of_a_study_become_a_problem(tmp_path: Path) -> None:
    question = {"question": "1 + 1?"}
    extras = {"difficulty": [1, 2]}
    assert own(EVERYTHING, tmp_path) == [
        Problem("mine/x1", question, "2", "math", extras, solution="Count.")
    ]
    (tmp_path / "b").mkdir()
    assert own({"question": "q"}, tmp_path / "b") == [
        make_problem("mine", "", "1 + 1?", "", "math")
    ]


def test_fields_without_a_question_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`fields` says not which field holds the question"):
        own({"gold": "a"}, tmp_path)


def problem(question: str, gold: Any = "", solution: str = "", **more: Any) -> Problem:
    verifier = more.pop("verifier", "math")
    return Problem(f"s/{question}", {"question": question}, gold, verifier, **more,
                   solution=solution)  # fmt: skip


@pytest.mark.parametrize(
    ("share", "visible", "rest"),
    [(0.01, "a", "b c d"), (0.5, "a b", "c d"), (0.51, "a b c", "d"), (0.99, "a b c", "d")],
)
def test_a_probe_shows_the_first_words(share: float, visible: str, rest: str) -> None:
    whole = problem("a b c d", "7", "So.", extras={"level": 1})
    probe = make_probe(whole, share)
    assert (probe.fields["question"], probe.gold, probe.verifier) == (visible, rest, "probe")
    assert whole_problem(probe) == replace(whole, solution="")


def test_a_question_must_have_two_words_to_be_probed() -> None:
    assert make_probe(problem("a b"), 0.9).gold == "b"
    with pytest.raises(UserError, match="problem s/a: a question of one word cannot be probed"):
        make_probe(problem("a"), 0.5)


NUMBERS = {"numbers": [2, 3], "operations": "+"}


@pytest.mark.parametrize(
    ("example", "answer"),
    [
        (problem("q", "2", r"So $\boxed{2}$."), r"So $\boxed{2}$."),
        (problem("q", "2", "So."), "So.\nThe answer is $\\boxed{2}$."),
        (problem("q", "2"), "The answer is $\\boxed{2}$."),
        (problem("q", solution="So."), "So."),
        (problem("q"), ""),
        (problem("q", "B", "So.", verifier="choice"), "So."),
        (problem("q", "B", verifier="choice"), "B"),
        (problem("q", verifier="countdown", extras={**NUMBERS, "target": 5}), "3+2=5"),
        (problem("q", verifier="countdown", extras={**NUMBERS, "target": 6}), ""),
    ],
)
def test_an_example_ends_in_what_is_judged(example: Problem, answer: str) -> None:
    assert worked_answer(example) == answer


def test_only_questions_that_can_be_shown_become_examples() -> None:
    usable = [problem("a", "1"), problem("b", "2")]
    others = [
        problem("A ", "1"),
        problem("no answer"),
        problem("with a figure", "3", images=(b"png",)),
        problem("what is {question}?", "4"),
        problem("c", "{question}"),
    ]
    shots = draw_shots([*usable, *others], 1, 0, "set s")
    assert {question.strip().lower() for question, _ in shots} == {"a", "b"}
    with pytest.raises(UserError) as refused:
        draw_shots([*usable, *others], 2, 0, "set s")
    assert str(refused.value) == (
        "set s has 2 problems with a worked answer and no image; 2 shots need 3, since a problem"
        " is never its own example"
    )
    # A seed decides which examples stand before every question.
    many = [problem(str(number), "1") for number in range(9)]
    assert [question for question, _ in draw_shots(many, 3, 5, "s")] == ["5", "0", "1", "8"]


def test_a_file_of_ones_own_holds_a_problem_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from rlbhpc.problems.registry import SETS\nSET = SETS['gsm8k']\n")
    assert get_set(f"{file}:SET") == get_set("gsm8k")
    file.write_text("SET = 7\n")
    with pytest.raises(UserError, match="found 7; allowed: a ProblemSet, such as a FileSet"):
        get_set(f"{file}:SET")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("return record.values['question']", "KeyError: 'question'"),
        ("return make_problem(name, '7', 'q', ['2'], 'math')", "problem mine/7: its gold is ['2']"),
        ("return make_problem(name, '', 'q', None, 'math')", "its gold is None; allowed: a text"),
        ("return make_problem(name, '', 'q', True, 'math')", "its gold is True; allowed: a text"),
        ("return make_problem(name, '', 'q', float('nan'), 'math')", "its gold is nan; allowed"),
        ("return make_problem(name, '', [], '2', 'math')", "its question is []; allowed: a text"),
    ],
)
def test_a_record_that_a_set_of_ones_own_cannot_read_is_named(
    tmp_path: Path, lines: str, complaint: str
) -> None:
    """What is no text was found out by `math`, after sampling, as a failure of each sample."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlbhpc.problems.problemset import FileSet, Source, make_problem\n"
        f"def parse(name, record):\n    {lines}\n"
        "SET = FileSet(parse, Source())\n"
    )
    data = shapes.parquet([RECORD], tmp_path)
    with pytest.raises(UserError, match=re.escape(complaint)) as error:
        get_set(str(file)).load(Selection("mine", data))
    assert str(error.value).startswith(f"{data}/")
    assert ", record 1: reading it as a problem: " in str(error.value)


@pytest.mark.parametrize("gold", ["27", 27, 27.0, np.int64(27), np.float64(27), np.float32(27)])
def test_a_gold_answer_that_is_a_number_is_its_text(gold: Any) -> None:
    """As sets of rlbhpc's own read it, a large one whole: the same problem, of the same id."""
    question = make_problem("s", "", "?", gold, "./mine.py")
    assert question == make_problem("s", "", "?", "27", "./mine.py")
    assert problem("?", 10**30).gold == f"1{'0' * 30}"
    assert problem("?", 0.5).gold == "0.5"


def test_strata_are_words_and_images_are_bytes(tmp_path: Path) -> None:
    extras = {"level": 3, "subject": ["Algebra", "Logic"], "difficulty": "", "source": "x"}
    (tmp_path / "b.png").write_bytes(b"two")
    pictured = problem("q", extras=extras, images=(b"one", str(tmp_path / "b.png")))
    assert pictured.strata == {"level": "3", "subject": "Algebra, Logic"}
    assert pictured.pictures == (b"one", b"two")
    text, data = (replace(pictured, images=(image,)) for image in ("one", b"one"))
    assert text.content_hash == data.content_hash != pictured.content_hash
    assert pictured.set_name == "s"
    accented = Problem("s/é", {"question": "Où ?"}, "é", "math", {"level": "é", "a": 1})
    assert accented.content_hash == "b0694e7fac3c7dfa"


def test_an_extra_that_no_json_holds_is_told(tmp_path: Path) -> None:
    path = shapes.parquet([{"q": "?", "day": datetime(2025, 1, 31)}], tmp_path)
    [dated] = own_set({"question": "q", "day": "day"}).load(Selection("mine", path))
    with pytest.raises(UserError, match=re.escape("extras may not hold a datetime; write it as")):
        _ = dated.content_hash
