"""maj@k beside pass@k: what a vote finds of what could be found, and how answers differ.

In the report of a study: `analysis: {aspects: [./analysis/majority.py]}`.
Example: python analysis/majority.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.report.aspect import (
    Aspect,
    Part,
    Report,
    charts_by_set,
    once_each,
    read_variables,
    tables_of,
)
from rlbhpc.report.chart import Chart, Colours, Panel, k_axis, percent_axis
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import (
    interval_columns,
    interval_texts,
    number_text,
    percent_text,
    stack_rows,
)
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval
from rlbhpc.stats.votes import maj_at_k_by_votes

#: The most samples that vote together; above, votes change little and take long.
LARGEST_VOTE: Final = 64
# Samples of a problem that vote: more of them change no estimate but take longer to shuffle.
_VOTERS: Final = 256


def entropy_by_problem(answers: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    r"""Miller–Madow entropy of the answers to each problem, and how many differ.

    With the share :math:`\hat p_a` of each of K distinct answers among n, the entropy
    :math:`-\sum_a \hat p_a \log \hat p_a` is biased down, which :math:`(K-1)/2n` corrects.

    ``answers``: ids of the answers (problems, samples); negative where a sample gave none. The
    entropy is 0 where none gave one.

    Miller (1955), "Note on the bias of information estimates".

    In sorted rows equal answers form a run; its length is the number of votes, and ``problem`` the
    row it lies in.

    >>> entropy_by_problem([[5, 5, 7, 7], [3, 3, 3, -1]])
    (array([0.818147..., 0.        ]), array([2, 1]))
    """
    sorted_ids = np.sort(np.asarray(answers), axis=1)
    problems, samples = sorted_ids.shape
    starts = np.ones(sorted_ids.shape, bool)
    starts[:, 1:] = sorted_ids[:, 1:] != sorted_ids[:, :-1]
    run_starts = np.flatnonzero(starts)
    run_lengths = np.diff(run_starts, append=sorted_ids.size)
    is_answer = sorted_ids.ravel()[run_starts] >= 0
    problem = (run_starts // max(samples, 1))[is_answer]
    votes = run_lengths[is_answer]
    distinct = np.bincount(problem, minlength=problems)
    total = np.maximum(np.bincount(problem, votes, minlength=problems), 1)
    share = votes / total[problem]
    # Entropy of the observed shares, before the correction.
    plug_in = np.bincount(problem, -share * np.log(share), minlength=problems)
    return plug_in + np.maximum(distinct - 1, 0) / (2 * total), distinct


@dataclass(frozen=True)
class Votes:
    """Answers of one arm at one step, among equally many judged samples of each problem.

    ``k, majority, any_right``: maj@k beside the pass@k of the same problems. ``entropy, distinct``:
    entropy of a problem's answers in nats (Miller–Madow) and how many differ, means over problems,
    among the first ``samples`` of each.
    """

    measured: MeasuredArm
    k: NDArray[np.int64]
    majority: Interval
    any_right: Interval
    entropy: Interval
    distinct: Interval
    samples: int


@dataclass(frozen=True)
class _Ballots:
    """The answers of one arm that vote at each k, and what was measured of all its answers."""

    measured: MeasuredArm
    ids: NDArray[np.int64]
    right: NDArray[np.bool_]
    k: NDArray[np.int64]
    samples: int
    # Of each problem the entropy of its answers, and how many differ.
    spread: tuple[NDArray[np.float64], NDArray[np.int64]]


@once_each
def _ballots(report: Report) -> Iterator[_Ballots]:
    """Read the answers of the compared arms; nothing where a right sample's answer is unknown.

    So it is with imported verdicts without answers, and verifiers that tell none.
    """
    for arm, (answers,) in read_variables(report, report.compared_arms, ("answer",)):
        answered = answers >= 0
        if not answered.any() or (arm.is_right & ~answered).any():
            continue
        reach = arm.equal_counts(arm.sampled_rows).reach
        largest = min(reach, LARGEST_VOTE)
        k = np.union1d(4 ** np.arange(largest.bit_length()), largest)
        k = k[k <= largest]
        ids, right = first_judged(arm, answers, arm.sampled_rows, reach)
        voters = slice(max(_VOTERS, int(k[-1])))
        spread = entropy_by_problem(ids)
        yield _Ballots(arm, ids[:, voters].copy(), right[:, voters], k, reach, spread)


@once_each
def votes(report: Report) -> Iterator[Votes]:
    """Hold majority votes of the compared arms."""
    for arm in _ballots(report):
        rng = np.random.default_rng([report.settings.seed, arm.measured.step])
        majorities = maj_at_k_by_votes(arm.ids, arm.right, arm.k, rng)
        counts, problems = (
            arm.measured.counts[arm.measured.sampled_rows],
            arm.measured.sampled_problems,
        )
        majorities[:, 0] = counts.pass_at_k(1)[:, 0]  # a single vote needs no drawing
        majority = report.mean(majorities, problems, "problem bootstrap of votes held")
        any_right = report.mean(counts.pass_at_k(arm.k), problems)
        ones = np.ones(len(problems))
        entropy, distinct = (report.ratio(values, ones, problems) for values in arm.spread)
        yield Votes(arm.measured, arm.k, majority, any_right, entropy, distinct, arm.samples)


def first_judged(
    arm: MeasuredArm, answers: NDArray[Any], rows: NDArray[np.int64], reach: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Answers and verdicts of the first ``reach`` judged samples of each sampled problem."""
    judged, right = arm.is_judged[rows], arm.is_right[rows]
    if judged[:, :reach].all():
        return answers[rows, :reach].astype(np.int64), right[:, :reach]
    order = np.argsort(~judged, axis=1, kind="stable")[:, :reach]
    ids = np.take_along_axis(answers[rows], order, axis=1).astype(np.int64)
    return ids, np.take_along_axis(right, order, axis=1)


def section(report: Report) -> Iterator[Node]:
    """Votes and answers, problem set by problem set."""
    for set_name, arms in report.by_set(votes(report)):
        caption = (
            "Bold with dots: chance that the most frequent answer of k samples is right, ties "
            "split, with its interval. Thin: chance that any of them is right. What lies "
            "between is there but not found by a vote."
        )
        yield el("h3", f"{set_name}: majority votes")
        yield figure(caption, majority_chart(arms, report.colours))
        sizes = sorted({int(k) for arm in arms for k in arm.k.tolist()})
        rows: list[list[Cell]] = []
        for arm in arms:
            unfound = float(arm.any_right.estimate[-1] - arm.majority.estimate[-1])
            intervals = interval_texts(sizes, arm.k, arm.majority)
            rows.append([arm.measured.label, percent_text(unfound), *intervals])
        heads = ["arm", "right but not found, last k", *(f"k = {k:,}" for k in sizes)]
        yield table(f"maj@k on {set_name}, percent", heads, rows, last=True)
        rows = [
            [arm.measured.label, arm.samples, number_text(arm.entropy), number_text(arm.distinct)]
            for arm in arms
        ]
        heads = ["arm", "samples", "answer entropy, nat", "distinct answers"]
        yield table(f"Answers on {set_name}, per problem", heads, rows)


def majority_chart(arms: Sequence[Votes], colours: Colours) -> Chart:
    """Draw maj@k with its interval and pass@k thinly above it."""
    y = percent_axis("maj@k and pass@k (thin), %")
    panel = Panel(k_axis(max(int(arm.k[-1]) for arm in arms)), y, height=220)
    for arm in arms:
        name, colour, majority = arm.measured.arm, colours[arm.measured.arm], arm.majority
        dash = colours.dash(name)
        panel.band(arm.k, 100 * majority.lower, 100 * majority.upper, colour)
        panel.line(arm.k, 100 * majority.estimate, colour, dash=dash)
        panel.points(arm.k, 100 * majority.estimate, colour, name=f"{name}, vote", size=5)
        panel.line(arm.k, 100 * arm.any_right.estimate, colour, dash=dash, width=0.8)
        panel.end(100 * majority.estimate, f"{name}, vote", colour)
        panel.end(100 * arm.any_right.estimate, name, colour)
    return Chart([panel], lambda: majority_frame(arms))


def majority_frame(arms: Sequence[Votes]) -> pd.DataFrame:
    """maj@k with its interval and pass@k, one row per arm and k."""
    return stack_rows(
        {
            **arm.measured.key,
            "k": arm.k,
            **interval_columns("maj_at_k", arm.majority),
            "pass_at_k": arm.any_right.estimate,
        }
        for arm in arms
    )


def answers_frame(arms: Sequence[Votes]) -> pd.DataFrame:
    """Entropy of a problem's answers and how many differ, one row per arm."""
    return pd.DataFrame(
        {
            **arm.measured.key,
            "samples": arm.samples,
            **interval_columns("answer_entropy", arm.entropy, "answer_entropy_"),
            **interval_columns("distinct", arm.distinct, "distinct_"),
        }
        for arm in arms
    )


charts = charts_by_set("majority", votes, majority_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(votes, majority=majority_frame, answers=answers_frame),
    metrics=("maj@k",),
)

if __name__ == "__main__":
    main(__doc__, charts)
