"""Chains of thought that people read: how many hard problems are solved by valid reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.gather import Report
from rlbhpc.report.measured import powers_of_two
from rlbhpc.stats import Counts, Interval
from rlbhpc.stats.cot import cot_pass_at_k
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.study.layout import Layout
from rlbhpc.verify.review import ChainCounts, chain_counts
from rlbhpc.verify.reviews import kept


@dataclass(frozen=True)
class Reviewed:
    """What the readers of one sheet found.

    Attributes
    ----------
    of
        Arm, problem set and step, in words.
    readers
        People who judged it.
    problems
        Hard problems with a right answer.
    valid, unknown
        Those with a chain that all readers hold valid, and those where that is open: a chain is
        unclear or unread.
    chains
        CoT-pass@k of these problems; None where fewer than two have a chain that was read.
    """

    of: str
    readers: int
    problems: int
    valid: int
    unknown: int
    chains: Chains | None


@dataclass(frozen=True)
class Chains:
    """CoT-pass@k beside pass@k, on the hard problems of a sheet that somebody has read.

    Attributes
    ----------
    k, any_right, valid
        Chance that one of k samples is right, and right by a valid chain. Of problems with unread
        right answers the share of valid ones among the read stands for all.
    problems
        Problems with a chain that was read.
    """

    k: NDArray[np.int64]
    any_right: Interval
    valid: Interval
    problems: int


def reviewed(report: Report) -> list[Reviewed]:
    """Read the sheets of a run that somebody has judged."""
    found = []
    for one in kept(Layout(report.folder).reviews):
        judged = one.judgements()
        people = sum(not judgement.by_model for judgement in judged)
        if not people:
            continue
        solved = [count for count in chain_counts(one.sheet, judged) if count.right]
        says = [count.solved for count in solved]
        found.append(
            Reviewed(
                one.title, people, len(solved), says.count(True), says.count(None),
                _chains(report, solved),
            )
        )  # fmt: skip
    return found


def _chains(report: Report, solved: Sequence[ChainCounts]) -> Chains | None:
    read = [one for one in solved if one.read]
    if len(read) < 2:
        return None
    counts = Counts.of([one.n for one in read], [one.right for one in read])
    k = np.array(powers_of_two(counts.reach), np.int64)
    chance = cot_pass_at_k(counts.n, counts.c, [one.valid_among_right for one in read], k)
    weights = report.draws.of(tuple(one.problem for one in read))
    any_right, valid = (
        mean_interval(values, weights, report.settings.prob, "problem bootstrap")
        for values in (counts.pass_at_k(k), chance)
    )
    return Chains(k, any_right, valid, len(read))
