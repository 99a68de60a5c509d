"""Question and reference answer: stored once a problem, shown, exported, and judged by again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from rlbhpc.exchange.arriving import Target
from rlbhpc.exchange.exports import export
from rlbhpc.exchange.imports import import_files
from rlbhpc.problems.problem import Problem
from rlbhpc.store.grid import Grid
from rlbhpc.store.merge import merge
from rlbhpc.store.questions import (
    Question,
    put_questions,
    questions_of,
    read_questions,
    stored_questions,
)
from rlbhpc.study.layout import Layout
from tests.exchange.made import lines

PROBLEMS = 5


def rows(first: int = 0) -> list[dict[str, Any]]:
    """Responses of which a grader that reads the last number calls other ones right."""
    return [
        {
            "problem": f"p{number}", "sample": sample, "correct": 0, "question": f"{number} + 1?",
            "gold": str(number + 1), "text": f"The answer is {number + sample}.",
        }
        for number in range(first, first + PROBLEMS)
        for sample in range(2)
    ]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Layout:
    """An import whose files are gone."""
    layout = Layout(tmp_path / "run")
    layout.root.mkdir()
    path = lines(tmp_path / "theirs.jsonl", rows())
    for arm in ("base", "rl"):
        import_files(layout, [path], Target(arm, "sums", arm))
    path.unlink()
    return layout


def records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.rglob("*.jsonl"):
        yield from map(json.loads, path.read_text().splitlines())


def call(*words: object) -> Any:
    result = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
    return json.loads(result.stdout)


def test_arms_that_were_asked_the_same_share_one_file(run: Layout) -> None:
    assert len(list(run.root.glob("questions/sums/*"))) == 1
    for arm in ("base", "rl"):
        questions = read_questions(run, arm, "sums")
        assert questions["sums/p3"] == Question("3 + 1?", "4")
        assert len(questions) == PROBLEMS


def test_show_prints_what_was_asked_and_what_is_right(run: Layout) -> None:
    command = ("show", run.root, "--problem", "p3", "--sample", 1, "--arm", "rl", "--json")
    (shown,) = call(*command)
    assert (shown["question"], shown["reference"]) == ("3 + 1?", "4")
    printed = CliRunner().invoke(cli, list(map(str, command[:-1]))).stdout
    assert printed.index("reference:") < printed.index("3 + 1?") < printed.index("answer is 4")
    # A run of an older version.
    grid = Grid.load(run.grid("rl", "sums"))
    assert grid is not None
    run.questions("sums", grid.provenance["questions"]).unlink()
    (shown,) = call(*command)
    assert (shown["question"], shown["reference"]) == (None, None)
    assert "n't stored" in CliRunner().invoke(cli, list(map(str, command[:-1]))).stdout


def test_an_imported_run_is_judged_again_without_its_files(run: Layout, tmp_path: Path) -> None:
    again = ("verify", run.root, "--into", tmp_path / "again")
    # Nobody said by what: the first call leaves nothing that stops the second.
    refused = CliRunner().invoke(cli, list(map(str, again)), standalone_mode=False)
    assert isinstance(refused.exception, UserError)
    changed = call(*again, "--grader", "math", "--json")
    counts = {tuple(row.values()) for row in changed["base/sums"]["verdicts"]}
    assert counts == {("wrong", "wrong", PROBLEMS), ("wrong", "right", PROBLEMS)}
    (shown,) = call("show", tmp_path / "again", "--problem", "p3", "--sample", 1, "--arm", "rl",
                    "--json")  # fmt: skip
    assert (shown["verdict"], shown["question"]) == ("right", "3 + 1?")


def test_what_has_no_reference_answer_is_named_when_it_is_to_be_judged(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "run")
    layout.root.mkdir()
    without = [{"problem": "p", "correct": 1, "text": "4"}]
    import_files(layout, [lines(tmp_path / "a.jsonl", without)], Target("base", "sums", "base"))
    command = ["verify", str(layout.root), "--grader", "math"]
    refused = CliRunner().invoke(cli, command, standalone_mode=False)
    assert isinstance(refused.exception, UserError) and "sums/p" in str(refused.exception)


def test_an_export_carries_question_and_reference(run: Layout, tmp_path: Path) -> None:
    export(run, tmp_path / "out.eee")
    asked = {row["sample_id"]: row["input"] for row in records(tmp_path / "out.eee")}
    assert asked["sums/p3"] == {"raw": "3 + 1?", "reference": ["4"]}
    assert all(row["sample_hash"] for row in records(tmp_path / "out.eee"))


def test_a_later_import_adds_problems_and_an_old_one_gets_them(run: Layout, tmp_path: Path) -> None:
    path = lines(tmp_path / "more.jsonl", rows(PROBLEMS))
    import_files(run, [path], Target("base", "sums", "base"))
    assert len(read_questions(run, "base", "sums")) == 2 * PROBLEMS
    assert len(read_questions(run, "rl", "sums")) == PROBLEMS
    for file in run.root.glob("questions/sums/*"):
        file.unlink()
    done = import_files(run, [path], Target("base", "sums", "base"))
    assert (done.samples, done.known) == (0, 2 * PROBLEMS)
    assert len(read_questions(run, "base", "sums")) == PROBLEMS


def test_two_importers_at_once_leave_whole_files(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "run")
    layout.root.mkdir()
    paths = [lines(tmp_path / f"{n}.jsonl", rows(n)) for n in range(4)]

    def take(number: int) -> None:
        import_files(layout, [paths[number]], Target(f"arm{number}", "sums", "m"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take, range(4)))
    for number in range(4):
        expected = {f"sums/p{number + i}" for i in range(PROBLEMS)}
        assert read_questions(layout, f"arm{number}", "sums").keys() == expected
    assert not list(layout.root.rglob("*.partial"))


def test_a_damaged_file_is_told_and_written_anew(run: Layout) -> None:
    (file,) = run.root.glob("questions/sums/*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(UserError, match=file.name):
        stored_questions(run, "rl", "sums")
    file.unlink()
    questions = {f"sums/p{n}": Question(f"{n} + 1?", str(n + 1)) for n in range(PROBLEMS)}
    put_questions(run, "rl", "sums", questions)
    assert file.read_bytes() == whole


def test_a_merge_brings_the_questions_of_both(run: Layout, tmp_path: Path) -> None:
    other = Layout(tmp_path / "other")
    other.root.mkdir()
    path = lines(tmp_path / "more.jsonl", rows(PROBLEMS))
    import_files(other, [path], Target("base", "sums", "base"))
    merge(run, other)
    assert len(read_questions(run, "base", "sums")) == 2 * PROBLEMS


def test_tests_stand_in_for_an_answer_and_are_cut() -> None:
    tests = [{"input": "x" * 100, "output": str(n)} for n in range(1000)]
    code = Problem("code/1", {"question": "Write f."}, "", "code", {"tests": tests})
    choice = Problem("choices/1", {"question": "Which?\n(A) 1\n(B) 2"}, "B", "choice")
    questions = questions_of([code, choice])
    assert len(questions["code/1"].reference) < 2_100
    assert questions["code/1"].reference.startswith('{"tests": [{"input": "xxx')
    assert questions["choices/1"] == Question("Which?\n(A) 1\n(B) 2", "B")
