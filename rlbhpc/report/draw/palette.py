"""Colours by name: an arm has the same one in every figure of a report.

They are those of Okabe and Ito (2008), which stay apart for all kinds of colour vision, without
their yellow, which is too light for a line, and without black, which is the ink. A base is grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlbhpc.report.draw.chart import BASE_COLOUR, DASHED

_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


class Colours:
    """One colour per arm, the same in every figure of a report.

    ``models`` are from model to arm: a model is drawn as the arm that it is known by.
    """

    def __init__(
        self, arms: Iterable[str], bases: Iterable[str], models: Mapping[str, str] | None = None
    ) -> None:
        self._bases = set(bases)
        trained = [arm for arm in dict.fromkeys(arms) if arm not in self._bases]
        self._of = dict.fromkeys(self._bases, BASE_COLOUR) | {
            arm: _PALETTE[i % len(_PALETTE)] for i, arm in enumerate(trained)
        }
        self._models = dict(models or {})

    def __getitem__(self, arm: str) -> str:
        """Give the colour of an arm, or of a model by its arm."""
        return self._of.get(arm) or self._of.get(self._models.get(arm, ""), BASE_COLOUR)

    def dash(self, arm: str) -> str:
        """Give the dashes of an arm's line: a base is dashed, a trained arm solid."""
        return DASHED if arm in self._bases else ""
