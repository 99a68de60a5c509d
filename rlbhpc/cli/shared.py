"""Options that several verbs have, and how they print: tables, JSON, texts of models."""

from __future__ import annotations

import errno
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rlbhpc.study.study import Study


# Options that several verbs have, and what is common to their values.


as_json = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
overrides = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key."
)
one_arm = click.option("--arm", help="Keep to one arm.")
one_step = click.option("--step", type=int, help="Keep to one training step; 0 is the base.")
judging_workers = click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True,
    help="Processes that judge what takes long.",
)  # fmt: skip
minutes = click.option(
    "--minutes", "limit", type=click.FloatRange(min=0), help="Stop by itself after so long.",
    callback=lambda context, option, value: None if value is None else value * 60,
)  # fmt: skip
grace = click.option(
    "--grace", type=click.FloatRange(min=0), default=60.0, show_default=True,
    help="Seconds for what is in flight once it has to stop.",
)  # fmt: skip


def logged_study(file: Path, overrides: Sequence[str], verb: str) -> Study:
    """Load a study whose run keeps what the verb does in its log."""
    from rlbhpc.debug_log import keep
    from rlbhpc.study.load import load_study

    study = load_study(file, overrides)
    keep(study.layout.logs, verb)
    return study


def named_entries(option: str, chosen: Sequence[str], entries: Iterable[str]) -> list[str]:
    """The entries of a study that an option names, all where it names none."""
    names = list(entries)
    for name in chosen:
        if name not in names:
            raise click.BadParameter(f"{option}: {name!r} is none of {', '.join(names) or 'none'}")
    return list(chosen) or names


# A pipe has no width of its own; lines are left whole for grep rather than folded at 80.
WIDTH_OF_A_PIPE = 240
# Control, format (directions of writing, invisible marks), surrogates, line and paragraph
# separators: whatever moves a cursor, hides or reorders text, or is no text at all.
_HIDDEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class _Screen(Console):
    """Standard output without a colour of its own for numbers."""

    def on_broken_pipe(self) -> None:
        """Leave the exit code to :mod:`rlbhpc.cli.main`; rich would end the process with 1."""
        raise BrokenPipeError(errno.EPIPE, "the reader of the output went away")


def screen() -> Console:
    """The console that a verb prints its answer to."""
    console = _Screen(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    return console


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print one table; columns of numbers are set to the right. Colours obey NO_COLOR.

    Each row has a value for every column.
    """
    console = screen()
    console.print(Text(title, style="bold underline"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    body = [list(row) for row in rows]
    for index, name in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in body)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        # Text, not markup: a name from a file must not be read as a colour.
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)
    console.print()


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows that have the same keys as a table, and nothing where there are none."""
    if rows:
        print_table(title, list(rows[0]), [list(row.values()) for row in rows])


def print_json(value: Any, *, ascii_only: bool = False) -> None:
    """Print one JSON document; as ASCII, its escapes cover all that acts on a terminal."""
    click.echo(json.dumps(value, ensure_ascii=ascii_only, indent=2))


def tell(text: str) -> None:
    """Print a line on stderr, where whoever reads the answer from a pipe does not get it."""
    click.echo(text, err=True)


def _cell(value: Any) -> str:
    """A value as the text of a cell: "-" for none, whole numbers with commas, lists spelt out."""
    if value is None:
        return "-"
    # To Python True and False are numbers.
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def visible(text: str, *, lines: bool = True) -> str:
    """Replace characters that act on a terminal by their code points; ``lines`` may stay."""
    layout_chars = {"\n", "\t"} if lines else set()
    if text.isprintable():
        return text
    shown = []
    for char in text:
        is_hidden = char not in layout_chars and unicodedata.category(char) in _HIDDEN
        shown.append(f"<U+{ord(char):04X}>" if is_hidden else char)
    return "".join(shown)
