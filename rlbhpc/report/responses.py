"""What the responses of an arm are like beyond right and wrong: length, entropy, answers.

Read when they are shown, since they take more reading than all verdicts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured, rows_at
from rlbhpc.stats import Interval
from rlbhpc.stats.entropy import answer_entropy
from rlbhpc.stats.majority import maj_at_k_by_votes
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.stats.ratio import ratio_interval
from rlbhpc.store.reader import open_cube
from rlbhpc.verify.verdict import Status

#: The most samples that vote together; above, votes change little and take long.
LARGEST_VOTE: Final = 64


@dataclass(frozen=True)
class Responses:
    """Responses of one arm at one step.

    Attributes
    ----------
    of
        The arm, step and problem set.
    entropy
        Entropy per token in nats, at the sampling temperature before top-p, over all tokens.
    tokens
        Tokens per response, end-of-text included.
    cost
        Tokens per response of each sampled problem; NaN where none is known.
    """

    of: Measured
    entropy: Interval
    tokens: Interval
    cost: NDArray[np.float64]


@dataclass(frozen=True)
class Votes:
    """Answers of one arm at one step, among equally many judged samples of each problem.

    Attributes
    ----------
    k, majority, any_right
        maj@k beside the pass@k of the same problems.
    entropy, distinct
        Entropy of a problem's answers in nats (Miller–Madow) and how many differ, means over
        problems, among the first ``samples`` of each.
    """

    of: Measured
    k: NDArray[np.int64]
    majority: Interval
    any_right: Interval
    entropy: Interval
    distinct: Interval
    samples: int


def responses(report: Report) -> list[Responses]:
    """Measure lengths and entropies of every arm and step that has samples."""
    found = []
    prob = report.settings.prob
    for one, (tokens, entropy) in _read(report, report.measured, ("n_tokens", "entropy_sum")):
        known = _judged(one) & (tokens > 0)
        measured = known & ~np.isnan(entropy)
        sums = [
            np.where(mask, values, 0).sum(axis=1, dtype=np.float64)[one.sampled]
            for mask, values in (
                (measured, entropy), (measured, tokens), (known, tokens), (known, known)
            )
        ]  # fmt: skip
        weights = report.draws.of(tuple(one.problems[i] for i in np.flatnonzero(one.sampled)))
        entropies, lengths = (ratio_interval(sums[i], sums[i + 1], weights, prob) for i in (0, 2))
        with np.errstate(invalid="ignore"):
            found.append(Responses(one, entropies, lengths, sums[2] / sums[3]))
    return found


def votes(report: Report, shown: Sequence[Measured]) -> list[Votes]:
    """Hold majority votes of some arms; nothing for imported counts."""
    found = []
    for one, (answers,) in _read(report, shown, ("answer",)):
        rows = np.flatnonzero(one.sampled)
        counts = one.counts[rows]
        largest = min(counts.reach, LARGEST_VOTE)
        k = np.union1d(4 ** np.arange(largest.bit_length()), largest)
        k = k[k <= largest]
        ids, right = _first_judged(one, answers, rows, counts.reach)
        seed = np.random.default_rng([report.settings.seed, one.step])
        held = maj_at_k_by_votes(ids, right, k, seed)
        weights = report.draws.of(tuple(one.problems[i] for i in rows))
        prob = report.settings.prob
        tallies = [np.unique(row[row >= 0], return_counts=True)[1] for row in ids]
        entropies = np.nan_to_num([answer_entropy(tally) for tally in tallies])
        one_each = np.ones(len(ids))
        found.append(
            Votes(
                one,
                k,
                mean_interval(held, weights, prob, "problem bootstrap of votes held"),
                mean_interval(counts.pass_at_k(k), weights, prob, "problem bootstrap"),
                ratio_interval(entropies, one_each, weights, prob),
                ratio_interval([len(tally) for tally in tallies], one_each, weights, prob),
                counts.reach,
            )
        )
    return found


def _read(
    report: Report, shown: Sequence[Measured], names: tuple[str, ...]
) -> Iterator[tuple[Measured, list[NDArray[Any]]]]:
    """Read variables ``[problem, sample]`` of arms with samples, in the order of their problems."""
    tree = open_cube(report.folder)
    for one in shown:
        if one.verdicts is None or not one.sampled.any():
            continue
        group = tree[f"{one.arm}/{one.problem_set}"].to_dataset()
        step = int(np.flatnonzero(group["step"].values == one.step)[0])
        at = rows_at(one.problems, group["problem"].values.tolist())
        yield one, [group[name].isel(step=step).values[at][:, : one.depth] for name in names]


def _judged(one: Measured) -> NDArray[np.bool_]:
    assert one.verdicts is not None
    return np.asarray((one.verdicts >= Status.WRONG) & (one.verdicts <= Status.TIMEOUT))


def _first_judged(
    one: Measured, answers: NDArray[Any], rows: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Answers and verdicts of the first ``reach`` judged samples of each sampled problem."""
    assert one.verdicts is not None
    order = np.argsort(~_judged(one)[rows], axis=1, kind="stable")[:, :reach]
    ids = np.take_along_axis(answers[rows], order, axis=1).astype(np.int64)
    right = np.take_along_axis(one.verdicts[rows], order, axis=1) == Status.RIGHT
    return ids, right
