r"""The last balanced ``\boxed{…}`` of a reference solution."""

from __future__ import annotations

import re
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.problems.record import Record

_BOX: Final = re.compile(r"\\boxed|\\fbox")
# An escaped brace is text.
_BRACE: Final = re.compile(r"\\.|[{}]", re.DOTALL)


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
    for start in reversed([match.end() for match in _BOX.finditer(text)]):
        rest = text[start:]
        if rest.startswith(" ") and rest.split():
            return rest.split()[0].strip("$.,")
        content = braced(rest, 0) if rest.startswith("{") else None
        if content is not None:
            return content.strip()
    return ""


def braced(text: str, start: int) -> str | None:
    """What stands between the brace at ``start`` and the one that closes it, if one does."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start + 1 : brace.start()]
    return None


def ends_in_box(text: str) -> bool:
    r"""Whether the last ``\boxed{`` of a text is never closed."""
    start = text.rfind("\\boxed{")
    return start >= 0 and braced(text, start + len("\\boxed")) is None
