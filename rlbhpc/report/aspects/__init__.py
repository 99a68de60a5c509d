"""The registry of aspects, in the order of the page: a new figure is one file and one line here."""

from __future__ import annotations

from typing import Final

from rlbhpc.report.aspect import Aspect
from rlbhpc.report.aspects import (
    accuracy,
    algorithms,
    audit,
    beyond,
    budget,
    chains,
    checkpoints,
    conclusions,
    coverage,
    difference,
    evidence,
    gap,
    guesses,
    pass_at_k,
    perplexity,
    positions,
    prompts,
    regraded,
    reliability,
    repeats,
    responses,
    samples,
    solvable,
    temperature,
    training,
    votes,
)

ASPECTS: Final[tuple[Aspect, ...]] = (
    conclusions.ASPECT,
    coverage.ASPECT,
    difference.ASPECT,
    gap.ASPECT,
    beyond.ASPECT,
    accuracy.ASPECT,
    checkpoints.ASPECT,
    pass_at_k.ASPECT,
    training.ASPECT,
    algorithms.ASPECT,
    responses.ASPECT,
    solvable.ASPECT,
    votes.ASPECT,
    temperature.ASPECT,
    prompts.ASPECT,
    budget.ASPECT,
    perplexity.ASPECT,
    positions.ASPECT,
    reliability.ASPECT,
    repeats.ASPECT,
    samples.ASPECT,
    audit.ASPECT,
    regraded.ASPECT,
    guesses.ASPECT,
    evidence.ASPECT,
    chains.ASPECT,
)
