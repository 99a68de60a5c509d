"""What the sections of the page share."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import ParamSpec

from rlbhpc.report.figures.palette import bases_of, colours_of
from rlbhpc.report.figures.style import Drawn, svg
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import drawing, el

P = ParamSpec("P")


class Pen:
    """Draws the figures of a report, with one colour per arm; or none, where only words can go.

    Attributes
    ----------
    colours, bases
        What figures need to know of the whole report.
    """

    def __init__(self, report: Report, *, draws: bool = True) -> None:
        self.colours = colours_of(report)
        self.bases = bases_of(report)
        self._draws = draws

    def figure(
        self, name: str, caption: str, draw: Callable[P, Drawn], *args: P.args, **kwargs: P.kwargs
    ) -> ET.Element:
        """Put what ``draw`` draws with its caption into the page; narrow screens scroll it."""
        if not self._draws:
            return el("figure")
        safe = "".join(c if c.isalnum() else "-" for c in name)
        # Narrow screens scroll a figure rather than shrink its letters.
        shown = el(
            "div", drawing(svg(draw(*args, **kwargs), safe)), class_="scroll", tabindex="0",
            role="region", aria_label=caption,
        )  # fmt: skip
        return el("figure", shown, el("figcaption", caption))
