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
    evidence,
    graders,
    pass_at_k,
    perplexity,
    prompts,
    responses,
    robustness,
    samples,
    strata,
    training,
)

if TYPE_CHECKING:
    from rlbhpc.report.aspect import Report

ASPECTS: Final[tuple[Aspect, ...]] = (
    robustness.ASPECT,
    answer.ASPECT,
    answer.POOLED,
    coverage.ASPECT,
    difference.ASPECT,
    difference.GAP,
    coverage.ACCURACY,
    strata.ASPECT,
    checkpoints.ASPECT,
    pass_at_k.ASPECT,
    training.ASPECT,
    responses.ASPECT,
    samples.OWN,
    prompts.ASPECT,
    responses.BUDGET,
    perplexity.ASPECT,
    samples.ASPECT,
    graders.AUDIT,
    graders.ASPECT,
    samples.MEMORISED,
    evidence.ASPECT,
)


def aspects_of(report: Report) -> tuple[Aspect, ...]:
    """What a report shows: the registered aspects, and those that its study brings."""
    return (*ASPECTS, *map(_brought, report.settings.aspects))


def _brought(name: str) -> Aspect:
    plugin = plugins.find("aspects", name)
    if plugin is None or not isinstance(plugin.value, Aspect):
        value = "nothing" if plugin is None else repr(plugin.value)
        raise UserError(f"analysis.aspects: {name}: found {value}; allowed: a file with an ASPECT")
    return plugin.value
