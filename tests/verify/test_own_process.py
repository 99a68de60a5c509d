"""A verifier that a study brings hangs or ends its process: the sweep goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import MappingProxyType

import pytest

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.verify.running.batch import BatchVerifier
from rlbhpc.verify.running.pool import verify_apart
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


def judge(kind: str, *responses: str) -> list[Verdict]:
    problem = Problem("sums/3", {"question": "1 + 1?"}, "2", kind)
    items = [("2", response, problem) for response in responses]
    return BatchVerifier(kind, seconds=0.2).verify_many(items)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (
            "spin",
            "sums/3: no verdict within 0.8 s of processor time or 4.4 s; a "
            "study's verification.timeout allows more",
        ),
        (
            "wait",
            "sums/3: no verdict within 0.8 s of processor time or 4.4 s; a "
            "study's verification.timeout allows more",
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


def test_a_file_that_changes_under_a_sweep_ends_it(kind: str) -> None:
    """Whatever is left would get no verdict; a new start judges by the file as it is then."""
    verifier = BatchVerifier(kind)
    Path(kind).write_text(TEXT + "# changed\n")
    with pytest.raises(UserError, match=r"mine\.py: has changed since .*; start again"):
        verifier.verify_many([("2", "2", None)])


def test_an_edited_verifier_is_read_anew(kind: str) -> None:
    """In a notebook the process of the file before the edit is still there."""
    assert judge(kind, "3")[0].status is Status.WRONG
    Path(kind).write_text("def verify(gold, response, problem=None):\n    return True\n")
    assert judge(kind, "3")[0].status is Status.RIGHT


#: A verifier, and what it makes of each response to the gold answer 2.
VERIFIERS = {
    "a child that it forked answers nothing": (
        "import os\n"
        "def verify(gold, response, problem=None):\n"
        "    if response == 'fork':\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            raise ValueError('of the child')\n"
        "        os.waitpid(child, 0)\n"
        "        return False\n"
        "    return response == gold\n",
        {"fork": "WRONG", "2": "RIGHT", "3": "WRONG", "4": "WRONG"},
    ),
    "a process that closed its pipes is dead": (
        "import os, threading\n"
        "def verify(gold, response, problem=None):\n"
        "    if response == 'close':\n"
        "        os.closerange(0, 64)\n"
        "        threading.Event().wait()\n"
        "    return response == gold\n",
        {"close": "ERROR", "2": "RIGHT"},
    ),
    "true and false of other packages are verdicts": (
        "import numpy, sympy\n"
        "ANSWERS = {'sympy': sympy.true, 'numpy': numpy.True_, 'float': 1.0, 'not': sympy.false}\n"
        "def verify(gold, response, problem=None):\n    return ANSWERS[response]\n",
        {"sympy": "RIGHT", "numpy": "RIGHT", "float": "RIGHT", "not": "WRONG"},
    ),
}


@pytest.mark.parametrize(("text", "statuses"), VERIFIERS.values(), ids=VERIFIERS)
def test_every_response_has_its_own_verdict(kind: str, text: str, statuses: dict[str, str]) -> None:
    Path(kind).write_text(text)
    verdicts = judge(kind, *statuses)
    assert [verdict.status.name for verdict in verdicts] == list(statuses.values())


def test_distinct_has_a_limit_and_judges_equal_parts_once(kind: str) -> None:
    Path(kind).write_text(
        "def distinct(response):\n"
        "    while response == 'spin':\n"
        "        pass\n"
        "    return response.split()[-1]\n"
        "calls = 0\n"
        "def verify(gold, response, problem=None):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    return calls == 1\n"
    )
    found = judge(kind, "it is 2", "so 2", "spin", "", "3")
    assert [v.status.name for v in found] == ["RIGHT", "RIGHT", "ERROR", "ERROR", "RIGHT"]
    assert "raised IndexError" in found[3].rule


@pytest.mark.parametrize(
    "given",
    [
        "Verdict(99)",
        "Verdict(Status.MISSING)",
        "Verdict(Status.RIGHT, answer=Fraction(1, 2))",
        "Verdict(Status.WRONG, rule=None)",
        "Verdict(Status.RIGHT, 'x', b'x')",
        "'right'",
        "[True]",
        "None",
        "0.5",
    ],
)
def test_what_is_no_verdict_is_told_with_what_is_allowed(kind: str, given: str) -> None:
    Path(kind).write_text(
        "from fractions import Fraction\n"
        "from rlbhpc.verify.verdict import Status, Verdict\n"
        f"def verify(gold, response, problem=None):\n    return {given}\n"
    )
    (verdict,) = judge(kind, "2")
    assert verdict.status is Status.ERROR
    assert "allowed: True, False, or a Verdict" in verdict.rule
    assert given.split("(")[0].strip("[]'") in verdict.rule


def test_a_problem_may_hold_a_view_of_its_fields(kind: str) -> None:
    fields = MappingProxyType({"question": "1 + 1?"})
    problem = Problem("sums/3", fields, "2", kind, MappingProxyType({"level": 1}))
    (verdict,) = BatchVerifier(kind).verify_many([("2", "2", problem)])
    assert verdict.status is Status.RIGHT


def test_a_process_that_died_idle_is_started_again(kind: str) -> None:
    Path(kind).write_text(
        "import os\n"
        "from rlbhpc.verify.verdict import Status, Verdict\n"
        "def verify(gold, response, problem=None):\n"
        "    return Verdict(Status.RIGHT, rule=str(os.getpid()))\n"
    )
    (first,) = judge(kind, "2")
    process = int(first.rule)
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    (second,) = judge(kind, "2")
    assert second.status is Status.RIGHT


def test_a_stopped_sweep_leaves_nothing_unjudged(kind: str) -> None:
    """After the file is mended, a notebook asks the same object again."""
    Path(kind).write_text(TEXT.replace('response == "end"', "'end' in response"))
    problem = Problem("sums/3", {"question": "1 + 1?"}, "2", kind)
    verifier = BatchVerifier(kind)
    items = [("2", response, problem) for response in ("end", "end 1", "end 2", "2")]
    with pytest.raises(UserError, match="3 times in a row"):
        verifier.verify_many(items)
    assert verifier.verify_many(items[3:])[0].status is Status.RIGHT


@pytest.mark.slow
def test_a_training_reward_is_judged_under_the_same_limit(kind: str) -> None:
    problem = Problem("sums/3", {"question": "1 + 1?"}, "2", kind)
    assert verify_apart(problem, "2", seconds=0.2).right
    assert verify_apart(problem, "wait", seconds=0.2).status is Status.ERROR


@pytest.mark.parametrize(
    "parameters",
    [
        "response, gold, problem=None",
        "solution_str, ground_truth, extra_info=None",
        "data_source, solution_str, ground_truth, extra_info=None",
        "tokens, prediction, label, query=None",
        "model_response, gt_answer, fast=False",
    ],
)
def test_a_verifier_that_takes_the_reference_later_is_refused(kind: str, parameters: str) -> None:
    """As verl's reward functions do: every verdict was of the reference answer."""
    Path(kind).write_text(f"def verify({parameters}):\n    return True\n")
    with pytest.raises(UserError, match=r"its parameters are .* called as verify\(gold, response"):
        judge(kind, "2")


ASKS = """
def verify(gold, response, problem=None, finish=""):
    return finish == gold

def distinct(response, finish=""):
    return response
"""


@pytest.mark.parametrize("text", [ASKS, ASKS.split("def distinct")[0]])
def test_a_verifier_that_asks_is_told_how_a_response_ended(tmp_path: Path, text: str) -> None:
    file = tmp_path / "asks.py"
    file.write_text(text)
    problem = Problem("sums/3", {"question": "1 + 1?"}, "length", str(file))
    endings = ("length", "eos", "length", "")
    items = [("length", "the same", problem, finish) for finish in endings]
    right = [True, False, True, False]
    assert [v.right for v in BatchVerifier(str(file)).verify_many(items)] == right
    assert [verify_apart(problem, "the same", finish).right for finish in endings] == right
    assert not verify_apart(problem, "the same").right


def test_a_verifier_that_does_not_ask_is_called_as_before(kind: str) -> None:
    problem = Problem("sums/3", {"question": "1 + 1?"}, "2", kind)
    assert verify_apart(problem, "2", "length").right
    told = [("2", "2", problem, "length"), ("2", "2", problem)]
    assert all(verdict.right for verdict in BatchVerifier(kind).verify_many(told))
