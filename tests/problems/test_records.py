"""What a record of each set may say, and what is said of one that cannot be read."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.registry import load_set
from tests.problems import shapes
from tests.problems.shapes import SHAPES
from tools.check_structure import unfrozen

SUBSET = {"livecodebench": "all"}
TURN = {"role": "user", "content": "2 + 2?"}


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("mmlu-pro", {"answer": "K"}, "answer 'K' is none of"),
        ("rlpr-train", {"prompt": [TURN, TURN]}, "`prompt` is no conversation with one user's"),
        ("rlpr-train", {"prompt": "2 + 2?"}, "`prompt` is no conversation with one user's turn"),
        ("rlpr-train", {"reward_model": {"style": "rule"}}, "`reward_model` has no `ground_truth`"),
        ("livecodebench", {"contest_date": "soon"}, "contest_date 'soon' is no date"),
        ("livecodebench", {"metadata": "{"}, "field `metadata` is not a JSON object"),
        ("livecodebench", {"metadata": "[1]"}, "field `metadata` is not a JSON object"),
        ("gsm8k", {"answer": "So 7. #### "}, "field `answer` has nothing after a last ####"),
        ("rlpr-train", {"prompt": ["?"]}, "`prompt` is no conversation with one user's turn"),
        ("rlpr-train", {"prompt": [{**TURN, "content": 3}]}, "`prompt` is no conversation"),
        ("rlpr-train", {"reward_model": "rule"}, "`reward_model` has no `ground_truth`"),
        ("olympiadbench", {"final_answer": []}, "field `final_answer` must be a list of strings"),
        ("olympiadbench", {"final_answer": {"a": 1}}, "field `final_answer` must be a list of"),
        ("olympiadbench", {"final_answer": [3]}, "field `final_answer` must be a list of strings"),
    ],
)
def test_a_field_of_another_kind_is_told(
    name: str, change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    record = {**shapes.plain(SHAPES[name][0], tmp_path)[0], **change}
    with pytest.raises(UserError, match=f"record 1: {complaint}"):
        load_set(name, shapes.jsonl([record], tmp_path), SUBSET.get(name))


@pytest.mark.parametrize(
    ("name", "change", "gold", "verifier", "extra"),
    [
        ("gsm8k", {"solution": "0 #### 8", "answer": None}, "8", "math", {}),
        ("math", {"answer": None, "solution": r"\boxed{3}"}, "3", "math", {"level": "Level 1"}),
        ("minerva", {"solution": None, "answer": "5"}, "5", "math", {}),
        ("amc23", {"answer": "27.50"}, "27.50", "math", {}),
        ("amc23", {"answer": "27.00"}, "27", "math", {}),
        ("aime25", {"answer": None, "solution": r"\boxed{7}"}, "7", "math", {}),
        ("aime26", {"problem_type": ["Algebra"]}, "277", "math", {"subject": ["Algebra"]}),
        ("olympiadbench", {"final_answer": "5"}, "5", "math", {"is_multiple_answer": True}),
        (
            "olympiadbench",
            {"final_answer": ["1", "2"], "is_multiple_answer": False},
            "1, 2",
            "math",
            {"is_multiple_answer": True},
        ),
        (
            "webinstruct-verified",
            {"answer_type": "Multiple Choice", "answer": "B"},
            "B",
            "choice",
            {"kind": "Multiple Choice"},
        ),
        ("livecodebench", {"metadata": None}, "", "code", {"func_name": ""}),
        ("livecodebench", {"metadata": {"func_name": "g"}}, "", "code", {"func_name": "g"}),
        ("mbpp+", {"atol": 1e-6}, "", "code", {"atol": 1e-6}),
        ("mbpp+", {"atol": None}, "", "code", {"atol": 0}),
    ],
)
def test_what_else_a_record_may_say(
    name: str,
    change: dict[str, Any],
    gold: str,
    verifier: str,
    extra: dict[str, Any],
    tmp_path: Path,
) -> None:
    record = {**shapes.plain(SHAPES[name][0], tmp_path)[0], **change}
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps(record))
    [problem] = load_set(name, file, SUBSET.get(name))
    assert (problem.gold, problem.verifier) == (gold, verifier)
    assert {key: problem.extras[key] for key in extra} == extra


def test_records_of_this_room_cannot_be_changed() -> None:
    files = (Path(__file__).parents[2] / "rlbhpc/problems").rglob("*.py")
    assert list(unfrozen({path: ast.parse(path.read_text()) for path in files})) == []
