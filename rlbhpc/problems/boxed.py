r"""The last balanced ``\boxed{…}`` of a reference solution."""

from __future__ import annotations

from rlbhpc.errors import UserError
from rlbhpc.problems.record import Record


def last_boxed(record: Record, *names: str) -> str:
    """Gold answer in the last balanced box of the solution in the first of these fields."""
    content = last_balanced(record.text(*names))
    if not content:
        raise UserError(f"{record.place}: no balanced \\boxed{{…}} in field `{names[0]}`")
    return content


def last_balanced(text: str) -> str:
    r"""Content of the last ``\boxed{…}`` or ``\fbox{…}`` whose braces close; empty if none.

    Escaped braces (``\{``) are text. A box without braces, ``\boxed 5``, holds one token. Reference
    solutions are trusted and short; what models write is read by ``verify``.
    """
    for start in reversed(
        [i for i in range(len(text)) if text.startswith(("\\boxed", "\\fbox"), i)]
    ):
        rest = text[start:].removeprefix("\\boxed").removeprefix("\\fbox")
        if rest.startswith(" ") and rest.split():
            return rest.split()[0].strip("$.,")
        if (end := _closing(rest)) is not None:
            return rest[1:end].strip()
    return ""


def _closing(text: str) -> int | None:
    """Index of the brace that closes the one at index 0."""
    if not text.startswith("{"):
        return None
    depth, escaped = 0, False
    for i, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return i
    return None
