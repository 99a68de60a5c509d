"""Sample logs of lm-evaluation-harness, in the shape in which it writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from tests.exchange.made import RIGHT, WRONG, choice_row, cube_of, lines, take_in, verdicts


def test_lm_eval_repeats_are_judged_one_by_one(tmp_path: Path) -> None:
    row = {
        "doc_id": 3, "doc": {"question": "?"}, "target": "16 - 7 = 9. 9 * 2 = 18\n#### 18",
        "arguments": {}, "resps": [["#### 18", "#### 17", "the answer is 18"]],
        "filtered_resps": ["18"], "filter": "flexible-extract", "metrics": ["exact_match"],
        "exact_match": 1.0, "doc_hash": "x", "prompt_hash": "y", "target_hash": "z",
    }  # fmt: skip
    path = lines(tmp_path / "samples_gsm8k_2025-01-01.jsonl", [row])
    with pytest.raises(UserError, match=r"one score for several responses .*--judge-again math"):
        take_in(tmp_path / "run", path)
    take_in(tmp_path / "run", path, judge="math")
    assert verdicts(cube_of(tmp_path / "run"), "3") == [RIGHT, WRONG, RIGHT]


def test_a_multiple_choice_document_is_one_response_without_a_text(tmp_path: Path) -> None:
    rows = [choice_row(0, ["-3.1", "-1.2"], 1.0), choice_row(1, ["-0.1", "-1.2"], 0.0)]
    path = lines(tmp_path / "samples_arc.jsonl", rows)
    done = take_in(tmp_path / "run", path)
    assert done.samples == 2
    assert "texts" in done.absent
    cube = cube_of(tmp_path / "run")
    assert verdicts(cube, "0") == [RIGHT]
    assert verdicts(cube, "1") == [WRONG]
    with pytest.raises(UserError, match="problem 0 has no text of a response in this file"):
        take_in(tmp_path / "other", path, judge="math")


def test_a_multiple_choice_document_may_have_several_scores(tmp_path: Path) -> None:
    rows = [choice_row(0, ["-3.1", "-1.2"], 1.0, acc_norm=0.0)]
    path = lines(tmp_path / "samples_arc.jsonl", rows)
    with pytest.raises(UserError, match="--metric which score decides; its scores are acc, acc_no"):
        take_in(tmp_path / "run", path)
    take_in(tmp_path / "run", path, metric="acc_norm")
    assert verdicts(cube_of(tmp_path / "run"), "0") == [WRONG]


def filtered_rows(doc_by_doc: bool) -> list[dict[str, Any]]:
    rows = [
        {
            "doc_id": doc, "target": "#### 18", "resps": [[r"\boxed{18}"]],
            "filtered_resps": ["18"],
            "filter": name, "metrics": ["exact_match"], "exact_match": 0.0,
        }
        for name in ("strict-match", "flexible-extract")
        for doc in range(3)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["doc_id"]) if doc_by_doc else rows


@pytest.mark.parametrize("doc_by_doc", [False, True])
def test_a_document_counts_once_whatever_filters_saw_it(tmp_path: Path, doc_by_doc: bool) -> None:
    path = lines(tmp_path / "samples_gsm8k.jsonl", filtered_rows(doc_by_doc))
    with pytest.raises(UserError, match=r"has the filters .*; choose one with --metric SCORE,FIL"):
        take_in(tmp_path / "run", path)
    assert take_in(tmp_path / "run", path, judge="math").samples == 3
    cube = cube_of(tmp_path / "run")
    assert [verdicts(cube, str(doc)) for doc in range(3)] == [[RIGHT]] * 3


def test_several_scores_do_not_matter_where_the_texts_are_judged(tmp_path: Path) -> None:
    row = {**filtered_rows(False)[0], "acc": 1.0}
    path = lines(tmp_path / "samples_gsm8k.jsonl", [row])
    take_in(tmp_path / "run", path, judge="math")
    assert verdicts(cube_of(tmp_path / "run"), "0") == [RIGHT]


def algebra(answer: int) -> dict[str, Any]:
    doc = {"problem": f"What is {answer} + 0?"}
    return {**filtered_rows(False)[0], "doc": doc, "target": str(answer)}


def test_one_question_may_be_spelt_in_several_ways(tmp_path: Path) -> None:
    shuffled = [{**algebra(3), "doc": {"Question": "Why?"}, "target": t} for t in ("(A)", "(C)")]
    spaced = [{**algebra(3), "doc": {"problem": text}} for text in ("Why? \n", " Why?")]
    bare = [{**algebra(3), "doc": {}, "target": target} for target in ("5", "5.0", None)]
    for number, rows in enumerate((shuffled, spaced, bare)):
        for seed, row in enumerate(rows):
            lines(tmp_path / f"{number}/samples_{seed}.jsonl", [row])
        done = take_in(tmp_path / f"run{number}", tmp_path / f"{number}")
        assert done.samples == len(rows)


@pytest.mark.parametrize(
    "geometry",
    [
        {**algebra(3), "doc": {"problem": "How many sides?"}},
        {**algebra(4), "doc": {"goal": "How many sides?"}},
        choice_row(0, ["-1", "-2"], 1.0),
    ],
)
def test_tasks_whose_documents_have_the_same_numbers_are_not_mixed(
    tmp_path: Path, geometry: dict[str, Any]
) -> None:
    first = lines(tmp_path / "d/samples_algebra.jsonl", [algebra(3)])
    second = lines(tmp_path / "d/samples_geometry.jsonl", [geometry])
    with pytest.raises(UserError, match=r"geometry\.jsonl: set/0 is another question .*--set"):
        take_in(tmp_path / "run", tmp_path / "d")
    lines(second, [algebra(3)])
    first.write_text(f"\n{first.read_text()}")
    assert take_in(tmp_path / "run", tmp_path / "d").samples == 2
