"""The registry of aspects, in the order of the page: a new figure is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect
from rlbhpc.report.aspects import (
    accuracy,
    algorithms,
    audit,
    best_prompt,
    beyond,
    budget,
    chains,
    checkpoints,
    conclusions,
    cover,
    coverage,
    difference,
    evidence,
    gap,
    guesses,
    learning,
    memorised,
    own,
    pass_at_k,
    perplexity,
    pooled,
    positions,
    prompts,
    regraded,
    reliability,
    repeats,
    responses,
    samples,
    sharpening,
    solvable,
    strata,
    temperature,
    training,
    votes,
)

if TYPE_CHECKING:
    from rlbhpc.report.aspect import Report

ASPECTS: Final[tuple[Aspect, ...]] = (
    conclusions.ASPECT,
    pooled.ASPECT,
    coverage.ASPECT,
    difference.ASPECT,
    gap.ASPECT,
    beyond.ASPECT,
    accuracy.ASPECT,
    strata.ASPECT,
    sharpening.ASPECT,
    checkpoints.ASPECT,
    pass_at_k.ASPECT,
    training.ASPECT,
    learning.ASPECT,
    algorithms.ASPECT,
    responses.ASPECT,
    own.ASPECT,
    solvable.ASPECT,
    cover.ASPECT,
    votes.ASPECT,
    temperature.ASPECT,
    prompts.ASPECT,
    best_prompt.ASPECT,
    budget.ASPECT,
    perplexity.ASPECT,
    positions.ASPECT,
    reliability.ASPECT,
    repeats.ASPECT,
    samples.ASPECT,
    audit.ASPECT,
    regraded.ASPECT,
    guesses.ASPECT,
    memorised.ASPECT,
    evidence.ASPECT,
    chains.ASPECT,
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
