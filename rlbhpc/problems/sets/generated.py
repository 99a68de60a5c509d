"""Problems without end: functions applied to one another, and the tasks of reasoning-gym."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection, make_problem

# Functions applied to one another: problems of any depth, which no model can have read.
#
# Each problem defines a few functions of whole numbers and asks for a nesting of them. A model
# that can do every function, and fails on two of them, lacks the composition and not the parts
# (compare Yuan et al. 2025, "From f(x) and g(x) to f(g(x))", arXiv 2509.25123).


MODULUS: Final = 100
DEPTHS: Final = range(1, 17)
# Problems in a row that were there already.
_BARREN: Final = 1_000
_SUBSET: Final = re.compile(r"(train|test)(?:/depth\[([0-9]+)(?:-([0-9]+))?\])?")
_LETTERS: Final = "fghkpqrstuvw"

Function = Callable[[int], int]
# A family takes two numbers to what a function is called and what it does.
_FAMILIES: Final[tuple[Callable[[int, int], tuple[str, Function]], ...]] = (
    lambda a, b: (f"{a}x + {b}", lambda x: a * x + b),
    lambda a, b: (f"x^2 + {b}", lambda x: x * x + b),
    lambda a, b: (f"the digits of x added up, plus {b}", lambda x: sum(map(int, str(x))) + b),
    lambda a, b: (f"x with its two digits swapped, plus {b}", lambda x: x % 10 * 10 + x // 10 + b),
    lambda a, b: (f"the larger of x and {10 * a + b}", lambda x: max(x, 10 * a + b)),
    lambda a, b: (f"{MODULUS - 1} minus x, plus {b}", lambda x: MODULUS - 1 - x + b),
)


def compose(set_name: str, depth: int, rng: np.random.Generator) -> Problem:
    """One problem: ``depth`` functions, each used once, from the innermost out."""
    names = rng.permutation(list(_LETTERS))[: min(depth, len(_LETTERS))].tolist()
    functions: dict[str, Function] = {}
    lines = [f"All results are taken modulo {MODULUS}."]
    for name in names:
        family = _FAMILIES[int(rng.integers(len(_FAMILIES)))]
        a, b = (int(value) for value in rng.integers(2, 10, 2))
        words, functions[name] = family(a, b)
        lines.append(f"{name}(x) = {words}")
    start = int(rng.integers(MODULUS))
    value, nesting = start, str(start)
    for position in range(depth):
        name = names[position % len(names)]
        value = functions[name](value) % MODULUS
        nesting = f"{name}({nesting})"
    lines.append(f"What is {nesting}?")
    return make_problem(set_name, "", "\n".join(lines), str(value), "math", {"depth": depth})


def half_of(question: str) -> str:
    """The half that a problem belongs to, whatever seed made it: a hash of its question."""
    digest = hashlib.sha256(question.encode()).digest()
    return "train" if digest[0] % 2 else "test"


@dataclass(frozen=True)
class Compose(ProblemSet):
    """The halves ``train`` and ``test`` (the default), with ``depth[D]`` or ``depth[LOW-HIGH]``."""

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of a half, depths in turn."""
        name, path, subset = selection.name, selection.path, selection.subset
        match = _SUBSET.fullmatch(subset or "test")
        low = int(match[2] or 1) if match else 0
        high = int(match[3] or match[2] or 4) if match else 0
        if match is None or path is not None or low not in DEPTHS or not low <= high <= DEPTHS[-1]:
            raise UserError(
                f"problem set {name!r} is generated: give no path, and a subset such as test,"
                f" train or test/depth[2-4], depths from 1 to {DEPTHS[-1]}; found {path or subset}"
            )
        rng = np.random.Generator(np.random.Philox(key=[selection.seed, 0xC0]))
        problems: dict[str, Problem] = {}
        barren = 0
        while len(problems) < selection.count:
            problem = compose(name, low + len(problems) % (high - low + 1), rng)
            barren = barren + 1 if problem.id in problems else 0
            if barren > _BARREN:
                raise UserError(
                    f"problem set {name!r}: no more than about {len(problems):,} problems of depth"
                    f" {low}; lower `limit` or ask for more depth"
                )
            if half_of(problem.fields["question"]) == match[1]:
                problems[problem.id] = problem
        return list(problems.values())


COMPOSE = Compose()


# The tasks of reasoning-gym (arXiv 2505.24760): puzzles without end, each with its own scorer.
#
# The package is an optional dependency. It runs in a child process whose hash seed is fixed,
# because some of its generators walk over sets: the same seed then gives the same problems
# everywhere.


PACKAGE: Final = "reasoning_gym"
LEFT_OUT: Final = {
    "coin_flip": "its scorer takes the first digits for the number",
    "complex_arithmetic": "its scorer takes nan for any number",
    "composite": "it puts other tasks together",
    "game_of_life_halting": "its scorer takes any text for True",
    "puzzle24": "its scorer does not look at the numbers that are used",
}
_APART: Final = 1 << 20
# Entries looked at for each that a half is to have.
_TRIES: Final = 10


@dataclass(frozen=True)
class ReasoningGym(ProblemSet):
    """One task, named by the subset, at the difficulty that the package gives it."""

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of ``TASK``, or of ``train/TASK``, which shares none with it."""
        name = selection.name
        if importlib.util.find_spec(PACKAGE) is None:
            raise UserError(
                f"problem set {name!r} needs the package reasoning-gym;"
                " run `pip install '.[gym]'` in a checkout"
            )
        half, _, task = (selection.subset or "").rpartition("/")
        if selection.path is not None or not task or half not in ("", "train", "test"):
            raise UserError(
                f"problem set {name!r} is generated: give no path, and a task as `subset`, such as"
                " knights_knaves or train/knights_knaves;"
                f" found {selection.path or selection.subset}"
            )
        reply = _ask_generator(task, half or "test", selection.count, selection.seed)
        if "tasks" in reply:
            raise UserError(
                f"problem set {name!r}: no task {task!r}; allowed: {', '.join(reply['tasks'])}"
            )
        if "failed" in reply:
            raise UserError(f"problem set {name!r}: task {task} {reply['failed']}")
        return [
            make_problem(
                name, "", entry["question"], entry["answer"], "reasoning-gym",
                {"task": task, "entry": entry["entry"]},
            )
            for entry in reply["entries"]
        ]  # fmt: skip


def _ask_generator(task: str, half: str, count: int, seed: int) -> Mapping[str, Any]:
    """Ask a child process, which starts with a fixed hash seed."""
    child = subprocess.run(
        [sys.executable, "-m", __name__, task, half, str(count), str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
    )
    if child.returncode:
        last = child.stderr.strip().rpartition("\n")[2]
        return {"failed": f"could not be generated ({last}); take another"}
    reply: Mapping[str, Any] = json.loads(child.stdout)
    return reply


def _generate(task: str, half: str, count: int, seed: int) -> Mapping[str, Any]:
    """The child's side: entries of one task, or the names of all."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task in LEFT_OUT:
        return {"failed": f"is left out: {LEFT_OUT[task]}; take another"}
    if task not in DATASETS:
        return {"tasks": sorted(DATASETS.keys() - LEFT_OUT.keys())}
    score = reasoning_gym.get_score_answer_fn(task)
    # The package seeds its entry i with seed + i, so seeds must stand further apart than that.
    most = _TRIES * count + 100
    dataset = reasoning_gym.create_dataset(task, size=most, seed=seed * _APART)
    entries: dict[str, Mapping[str, Any]] = {}
    for index in range(most):
        entry = dataset[index]
        question, answer = entry["question"], entry["answer"]
        text = repr(_literal(entry))
        # Where several answers are right the package may name none.
        if answer is not None and score(answer, ast.literal_eval(text)) != score(answer, entry):
            return {"failed": "is scored by what cannot be stored; take another"}
        if half_of(question) == half:
            entries[question] = {"question": question, "answer": answer or "", "entry": text}
        if len(entries) == count:
            return {"entries": list(entries.values())}
    return {"failed": f"has no more than about {len(entries):,} problems; lower `limit`"}


def _literal(value: Any) -> Any:
    """A value as what :func:`ast.literal_eval` reads."""
    if isinstance(value, Mapping):
        return {_literal(key): _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_literal(item) for item in value)
    # NumPy's scalars are numbers and strings too, by another name.
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, str | int | float) else str(value)


REASONING_GYM = ReasoningGym()

if __name__ == "__main__":
    # Some generators print.
    with contextlib.redirect_stdout(sys.stderr):
        reply = _generate(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(reply))
