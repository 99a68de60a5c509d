"""Every reference solution is right in the shape of every format, and its near miss is wrong."""

from __future__ import annotations

import pytest

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.code import evalplus, livecodebench
from rlbhpc.verify.code.programs import Format
from rlbhpc.verify.verdict import Status
from tests.verify.code import generated
from tests.verify.conftest import RecordingSandbox

SHAPES: dict[str, tuple[Format, list[tuple[Problem, str]]]] = {
    "LiveCodeBench, standard input": (livecodebench, generated.livecodebench(functional=False)),
    "LiveCodeBench, functions": (livecodebench, generated.livecodebench(functional=True)),
    "HumanEval+": (evalplus, generated.evalplus(mbpp=False)),
    "MBPP+": (evalplus, generated.evalplus(mbpp=True)),
}


TELLING = ("mean", "word", "power")


def statuses(
    form: Format, cases: list[tuple[Problem, str]], sandbox: RecordingSandbox
) -> list[tuple[str, Status]]:
    found = []
    for problem, response in cases:
        program = form.extract(response, problem)
        found.append((problem.id, form.judge(program, problem, sandbox).status))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_references_are_right(shape: str, best: RecordingSandbox, soak: bool) -> None:
    form, cases = SHAPES[shape]
    assert len(cases) == 100
    judged = statuses(form, cases if soak else cases[::10], best)
    assert [one for one in judged if one[1] is not Status.RIGHT] == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_another_parameter_is_wrong(shape: str, best: RecordingSandbox) -> None:
    form, cases = SHAPES[shape]
    # The response of another parameter, in the families where that always shows.
    telling = [n for n, family in enumerate(generated.FAMILIES) if family.name in TELLING]
    crossed = [(cases[at][0], cases[at + 10][1]) for at in telling]
    judged = statuses(form, crossed, best)
    assert [one for one in judged if one[1] is not Status.WRONG] == []
