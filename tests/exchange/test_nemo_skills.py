"""Output folders of NeMo-Skills, in the shape in which it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from tests.exchange.made import NO_ANSWER, RIGHT, WRONG, cube_of, lines, nemo_row, take_in, verdicts


def test_nemo_skills_numbers_responses_by_the_seed_in_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "aime25"
    lines(folder / "output-rs0.jsonl", [nemo_row("p", "70", True), nemo_row("q", "3", False)])
    lines(folder / "output-rs10.jsonl", [nemo_row("p", None, False), nemo_row("q", "70", True)])
    lines(folder / "output-rs2.jsonl", [nemo_row("p", "70", True), nemo_row("q", "1", False)])
    assert take_in(tmp_path / "run", folder).samples == 6
    cube = cube_of(tmp_path / "run")
    column = cube.verdict.sel(problem="set/0", step=0).values
    assert {number: int(column[number]) for number in (0, 2, 10)} == {
        0: RIGHT, 2: RIGHT, 10: NO_ANSWER
    }  # fmt: skip
    assert int((column >= 0).sum()) == 3
    assert verdicts(cube, "1") == [WRONG, WRONG, RIGHT]
    assert int(cube.n_tokens.sel(problem="set/0", sample=0, step=0)) == 3492


def test_nemo_skills_with_a_judge_needs_a_choice(tmp_path: Path) -> None:
    row = nemo_row("p", "70", False, judgement="Reasoning: same.\nJudgement: Yes")
    path = lines(tmp_path / "output.jsonl", [row])
    with pytest.raises(UserError, match="--metric which score decides; its scores are symbolic_"):
        take_in(tmp_path / "run", path)
    take_in(tmp_path / "run", path, metric="judgement")
    assert verdicts(cube_of(tmp_path / "run"), "0") == [RIGHT]


def test_a_judge_that_says_neither_yes_nor_no_gives_no_verdict(tmp_path: Path) -> None:
    said = ("**Judgement: No**", "They are the same, so", "Judgement: Yes\n\nBoth are 70.")
    rows = [{"generation": "70", "judgement": text} for text in said]
    path = lines(tmp_path / "output.jsonl", rows)
    words = [
        "import",
        tmp_path / "run",
        path,
        "--arm",
        "theirs",
        "--set",
        "set",
        "--model",
        "model",
    ]
    output = CliRunner().invoke(cli, list(map(str, words))).output
    assert "Some samples are neither right nor wrong: their files hold no verdict on them" in output
    cube = cube_of(tmp_path / "run")
    assert [verdicts(cube, str(number)) for number in range(3)] == [[WRONG], [5], [RIGHT]]
    assert take_in(tmp_path / "run", path).samples == 0


def unjudged(generation: str, **more: object) -> dict[str, object]:
    """A row as `ns generate` writes it, before `ns eval` has looked at it."""
    return {
        "id": "aime-1", "problem": "How many?", "expected_answer": "70", "generation": generation,
        "num_generated_tokens": 12, "finish_reason": "stop", **more,
    }  # fmt: skip


def test_a_score_may_be_a_word(tmp_path: Path) -> None:
    row = unjudged("\\boxed{70}", is_correct="true")
    take_in(tmp_path / "run", lines(tmp_path / "output.jsonl", [row]))
    assert verdicts(cube_of(tmp_path / "run"), "aime-1") == [RIGHT]


def test_rows_without_a_verdict_say_so_and_are_judged_on_request(tmp_path: Path) -> None:
    lines(tmp_path / "d/output-rs0.jsonl", [unjudged("so \\boxed{70}")])
    cut_off = unjudged("so \\boxed{7", finish_reason="length")
    lines(tmp_path / "d/output-rs1.jsonl", [cut_off])
    with pytest.raises(UserError, match=r"output-rs0\.jsonl:1: carries no verdict .*--judge-again"):
        take_in(tmp_path / "run", tmp_path / "d")
    assert take_in(tmp_path / "run", tmp_path / "d", judge="math").samples == 2
    cube = cube_of(tmp_path / "run")
    assert verdicts(cube, "aime-1") == [RIGHT, NO_ANSWER]
    assert cube.finish.values.ravel().tolist() == [0, 1]
    assert cube.rlb.texts("set/aime-1", 0, 0).item() == "so \\boxed{70}"


def test_one_row_without_a_verdict_is_not_taken_for_wrong(tmp_path: Path) -> None:
    rows = [nemo_row("p", "70", True), unjudged("\\boxed{70}")]
    path = lines(tmp_path / "output.jsonl", rows)
    with pytest.raises(UserError, match=r"output\.jsonl:2: carries no verdict"):
        take_in(tmp_path / "run", path)


def test_several_scores_do_not_matter_where_the_texts_are_judged(tmp_path: Path) -> None:
    row = unjudged("\\boxed{70}", symbolic_correct=False, judgement="who knows")
    path = lines(tmp_path / "output.jsonl", [row])
    take_in(tmp_path / "run", path, judge="math")
    assert verdicts(cube_of(tmp_path / "run"), "aime-1") == [RIGHT]


def test_programs_are_known_by_their_task_and_judged_by_their_tests(tmp_path: Path) -> None:
    """LiveCodeBench within NeMo-Skills: one program a row, its verdict in a list."""
    for seed, right in enumerate([True, False]):
        row = {
            "task_id": "abc301_a", "question_title": "A", "generation": "```python\nx\n```",
            "num_generated_tokens": 9, "graded_list": [right],
        }  # fmt: skip
        lines(tmp_path / f"d/output-rs{seed}.jsonl", [row])
    take_in(tmp_path / "run", tmp_path / "d")
    assert verdicts(cube_of(tmp_path / "run"), "abc301_a") == [RIGHT, WRONG]
    several = {**row, "graded_list": [True, False]}
    path = lines(tmp_path / "output.jsonl", [several])
    with pytest.raises(UserError, match=r"output\.jsonl:1: graded_list has 2 verdicts"):
        take_in(tmp_path / "other", path)


@pytest.mark.parametrize("score", ["correct", "score", "verdict"])
def test_scored_rows_with_fields_like_these_stay_scored_rows(tmp_path: Path, score: str) -> None:
    row = {"problem": "a", score: "right" if score == "verdict" else 1}
    for more in ({"num_generated_tokens": 5}, {"generation": "4", "expected_answer": "4"}):
        run = tmp_path / "-".join(more)
        take_in(run, lines(tmp_path / "a.jsonl", [row | more]))
        assert verdicts(cube_of(run), "a") == [RIGHT]


def test_fields_that_are_null_are_as_absent(tmp_path: Path) -> None:
    nothing = {"id": None, "task_id": None, "num_generated_tokens": None}
    rows = [nemo_row("p", "70", True, **nothing), nemo_row("q", "3", False, **nothing)]
    take_in(tmp_path / "run", lines(tmp_path / "output.jsonl", rows))
    cube = cube_of(tmp_path / "run")
    assert (verdicts(cube, "0"), verdicts(cube, "1")) == ([RIGHT], [WRONG])
    assert (cube.n_tokens == -1).all()
