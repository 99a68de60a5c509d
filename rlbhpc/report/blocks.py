"""A pass@k curve in block characters, for a terminal far away."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Who is drawn with what: base, trained, and both in one cell.
BASE: Final = "░"
TRAINED: Final = "█"
BOTH: Final = "▓"

_LABELS: Final = 7  # columns before the plot: "100 % ┤"


def block_curves(
    k: ArrayLike, base: ArrayLike, trained: ArrayLike, width: int, height: int = 11
) -> list[str]:
    """Draw two curves over log2 k.

    ``k``: draw sizes, rising. ``base, trained``: rates at each of them. ``width, height``: columns
    in all, labels included, and rows of the plot without its axis. Gives lines, none wider than
    ``width``.
    """
    sizes, base_rates, trained_rates = (np.asarray(v, np.float64) for v in (k, base, trained))
    columns = max(width - _LABELS, 2)
    octaves = np.log2(sizes)
    grid = np.linspace(0, max(octaves[-1], 1e-9), columns)
    top = _round_up(float(np.nanmax([base_rates, trained_rates])))
    rows = [
        _rows(np.interp(grid, octaves, curve), top, height) for curve in (base_rates, trained_rates)
    ]
    lines = []
    for row in range(height):
        cells = (_cell(a == row, b == row) for a, b in zip(*rows, strict=True))
        edge = top * (height - 1 - row) / (height - 1)
        label = f"{100 * edge:3.0f} % " if row % ((height - 1) // 2) == 0 else " " * 6
        lines.append(f"{label}{'┤' if label.strip() else '│'}{''.join(cells)}".rstrip())
    ruler, labels = _axis(float(octaves[-1]), columns)
    return [*lines, " " * 6 + "└" + ruler, " " * _LABELS + labels]


def _rows(curve: NDArray[np.float64], top: float, height: int) -> list[int]:
    """Row of a curve in each column, 0 at the top."""
    return [height - 1 - round(float(v) / top * (height - 1)) for v in curve]


def _cell(base: bool, trained: bool) -> str:
    if base and trained:
        return BOTH
    return BASE if base else TRAINED if trained else " "


def _round_up(value: float) -> float:
    """The next of 1, 5, 10, 20, … 100 percent."""
    return next((s for s in (0.01, 0.05, *np.arange(1, 11) / 10) if value <= s + 1e-12), 1.0)


def _axis(octaves: float, columns: int) -> tuple[str, str]:
    """Ticks at powers of two, and as many of their labels as fit."""
    ruler, labels = ["─"] * columns, [" "] * columns
    free = 0
    for octave in range(int(octaves) + 1):
        place = round(octave / octaves * (columns - 1)) if octaves else 0
        ruler[place] = "┴"
        text = str(1 << octave)
        start = min(max(place - len(text) // 2, 0), columns - len(text))
        if start >= free and start >= 0:
            labels[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(ruler), "".join(labels).rstrip()
