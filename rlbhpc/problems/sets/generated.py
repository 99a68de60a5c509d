"""Problems without end: nested functions, reasoning-gym, and tasks on small programs."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, Literal

import numpy as np

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import ProblemSet, Selection, make_problem

# ---- program tasks -------------------------------------------------------------------------------
# Reasoning about small programs: three tasks on a triplet of program, inputs and outputs.
#
# Deduction asks for the output, abduction for an input that gives it, induction for the program
# itself, by examples and a message; half of its inputs stay hidden. A proposal asks for a new
# triplet (Zhao et al. 2025, arXiv 2505.03335). Values are JSON: an input is the list of arguments
# of ``f``.


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
    """Build a task on a triplet of program, inputs and outputs: to find the part that is not shown.

    Deduction asks for the output, abduction for an input, induction for the program ``f``.
    Induction shows half of the inputs with their outputs (rounded up); the rest stays hidden for
    the verifier. ``gold`` is the part asked for, ``tail`` the last line of the question.
    `_triplet_id` is a hash.
    """
    inputs, outputs = triplet["inputs"], triplet["outputs"]
    lines = [_SOLVE[kind]]
    visible = (len(inputs) + 1) // 2  # half of them, rounded up
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
    """Build the task of thinking up a new triplet of program, inputs and outputs.

    ``references`` are triplets that the new one should differ from. For induction there is one
    reference, and the task is to think up inputs for its program. There is no gold answer.
    """
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
    """Generate ``limit`` tasks on programs of a small grammar, of the three kinds in turn.

    A program belongs to the half (``train`` or ``test``) that its text is hashed to, so the halves
    share none. The message of an induction names the program's operations; its numbers are left to
    find.
    """
    # The second number keeps this stream apart from those of other generators.
    rng = np.random.Generator(np.random.Philox(key=[seed, 0x5072]))
    problems: dict[str, Problem] = {}

    def tasks() -> Any:
        """Yield new tasks without end, of the kinds deduction, abduction and induction in turn.

        A *triplet* is a program with inputs and outputs, as JSON texts. ``value`` is the program as
        a Python function. Induction has all inputs, the other kinds only the first. A program of
        the other half is passed over, and so is a task that was there before.
        """
        for _ in count():
            program, value, message = _draw_program(rng)
            inputs = _draw_inputs(rng)
            digest = hashlib.sha256(program.encode()).digest()
            # A program whose digest begins with an even byte is for training.
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
    """Draw a small function of two whole numbers: its text, a Python function, and a message.

    An operation of the grammar has a text to fill in, a function that computes it, and a sign. Two
    are drawn: the inner one of ``x`` and ``y + a``, the outer one of its result and ``b``. The
    message gives their signs.
    """
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
        """Load ``limit`` tasks of a half, or one task of each kind about the identity function.

        The kinds are deduction (find the output), abduction (find an input) and induction (find the
        program). Induction gets six inputs, the others one.
        """
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


PROGRAM_TASKS = ProgramTasks()


# ---- generated -----------------------------------------------------------------------------------
# Problems without end: functions applied to one another, and the tasks of reasoning-gym.


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
    """Build one problem: a nesting of ``depth`` functions, to be worked out from the innermost.

    Each function has a letter and is given in words; two numbers from 2 to 9 fill in its family,
    such as ``ax + b``. Beyond twelve functions the letters are used again in the same order.
    """
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
        """Generate ``limit`` problems of a half, with depths from ``low`` to ``high`` in turn.

        The depth is how many functions are nested. The subset names the half and possibly the
        depths, as in ``train/depth[2-4]``; without them it is 1 to 4. ``barren`` counts draws in a
        row that gave a known problem. `half_of` tells a problem's half by a hash of its question.
        """
        name, path, subset = selection.name, selection.path, selection.subset
        match = _SUBSET.fullmatch(subset or "test")
        low = int(match[2] or 1) if match else 0
        high = int(match[3] or match[2] or 4) if match else 0
        if match is None or path is not None or low not in DEPTHS or not low <= high <= DEPTHS[-1]:
            raise UserError(
                f"problem set {name!r} is generated: give no path, and a subset such as test,"
                f" train or test/depth[2-4], depths from 1 to {DEPTHS[-1]}; found {path or subset}"
            )
        # The second number keeps this stream apart from those of other generators.
        rng = np.random.Generator(np.random.Philox(key=[selection.seed, 0xC0]))
        problems: dict[str, Problem] = {}
        barren = 0
        while len(problems) < selection.count:
            # The depths from low to high in turn.
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
        """Generate ``limit`` problems of one task of the package reasoning-gym.

        The subset is ``TASK`` or ``train/TASK``; the two share no problem. `_ask_generator` runs
        the package in a child process and gives its ``entries``, or ``tasks`` (the names of all
        tasks) if there is none of this name, or under ``failed`` why it could not.
        """
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
    """Generate problems of a task in a child process, and return its answer.

    Some generators walk over sets, whose order follows from Python's hash seed. Only a new process
    can fix that seed.
    """
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
    """Generate ``count`` problems of one task and half; this runs in the child process.

    The answer has ``entries``, or ``tasks`` (all names) for an unknown task, or ``failed`` with the
    reason. An entry is stored as the text of a Python literal, so the task's scorer must judge the
    stored copy as it judges the original. `half_of` tells a problem's half by a hash of its
    question.
    """
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
    """Return a copy of a value that :func:`ast.literal_eval` can read back from its text."""
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
