"""A verifier that a study brings hangs or ends its process: the sweep goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.running.batch import BatchVerifier
from rlbhpc.verify.running.cache import VerdictCache
from rlbhpc.verify.verdict import Status, Verdict

TEXT = """
import os, threading
from rlbhpc.verify.verdict import Status, Verdict

def verify(gold, response, problem=None):
    if response == "spin":
        while True:
            pass
    if response == "wait":
        threading.Event().wait()
    if response == "end":
        os._exit(0)
    if response == "long":
        return Verdict(Status.RIGHT, "é" * 50_000, rule=os.environ["SEEN"])
    return response == gold
"""


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SEEN", "seen")
    file = tmp_path / "mine.py"
    file.write_text(TEXT)
    return str(file)


def judge(kind: str, *responses: str, cache: VerdictCache | None = None) -> list[Verdict]:
    problem = Problem("sums/3", {"question": "1 + 1?"}, "2", kind)
    items = [("2", response, problem) for response in responses]
    return BatchVerifier(kind, cache, seconds=0.2).verify_many(items)


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (
            "spin",
            "sums/3: no verdict within 0.8 s of processor time or 4.4 s; raise "
            "verification.timeout if it needs more",
        ),
        (
            "wait",
            "sums/3: no verdict within 0.8 s of processor time or 4.4 s; raise "
            "verification.timeout if it needs more",
        ),
        ("end", "sums/3: the process died"),
    ],
)
def test_a_response_without_a_verdict_is_no_answer_and_holds_up_nothing(
    kind: str, response: str, complaint: str
) -> None:
    first, hung, last = judge(kind, "2", response, "3")
    assert (first.status, hung.status, last.status) == (Status.RIGHT, Status.ERROR, Status.WRONG)
    assert hung.rule == f"{kind}: {complaint}"
    assert hung.grader == first.grader


def test_a_verifier_that_only_hangs_stops_the_sweep(kind: str) -> None:
    Path(kind).write_text(TEXT.replace('response == "spin"', "True"))
    with pytest.raises(
        UserError, match=r"mine\.py: sums/3: no verdict within .*\(3 times in a row\)"
    ):
        judge(kind, "a", "b", "c", "d")


def test_a_verifier_has_the_environment_and_answers_at_length(kind: str) -> None:
    (long,) = judge(kind, "long")
    assert (long.status, len(long.answer), long.rule) == (Status.RIGHT, 50_000, "seen")


def test_a_file_that_changes_under_a_sweep_gives_no_verdict(kind: str) -> None:
    verifier = BatchVerifier(kind)
    Path(kind).write_text(TEXT + "# changed\n")
    (verdict,) = verifier.verify_many([("2", "2", None)])
    assert verdict.status is Status.ERROR
    assert "changed" in verdict.rule


def test_an_edited_verifier_is_read_anew(kind: str) -> None:
    """In a notebook the process of the file before the edit is still there."""
    assert judge(kind, "3")[0].status is Status.WRONG
    Path(kind).write_text("def verify(gold, response, problem=None):\n    return True\n")
    assert judge(kind, "3")[0].status is Status.RIGHT


def test_a_child_that_a_verifier_forked_answers_nothing(kind: str) -> None:
    Path(kind).write_text(
        "import os\n"
        "def verify(gold, response, problem=None):\n"
        "    if response == 'fork':\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            raise ValueError('of the child')\n"
        "        os.waitpid(child, 0)\n"
        "        return False\n"
        "    return response == gold\n"
    )
    found = judge(kind, "fork", "2", "3", "4")
    assert [v.status.name for v in found] == ["WRONG", "RIGHT", "WRONG", "WRONG"]
