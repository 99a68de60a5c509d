"""Countdown: reach a target from some numbers, each used exactly once.

A toy on which the whole experiment runs on a laptop: problems are without number, every answer is
verified exactly, and a model of a million parameters can learn to write worked traces that
sometimes hit. Everything here is seeded. Problems for training and for testing are told apart by a
hash of the problem itself, so that no seed, limit or rule can let one into the other.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from rlbhpc.errors import UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.problems.problemset import FileSet, ProblemSet, Selection, Source
from rlbhpc.problems.record import Record

OPERATIONS: Final = "+-*/"
# Draws in a row without a new problem, after which there seem to be no more.
MAX_FAILED_DRAWS: Final = 1000
# Of the 256 values of a hash's first byte: one problem in five is for testing.
_TEST_BYTES: Final = 51
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
        """Refuse rules by which no problem can be generated."""
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
    first_byte = hashlib.sha256(text.encode()).digest()[0]
    return "test" if first_byte < _TEST_BYTES else "train"


def make_problem(set_name: str, numbers: Numbers, target: int, operations: str) -> Problem:
    """Build the problem: reach ``target`` from ``numbers``, each used once, by these operations.

    The numbers are sorted, so that their order makes no other problem. ``operations`` are
    characters such as ``+-*``. The verifier ``countdown`` judges answers by what the extras hold;
    the gold answer is only a text to show.
    """
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
    """Generate distinct solvable problems of one half, the training or the test half.

    Numbers are drawn first, then a target uniformly among all that they can reach, so a target that
    only one solution reaches is as likely as one with many. A smaller ``count`` with the same seed
    gives the first of the same problems. `reachable` gives every value that uses all numbers once;
    `half_of` tells the half by a hash of numbers and target.
    """
    rng = random.Random(f"countdown/{half}/{seed}")
    lowest, highest = rules.targets
    problems: dict[tuple[Numbers, int], Problem] = {}
    failed_draws = 0
    while len(problems) < count:
        numbers = _draw_numbers(rng, rules)
        new_targets = []
        for target in reachable(numbers, rules.operations):
            is_in_half = lowest <= target <= highest and half_of(numbers, target) == half
            if is_in_half and (numbers, target) not in problems:
                new_targets.append(target)
        if new_targets:
            target = rng.choice(new_targets)
            problems[numbers, target] = make_problem(set_name, numbers, target, rules.operations)
            failed_draws = 0
            continue
        failed_draws += 1
        if failed_draws > MAX_FAILED_DRAWS:
            raise UserError(
                f"countdown: the rules allow only about {len(problems)} {half} problems, "
                f"{count} were asked for; widen the range of numbers or targets"
            )
    return list(problems.values())


def work_traces(set_name: str, rules: Rules, count: int, hit: float, seed: int) -> Iterator[Worked]:
    """Yield problems of the training half, each with a worked trace for a base model to learn from.

    A trace combines random numbers by random operations, one step a line, until one is left. Of any
    beginning of the stream the fraction ``hit`` reaches the target (to within one trace); the
    others are written just as neatly and end elsewhere. Hits and misses draw their problems from
    the same distribution, that of the values of random traces. With ``hit`` 1 every trace is right,
    as a teacher's would be. `Worked` is a problem with its trace.
    """
    if not 0 <= hit <= 1:
        raise UserError(f"countdown: fraction of hits {hit}; allowed: 0 to 1")
    rng = random.Random(f"countdown/traces/{seed}")
    for index in range(count):
        # Hits are spread evenly: one wherever the running total of `hit` passes a whole number.
        is_hit = int((index + 1) * hit) > int(index * hit)
        yield _draw_worked(rng, set_name, rules, is_hit)


def _draw_worked(rng: random.Random, set_name: str, rules: Rules, is_hit: bool) -> Worked:
    """Draw a problem of the training half with a trace that reaches its target, or misses it.

    A trace is a list of steps ``a op b = result``; it is empty if a division had no whole result.
    Draws are repeated until the trace does what ``is_hit`` asks and the target is in range.
    ``rules.targets`` are the lowest and the highest target; `half_of` tells the half of a problem
    by a hash of it.
    """
    lowest, highest = rules.targets
    while True:
        numbers = _draw_numbers(rng, rules)
        steps = random_trace(rng, numbers, rules.operations)
        # A missed target is what another trace of the same numbers reaches.
        target_steps = steps if is_hit else random_trace(rng, numbers, rules.operations)
        if not steps or not target_steps:
            continue
        target = target_steps[-1].result
        if is_hit != (steps[-1].result == target):
            continue
        if lowest <= target <= highest and half_of(numbers, target) == "train":
            problem = make_problem(set_name, numbers, target, rules.operations)
            return Worked(problem, trace_text(steps))


def trace_text(steps: list[Step]) -> str:
    """A trace as a response: one step a line."""
    return "\n".join(map(str, steps))


def random_trace(rng: random.Random, numbers: Numbers, operations: str) -> list[Step]:
    """Combine random pairs of numbers by random operations until one number is left.

    The result is the list of steps, empty if a division has no whole result. Operations are tried
    as drawn, so with division the traces that stay whole are what is left. `_possible_steps` gives
    a list of at most one step for a single operation.
    """
    draw = rng.random  # half the time of randrange(), which is what this loop would spend
    numbers_left = list(numbers)
    steps: list[Step] = []
    while len(numbers_left) > 1:
        a = numbers_left.pop(int(draw() * len(numbers_left)))
        b = numbers_left.pop(int(draw() * len(numbers_left)))
        operation = operations[int(draw() * len(operations))]
        possible = _possible_steps(a, b, operation)
        if not possible:
            return []
        steps += possible
        numbers_left.append(possible[0].result)
    return steps


def solve(numbers: Numbers, target: int, operations: str) -> list[Step] | None:
    """Return one solution as a list of steps, found by trying everything; None if there is none.

    Two numbers are replaced by what an operation makes of them, and the rest is solved in the same
    way. `_possible_steps` gives every operation that may join two numbers.
    """
    if len(numbers) == 1:
        return [] if numbers[0] == target else None
    for i, j in combinations(range(len(numbers)), 2):
        unused = tuple(number for k, number in enumerate(numbers) if k not in (i, j))
        for step in _possible_steps(numbers[i], numbers[j], operations):
            later_steps = solve((*unused, step.result), target, operations)
            if later_steps is not None:
                return [step, *later_steps]
    return None


@lru_cache(maxsize=4096)
def reachable(numbers: Numbers, operations: str) -> tuple[int, ...]:
    """Return all values that arithmetic over every number, each used once, can give; ascending.

    Intermediate results are whole and not negative. For targets that are not negative and
    operations without division nothing is lost by that, since signs can be moved outwards. The
    table ``values`` has, for each subset of the numbers, the values that it can give; larger
    subsets are made from pairs of smaller ones that make them up (`_splits`).
    """
    values: dict[Numbers, set[int]] = {}
    for size in range(1, len(numbers) + 1):
        for subset in set(combinations(numbers, size)):
            values[subset] = {subset[0]} if size == 1 else set()
            for left, right in _splits(subset):
                for a, b in product(values[left], values[right]):
                    steps = _possible_steps(a, b, operations)
                    values[subset].update(step.result for step in steps)
    return tuple(sorted(values[numbers]))


def _splits(numbers: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield every way to cut numbers into two groups, neither empty, the smaller group first.

    Two groups of the same size come in both orders.
    """
    positions = range(len(numbers))
    for left_size in range(1, len(numbers) // 2 + 1):
        for chosen in combinations(positions, left_size):
            left = tuple(numbers[k] for k in chosen)
            right = tuple(numbers[k] for k in positions if k not in chosen)
            yield left, right


def _draw_numbers(rng: random.Random, rules: Rules) -> Numbers:
    count = rules.counts[rng.randrange(len(rules.counts))]
    span = rules.high - rules.low + 1
    return tuple(sorted(rules.low + rng.randrange(span) for _ in range(count)))


def _possible_steps(a: int, b: int, operations: str) -> list[Step]:
    """List the steps that join two numbers: the larger first, results whole and not negative."""
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
    """Turn a record with ``nums`` and ``target``, as Countdown-Tasks-3to4 has them, into a problem.

    ``name`` is the problem set. `Record.need` gives the first field of these names, and refuses a
    record without any.
    """
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
    """Read rules from a YAML file whose keys are the fields of :class:`Rules`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not YAML ({str(error).splitlines()[0]})") from None
    keys = {field.name for field in fields(Rules)}
    if not isinstance(content, dict) or set(content) - keys:
        raise UserError(f"{path}: rules of Countdown are a mapping with some of {sorted(keys)}")
    if type(content.get("counts")) is int:
        content["counts"] = [content["counts"]]
    try:
        # From JSON a list is read as a tuple, and nothing else is converted.
        return _RULES.validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        mistake = error.errors()[0]
        raise UserError(
            f"{path}: {mistake['loc'][0]}: {mistake['input']!r} is not of the right type; see"
            " docs/problem-sets.md"
        ) from None


_RULES: Final = TypeAdapter(Rules)


@dataclass(frozen=True)
class Countdown(ProblemSet):
    """Generated where the path is missing or names rules, else read from files."""

    files: FileSet

    def load(self, selection: Selection) -> list[Problem]:
        """Load generated problems of the half ``train`` or ``test`` (the default), or a file's.

        The path may name a YAML file of rules for the generator; any other path holds problems.
        ``selection.count`` is how many to generate.
        """
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
