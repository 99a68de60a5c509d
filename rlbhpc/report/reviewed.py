"""Chains of thought that people read: how many hard problems are solved by valid reasoning."""

from __future__ import annotations

from dataclasses import dataclass

from rlbhpc.report.gather import Report
from rlbhpc.study.layout import Layout
from rlbhpc.verify.review import chain_counts
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
    """

    of: str
    readers: int
    problems: int
    valid: int
    unknown: int


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
        found.append(Reviewed(one.title, people, len(solved), says.count(True), says.count(None)))
    return found
