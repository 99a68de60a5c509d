"""What goldens of a report keep: pages, tables and terminals as lines of text.

Prose and tables are kept whole, tables column by column where they are data. Of a figure a golden
keeps its labels, and of each line and area how many points it has and where it begins and ends.
"""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import pandas as pd
from rich.console import Console

from rlbhpc.report.aspect import Report
from rlbhpc.report.terminal import print_report, print_sentences
from tests.golden import NUMBER, agree_with

HOME = Path(__file__).parent / "golden"
# What is smaller is noise of a sum.
ABSOLUTE = 1e-9
BLOCKS = re.compile(r"(?=<(?:p|li|h\d|summary|pre|details|section|header|main|nav|table|div)\b)")
# Marks of a figure that have a place.
MARKS = re.compile(r"<(path|circle|rect|line)\b([^>]*)>")
PLACES = re.compile(r' (?:d|x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"')


def agree(name: str, lines: Iterable[str]) -> None:
    """Compare lines with those of a golden."""
    agree_with(HOME / f"{name}.txt", lines, absolute=ABSOLUTE)


def page_lines(html: str) -> Iterator[str]:
    """A page without its style, its script and what differs between versions of packages."""
    html = re.sub(r"<style>.*?</style>|<script>.*?</script>|<meta [^>]*>", "", html, flags=re.S)
    html = re.sub(r"<figure>.*?</figure>", lambda found: figure_lines(found[0]), html, flags=re.S)
    html = re.sub(r"<table .*?</table>", lambda found: table_lines(found[0]), html, flags=re.S)
    html = re.sub(r"Study [0-9a-f]{8,}", "Study HASH", html)
    for block in BLOCKS.split(html.partition("<summary>Provenance of the samples")[0]):
        yield block.rstrip("\n")


def printed(
    report: Report, width: int, *, verbose: bool = False, styled: bool = False
) -> list[str]:
    """What a terminal of a width shows; if verbose, the conclusions in sentences too."""
    out = io.StringIO()
    colours = {"force_terminal": True, "color_system": "standard"} if styled else {}
    console = Console(file=out, width=width, highlight=False, **colours)
    shown = copy.copy(report)  # with what its aspects have worked out
    object.__setattr__(shown, "folder", Path("RUN"))  # where lines break depends on its length
    print_report(shown, console, verbose=verbose)
    if verbose:
        print_sentences(shown, console)
    return [line.rstrip() for line in out.getvalue().split("\n")]


def figure_lines(figure: str) -> str:
    """Labels of a figure, and where its marks begin and end."""
    caption = figure[figure.index("<figcaption>") :]
    labels = re.findall(r"<(?:span|p|text|div)\b[^>]*>([^<]+)<", figure)
    lines = [f"\n<figure> {caption}", f"  labels: {' | '.join(labels)}"]
    for (tag, count), places in groupby(map(mark_places, MARKS.finditer(figure)), lambda m: m[:2]):
        ends = [place for *_, place in places]
        shown = ends if len(ends) <= 2 else [ends[0], ends[-1]]
        lines.append(f"  {len(ends)} {tag} of {count}: {'; '.join(shown)}")
    return "\n".join([*lines, ""])


def mark_places(mark: re.Match[str]) -> tuple[str, int, str]:
    """Tag of a mark, how many numbers place it, and the first and last two of them."""
    numbers = NUMBER.findall(" ".join(PLACES.findall(mark[2])))
    ends = numbers if len(numbers) <= 4 else [*numbers[:2], *numbers[-2:]]
    return mark[1], len(numbers), " ".join(f"{float(number):.1f}" for number in ends)


def table_lines(table: str) -> str:
    """A table of a page, row by row."""
    rows = re.findall(r"<tr>.*?</tr>", table, re.S)
    cells = [" | ".join(re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)) for row in rows]
    caption = "".join(re.findall(r"<caption>(.*?)</caption>", table))
    if caption in ("Versions", "From the registry of metrics"):
        return f"\n<table> {caption}\n"
    return "\n".join([f"\n<table> {caption}", *cells, ""])


def frame_lines(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Tables column by column: all values, those that repeat with how often they do."""
    for name, frame in frames.items():
        yield f"{name}: {len(frame)} rows"
        for column in frame:
            values = frame[column]
            if pd.api.types.is_float_dtype(values):
                texts = [f"{value:#.5g}" for value in values]
            else:
                runs = [(value, len(list(run))) for value, run in groupby(map(str, values))]
                texts = [f"{value}×{count}" if count > 1 else value for value, count in runs]
            yield f"  {column} ({values.dtype}): {' '.join(texts)}"
