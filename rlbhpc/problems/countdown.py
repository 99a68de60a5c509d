"""Countdown: reach a target from some numbers, each used exactly once.

A toy on which the whole experiment runs on a laptop: problems are without number, every answer is
verified exactly, and a model of a million parameters can learn to write worked traces that
sometimes hit. Everything here is seeded. Problems for training and for testing are told apart by a
hash of the problem itself, so that no seed, limit or rule can let one into the other.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import yaml

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, ProblemSet, Selection, Source
from rlbhpc.problems.record import Record

OPERATIONS: Final = "+-*/"
Numbers = tuple[int, ...]
Half = Literal["train", "test"]


@dataclass(frozen=True)
class Rules:
    """What a Countdown problem may be.

    Each problem draws one of ``counts`` (how many numbers it has), then numbers from ``low`` to
    ``high``, both included, with replacement. ``targets`` are the lowest and the highest target.
    """

    counts: tuple[int, ...] = (4,)
    low: int = 1
    high: int = 13
    operations: str = "+-*"
    targets: tuple[int, int] = (1, 99)

    def __post_init__(self) -> None:
        """Refuse what can't be generated."""
        if not self.counts or not all(2 <= count <= 6 for count in self.counts):
            raise UserError(f"countdown: counts {list(self.counts)}; each must be 2 to 6")
        if not 1 <= self.low <= self.high:
            raise UserError(
                f"countdown: numbers from {self.low} to {self.high}; need 1 <= low <= high"
            )
        if not self.operations or set(self.operations) - set(OPERATIONS):
            raise UserError(
                f"countdown: operations {self.operations!r}; allowed: some of {OPERATIONS}"
            )
        if not 0 <= self.targets[0] <= self.targets[1]:
            raise UserError(f"countdown: targets {list(self.targets)}; need 0 <= lowest <= highest")


class Step(NamedTuple):
    """One line of a worked trace: ``a op b = result``."""

    a: int
    operation: str
    b: int
    result: int

    def __str__(self) -> str:
        return f"{self.a}{self.operation}{self.b}={self.result}"


class Worked(NamedTuple):
    """A problem with a worked trace, which may miss the target."""

    problem: Problem
    response: str


def half_of(numbers: Numbers, target: int) -> Half:
    """The side that a problem belongs to, whoever generates it: one in five is for testing."""
    text = f"{','.join(map(str, sorted(numbers)))}={target}"
    return "test" if hashlib.sha256(text.encode()).digest()[0] < 51 else "train"


def make_problem(set_name: str, numbers: Numbers, target: int, operations: str) -> Problem:
    """The problem of these numbers; they are shown in ascending order."""
    numbers = tuple(sorted(numbers))
    question = f"{' '.join(map(str, numbers))} -> {target}"
    return Problem(
        f"{set_name}/{','.join(map(str, numbers))}={target}",
        {"question": question},
        f"{question} ({operations})",
        "countdown",
        {"numbers": list(numbers), "target": target, "operations": operations},
    )


def generate(set_name: str, rules: Rules, half: Half, count: int, seed: int) -> list[Problem]:
    """Distinct solvable problems of one half.

    Numbers are drawn first, then a target uniformly among all that they can reach, so a target
    that only one solution reaches is as likely as one with many. A smaller ``count`` with the same
    seed gives the first of the same problems.
    """
    rng = random.Random(f"countdown/{half}/{seed}")
    problems: dict[tuple[Numbers, int], Problem] = {}
    barren = 0
    while len(problems) < count:
        numbers = _draw_numbers(rng, rules)
        lowest, highest = rules.targets
        open_targets = [
            target
            for target in reachable(numbers, rules.operations)
            if lowest <= target <= highest
            and half_of(numbers, target) == half
            and (numbers, target) not in problems
        ]
        if open_targets:
            target = rng.choice(open_targets)
            problems[numbers, target] = make_problem(set_name, numbers, target, rules.operations)
            barren = 0
        elif (barren := barren + 1) > 1000:
            raise UserError(
                f"countdown: the rules allow only about {len(problems)} {half} problems, "
                f"{count} were asked for; widen the range of numbers or targets"
            )
    return list(problems.values())


def work_traces(set_name: str, rules: Rules, count: int, hit: float, seed: int) -> Iterator[Worked]:
    """Worked traces for a base model, all on problems of the training half.

    A trace combines random numbers by random operations, one step a line, until one is left. Of
    any beginning of the stream the fraction ``hit`` reaches the target (to within one trace); the
    others are written just as neatly and end elsewhere. Hits and misses draw their problems from
    the same distribution, that of the values of random traces. ``hit`` 1 gives a teacher.
    """
    if not 0 <= hit <= 1:
        raise UserError(f"countdown: fraction of hits {hit}; allowed: 0 to 1")
    rng = random.Random(f"countdown/traces/{seed}")
    for index in range(count):
        hits = int((index + 1) * hit) > int(index * hit)
        while True:
            numbers = _draw_numbers(rng, rules)
            steps = random_trace(rng, numbers, rules.operations)
            aim = steps if hits else random_trace(rng, numbers, rules.operations)
            if not steps or not aim:
                continue
            target = aim[-1].result
            if hits != (steps[-1].result == target):
                continue
            lowest, highest = rules.targets
            if lowest <= target <= highest and half_of(numbers, target) == "train":
                break
        problem = make_problem(set_name, numbers, target, rules.operations)
        yield Worked(problem, trace_text(steps))


def trace_text(steps: list[Step]) -> str:
    """A trace as a response: one step a line."""
    return "\n".join(map(str, steps))


def random_trace(rng: random.Random, numbers: Numbers, operations: str) -> list[Step]:
    """Combine random pairs by random operations; empty if a division has no whole result.

    Operations are tried as drawn, so with division the traces that stay whole are what is left.
    """
    draw = rng.random  # half the time of randrange(), which is what this loop would spend
    numbers_left = list(numbers)
    steps: list[Step] = []
    while len(numbers_left) > 1:
        a = numbers_left.pop(int(draw() * len(numbers_left)))
        b = numbers_left.pop(int(draw() * len(numbers_left)))
        step = _possible_steps(a, b, operations[int(draw() * len(operations))])
        if not step:
            return []
        steps += step
        numbers_left.append(step[0].result)
    return steps


def solve(numbers: Numbers, target: int, operations: str) -> list[Step] | None:
    """One solution as steps, found by trying everything; ``None`` if there is none."""
    if len(numbers) == 1:
        return [] if numbers[0] == target else None
    for i, j in combinations(range(len(numbers)), 2):
        rest = tuple(n for k, n in enumerate(numbers) if k not in (i, j))
        for step in _possible_steps(numbers[i], numbers[j], operations):
            tail = solve((*rest, step.result), target, operations)
            if tail is not None:
                return [step, *tail]
    return None


@lru_cache(maxsize=4096)
def reachable(numbers: Numbers, operations: str) -> tuple[int, ...]:
    """All values that use every number once, ascending.

    Intermediate results are whole and not negative. For targets that are not negative and
    operations without division nothing is lost by that, since signs can be moved outwards.
    """
    values: dict[Numbers, set[int]] = {}
    for size in range(1, len(numbers) + 1):
        for part in set(combinations(numbers, size)):
            values[part] = {part[0]} if size == 1 else set()
            for split in range(1, size // 2 + 1):
                for chosen in set(combinations(range(size), split)):
                    part_numbers = tuple(part[k] for k in chosen)
                    other = tuple(n for k, n in enumerate(part) if k not in chosen)
                    values[part] |= {
                        step.result
                        for a in values[part_numbers]
                        for b in values[other]
                        for step in _possible_steps(a, b, operations)
                    }
    return tuple(sorted(values[numbers]))


def _draw_numbers(rng: random.Random, rules: Rules) -> Numbers:
    count = rules.counts[rng.randrange(len(rules.counts))]
    span = rules.high - rules.low + 1
    return tuple(sorted(rules.low + rng.randrange(span) for _ in range(count)))


def _possible_steps(a: int, b: int, operations: str) -> list[Step]:
    """Every step that joins two numbers: the larger first, results whole and not negative."""
    if a < b:
        a, b = b, a
    steps = []
    if "+" in operations:
        steps.append(Step(a, "+", b, a + b))
    if "-" in operations:
        steps.append(Step(a, "-", b, a - b))
    if "*" in operations:
        steps.append(Step(a, "*", b, a * b))
    if "/" in operations and b and a % b == 0:
        steps.append(Step(a, "/", b, a // b))
    return steps


def parse_countdown(name: str, record: Record) -> Problem:
    """A record of ``nums`` and ``target``, as Countdown-Tasks-3to4 has them."""
    numbers, target = record.need("nums", "numbers"), record.need("target")
    whole = isinstance(numbers, list) and all(type(n) is int for n in (*numbers, target))
    if not whole or len(numbers) < 2 or min(numbers) < 0:
        raise UserError(
            f"{record.place}: `nums` must be two or more whole numbers from 0 and `target` one; "
            f"found {numbers!r} and {target!r}"
        )
    operations = record.optional_text("operations") or OPERATIONS
    if set(operations) - set(OPERATIONS):
        raise UserError(f"{record.place}: operations {operations!r}; allowed: some of {OPERATIONS}")
    return make_problem(name, tuple(numbers), target, operations)


def read_rules(path: Path) -> Rules:
    """Rules from a YAML file whose keys are the fields of :class:`Rules`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not YAML ({str(error).splitlines()[0]})") from None
    keys = {field.name for field in fields(Rules)}
    if not isinstance(content, dict) or set(content) - keys:
        raise UserError(f"{path}: rules of Countdown are a mapping with some of {sorted(keys)}")
    return Rules(**{key: _check_rule(path, key, value) for key, value in content.items()})


def _check_rule(path: Path, key: str, value: Any) -> Any:
    """A rule's value in the type of its field; one number is a list of one for ``counts``."""
    if key == "operations":
        if isinstance(value, str):
            return value
    elif key in ("low", "high"):
        if type(value) is int:
            return value
    else:
        value = [value] if key == "counts" and type(value) is int else value
        right_length = key == "counts" or (isinstance(value, list) and len(value) == 2)
        if isinstance(value, list) and right_length and all(type(n) is int for n in value):
            return tuple(value)
    raise UserError(f"{path}: {key}: {value!r} is not of the right type; see docs/problem-sets.md")


@dataclass(frozen=True)
class Countdown(ProblemSet):
    """Generated where the path is missing or names rules, else read from files."""

    files: FileSet

    def load(self, selection: Selection) -> list[Problem]:
        """``limit`` problems of the half ``train`` or ``test`` (the default)."""
        name, path = selection.name, selection.path
        if path is not None and path.suffix not in (".yaml", ".yml"):
            return self.files.load(selection)
        half = selection.subset or "test"
        if half not in ("train", "test"):
            raise UserError(f"problem set {name!r} has no subset {half!r}; allowed: train, test")
        rules = Rules() if path is None else read_rules(path)
        return generate(name, rules, cast(Half, half), selection.count, selection.seed)


SET = Countdown(
    FileSet(
        parse_countdown,
        Source("Jiayi-Pan/Countdown-Tasks-3to4", ("data/*.parquet",)),
        splits=("train", "test"),
    )
)
