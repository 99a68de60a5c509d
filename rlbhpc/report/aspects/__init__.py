"""The registry of aspects, in the order of the page: a new figure is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect
from rlbhpc.report.aspects import (
    answer,
    checkpoints,
    coverage,
    difference,
    pass_at_k,
    perplexity,
    responses,
    robustness,
    samples,
    sharpening,
    training,
    turns,
)

if TYPE_CHECKING:
    from rlbhpc.report.aspect import Report

ASPECTS: Final[tuple[Aspect, ...]] = (
    robustness.ASPECT,
    answer.ASPECT,
    answer.POOLED,
    coverage.ASPECT,
    difference.ASPECT,
    difference.STRATIFIED,
    checkpoints.ASPECT,
    pass_at_k.ASPECT,
    turns.ASPECT,
    training.ASPECT,
    responses.ASPECT,
    sharpening.ASPECT,
    samples.OWN,
    responses.BUDGET,
    turns.CALL_BUDGET,
    perplexity.ASPECT,
    samples.ASPECT,
    robustness.AUDIT,
    samples.MEMORISED,
    coverage.EVIDENCE,
)


def aspects_of(report: Report) -> tuple[Aspect, ...]:
    """What a report shows: the registered aspects, and those that its study brings."""
    return (*ASPECTS, *map(_load_own_aspect, report.settings.aspects))


def _load_own_aspect(reference: str) -> Aspect:
    """Load an aspect, that is a section of the report, from the study's own Python file.

    ``reference``: the file as the study names it, ``./mine.py:name``. Raises where the file has no
    :class:`Aspect`.
    """
    plugin = plugins.find("aspects", reference)
    if plugin is None or not isinstance(plugin.value, Aspect):
        value = "nothing" if plugin is None else repr(plugin.value)
        raise UserError(
            f"analysis.aspects: {reference}: found {value}; allowed: a file with an ASPECT"
        )
    return plugin.value
