"""How many small faults the tests notice: ``python -m tools.mutants --count 100 --seed 0``.

Each mutant is one change of one expression of the package, in a clone of what is committed. The
quick tests that name the changed module run against it, then the quick ones of its room, then the
slow ones that name it. The mutants that pass these are put in together, and all of ``make
test-all`` runs; the tests that fail then are tried with each of them alone. A mutant that none of
these notices survives. Together one fault may hide another, so the score is at least as printed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[1]
# A mutant that loops for ever is noticed: by the time limit of whoever runs it. The test that waits
# for it ends with its process, which xdist counts as a failure of the test and starts anew.
SECONDS = 3600
ONE_TEST = ["-o", "faulthandler_timeout=600", "-o", "faulthandler_exit_on_timeout=true"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
WORDS = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--dist=loadgroup",
    *ONE_TEST,
]
PYTEST = [*WORDS, "-x", "-m"]
EVERY = "not cluster"
QUICK = "not cluster and not engine and not slow"
SLOW = "not cluster and (engine or slow)"
MOST = 50
PARTS = [
    [*WORDS, f"--maxfail={MOST}", "-n", "auto", "-m", "not cluster and not engine"],
    [*WORDS, f"--maxfail={MOST}", "-n", "2", "-m", "engine and not torchvision"],
]

OPPOSITE: dict[type[Any], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the line, what stood there and what stands there now."""

    path: Path
    line: int
    start: int
    stop: int
    before: str
    after: str

    @property
    def words(self) -> str:
        """Where it is, and what changed."""
        before, after = (text.splitlines()[0] for text in (self.before, self.after))
        return f"{self.path}:{self.line}\t{before}  →  {after}"

    def overlaps(self, other: Mutant) -> bool:
        """Whether two cannot be put in together."""
        return self.path == other.path and self.start < other.stop and other.start < self.stop


def mutations(node: ast.AST) -> Iterator[ast.AST]:
    """Every small fault that can be put in the place of one node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
        changed = copy.deepcopy(node)
        changed.ops[0] = OPPOSITE[type(node.ops[0])]()
        yield changed
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in OPPOSITE:
        changed_op = copy.deepcopy(node)
        changed_op.op = OPPOSITE[type(node.op)]()
        yield changed_op
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.copy_location(ast.Constant(node.value + 1), node)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.copy_location(ast.Constant(not node.value), node)
    elif isinstance(node, ast.Raise):
        yield ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.If):
        always = copy.deepcopy(node)
        always.test = ast.copy_location(ast.Constant(True), node.test)
        yield always


def mutants_of(path: Path, checkout: Path) -> Iterator[Mutant]:
    """Every mutant of one file of a checkout."""
    source = path.read_text()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for changed in mutations(node):
            if isinstance(node, ast.expr | ast.stmt):
                yield made(path.relative_to(checkout), source, node, changed)


def made(path: Path, source: str, node: ast.expr | ast.stmt, changed: ast.AST) -> Mutant:
    """One node replaced; all other text stays as it was written."""
    lines = source.encode().splitlines(keepends=True)
    offsets = [0, *accumulate(map(len, lines))]
    start = offsets[node.lineno - 1] + node.col_offset
    stop = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
    text = ast.unparse(ast.fix_missing_locations(changed))
    if isinstance(node, ast.stmt):
        text = text.replace("\n", "\n" + " " * node.col_offset)
    else:
        text = f"({text})"
    return Mutant(path, node.lineno, start, stop, ast.unparse(node), text)


def with_faults(source: bytes, mutants: Iterable[Mutant]) -> bytes:
    """The source of one file with some mutants put in, of which no two overlap."""
    for mutant in sorted(mutants, key=lambda mutant: mutant.start, reverse=True):
        source = source[: mutant.start] + mutant.after.encode() + source[mutant.stop :]
    return source


def drawn(checkout: Path, count: int, seed: int) -> list[Mutant]:
    """The same number of mutants from every room, files by their share of its lines."""
    generator = random.Random(seed)
    rooms = sorted(path.parent for path in (checkout / "rlbhpc").glob("*/__init__.py"))
    mutants = []
    for number in range(count):
        room = rooms[number % len(rooms)]
        files = sorted(room.rglob("*.py"))
        possible: list[Mutant] = []
        while not possible:
            path = generator.choices(files, [len(file.read_text()) for file in files])[0]
            possible = list(mutants_of(path, checkout))
        mutants.append(generator.choice(possible))
    return mutants


class Checkout:
    """A clone of what is committed, with its own tests to run."""

    def __init__(self, root: Path) -> None:
        subprocess.run(["git", "clone", "--quiet", ROOT, root], check=True)
        self.root = root

    def failures(self, mutants: Iterable[Mutant], command: list[str]) -> list[str]:
        """The test of each case that fails with some mutants put in."""
        by_file: dict[Path, list[Mutant]] = {}
        for mutant in mutants:
            by_file.setdefault(self.root / mutant.path, []).append(mutant)
        originals = {path: path.read_bytes() for path in by_file}
        for path, of_file in by_file.items():
            path.write_bytes(with_faults(originals[path], of_file))
        try:
            return self._failures(command)
        finally:
            for path, source in originals.items():
                path.write_bytes(source)

    def _failures(self, command: list[str]) -> list[str]:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        try:
            run = subprocess.run(
                command,
                cwd=self.root,
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(self.root), "PATH": programs},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ["time limit"]
        # Exit code 5 says that no test was selected.
        if run.returncode in (0, 5):
            return []
        tests = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", run.stdout, re.M)
        return tests or [f"exit {run.returncode}"]

    def noticed(self, mutant: Mutant, command: list[str]) -> str:
        """The first test that fails with a mutant and passes without; empty if there is none."""
        failing = self.failures([mutant], command)
        if not failing:
            return ""
        test = failing[0]
        without = self.failures([], [*PYTEST, EVERY, test] if "::" in test else command)
        if without == ["time limit"]:
            return ""
        if not without:
            return test
        if "::" not in test:
            raise SystemExit(f"{test} without a fault; mend it first")
        print(f"{test} fails without a fault and is left out", file=sys.stderr, flush=True)
        return self.noticed(mutant, [*command, f"--deselect={test}"])

    def by_own_tests(self, mutant: Mutant) -> str:
        """The test that notices a mutant among those of its module and room."""
        return next(filter(None, (self.noticed(mutant, c) for c in self._stages(mutant))), "")

    def _stages(self, mutant: Mutant) -> Iterator[list[str]]:
        """Commands of tests, those first that notice the most for their time."""
        module = ".".join(mutant.path.with_suffix("").parts).removesuffix(".__init__")
        pattern = re.compile(rf"\b{re.escape(module)}\b")
        files = sorted((self.root / "tests").rglob("test_*.py"))
        naming = [str(f.relative_to(self.root)) for f in files if pattern.search(f.read_text())]
        room = f"tests/{mutant.path.parts[1]}"
        if naming:
            yield [*PYTEST, QUICK, *naming]
        if (self.root / room).is_dir():
            yield [*PYTEST, QUICK, room]
        if naming:
            yield [*PYTEST, SLOW, *naming]

    def by_every_test(self, mutants: list[Mutant]) -> dict[Mutant, str]:
        """Which of some mutants the tests of all rooms notice, and by which test."""
        batch: list[Mutant] = []
        rest: list[Mutant] = []
        for mutant in mutants:
            (rest if any(map(mutant.overlaps, batch)) else batch).append(mutant)
        noticed = self.by_every_test(rest) if rest else {}
        for part in PARTS:
            tests: list[str] = []
            while not tests or len(tests) >= MOST:
                tests = [test for test in self.failures(batch, part) if "::" in test]
                command = [*PYTEST, EVERY, *dict.fromkeys(tests)]
                alone = {m: self.noticed(m, command) for m in batch if tests}
                noticed |= {mutant: test for mutant, test in alone.items() if test}
                batch = [mutant for mutant in batch if not alone.get(mutant)]
                if not any(alone.values()):
                    break
        return noticed


def main() -> int:
    """Try every drawn mutant; print by what each is noticed, and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkouts = [Checkout(Path(folder) / str(number)) for number in range(os.cpu_count() or 1)]
        free = SimpleQueue[Checkout]()
        for checkout in checkouts:
            free.put(checkout)

        def by_own_tests(mutant: Mutant) -> str:
            checkout = free.get()
            test = checkout.by_own_tests(mutant)
            free.put(checkout)
            return test

        mutants = drawn(checkouts[0].root, arguments.count, arguments.seed)
        passing = []
        with ThreadPoolExecutor(len(checkouts)) as pool:
            for mutant, test in zip(mutants, pool.map(by_own_tests, mutants), strict=True):
                print(f"{test or 'passes its own tests'}\t{mutant.words}", flush=True)
                passing += [] if test else [mutant]
        print(f"{len(passing)} go on to the tests of all rooms", flush=True)
        noticed = checkouts[0].by_every_test(passing)
        for mutant in passing:
            print(f"{noticed.get(mutant, 'SURVIVED')}\t{mutant.words}", flush=True)
    killed = len(mutants) - len(passing) + len(noticed)
    print(f"{killed} of {len(mutants)} mutants were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
