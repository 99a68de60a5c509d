"""Reasoning about small programs: three tasks on a triplet of program, inputs and outputs.

Deduction asks for the output, abduction for an input that gives it, induction for the program
itself, by examples and a message; half of its inputs stay hidden. A proposal asks for a new triplet
(Zhao et al. 2025, arXiv 2505.03335). Values are JSON: an input is the list of arguments of ``f``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, Literal

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection, make_problem

Kind = Literal["deduction", "abduction", "induction"]
Triplet = Mapping[str, Any]
"""``program``, and as JSON texts ``inputs`` and ``outputs``; ``message`` for induction."""

KINDS: Final[tuple[Kind, ...]] = ("deduction", "abduction", "induction")
VERIFIER: Final = "program-task"
IDENTITY: Final = "def f(x):\n    return x"

_SOLVE: Final = {
    "deduction": "Give the output of f for this input, as JSON.",
    "abduction": "Give an input for which f gives this output: a JSON list of arguments.",
    "induction": "Write the Python function f that fits these examples.",
}
_PROPOSE: Final = {
    "deduction": "Write a new Python function f, then a line `input: ` with a JSON list of "
    "arguments, so that its output is hard to tell. Let it differ from these.",
    "abduction": "Write a new Python function f, then a line `input: ` with a JSON list of "
    "arguments, so that they are hard to find from the output. Let it differ from these.",
    "induction": "Write ten lines `input: `, each with a JSON list of arguments of f, then a line "
    "`message: ` that helps to find f from inputs and outputs.",
}


def make_solving_task(set_name: str, kind: Kind, triplet: Triplet) -> Problem:
    """The task of one kind on a triplet."""
    inputs, outputs = triplet["inputs"], triplet["outputs"]
    lines = [_SOLVE[kind]]
    visible = (len(inputs) + 1) // 2
    if kind == "induction":
        lines += [f"{a} -> {b}" for a, b in zip(inputs[:visible], outputs, strict=False)]
        lines += [f"message: {triplet['message']}"] if triplet.get("message") else []
        gold, tail = triplet["program"], "program:"
    elif kind == "deduction":
        lines += [triplet["program"], f"input: {inputs[0]}"]
        gold, tail = outputs[0], "output:"
    else:
        lines += [triplet["program"], f"output: {outputs[0]}"]
        gold, tail = inputs[0], "input:"
    question = "\n".join([*lines, tail])
    extras = {"role": "solve", "kind": kind, **triplet}
    return make_problem(set_name, _triplet_id(kind, triplet), question, gold, VERIFIER, extras)


def make_proposing_task(
    set_name: str, kind: Kind, references: Sequence[Triplet], number: int
) -> Problem:
    """The task of thinking up a triplet; for induction, inputs for the one reference's program."""
    lines = [_PROPOSE[kind]]
    for reference in references:
        lines += [reference["program"]]
        lines += [f"input: {reference['inputs'][0]}"] if kind != "induction" else []
    extras: dict[str, Any] = {"role": "propose", "kind": kind}
    if kind == "induction":
        extras["program"] = references[0]["program"]
    question = "\n".join([*lines, ""])
    return make_problem(set_name, f"{kind}-new-{number}", question, "", VERIFIER, extras)


def generate_tasks(name: str, half: str, limit: int, seed: int) -> list[Problem]:
    """Tasks on programs of a small grammar, of the three kinds in turn.

    A program belongs to the half that its text is hashed to, so the halves share none. The
    message of an induction names the program's operations; its numbers are left to find.
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x5072]))
    problems: dict[str, Problem] = {}

    def tasks() -> Any:
        for _ in count():
            program, value, message = _draw_program(rng)
            inputs = _draw_inputs(rng)
            digest = hashlib.sha256(program.encode()).digest()
            if (digest[0] % 2 == 0) != (half == "train"):
                continue
            kind = KINDS[len(problems) % 3]
            outputs = [json.dumps(value(*arguments)) for arguments in inputs]
            texts = [json.dumps(arguments) for arguments in inputs]
            size = len(texts) if kind == "induction" else 1
            triplet: dict[str, Any] = {"program": program, "inputs": texts[:size]}
            triplet |= {"outputs": outputs[:size]}
            triplet |= {"message": message} if kind == "induction" else {}
            problem = make_solving_task(name, kind, triplet)
            if problem.id not in problems:
                problems[problem.id] = problem
                yield problem

    return list(islice(tasks(), limit))


def _draw_program(rng: np.random.Generator) -> tuple[str, Any, str]:
    """A function of two whole numbers: its text, its value by our own arithmetic, a message."""
    a, b = (int(n) for n in rng.integers(1, 10, 2))
    first, second = (int(n) for n in rng.integers(0, len(_OPERATIONS), 2))
    inner, compute, sign = _OPERATIONS[first]
    outer, conclude, last = _OPERATIONS[second]
    text = outer.format(inner.format("x", f"y + {a}"), b)
    return (
        f"def f(x, y):\n    return {text}",
        lambda x, y: conclude(compute(x, y + a), b),
        f"{sign}, then {last}",
    )


_OPERATIONS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("({} + {})", lambda x, y: x + y, "+"),
    ("({} - ({}))", lambda x, y: x - y, "-"),
    ("({} * ({}))", lambda x, y: x * y, "*"),
    ("max({}, {})", max, "max"),
    ("min({}, {})", min, "min"),
    ("({} % ({}))", lambda x, y: x % y, "%"),
)


def _draw_inputs(rng: np.random.Generator) -> list[list[int]]:
    drawn = rng.integers(0, 10, (6, 2)).tolist()
    return [list(map(int, pair)) for pair in drawn]


def _triplet_id(kind: Kind, triplet: Triplet) -> str:
    text = json.dumps([triplet["program"], triplet["inputs"], triplet.get("message", "")])
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class ProgramTasks(ProblemSet):
    """The halves ``train`` and ``test`` (the default) of a grammar, or ``identity``."""

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of a half, or one of each kind about the identity."""
        name, path = selection.name, selection.path
        half = selection.subset or "test"
        if path is not None or half not in ("train", "test", "identity"):
            raise UserError(
                f"problem set {name!r} is generated: give no path, and of the subsets train, test "
                f"and identity one; found {str(path or half)!r}"
            )
        if half == "identity":
            texts = [f"[{i}]" for i in range(6)]
            values = [str(i) for i in range(6)]
            size = {"deduction": 1, "abduction": 1, "induction": 6}
            return [
                make_solving_task(name, kind, {"program": IDENTITY, "inputs": texts[: size[kind]],
                                     "outputs": values[: size[kind]]})
                for kind in KINDS
            ]  # fmt: skip
        return generate_tasks(name, half, selection.count, selection.seed)


SET = ProgramTasks()
