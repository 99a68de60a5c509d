"""What the sections of the page share."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rlbhpc.report.figures.style import Drawn, svg
from rlbhpc.report.markup import drawing, el


def figure(drawn: Drawn, name: str, caption: str) -> ET.Element:
    """Put a figure with its caption into the page; narrow screens scroll it."""
    safe = "".join(c if c.isalnum() else "-" for c in name)
    # Narrow screens scroll a figure rather than shrink its letters.
    shown = el("div", drawing(svg(drawn, safe)), class_="scroll", tabindex="0", role="region",
               aria_label=caption)  # fmt: skip
    return el("figure", shown, el("figcaption", caption))
