"""What all formats of tests share: the program in a response, and what came of its runs.

The program is found by text rules in linear time; nothing is parsed here. A response may hold a
closed thought, several fenced blocks, prose between them, and, where the prompt opened a fence,
begin inside one. Whether something is a program is for the sandbox to find out; which block is
meant is decided by the text alone.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from rlbhpc.problems.problem import Problem
from rlbhpc.problems.record import Deferred
from rlbhpc.verify.sandbox import wire
from rlbhpc.verify.sandbox.box import Sandbox
from rlbhpc.verify.sandbox.job import Outcome
from rlbhpc.verify.verdict import Status

_FENCE: Final = "```"
_PYTHON_LANGUAGES: Final = {"python", "py", "python3", "python2", "ipython", "pycon"}
# A line that begins as statements do and sentences don't. It tells a program without a fence from
# prose: every program that prints or returns something has one.
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


# Marks that open and close a program where no fence of backticks does.
_OTHER_FENCE: Final = re.compile(
    r"^[ \t]*(?:(?P<open>~~~+\w*|\[PYTHON\]|<code>|\\begin\{(?:lstlisting|verbatim|minted)\}.*)"
    r"|~~~+|\[/PYTHON\]|</code>|\\end\{(?:lstlisting|verbatim|minted)\})[ \t]*$",
    re.M,
)
_CODE_LINE: Final = re.compile(r"^[ \t]*[^#\s]", re.M)
# Fences that don't begin their line: behind prose, and in a quotation.
_FENCE_BEHIND_PROSE: Final = re.compile(r"^([^`\n]*[^`\s][^`\n]*)```(python3?|py)[ \t]*$", re.M)
_QUOTED_FENCE: Final = re.compile(r"^[ \t]*>[ \t]*```", re.M)


class Block(NamedTuple):
    """A fenced block: the word after the opening fence, in lower case, and the text."""

    language: str
    text: str


def answer_part(response: str) -> str:
    """Return the text behind the thought, within the last answer tag if there is one.

    A thought that was opened and never closed is no answer.
    """
    _, closing_tag, answer = response.rpartition("</think>")
    if not closing_tag and "<think>" in response:
        return ""
    _, answer_tag, tagged = answer.rpartition("<answer>")
    return tagged.partition("</answer>")[0] if answer_tag else answer


def code_blocks(response: str) -> list[Block]:
    """Return all blocks of code in a response, in order, each with the language it is marked with.

    A fence is a line of three backticks; they open and close blocks in turn. A response whose first
    fence can only be a closing one begins inside a block, which the prompt has opened. The last
    block may lack its closing fence. Without any fence the whole response is one block, if any line
    of it may be code: prompts that open a fence often stop at the closing one.
    """
    text = _normalize_fences(answer_part(response))
    lines = [line.removeprefix("\ufeff") for line in text.split("\n")]
    fence_lines = _find_fences(lines)
    if not fence_lines:
        text = "\n".join(lines)
        return [Block("", text)] if _STATEMENT.search(text) else []
    blocks: list[Block] = []
    if _begins_inside_block(lines, fence_lines):
        closing_line = fence_lines.pop(0)
        blocks.append(Block("python", "\n".join(lines[:closing_line])))
    for index in range(0, len(fence_lines), 2):
        opening_line = fence_lines[index]
        is_closed = index + 1 < len(fence_lines)
        closing_line = fence_lines[index + 1] if is_closed else len(lines)
        opening_fence = lines[opening_line]
        text = "\n".join(_outdent(lines[opening_line + 1 : closing_line], opening_fence))
        if text.strip():
            blocks.append(Block(_fence_language(opening_fence), text))
    return blocks


def _normalize_fences(text: str) -> str:
    """Rewrite other ways to set a program off as fences that begin their lines."""
    if _FENCE not in text:
        return _OTHER_FENCE.sub(lambda mark: "```python" if mark["open"] else _FENCE, text)
    if _QUOTED_FENCE.search(text) is not None:
        text = re.sub(r"^[ \t]*> ?", "", text, flags=re.M)
    return _FENCE_BEHIND_PROSE.sub(r"\1\n```\2", text)


def _find_fences(lines: list[str]) -> list[int]:
    """Return the numbers of the lines that are fences, that is, begin with three backticks.

    They open and close blocks in turn. Within a block, a fence that is indented by four more than
    the opening one belongs to a docstring and doesn't count. ``open_indent``: indentation of the
    block that is open, None between blocks.
    """
    fence_lines: list[int] = []
    open_indent: int | None = None
    for number, line in enumerate(lines):
        stripped = line.lstrip()
        if not stripped.startswith(_FENCE):
            continue
        indent = len(line) - len(stripped)
        if open_indent is not None and indent >= open_indent + 4:
            continue
        open_indent = indent if open_indent is None else None
        fence_lines.append(number)
    return fence_lines


def _outdent(lines: list[str], opening_fence: str) -> list[str]:
    """Return the lines of a block without the indentation that its opening fence has.

    A line with less indentation loses what it has.
    """
    indent = opening_fence[: len(opening_fence) - len(opening_fence.lstrip())]
    if not indent:
        return lines
    return [
        line.removeprefix(indent) if line.startswith(indent) else line.lstrip() for line in lines
    ]


def _fence_language(fence: str) -> str:
    """Return the first word behind the backticks of a fence, in lower case."""
    return fence.strip().lstrip("`").strip().partition(" ")[0].lower()


def _begins_inside_block(lines: list[str], fence_lines: list[int]) -> bool:
    """Return whether the first fence closes a block that the prompt opened."""
    first_fence = fence_lines[0]
    has_text_before = any(line.strip() for line in lines[:first_fence])
    is_unpaired = len(fence_lines) % 2 == 1
    return has_text_before and is_unpaired and not _fence_language(lines[first_fence])


def find_program(response: str, entry: str = "") -> str:
    """Return the program that a response commits to; empty if there is none.

    ``entry``: name of a function or class that the program must define, if one is known. The last
    block that defines it wins over later ones, which show its use. Otherwise the last block that is
    marked as Python is taken, or else the last unmarked one. Only blocks with a line that is
    neither empty nor a comment count.
    """
    blocks = code_blocks(response)
    if entry:
        definition = re.compile(
            rf"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(entry)}\b"
            rf"|{re.escape(entry)}[ \t]*=[ \t]*lambda\b)",
            re.M,
        )
        defining = [block for block in blocks if definition.search(block.text)]
        if defining:
            return _dedent_program(defining[-1].text)
    with_code = [block for block in blocks if _CODE_LINE.search(block.text)]
    marked = [block for block in with_code if block.language in _PYTHON_LANGUAGES]
    unmarked = [block for block in with_code if not block.language]
    candidates = marked or unmarked
    if not candidates:
        return ""
    program = candidates[-1].text
    # Where a function was asked for, an indented block may be its body alone.
    return program if entry else _dedent_program(program)


def _dedent_program(program: str) -> str:
    """Undo the indentation of a program as a whole."""
    is_indented = program.lstrip("\n").startswith((" ", "\t"))
    return textwrap.dedent(program) if is_indented else program


# --- what a format says of a program -------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """Status of a program, and in a few words on what grounds."""

    status: Status
    reason: str

    @classmethod
    def of_failed_run(cls, test_index: int, test_count: int, outcome: Outcome) -> Judgement:
        """Judge a test whose run didn't end by itself with status 0."""
        if outcome.cause.is_time:
            place = f"test {test_index + 1} of {test_count}"
            return cls(Status.TIMEOUT, f"{place}: {outcome.cause} limit")
        return cls.of_wrong_test(test_index, test_count, f"{outcome.cause} {outcome.status}")

    @classmethod
    def of_wrong_test(cls, test_index: int, test_count: int, reason: str) -> Judgement:
        """Judge a test that the program fails."""
        return cls(Status.WRONG, f"test {test_index + 1} of {test_count}: {reason}")


class Format(Protocol):
    """A module that judges the programs of one format."""

    def extract(self, response: str, problem: Problem) -> str:
        """Return the program of a response; empty if there is none."""
        ...

    def judge(self, program: str, problem: Problem, sandbox: Sandbox) -> Judgement:
        """Run a program on the problem's tests."""
        ...


def read_tests(problem: Problem) -> dict[str, Any]:
    """Return a problem's tests, which may be read from disk only when a program is judged."""
    tests = problem.extras["tests"]
    if isinstance(tests, Deferred):
        tests = tests.read()
    return dict(tests)


# --- lines that came out of a sandbox ------------------------------------------------------------


@dataclass(frozen=True)
class CallResult:
    """What one call returned, or the name of what it raised, and its processor time in seconds."""

    value: Any = None
    raised: str = ""
    cpu: float = 0.0


# Longer than any number that the driver writes.
_MAX_CPU_CHARACTERS: Final = 40
_MAX_NAME_CHARACTERS: Final = 200


def read_call_results(data: bytes, sizes: Sequence[int]) -> list[CallResult]:
    """Return what calls returned, from the lines that the process with the program wrote.

    There is one line per call. The program shares that process and may have written anything, so
    reading stops at the first line that is not of the expected form. ``sizes``: for each call, the
    length of what it is expected to return. It bounds the hash tables in the value: a larger one
    can't be equal to it.
    """
    results = []
    lines = data.split(b"\n")[:-1]
    for line, size in zip(lines, sizes, strict=False):
        try:
            results.append(_read_call_result(line, max(size, wire.MAX_HASHED)))
        except (ValueError, RecursionError):
            break
    return results


def _read_call_result(line: bytes, max_hashed: int) -> CallResult:
    """Return what one line says a call returned or raised; ``ValueError`` if it says neither.

    The line ends with the processor time of the call. It may be hostile: ``max_hashed`` is the most
    members that a set or dictionary in it may have, and names and numbers have limits too.
    """
    report, _, cpu_text = line.rpartition(b',"cpu":')
    cpu = 0.0
    if len(cpu_text) < _MAX_CPU_CHARACTERS:
        cpu = float(cpu_text.removesuffix(b"}"))
    returned_mark = b'{"returned":'
    if report.startswith(returned_mark):
        value = wire.loads(report.removeprefix(returned_mark), max_hashed)
        return CallResult(value=value, cpu=cpu)
    raised_mark = b'{"raised":'
    if report.startswith(raised_mark):
        name = json.loads(report.removeprefix(raised_mark)[:_MAX_NAME_CHARACTERS])
        return CallResult(raised=str(name) or "?", cpu=cpu)
    raise ValueError("neither returned nor raised")
