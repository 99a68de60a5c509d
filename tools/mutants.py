"""How many small faults the tests notice: ``python -m tools.mutants --count 100 --seed 0``.

Each mutant is one change of one expression of the package, in a clone of what is committed. The
tests that name the changed module run against it, then those of its room, then all of ``make
test``; a mutant that passes them all survives.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# A mutant that loops for ever is noticed: by the time limit of whoever runs it.
SECONDS = 900
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not cluster"]
EVERY_TEST = ["tools/test.sh", "core", "-x"]

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
    before: str
    after: str
    source: str


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


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of one file."""
    source = path.read_text()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for changed in mutations(node):
            if isinstance(node, ast.expr | ast.stmt):
                yield applied(path, source, node, changed)


def applied(path: Path, source: str, node: ast.expr | ast.stmt, changed: ast.AST) -> Mutant:
    """The source with one node replaced; all other text stays as it was written."""
    lines = source.encode().splitlines(keepends=True)
    last = node.end_lineno or node.lineno
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[last - 1][node.end_col_offset :] + b"".join(lines[last:])
    text = ast.unparse(ast.fix_missing_locations(changed))
    if isinstance(node, ast.stmt):
        text = text.replace("\n", "\n" + " " * node.col_offset)
    else:
        text = f"({text})"
    before = ast.unparse(node).splitlines()[0]
    mutated = (head + text.encode() + tail).decode()
    return Mutant(path, node.lineno, before, text.splitlines()[0], mutated)


def drawn(checkout: Path, count: int, seed: int) -> list[Mutant]:
    """The same number of mutants from every room, files by their share of its lines."""
    generator = random.Random(seed)
    rooms = sorted(path.parent for path in (checkout / "rlbhpc").glob("*/__init__.py"))
    mutants = []
    for number in range(count):
        room = rooms[number % len(rooms)]
        files = sorted(room.rglob("*.py"))
        path = generator.choices(files, [len(file.read_text()) for file in files])[0]
        possible = list(mutants_of(path))
        if possible:
            mutants.append(generator.choice(possible))
    return mutants


def stages(mutant: Mutant, checkout: Path) -> list[list[str]]:
    """Commands of tests, those first that notice the most for their time."""
    relative = mutant.path.relative_to(checkout).with_suffix("")
    module = ".".join(relative.parts).removesuffix(".__init__")
    pattern = re.compile(rf"\b{re.escape(module)}\b")
    files = sorted((checkout / "tests").rglob("test_*.py"))
    naming = [str(f.relative_to(checkout)) for f in files if pattern.search(f.read_text())]
    room = Path("tests") / relative.parts[1]
    commands = [[*PYTEST, *naming]] if naming else []
    if (checkout / room).is_dir():
        commands.append([*PYTEST, str(room)])
    return [*commands, EVERY_TEST]


def failure(command: list[str], checkout: Path) -> str | None:
    """The first test that fails, or None."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        run = subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "PATH": programs},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time limit"
    # Exit code 5 says that no test was selected.
    if run.returncode in (0, 5):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.M)
    return failed[1] if failed else f"exit {run.returncode}"


def killed_by(mutant: Mutant, checkout: Path) -> str | None:
    """The first test that fails with the mutant in the checkout, or None if it survives."""
    original = mutant.path.read_text()
    mutant.path.write_text(mutant.source)
    failures = (failure(command, checkout) for command in stages(mutant, checkout))
    first = next((name for name in failures if name), None)
    mutant.path.write_text(original)
    test = (first or "").partition("[")[0]
    if "::" in test and failure([*PYTEST, test], checkout):
        raise SystemExit(f"{test} fails without a fault; mend it first")
    return first


def main() -> int:
    """Try every drawn mutant; print survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
        mutants = drawn(checkout, arguments.count, arguments.seed)
        for mutant in mutants:
            killer = killed_by(mutant, checkout)
            killed += killer is not None
            place = f"{mutant.path.relative_to(checkout)}:{mutant.line}"
            change = f"{mutant.before}  →  {mutant.after}"
            print(f"{killer or 'SURVIVED'}\t{place}\t{change}", flush=True)
    print(f"{killed} of {len(mutants)} mutants were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
