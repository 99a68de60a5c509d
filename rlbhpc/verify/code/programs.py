"""The program in a response: text rules in linear time, nothing is parsed here.

A response may hold a closed thought, several fenced blocks, prose between them, and, where the
prompt opened a fence, begin inside one. Whether something is a program is for the sandbox to find
out; which block is meant is decided by the text alone.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from rlbhpc.problems.problem import Problem
from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Cause, Outcome
from rlbhpc.verify.verdict import Status

_FENCE: Final = "```"
_PYTHON: Final = {"python", "py", "python3", "python2", "ipython", "pycon"}
# A line that begins as statements do and sentences don't: what tells a program without a fence
# from prose. Every program that prints or returns something has one.
_STATEMENT: Final = re.compile(
    r"""^[ \t]*+(?:
      (?:async[ \t]+)?def[ \t]+\w+[ \t]*\( | class[ \t]+\w+[ \t]*[(:] | @\w | return\b
    | import[ \t]+[\w.]+[ \t]*(?:$|[,;\#]|as\b) | from[ \t]+[\w.]+[ \t]+import\b
    | (?:for|while|if|with|try|else)\b[^\n]*:
    | [*\w.\[\]'"]+(?:[ \t]*,[ \t]*[*\w.\[\]'"]+)*[ \t]*[-+*/%&|^@<>]{0,3}=(?!=)
    | (?:\w+\.)*\w+\([^\n]*\)[ \t]*(?:$|[;.\[\#])
    ) | \b(?:print|exec|write)\(""",
    re.M | re.X,
)


# What opens and closes a program where no fence of backticks does; two ways to write such a fence.
_WRAPPER: Final = re.compile(
    r"^[ \t]*(?:(?P<open>~~~+\w*|\[PYTHON\]|<code>|\\begin\{(?:lstlisting|verbatim|minted)\}.*)"
    r"|~~~+|\[/PYTHON\]|</code>|\\end\{(?:lstlisting|verbatim|minted)\})[ \t]*$",
    re.M,
)
_CODE_LINE: Final = re.compile(r"^[ \t]*[^#\s]", re.M)
_LATE_FENCE: Final = re.compile(r"^([^`\n]*[^`\s][^`\n]*)```(python3?|py)[ \t]*$", re.M)
_QUOTED: Final = re.compile(r"^[ \t]*>[ \t]*```", re.M)


class Block(NamedTuple):
    """A fenced block: the word after the opening fence, in lower case, and the text."""

    language: str
    text: str


def answer_part(response: str) -> str:
    """Return what stands after the thought, within the last answer tag if there is one.

    A thought that was opened and never closed is no answer.
    """
    _, closed, rest = response.rpartition("</think>")
    if not closed and "<think>" in response:
        return ""
    _, tag, inside = rest.rpartition("<answer>")
    return inside.partition("</answer>")[0] if tag else rest


def blocks(response: str) -> list[Block]:
    """All blocks of code in a response, in order.

    A response whose first fence can only be a closing one begins inside a block. The last block
    may lack its closing fence. Without any fence the whole response is one block, if any line of it
    may be code: prompts that open a fence often stop at the closing one.
    """
    lines = [line.removeprefix("\ufeff") for line in _fenced(answer_part(response)).split("\n")]
    fences = _fences(lines)
    if not fences:
        text = "\n".join(lines)
        return [Block("", text)] if _STATEMENT.search(text) else []
    code_blocks: list[Block] = []
    if _begins_inside(lines, fences):
        code_blocks.append(Block("python", "\n".join(lines[: fences[0]])))
        fences = fences[1:]
    for index in range(0, len(fences), 2):
        start = fences[index]
        end = fences[index + 1] if index + 1 < len(fences) else len(lines)
        text = "\n".join(_outdented(lines[start + 1 : end], lines[start]))
        if text.strip():
            code_blocks.append(Block(_language(lines[start]), text))
    return code_blocks


def _fenced(text: str) -> str:
    """Write other ways to set a program off as fences that stand alone on their lines."""
    if _FENCE not in text:
        return _WRAPPER.sub(lambda mark: "```python" if mark["open"] else _FENCE, text)
    if _QUOTED.search(text) is not None:
        text = re.sub(r"^[ \t]*> ?", "", text, flags=re.M)
    return _LATE_FENCE.sub(r"\1\n```\2", text)


def _fences(lines: list[str]) -> list[int]:
    """Find the lines with fences; one indented within a block belongs to a docstring."""
    fences: list[int] = []
    opened: int | None = None  # the indentation of the fence that is open
    for number, line in enumerate(lines):
        if not line.lstrip().startswith(_FENCE):
            continue
        indent = len(line) - len(line.lstrip())
        if opened is not None and indent >= opened + 4:
            continue
        opened = indent if opened is None else None
        fences.append(number)
    return fences


def _outdented(lines: list[str], fence: str) -> list[str]:
    """Take the indentation of the opening fence off each line, or what it has of it."""
    indent = fence[: len(fence) - len(fence.lstrip())]
    if not indent:
        return lines
    return [
        line.removeprefix(indent) if line.startswith(indent) else line.lstrip() for line in lines
    ]


def _language(line: str) -> str:
    return line.strip().lstrip("`").strip().partition(" ")[0].lower()


def _begins_inside(lines: list[str], fences: list[int]) -> bool:
    before = any(line.strip() for line in lines[: fences[0]])
    return before and len(fences) % 2 == 1 and not _language(lines[fences[0]])


def program(response: str, entry: str = "") -> str:
    """Return the program that a response commits to; empty if there is none.

    ``entry``: name of a function or class that the program must define, if one is known. The last
    block that defines it wins over later ones, which show its use. Else the last block that is
    marked as Python does, else the last unmarked one.
    """
    code_blocks = blocks(response)
    if entry:
        definition = re.compile(
            rf"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(entry)}\b"
            rf"|{re.escape(entry)}[ \t]*=[ \t]*lambda\b)",
            re.M,
        )
        defining = [block for block in code_blocks if definition.search(block.text)]
        if defining:
            return _flush_left(defining[-1].text)
    code_blocks = [block for block in code_blocks if _CODE_LINE.search(block.text)]
    marked = [block for block in code_blocks if block.language in _PYTHON]
    unmarked = [block for block in code_blocks if not block.language]
    for kind in (marked, unmarked):
        if kind:
            # Where a function was asked for, an indented block may be its body alone.
            return kind[-1].text if entry else _flush_left(kind[-1].text)
    return ""


def _flush_left(program: str) -> str:
    """Undo the indentation of a program as a whole."""
    return textwrap.dedent(program) if program.lstrip("\n")[:1] in (" ", "\t") else program


def last_block(response: str) -> str:
    """Return the lines between the last two fences, as LiveCodeBench's harness takes them.

    Where the prompt has opened the fence the response is read as if it had.
    """
    lines = answer_part(response).split("\n")
    fences = [number for number, line in enumerate(lines) if _FENCE in line]
    if not fences:
        text = "\n".join(lines)
        return text if _STATEMENT.search(text) else ""
    if _begins_inside(lines, fences):
        lines.insert(0, f"{_FENCE}python")
        fences = [0, *(number + 1 for number in fences)]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]])


# ---- judgement -----------------------------------------------------------------------------------
# What a format says of a program, the protocol of a format, and what calls returned.


class Strictness(StrEnum):
    """Whose verdict is wanted.

    ``SOUND`` is this project's: every test in a process of its own, programs run as what they are.
    ``COMPAT`` is what the benchmark's own harness says of an honest program, its quirks included.
    """

    SOUND = "sound"
    COMPAT = "compat"


@dataclass(frozen=True)
class Judgement:
    """Status, and in a few words on what grounds."""

    status: Status
    reason: str

    @classmethod
    def of_failure(cls, test: int, tests: int, outcome: Outcome) -> Judgement:
        """Judge a run that did not end by itself with status 0."""
        if outcome.cause.is_time:
            return cls(Status.TIMEOUT, f"test {test + 1} of {tests}: {outcome.cause} limit")
        ending = outcome.cause if outcome.cause is not Cause.EXIT else "exit"
        return cls(Status.WRONG, f"test {test + 1} of {tests}: {ending} {outcome.status}".rstrip())


class Format(Protocol):
    """A module that judges the programs of one format."""

    def extract(self, response: str, problem: Problem, strictness: Strictness) -> str:
        """Return the program of a response; empty if there is none."""
        ...

    def judge(
        self, program: str, problem: Problem, sandbox: Sandbox, strictness: Strictness
    ) -> Judgement:
        """Run a program on the problem's tests."""
        ...


def big_fields(problem: Problem) -> dict[str, Any]:
    """Return the fields of a problem that are read only when a program is judged."""
    tests = problem.extras["tests"]
    read = getattr(tests, "read", None)
    return dict(read() if read is not None else tests)


# --- lines that came out of a sandbox ------------------------------------------------------------


@dataclass(frozen=True)
class Returned:
    """What one call returned, or the name of what it raised, and its processor time."""

    value: Any = None
    raised: str = ""
    cpu: float = 0.0


def parse(data: bytes, sizes: Sequence[int]) -> list[Returned]:
    """Read at most ``len(sizes)`` lines, up to the first that is not as the driver writes them.

    ``sizes`` bounds the hash tables of each value by the length of what is expected there: a
    larger one can't be equal to it.
    """
    results = []
    for line, size in zip(data.split(b"\n")[:-1], sizes, strict=False):
        head, mark, tail = line.rpartition(b',"cpu":')
        try:
            cpu = float(tail.removesuffix(b"}")) if mark and len(tail) < 40 else 0.0
            if head.startswith(b'{"returned":'):
                value = wire.loads(head.removeprefix(b'{"returned":'), max(size, wire.MAX_HASHED))
                results.append(Returned(value=value, cpu=cpu))
            elif head.startswith(b'{"raised":'):
                name = json.loads(head.removeprefix(b'{"raised":')[:200])
                results.append(Returned(raised=str(name) or "?", cpu=cpu))
            else:
                break
        except (ValueError, RecursionError):
            break
    return results
