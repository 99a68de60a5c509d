"""Whole outputs compared with those that were read and found right, kept in files.

Text has to be equal. A number may differ by one in its last printed digit, or by more where a test
says how much; whole numbers have to be equal. A failure names each number that moved, by its line,
its place in the line, and its old and new value. RLBHPC_GOLDEN=1 writes the files anew: read the
difference before it is committed.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?")
# Differences that a failure lists, and characters of a line that it shows.
LISTED = 20
SHOWN = 160


def rewrites() -> bool:
    """Whether goldens are to be written anew."""
    return bool(os.environ.get("RLBHPC_GOLDEN"))


def agree_with(
    path: Path, lines: Iterable[str], relative: float = 0.0, absolute: float = 0.0
) -> None:
    """Compare lines with those of a file."""
    text = "\n".join(lines) + "\n"
    if rewrites():
        path.write_text(text)
    expected = path.read_text().split("\n")[:-1]
    moved = list(differences(text.split("\n")[:-1], expected, relative, absolute))
    assert not moved, listed(path.name, moved)


def listed(name: str, moved: Sequence[str]) -> str:
    """The message of a failure."""
    more = [f"and {len(moved) - LISTED} more"] if len(moved) > LISTED else []
    return "\n".join([f"{name}: {len(moved)} differences", *moved[:LISTED], *more])


def differences(
    lines: Sequence[str], expected: Sequence[str], relative: float = 0.0, absolute: float = 0.0
) -> Iterator[str]:
    """Say what moved, one sentence for each number and each line of text.

    ``relative, absolute``: how much a number with a point may differ, beside its last digit.
    """
    shapes, shapes_before = ([NUMBER.sub("#", line) for line in text] for text in (lines, expected))
    matcher = difflib.SequenceMatcher(None, shapes_before, shapes, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield from (f"line {i + 1} was {expected[i][:SHOWN]}" for i in range(start, end))
            yield from (f"line {i + 1} is  {lines[i][:SHOWN]}" for i in range(new_start, new_end))
            continue
        for i in range(start, end):
            numbers = NUMBER.findall(lines[new_start + i - start])
            before = NUMBER.findall(expected[i])
            for place, (number, was) in enumerate(zip(numbers, before, strict=True), start=1):
                allowed = tolerance(number, was, relative, absolute)
                if not abs(float(number) - float(was)) <= allowed:
                    where = f"line {i + 1} ({address(expected, i)}), number {place}"
                    yield f"{where}: was {was}, is {number}, allowed ±{allowed:.2g}"


def tolerance(number: str, was: str, relative: float, absolute: float) -> float:
    """How far two numbers may be apart."""
    last = max(last_digit(number), last_digit(was))
    return max(1.01 * last, absolute, relative * abs(float(was))) if last else 0.0


def last_digit(number: str) -> float:
    """The value of a one in the last digit; 0 for whole numbers."""
    mantissa, _, exponent = number.partition("e")
    _, point, decimals = mantissa.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals)) if point or exponent else 0.0


def address(lines: Sequence[str], place: int) -> str:
    """The beginnings of a line and of those that it is indented under."""
    names: list[str] = []
    depth = len(lines[place]) + 1
    for line in reversed(lines[: place + 1]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < depth:
            names.insert(0, re.split(r"[:\[|]", line.strip())[0][:50].strip())
            depth = indent
        if depth == 0:
            break
    return " / ".join(names)
