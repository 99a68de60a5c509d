"""Whole outputs of a report, compared with what was read and found right.

RLBHPC_GOLDEN=1 writes them anew; read the difference before it is committed. Prose and the ends of
tables stand in a file as they are. Of the rest of a table, and of a drawing, there is one line that
changes with any of its marks and numbers. The last printed digit of a number may differ.
"""

from __future__ import annotations

import copy
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from rlbhpc.report.aspect import Report
from rlbhpc.report.terminal import print_report, print_sentences

HOME = Path(__file__).parent / "golden"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
# Where a page has numbers that were worked out; all other attributes are compared letter by letter.
PLACES = re.compile(r' (?:d|x|y|x1|x2|y1|y2|data-value)="[^"]*"|>[^<]*<')
BLOCKS = re.compile(r"(?=<(?:p|li|h\d|summary|pre|details|section|header|main|nav|table|div)\b)")
# Rows that stand in a file whole: the first ones, and the last.
ROWS = 3
# Characters of a line that is cut.
SHORT = 60


def agree(name: str, lines: Iterable[str]) -> None:
    """Compare lines with those of a file."""
    path = HOME / f"{name}.txt"
    texts = "\n".join(lines).split("\n")
    if os.environ.get("RLBHPC_GOLDEN"):
        path.write_text("\n".join(texts) + "\n")
    expected = path.read_text().split("\n")[:-1]
    for number, (text, right) in enumerate(zip_longest(texts, expected, fillvalue=""), start=1):
        assert alike(text, right), f"{path.name}:{number}\nis:  {text}\nwas: {right}"
    assert len(texts) == len(expected)


def alike(text: str, right: str) -> bool:
    """Whether two lines differ in nothing but the last digits of their numbers."""
    if NUMBER.sub("#", text) != NUMBER.sub("#", right):
        return False
    pairs = zip(NUMBER.findall(text), NUMBER.findall(right), strict=True)
    return all(abs(float(a) - float(b)) <= 1.01 * last_digit(b) for a, b in pairs)


def last_digit(number: str) -> float:
    """The value of a one in the last digit; 0 for whole numbers, which have to be equal."""
    mantissa, _, exponent = number.partition("e")
    _, point, decimals = mantissa.partition(".")
    return 10.0 ** (int(exponent or 0) - len(decimals)) if point else 0.0


def total(numbers: Iterable[float]) -> str:
    """A sum that depends on the order, too."""
    values = np.fromiter(numbers, float)
    return f"{len(values)} numbers {np.dot(values, 1 + np.arange(len(values)) % 7):.5e}"


def letters(text: str) -> str:
    """A short hash without digits."""
    return "".join(chr(97 + byte % 26) for byte in hashlib.sha256(text.encode()).digest()[:8])


def summary(markup: str) -> str:
    """One line for all marks and numbers of some markup."""
    places = " ".join(PLACES.findall(markup))
    shape = PLACES.sub(lambda place: NUMBER.sub("#", place[0]), markup)
    return f"[{letters(shape)}, {total(map(float, NUMBER.findall(places)))}]"


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


def short_lines(lines: Iterable[str]) -> Iterator[str]:
    """The beginnings of lines, each with what changes with all of it."""
    for line in lines:
        if len(line) <= SHORT:
            yield line
            continue
        shape = letters(NUMBER.sub("#", line))
        yield f"{line[:SHORT]} [{shape}, {sum(map(float, NUMBER.findall(line))):.3e}]"


def figure_lines(figure: str) -> str:
    caption = figure[figure.index("<figcaption>") :]
    return f"\n<figure> {summary(figure)} {caption}\n"


def table_lines(table: str) -> str:
    rows = re.findall(r"<tr>.*?</tr>", table, re.S)
    cells = [" | ".join(re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)) for row in rows]
    caption = "".join(re.findall(r"<caption>(.*?)</caption>", table))
    if caption == "Versions":
        return "\n<table> Versions\n"
    ends = cells if len(cells) <= 2 * ROWS else [*cells[:ROWS], "…", cells[-1]]
    return "\n".join([f"\n<table> {summary(table)} {caption}", *ends, ""])


def frame_lines(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Tables column by column: first and last value, and a line for all of them."""
    for name, frame in frames.items():
        yield f"{name}: {len(frame)} rows"
        for column in frame:
            values = frame[column]
            ends = " … ".join(cell(values.iloc[place]) for place in (0, -1))
            if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
                every = letters("\n".join(NUMBER.sub("#", str(value)) for value in values))
            else:
                every = total(values.dropna().astype(float))
            yield f"  {column} ({values.dtype}): {ends} [{every}]"


def cell(value: object) -> str:
    return f"{value:.4e}" if isinstance(value, float) else str(value)
