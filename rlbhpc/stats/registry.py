"""What a metric is: name, formula, direction, range, what it needs, where it comes from.

Tables of the report and of the documentation are generated from the entries in
:mod:`rlbhpc.stats.metrics`. A new metric is one entry there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from rlbhpc.errors import UserError


class Better(StrEnum):
    """Which direction of a metric is good."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    ``name, aliases``: how it is called; aliases are what other papers and tools call it.
    ``function``: the function that computes it. ``formula``: LaTeX. ``better``: which direction is
    good. ``low, high``: range; infinite ends allowed. ``needs``: variables of the cube that it
    reads. ``reference``: where it was defined. ``samples_per_k``: least n as a multiple of k; 0
    where the metric has no k. ``advised_per_k``: least n, as a multiple of k, from which its value
    is more than a few draws.
    """

    name: str
    function: Callable[..., Any]
    formula: str
    better: Better
    low: float
    high: float
    needs: tuple[str, ...]
    reference: str
    aliases: tuple[str, ...] = ()
    samples_per_k: int = 0
    advised_per_k: int = 0

    @property
    def summary(self) -> str:
        """First line of the function's documentation."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def where(self) -> str:
        """Dotted path of the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def least_n(self, k: int) -> int:
        """Fewest samples per problem that give a value at k."""
        return max(1, self.samples_per_k * k)


def find(metrics: tuple[Metric, ...], name: str) -> Metric:
    """Find a metric by name or alias, whatever the case."""
    names = {n.lower(): metric for metric in metrics for n in (metric.name, *metric.aliases)}
    found = names.get(name.lower())
    if found is None:
        close = get_close_matches(name.lower(), names, n=3) or sorted(names)
        raise UserError(f"metric {name!r} is unknown; perhaps {', '.join(close)}")
    return found
