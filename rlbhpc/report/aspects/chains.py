"""Chains of thought that people read: how many hard problems are solved by valid reasoning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, once_each, tables_of
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import powers_of_two
from rlbhpc.report.phrases import bounded, bounds, several, stacked
from rlbhpc.stats import Counts, Interval
from rlbhpc.stats.verifier_error import cot_pass_at_k
from rlbhpc.study.layout import Layout
from rlbhpc.verify.audit.review import ChainCounts, chain_counts
from rlbhpc.verify.audit.reviews import kept


@dataclass(frozen=True)
class Reviewed:
    """What the readers of one sheet found.

    ``of``: arm, problem set and step, in words. ``readers``: people who judged it. ``problems``:
    hard problems with a right answer. ``valid, unknown``: those with a chain that all readers hold
    valid, and those where that is open: a chain is unclear or unread. ``chains``: CoT-pass@k of
    these problems; None where fewer than two have a chain that was read.
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

    ``k, any_right, valid``: chance that one of k samples is right, and right by a valid chain. Of
    problems with unread right answers the share of valid ones among the read stands for all.
    ``problems``: problems with a chain that was read.
    """

    k: NDArray[np.int64]
    any_right: Interval
    valid: Interval
    problems: int


@once_each
def reviewed(report: Report) -> Iterator[Reviewed]:
    """Read the sheets of a run that somebody has judged."""
    for review in kept(Layout(report.folder).reviews):
        judgements = review.judgements()
        people = sum(not judgement.by_model for judgement in judgements)
        if not people:
            continue
        solved = [count for count in chain_counts(review.sheet, judgements) if count.right]
        verdicts = [count.solved for count in solved]
        valid, unknown = verdicts.count(True), verdicts.count(None)
        # The chance of a valid chain is worked out for numbers of samples that were fixed.
        stops = any(arm.stop_after for arm in report.measured)
        chains = None if stops else _chains(report, solved)
        yield Reviewed(review.title, people, len(solved), valid, unknown, chains)


def _chains(report: Report, solved: Sequence[ChainCounts]) -> Chains | None:
    read = [count for count in solved if count.read]
    if len(read) < 2:
        return None
    counts = Counts.of([count.n for count in read], [count.right for count in read])
    k = np.array(powers_of_two(counts.reach), np.int64)
    chance = cot_pass_at_k(counts.n, counts.c, [count.valid_among_right for count in read], k)
    problems = [count.problem for count in read]
    any_right = report.mean(counts.pass_at_k(k), problems)
    return Chains(k, any_right, report.mean(chance, problems), len(read))


def section(report: Report) -> Iterator[Node]:
    """Show what readers of the chains said, where somebody has read some."""
    sheets = reviewed(report)
    if not sheets:
        return
    rows: list[list[Cell]] = reviewed_frame(sheets).values.tolist()
    heads = ["of", "readers", "hard problems solved", "with a valid chain", "open"]
    yield el("h3", "Chains that people read")
    yield table("Hard problems by what readers hold of their chains", heads, rows)
    yield note(
        "A chain is valid if all who judged it say so; open are problems where none is valid "
        "but one is unclear or unread."
    )
    for sheet in sheets:
        chains = sheet.chains
        if chains is None:
            continue
        rows = [
            [k, bounds(chains.any_right, i), bounds(chains.valid, i)]
            for i, k in enumerate(chains.k.tolist())
        ][::-1]
        yield el(
            "p",
            f"{sheet.of}: on {several(chains.problems, 'hard problem')} with a chain that was "
            f"read, pass@{chains.k[-1]:,} is {bounds(chains.any_right, -1)} %, and "
            f"{bounds(chains.valid, -1)} % if the chain has to be valid too.",
        )
        yield table(f"CoT-pass@k of {sheet.of}, percent", ["k", "pass@k", "CoT-pass@k"], rows)


def reviewed_frame(sheets: Sequence[Reviewed]) -> pd.DataFrame:
    """What readers of chains found, one row per sheet."""
    names = ("of", "readers", "problems", "valid", "unknown")
    return pd.DataFrame({name: getattr(sheet, name) for name in names} for sheet in sheets)


def cot_frame(sheets: Sequence[Reviewed]) -> pd.DataFrame:
    """CoT-pass@k beside pass@k on hard problems whose chains were read, one row per sheet and k."""
    return stacked(
        {
            "of": sheet.of,
            "problems": sheet.chains.problems,
            "k": sheet.chains.k,
            **bounded("cot_pass_at_k", sheet.chains.valid),
            "pass_at_k": sheet.chains.any_right.estimate,
        }
        for sheet in sheets
        if sheet.chains
    )


ASPECT = Aspect(
    Part.EVIDENCE,
    section,
    tables=tables_of(reviewed, reviewed_chains=reviewed_frame, cot_pass_at_k=cot_frame),
    metrics=("CoT-pass@k",),
)
