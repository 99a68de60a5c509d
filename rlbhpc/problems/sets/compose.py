"""Functions applied to one another: problems of any depth, which no model can have read.

Each problem defines a few functions of whole numbers and asks for a nesting of them. A model that
can do every function, and fails on two of them, lacks the composition and not the parts (compare
Yuan et al. 2025, "From f(x) and g(x) to f(g(x))", arXiv 2509.25123).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection, make_problem

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


SET = Compose()
