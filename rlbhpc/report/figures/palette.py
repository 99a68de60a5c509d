"""Colours by name: an arm has the same one in every figure of a report.

They are those of Okabe and Ito (2008), which stay apart for all kinds of colour vision, without
their yellow, which is too light for a line, and without black, which is the ink. A base is grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rlbhpc.report.figures.style import BASE_COLOUR
from rlbhpc.report.gather import Report

_PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


class Colours:
    """One colour per arm, the same in every figure of a report.

    ``models`` are from model to arm: a model is drawn as the arm that it is known by.
    """

    def __init__(
        self, arms: Iterable[str], bases: Iterable[str], models: Mapping[str, str] | None = None
    ) -> None:
        grey = set(bases)
        trained = [arm for arm in dict.fromkeys(arms) if arm not in grey]
        self._of = dict.fromkeys(grey, BASE_COLOUR) | {
            arm: _PALETTE[i % len(_PALETTE)] for i, arm in enumerate(trained)
        }
        self._models = dict(models or {})

    def __getitem__(self, arm: str) -> str:
        """Give the colour of an arm, or of a model by its arm."""
        return self._of.get(arm) or self._of.get(self._models.get(arm, ""), BASE_COLOUR)


def colours_of(report: Report) -> Colours:
    """One colour per arm for all figures of a report."""
    # The first arm of a model stands for it; an arm that has a model's name goes before.
    models = {one.model: one.arm for one in reversed(report.measured)}
    return Colours((one.arm for one in report.measured), bases_of(report), models)


def bases_of(report: Report) -> set[str]:
    """Arms that are a base and are not compared as a trained one."""
    trained = {one.trained.arm for one in report.final}
    return {one.base.arm for one in report.final} - trained
