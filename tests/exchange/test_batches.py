"""Batch files of OpenAI's interface and of vLLM, with reference answers beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbhpc.errors import UserError
from rlbhpc.store.questions import stored_questions
from rlbhpc.study.layout import Layout
from tests.exchange.made import (
    RIGHT,
    WRONG,
    batch_request,
    batch_response,
    cube_of,
    lines,
    take_in,
    verdicts,
)

# As the two write it of requests that did not get through: one is refused, one expires.
REFUSED: dict[str, Any] = {
    "id": "batch_req_2", "custom_id": "b-0", "error": None,
    "response": {"status_code": 400, "request_id": "req_2",
                 "body": {"error": {"message": "too long", "type": "invalid_request_error"}}},
}  # fmt: skip
EXPIRED: dict[str, Any] = {
    "id": "batch_req_3", "custom_id": "b-1", "response": None,
    "error": {"code": "batch_expired", "message": "This request could not be executed in time."},
}  # fmt: skip


def test_a_batch_is_judged_by_reference_answers_beside_it(tmp_path: Path) -> None:
    requests = [batch_request(f"{name}-{n}", f"what is {name}?") for name in "ab" for n in (0, 1)]
    asked = lines(tmp_path / "z_requests.jsonl", requests)
    answered = lines(
        tmp_path / "responses.jsonl",
        [
            batch_response("a-1", ["It is \\boxed{4}.", "It is \\boxed{5}."]),
            batch_response("a-0", ["It is \\boxed{4}."], finish="length"),
            REFUSED,
            EXPIRED,
        ],
    )
    gold = lines(
        tmp_path / "z_gold.jsonl",
        [{"problem": "a-0", "gold": "4"}, {"problem": "b-0", "gold": 7}],
    )
    done = take_in(tmp_path / "run", answered, asked, gold, judge="math")
    assert (done.samples, done.failed) == (5, 2)
    cube = cube_of(tmp_path / "run")
    assert cube.problem.values.tolist() == ["set/a-0", "set/b-0"]
    assert verdicts(cube, "a-0") == [RIGHT, WRONG, RIGHT]
    assert cube.finish.sel(problem="set/a-0", step=0).values.tolist() == [0, 0, 1]
    assert cube.n_tokens.sel(problem="set/a-0", step=0).values.tolist() == [-1, -1, 15]
    stored = stored_questions(Layout(tmp_path / "run"), "theirs", "set")
    assert stored["set/a-0"].question == "what is a?"
    assert stored["set/a-0"].gold == "4"


def test_a_batch_without_reference_answers_says_what_is_lacking(tmp_path: Path) -> None:
    answered = lines(tmp_path / "responses.jsonl", [batch_response("a", ["4"])])
    with pytest.raises(UserError, match=r"responses.jsonl:1: .*--judge-again math"):
        take_in(tmp_path / "run", answered)
    with pytest.raises(UserError, match="fields problem and gold"):
        take_in(tmp_path / "run", answered, judge="math")
