"""Texts of other tools under a verifier of rlbhpc or of the user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from tests.exchange.made import (
    ERROR,
    NO_ANSWER,
    RIGHT,
    WRONG,
    cube_of,
    limit_row,
    lines,
    nemo_row,
    take_in,
    verdicts,
    verl_row,
)


def test_texts_without_a_score_are_judged(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def verify(gold, text, problem): return gold in text\n")
    rows = [{"problem": "a", "text": text, "gold": 4} for text in ("4", "5", None)]
    path = lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(UserError, match=r"a\.jsonl:1: no correct .* --judge-again math needs none"):
        take_in(tmp_path / "run", path)
    take_in(tmp_path / "run", path, judge=str(tmp_path / "mine.py"))
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, WRONG, WRONG]
    nothing = lines(tmp_path / "b.jsonl", [{"problem": "a", "text": "4", "gold": None}])
    with pytest.raises(UserError, match="problem a has no single reference answer in this file"):
        take_in(tmp_path / "run", nothing, judge="math")


def test_a_verifier_is_told_how_an_imported_response_ended(tmp_path: Path) -> None:
    cut = {"problem": "a", "text": "The answer is 4", "gold": 4, "finish": "length"}
    path = lines(tmp_path / "a.jsonl", [cut, {**cut, "finish": "eos"}])
    take_in(tmp_path / "run", path, judge="math")
    assert verdicts(cube_of(tmp_path / "run"), "a") == [NO_ANSWER, RIGHT]


def test_what_a_verifier_failed_on_is_told(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def verify(gold, response, problem):\n    return problem.extras['tests']\n")
    path = lines(tmp_path / "a.jsonl", [{"problem": "a", "text": "2", "gold": "2"}])
    words = ["import", tmp_path / "run", path, "--arm", "a", "--set", "s", "--judge-again", mine]
    output = CliRunner().invoke(cli, list(map(str, words))).output
    assert "a/s: 1 samples." in output
    assert "neither right nor wrong" in output and "raised KeyError: 'tests'" in output


def inspect_log(question: Any) -> dict[str, Any]:
    choice = {"message": {"content": "4"}, "stop_reason": "stop"}
    return {"id": 7, "epoch": 1, "input": question, "target": "4", "output": {"choices": [choice]}}


QUESTIONS: dict[str, tuple[Any, str, str]] = {
    "scored.jsonl": ({"problem": "a", "text": "4", "gold": 4, "question": "2+2?"}, "a", "2+2?"),
    "unknown.jsonl": ({"problem": "a", "text": "4", "gold": 4, "expected_answer": "5"}, "a", ""),
    "limit.jsonl": (limit_row(3, "4", ["4"]), "3", "How many?"),
    "output-rs0.jsonl": (nemo_row("2+2?", "4", True), "0", "2+2?"),
    "verl.jsonl": (verl_row("2+2?", 1.0), "prompt-", "user\n2+2?\nassistant\n"),
    "lm_eval.jsonl": (
        {"doc_id": 2, "doc": {"problem": "2+2?"}, "target": "4", "resps": [["4"]],
         "filtered_resps": ["4"]},
        "2", "2+2?",
    ),
    "inspect.json": ({"samples": [inspect_log("2+2?")]}, "7", "2+2?"),
    "messages.json": (
        {"samples": [inspect_log([{"role": "system", "content": "Be brief."},
                                  {"role": "user", "content": "2+2?"}])]},
        "7", "2+2?",
    ),
    "lcb_eval_all.json": (
        [{"question_id": "abc_a", "question_content": "2+2?", "output": "4", "id": "s",
          "output_list": ["4"], "pred_list": ["4"], "graded_list": [False]}],
        "abc_a/s", "2+2?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_verifier_is_given_the_problem_as_far_as_the_file_tells_it(
    tmp_path: Path, name: str
) -> None:
    record, identity, question = QUESTIONS[name]
    (tmp_path / "mine.py").write_text(
        "def verify(gold, response, problem):\n"
        f"    assert problem.id.startswith('set/{identity}'), problem.id\n"
        f"    assert problem.fields['question'] == {question!r}, problem.fields\n"
        "    return problem.gold == gold\n"
    )
    (tmp_path / name).write_text(json.dumps(record))
    done = take_in(tmp_path / "run", tmp_path / name, judge=str(tmp_path / "mine.py"))
    assert done.error == ""
    assert cube_of(tmp_path / "run").verdict.values.max() == RIGHT


def test_problems_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    """Files without questions: the same reference answer and text may be of other problems."""
    (tmp_path / "mine.py").write_text(
        "def verify(gold, response, problem): return problem.id == 'set/a'\n"
    )
    path = lines(tmp_path / "a.jsonl", [{"problem": p, "text": "4", "gold": "4"} for p in "ab"])
    take_in(tmp_path / "run", path, judge=str(tmp_path / "mine.py"))
    cube = cube_of(tmp_path / "run")
    assert verdicts(cube, "a") == [RIGHT]
    assert verdicts(cube, "b") == [WRONG]


def test_what_a_verifier_failed_on_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "def verify(gold, response, problem):\n"
        f"    return gold == response or Path({str(flag)!r}).stat().st_size > 0\n"
    )
    rows = [{"problem": "a", "text": text, "gold": "4"} for text in "445"]
    path = lines(tmp_path / "a.jsonl", rows)

    def again() -> tuple[int, int]:
        done = take_in(tmp_path / "run", path, judge=str(tmp_path / "mine.py"))
        return done.samples, done.known

    assert again() == (3, 0)
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, RIGHT, ERROR]
    assert again() == (0, 3)
    flag.write_text("")
    assert again() == (1, 2)
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, RIGHT, WRONG]
    flag.unlink()
    assert again() == (0, 3)
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, RIGHT, WRONG]


def test_who_edits_a_verifier_is_told_that_an_arm_keeps_its_verdicts(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def verify(gold, response, problem): return gold == response\n")
    rows = [{"problem": "a", "text": text, "gold": "4"} for text in ("4", "5")]
    path = lines(tmp_path / "a.jsonl", rows)
    take_in(tmp_path / "run", path, judge=str(mine))
    mine.write_text(mine.read_text() + "# a remark\n")
    done = take_in(tmp_path / "run", path, judge=str(mine))
    assert (done.samples, done.known) == (0, 2)
    mine.write_text("def verify(gold, response, problem): return True\n")
    with pytest.raises(UserError, match=r"set/a sample 1 at step 0.*\(--arm\)"):
        take_in(tmp_path / "run", path, judge=str(mine))
    with pytest.raises(UserError, match="arm theirs has another response"):
        other = lines(tmp_path / "b.jsonl", [{"problem": "a", "text": "9", "gold": "4"}])
        take_in(tmp_path / "run", other, judge=str(mine))


GOLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lm_eval.jsonl": ("target", {"doc_id": 2, "resps": [["so 18"]], "filtered_resps": ["18"]}),
    "output-rs0.jsonl": ("expected_answer", {"generation": "so 18", "num_generated_tokens": 3}),
    "scored.jsonl": ("gold", {"problem": "a", "text": "so 18"}),
    "inspect.json": ("target", {"id": 7, "epoch": 1, "output": {"choices": [
        {"message": {"content": "so 18"}, "stop_reason": "stop"}]}}),
    "verl.jsonl": ("gts", {"input": "?", "output": "so 18", "step": 1, "score": 0.1}),
    "limit.jsonl": ("gt", {"idx": 0, "code": ["so 18"], "pred": ["18"], "score": [True]}),
}  # fmt: skip


def with_gold(folder: Path, name: str, gold: object) -> Path:
    field, row = GOLDS[name]
    record: object = {**row, field: gold}
    (folder / name).write_text(json.dumps({"samples": [record]} if "inspect" in name else record))
    return folder / name


@pytest.mark.parametrize("gold", ["18", 18, ["18"], [18]])
@pytest.mark.parametrize("name", GOLDS)
def test_a_reference_answer_may_be_a_number_or_alone_in_a_list(
    tmp_path: Path, name: str, gold: object
) -> None:
    (tmp_path / "mine.py").write_text("def verify(gold, text, problem): return gold == '18'\n")
    path = with_gold(tmp_path, name, gold)
    take_in(tmp_path / "run", path, judge=str(tmp_path / "mine.py"))
    assert cube_of(tmp_path / "run").verdict.values.max() == RIGHT


@pytest.mark.parametrize("gold", [["18", "19"], [], None, {"value": "18"}])
@pytest.mark.parametrize("name", GOLDS)
def test_several_reference_answers_are_not_judged_by(
    tmp_path: Path, name: str, gold: object
) -> None:
    path = with_gold(tmp_path, name, gold)
    with pytest.raises(UserError, match="has no single reference answer in this file"):
        take_in(tmp_path / "run", path, judge="math")


@pytest.mark.parametrize(
    ("target", "gold"),
    [("['so\\n#### 18']", "18"), ('["1\'8"]', "1'8"), ("[-2, 7]", "[-2, 7]"), ("['a", "['a")],
)
def test_lm_eval_writes_lists_as_python_does(tmp_path: Path, target: str, gold: str) -> None:
    (tmp_path / "mine.py").write_text(f"def verify(gold, text, p): return gold == {gold!r}\n")
    path = with_gold(tmp_path, "lm_eval.jsonl", target)
    take_in(tmp_path / "run", path, judge=str(tmp_path / "mine.py"))
    assert verdicts(cube_of(tmp_path / "run"), "2") == [RIGHT]
    several = with_gold(tmp_path, "lm_eval.jsonl", "['18', '19']")
    with pytest.raises(UserError, match="no single reference"):
        take_in(tmp_path / "other", several, judge="math")
