"""Small problems with solutions, in the shape in which each benchmark publishes its own.

Ten families with ten parameters each. A family says how to make an input, what is right, and how a
program computes it; the shapes are built around that.
"""

from __future__ import annotations

import base64
import json
import pickle
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlbhpc.problems.problem import Problem


@dataclass(frozen=True)
class Family:
    """``body`` computes from ``a`` (a list of integers) with the number K filled in."""

    name: str
    body: str
    solve: Callable[[list[int], int], Any]


FAMILIES = (
    Family("sum_over", "return sum(x for x in a if x > K)",
           lambda a, k: sum(x for x in a if x > k)),
    Family("rotated", "k = K % len(a)\n    return a[k:] + a[:k]",
           lambda a, k: a[k % len(a):] + a[: k % len(a)]),
    Family("smallest", "import heapq\n    return heapq.nsmallest(K, a)",
           lambda a, k: sorted(a)[:k]),
    Family("mean", "return sum(a) / len(a) + K", lambda a, k: sum(a) / len(a) + k),
    Family("counts", "from collections import Counter\n    c = Counter(x % K for x in a)\n"
           "    return [c[i] for i in range(K)]",
           lambda a, k: [sum(x % k == i for x in a) for i in range(k)]),
    Family("longest", "best = run = 0\n    for x in a:\n        run = run + 1 if x >= K else 0\n"
           "        best = max(best, run)\n    return best",
           lambda a, k: max(map(len, "".join("x" if y >= k else " " for y in a).split(" ")))),
    Family("word", "return ''.join(chr(97 + (x + K) % 26) for x in a)",
           lambda a, k: "".join(chr(97 + (x + k) % 26) for x in a)),
    Family("power", "r = 1\n    for x in a: r *= abs(x) + K\n    return r",
           lambda a, k: __import__("math").prod(abs(x) + k for x in a)),
    Family("has", "return K in {x + y for x in a for y in a}",
           lambda a, k: any(x + y == k for x in a for y in a)),
    Family("pairs", "return [[x, y] for x in a for y in a if x - y == K]",
           lambda a, k: [[x, y] for x in a for y in a if x - y == k]),
)  # fmt: skip


def _inputs(family: Family, k: int, count: int) -> list[list[int]]:
    rng = random.Random(f"{family.name} {k}")
    # The first input tells every k from its neighbours, which random ones may fail to.
    telling = [k - 1, k, k + 1, k + 2]
    random_ones = (
        [rng.randint(-20, 20) for _ in range(rng.randint(1, 12))] for _ in range(count - 1)
    )
    return [telling, *random_ones]


def _cases() -> Iterator[tuple[Family, int]]:
    return ((family, k) for k in range(1, 11) for family in FAMILIES)


def _packed(rows: list[dict[str, str]]) -> str:
    """As LiveCodeBench packs its private tests."""
    text = json.dumps(rows)
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


def livecodebench(functional: bool) -> list[tuple[Problem, str]]:
    """Problems and responses, by standard input or by a method."""
    made = []
    for family, k in _cases():
        tests = [(a, family.solve(a, k)) for a in _inputs(family, k, 6)]
        if functional:
            rows = [(json.dumps(a), json.dumps(value)) for a, value in tests]
            body = family.body.replace("K", str(k)).replace("\n", "\n    ")
            program = f"class Solution:\n    def {family.name}(self, a: List[int]):\n        {body}"
            metadata = {"func_name": family.name, "starter_code": "class Solution:\n    def f"}
        else:
            rows = [(f"{len(a)}\n{' '.join(map(str, a))}\n", f"{value}\n") for a, value in tests]
            function = f"def solve(a):\n    {family.body.replace('K', str(k))}"
            program = (
                f"{function}\n\nn = int(input())\nprint(solve(list(map(int, input().split()))))"
            )
            metadata = {"func_name": "", "starter_code": ""}
        kind = "functional" if functional else "stdin"
        cases = [{"input": i, "output": o, "testtype": kind} for i, o in rows]
        # Half of the published problems have their private tests in the clear.
        private = json.dumps(cases[2:]) if k % 2 else _packed(cases[2:])
        extras = {
            "format": "livecodebench", **metadata, "public_tests": json.dumps(cases[:2]),
            "tests": {"private_test_cases": private},
        }  # fmt: skip
        problem = Problem(f"livecodebench/{family.name}-{k}", {"question": "?"}, "", "code", extras)
        made.append((problem, f"Let me think.\n```python\n{program}\n```\nThat is all."))
    return made


def evalplus(mbpp: bool) -> list[tuple[Problem, str]]:
    """Problems and responses in the shape of HumanEval+ or MBPP+."""
    made = []
    for number, (family, k) in enumerate(_cases()):
        body = family.body.replace("K", str(k))
        head = f"def {family.name}(a: list[int]):\n"
        if mbpp:
            prompt = f'"""\nWrite a function {family.name}.\nassert {family.name}([1]) == 1\n"""\n'
            canonical = f"\n{head}    {body}\n"
        else:
            prompt = f'from typing import List\n\n{head}    """ {family.name} with {k}. """\n'
            canonical = f"    {body}\n"
        inputs = [[a] for a in _inputs(family, k, 12)]
        extras = {
            "format": "evalplus", "prompt": prompt, "entry_point": family.name,
            "canonical_solution": canonical, "contract": "", "atol": 0,
            "tests": {"base_input": inputs[:4], "plus_input": inputs[4:]},
        }  # fmt: skip
        task = f"Mbpp/{800 + number}" if mbpp else f"HumanEval/{number}"
        # Numbers that no conversion of inputs is listed for.
        task = f"Mbpp/{10000 + number}" if mbpp else task
        problem = Problem(f"{'mbpp+' if mbpp else 'humaneval+'}/{task}", {"question": "?"}, "",
                          "code", extras)  # fmt: skip
        program = f"{head}    {body}\n\nprint({family.name}([1, 2, 3]))"
        # The prompt has opened the fence.
        made.append((problem, f"{program}\n```\nIt works because of arithmetic."))
    return made
