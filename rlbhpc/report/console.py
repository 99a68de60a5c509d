"""The few shapes that a report has on a console, and the sections of the page in these shapes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlbhpc.report.markup import Node

#: Prose and plots wider than this are hard to read, however wide the terminal is.
WIDEST: Final = 100
# Space between two columns, as the table draws it.
_GAP: Final = 2


class Printer:
    """Prints headings, prose, lines and tables no wider than the console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = min(console.width, WIDEST)

    def head(self, text: str) -> None:
        """Print the heading of a part."""
        self._console.print(Text(text, style="bold underline"), width=self.width)

    def prose(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._console.print(Text(text, style=style), width=self.width)

    def blank(self) -> None:
        """Leave a line free."""
        self._console.print()

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines as they are, cut at the edge."""
        for line in lines:
            self._console.print(Text(line), no_wrap=True, crop=True)

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[str]], left_columns: int = 1
    ) -> None:
        """Print a table whose first ``left`` columns are text."""
        table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
        for i, head in enumerate(heads):
            side = "left" if i < left_columns else "right"
            table.add_column(Text(head), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)
        self._console.print()

    def fits(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table is no wider than the console with every cell on one line."""
        columns = zip(heads, *rows, strict=True)
        widths = [max(map(cell_len, column)) for column in columns]
        return sum(widths) + _GAP * (len(widths) - 1) <= self._console.width

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Print what a section of the page says, but for figures, lists and what is folded there.

        A table that is too wide becomes a list: each row by its first cell, then head by head.
        """
        for node in nodes:
            if isinstance(node, str):
                self.prose(node)
            elif node.tag in {"h3", "h4"}:
                self.blank()
                self.prose(_text(node), style="bold")
            elif node.tag == "p":
                self.prose(_text(node), style="dim" if node.get("class") == "soft" else "")
            elif (table := node.find("table")) is not None:
                self._page_table(table)

    def _page_table(self, table: ET.Element) -> None:
        caption = table.find("caption")
        heads = [_text(head) for head in table.iter("th")]
        rows = [[_text(cell) for cell in row.iter("td")] for row in table.iterfind("tbody/tr")]
        if caption is not None:
            self.blank()
            self.prose(_text(caption), style="dim")
        if self.fits(heads, rows):
            self.table(heads, rows)
            return
        for row in rows:
            self.prose(row[0], style="bold")
            self.table(["", ""], list(zip(heads[1:], row[1:], strict=True)))


def _text(node: ET.Element) -> str:
    return "".join(node.itertext())
