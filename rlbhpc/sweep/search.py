"""Choose the prompts that arms search for, from the samples of their tries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlbhpc import files
from rlbhpc.study.search import read_outcomes, with_searches
from rlbhpc.study.study import Study, half_of
from rlbhpc.sweep.plan import Presence, read_presence


def choose_prompts(study: Study) -> Study:
    """Choose for each arm whose tries are all drawn; return the study with what is chosen.

    What was chosen is kept and stays, whatever becomes of the tries.
    """
    outcomes = {}
    for arm in study.searching:
        search = study.searches[arm]
        blocks = [block for block in study.blocks() if block.arm in search.tries.values()]
        tried = read_presence(study.layout, blocks)
        if not any(presence.missing for presence in tried):
            outcomes[search.key] = choose(search.tries, tried)
    if not outcomes:
        return study
    outcomes |= read_outcomes(study.layout)
    files.put(study.layout.searches, json.dumps(outcomes, indent=1).encode())
    return with_searches(study)


def choose(tries: Mapping[str, str], tried: Sequence[Presence]) -> dict[str, Any]:
    """Choose the candidate for each half: the one that is best on the *other* half.

    ``tries`` has the arm that tries each candidate, and ``tried`` the samples of these arms. Gives
    the candidates by half, and the mean success rate of each candidate on each half.
    """
    rates = {}
    for candidate, arm in tries.items():
        presences = [presence for presence in tried if presence.block.arm == arm]
        rates[candidate] = _rates_by_half(presences)
    best_of_half = [max(rates, key=lambda candidate: rates[candidate][half]) for half in (0, 1)]
    return {"chosen": best_of_half[::-1], "rates": rates}


def _rates_by_half(presences: Sequence[Presence]) -> list[float]:
    """Mean success rate of an arm over the problems of each half; 0 for a half without problems."""
    rates_of_half: tuple[list[float], list[float]] = ([], [])
    for presence in presences:
        counts = presence.counts()
        rates = counts.c / np.maximum(counts.n, 1)
        for problem, rate in zip(presence.block.problems, rates.tolist(), strict=True):
            rates_of_half[half_of(problem)].append(rate)
    return [sum(rates) / max(1, len(rates)) for rates in rates_of_half]
