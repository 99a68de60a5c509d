"""The generated part of docs/statistics.md: every metric of the registry."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from rlbhpc.stats.metrics import METRICS, Metric

_ARROW = {"higher": "higher", "lower": "lower", "neither": "–"}


def metrics_page() -> str:
    """Write the table of metrics and one section for each, from the registry.

    >>> print(metrics_page().splitlines()[0])
    ## Metrics
    """
    return "\n".join([*_table(), "", *_sections()]) + "\n"


def _table() -> Iterator[str]:
    yield "## Metrics"
    yield ""
    yield "| metric | better | range | reads | least n | enough n |"
    yield "|---|---|---|---|---|---|"
    for entry, anchor in zip(METRICS, _anchors(), strict=True):
        cells = (
            f"[{entry.name}](#{anchor})",
            _ARROW[entry.better],
            f"{_number(entry.low)} … {_number(entry.high)}",
            ", ".join(f"`{name}`" for name in entry.needs),
            _times_k(entry.samples_per_k),
            _times_k(entry.advised_per_k),
        )
        yield "| " + " | ".join(cells) + " |"


def _sections() -> Iterator[str]:
    for entry, anchor in zip(METRICS, _anchors(), strict=True):
        if anchor[-1].isdigit():  # a renderer may number repeats in another way
            yield f'<a id="{anchor}"></a>'
            yield ""
        yield f"### {entry.name}"
        yield ""
        yield _summary(entry)
        yield ""
        yield f"$${entry.formula}$$"
        yield ""
        also = f" Also called {', '.join(entry.aliases)}." if entry.aliases else ""
        yield f"`{entry.where}` · {entry.reference}.{also}"
        yield ""


def _summary(entry: Metric) -> str:
    # Docstrings mark mathematics for Sphinx; Markdown has dollars for it.
    text = entry.summary
    while ":math:`" in text:
        before, _, rest = text.partition(":math:`")
        inside, _, after = rest.partition("`")
        text = f"{before}${inside}${after}"
    return text


def _anchors() -> list[str]:
    """Anchors of the sections as a Markdown renderer makes them: repeats get a number."""
    anchors: list[str] = []
    seen: Counter[str] = Counter()
    for entry in METRICS:
        kept = "".join(char for char in entry.name.lower() if char.isalnum() or char in " -_")
        anchor = kept.replace(" ", "-")
        anchors.append(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


def _times_k(factor: int) -> str:
    return {0: "1", 1: "k"}.get(factor, f"{factor} k")
