"""Write what the base of ``configs/learning-programs.yaml`` learns from: worked tasks on programs.

Tasks of three types are solved and proposed, on programs of the training half. Deductions are
worked forwards, abductions backwards from the output. A share of the solutions is wrong on purpose,
and is written just as neatly.

Example: python -m tools.program_traces runs/learning-programs/lessons.jsonl
"""

from __future__ import annotations

import ast
import json
import operator
import random
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.prompts import get_prompt, render
from rlbhpc.problems.sets.generated import KINDS, generate_tasks, make_proposing_task

HIT: Final = 0.6
LESSONS: Final = 24_000
# Of thirteen lessons: how many solve, and how many propose.
SOLVED: Final = {"deduction": 4, "abduction": 3, "induction": 3}
PROPOSED: Final = {"deduction": 1, "abduction": 1, "induction": 1}
# A program of the grammar takes three steps.
LAST: Final = 2
_OPERATIONS: Final[dict[type, tuple[str, Callable[[int, int], int]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Mod: ("%", operator.mod),
}
_CALLS: Final = {"max": max, "min": min}


def worked(program: str, arguments: list[int], slip: Callable[[int], int]) -> tuple[list[str], int]:
    """Steps of a program's expression from the inside out, and its value."""
    function = ast.parse(program).body[0]
    assert isinstance(function, ast.FunctionDef)
    answer = function.body[0]
    assert isinstance(answer, ast.Return) and answer.value is not None
    names = dict(zip((argument.arg for argument in function.args.args), arguments, strict=True))
    steps: list[str] = []

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp):
            sign, compute = _OPERATIONS[type(node.op)]
            a, b = value(node.left), value(node.right)
            left = f"{a}{sign}{b}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            a, b = (value(argument) for argument in node.args)
            compute, left = _CALLS[node.func.id], f"{node.func.id}({a},{b})"
        else:
            raise ValueError(f"no program of the grammar: {program}")
        result = slip(compute(a, b))
        steps.append(f"{left}={result}")
        return result

    return steps, value(answer.value)


def solution(task: Problem, other: Problem, right: bool, rng: random.Random) -> str:
    """A worked answer to a task; a wrong one slips in one step, or is that of another task."""
    kind, extras = task.extras["kind"], task.extras
    if kind == "induction":
        return str((task if right else other).extras["program"])
    if kind == "abduction":
        text, goal = (task if right else other).extras["inputs"][0], int(extras["outputs"][0])
        results = count()
        steps, _ = worked(
            extras["program"],
            json.loads(text),
            lambda result: goal if next(results) == LAST else result,
        )
        return "\n".join([*reversed(steps), f"input: {text}"])
    slipping = -1 if right else rng.randrange(LAST + 1)
    numbers = count()

    def slip(result: int) -> int:
        return result + rng.choice((1, 2, 3)) if next(numbers) == slipping else result

    steps, result = worked(extras["program"], json.loads(extras["inputs"][0]), slip)
    return "\n".join([*steps, f"output: {result}"])


def proposal(kind: str, task: Problem, reference: Problem) -> tuple[Problem, str]:
    """Ask for a task and give one: another program, or inputs for the reference's."""
    extras = task.extras
    question = make_proposing_task("t", kind, [reference.extras], 0)  # type: ignore[arg-type]
    if kind == "induction":
        lines = [f"input: {text}" for text in extras["inputs"]]
        return question, "\n".join([*lines, f"message: {reference.extras['message']}"])
    return question, f"{extras['program']}\ninput: {extras['inputs'][0]}"


def lessons() -> Iterator[tuple[Problem, str]]:
    """Solutions and proposals, mixed."""
    rng = random.Random("program traces")
    tasks = generate_tasks("t", "train", LESSONS, seed=1)
    by_kind = {kind: [t for t in tasks if t.extras["kind"] == kind] for kind in KINDS}
    roles = [(kind, solves) for solves, share in ((True, SOLVED), (False, PROPOSED))
             for kind in KINDS for _ in range(share[kind])]  # fmt: skip
    for _ in range(LESSONS):
        kind, solves = rng.choice(roles)
        task, other = rng.choice(by_kind[kind]), rng.choice(by_kind[kind])
        if solves:
            yield task, solution(task, other, rng.random() < HIT, rng)
        else:
            yield proposal(kind, task, other)


def main(path: Path) -> None:
    """Write the lessons."""
    template = get_prompt("countdown")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for task, text in lessons():
            row = {"prompt": render(template, task), "response": text}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
