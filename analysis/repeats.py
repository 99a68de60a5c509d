"""Repeated responses: whether samples that should be independent are.

In the report of a study: `analysis: {aspects: [./analysis/repeats.py]}`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, once_each, read_frames, tables_of
from rlbhpc.report.aspects.responses import compared_responses
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text
from rlbhpc.stats import Interval
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Duplicates:
    r"""Repeated samples of one problem.

    ``distinct``: different token sequences among them. ``effective_n``: :math:`n^2 / \sum_j m_j^2`
    for sequences seen :math:`m_j` times: n if all differ, 1 if all are equal.
    """

    n: int
    distinct: int
    effective_n: float


def duplicates(sequences: ArrayLike) -> Duplicates:
    """Count repeated token sequences among the samples of one problem.

    Independent samples repeat only where a response is short or near certain. Long responses
    that repeat mean reused seeds, and pass@k then overstates what n samples show.

    ``sequences``: one hash (or any label) of the token sequence per sample.

    >>> duplicates(["a", "a", "b", "c"])
    Duplicates(n=4, distinct=3, effective_n=2.66...)
    """
    labels = np.asarray(sequences)
    if labels.ndim != 1:
        raise UserError("duplicates are counted per problem; give one label per sample")
    if not len(labels):
        return Duplicates(0, 0, 0.0)
    _, times = np.unique(labels, return_counts=True)
    return Duplicates(len(labels), len(times), float(len(labels) ** 2 / (times**2).sum()))


#: Chance, over a whole arm, below which a repeat counts as no draw of its own.
UNLIKELY: Final = 0.001


@dataclass(frozen=True)
class Collisions:
    """Equal responses of one problem against what independent draws would hold.

    ``pairs, expected``: equal pairs that there are, and that independent draws of these
    probabilities would hold. ``copies``: responses that repeat an earlier one too improbable to be
    drawn twice.
    """

    pairs: int
    expected: float
    copies: int


def collisions(sequences: ArrayLike, logprobs: ArrayLike, problems: int = 1) -> Collisions:
    """Compare repeated responses of a problem with the collisions that chance explains.

    ``sequences``: one hash (or any label) of the token sequence per sample. ``logprobs``:
    log-probability of each sequence in the distribution that it was drawn from. ``problems``: how
    many problems of the arm are looked at: the chance of a false alarm, ``UNLIKELY``, is that of
    all of them together.

    >>> collisions(["yes"] * 3 + ["no"], [-0.1, -0.1, -0.1, -2.3]).copies
    0
    >>> collisions(["long"] * 2 + ["other"], [-300.0, -300.0, -310.0]).copies
    1
    """
    labels, logs = np.asarray(sequences), np.asarray(logprobs, np.float64)
    if labels.ndim != 1 or labels.shape != logs.shape:
        raise UserError("collisions need a label and a log-probability for each sample")
    n = len(labels)
    if n < 2:
        return Collisions(0, 0.0, 0)
    _, first, times = np.unique(labels, return_index=True, return_counts=True)
    every_pair = n * (n - 1) / 2
    expected = every_pair * float(np.exp(np.minimum(logs, 0.0)).mean())
    unlikely = logs[first] + math.log(every_pair * problems) < math.log(UNLIKELY)
    copies = int((times - 1)[unlikely].sum())
    return Collisions(int((times * (times - 1) // 2).sum()), expected, copies)


@dataclass(frozen=True)
class Repeats:
    """Responses of one arm that say the same, letter by letter, as another to the same problem.

    ``distinct``: different responses per response, mean over problems. ``effective``: effective
    number of samples per sample, Kish's n² / Σ m² over n, for responses that occur m times.
    ``longest``: tokens of the longest response that occurs twice; 0 where none does. A short answer
    may repeat by itself, a long one only if a seed was used twice. ``pairs, expected``: equal
    pairs, and how many independent draws of these probabilities would hold; NaN where the samples
    were not drawn from the distribution whose log-probabilities are stored. ``copies``: responses
    that repeat one too improbable to be drawn twice. ``responses, problems``: what was read.
    """

    measured: MeasuredArm
    distinct: Interval
    effective: Interval
    longest: int
    responses: int
    problems: int
    pairs: int
    expected: float
    copies: int


@once_each
def repeats(report: Report) -> Iterator[Repeats]:
    """Look for repeated responses of the compared arms; nothing where no texts are stored."""
    costs = [(written.measured, written.cost) for written in compared_responses(report)]
    columns = ("problem", "sample", "verdict", "n_tokens", "logprob_sum", "text")
    for arm, every in read_frames(report, costs, columns):
        frame = every[(every["verdict"] != Status.FAILED) & (every["text"] != "")]
        if len(frame):
            yield _of(report, arm, frame)


def _of(report: Report, arm: MeasuredArm, frame: pd.DataFrame) -> Repeats:
    hashed = pd.util.hash_array(frame["text"].to_numpy(object))
    frame = frame.assign(text=hashed, problem=frame["problem"].astype(str))
    groups = frame.groupby("problem", sort=False)
    each = [duplicates(group["text"].to_numpy()) for _, group in groups]
    twice = frame[frame.duplicated(["problem", "text"])]
    # A subset of the problems has weights of its own.
    ids = tuple(groups.groups)
    n = np.array([problem.n for problem in each])
    distinct = report.mean(np.array([p.distinct for p in each]) / n, ids)
    effective = report.mean(np.array([p.effective_n for p in each]) / n, ids)
    longest = int(twice["n_tokens"].max()) if len(twice) else 0
    repeated = [
        collisions(group["text"].to_numpy(), group["logprob_sum"].to_numpy(), len(each))
        for _, group in groups
    ]
    pairs = sum(problem.pairs for problem in repeated)
    expected = sum(problem.expected for problem in repeated)
    copies = sum(problem.copies for problem in repeated)
    if not as_stored(report, arm) or frame["logprob_sum"].isna().any():
        expected, copies = float("nan"), 0
    return Repeats(
        arm, distinct, effective, longest, len(frame), len(each), pairs, expected, copies
    )


def as_stored(report: Report, arm: MeasuredArm) -> bool:
    """Whether the samples were drawn at temperature 1 from all tokens, as log-probabilities are."""
    entry = report.study_arms.get(arm.arm)
    return entry is not None and entry.sampling.temperature == 1 and entry.sampling.top_p == 1


def section(report: Report) -> Iterator[Node]:
    """Show whether samples that should be independent are."""
    for set_name, arms in report.by_set(repeats(report)):
        rows: list[list[Cell]] = [
            [arm.measured.label, arm.problems, arm.responses, interval_text(arm.distinct),
             interval_text(arm.effective), arm.longest or None]
            for arm in arms
        ]  # fmt: skip
        heads = ["arm", "problems read", "responses", "distinct, %", "effective n, % of n",
                 "longest repeated, tokens"]  # fmt: skip
        caption = f"Responses on {set_name} that repeat another letter by letter"
        yield el("h3", f"{set_name}: repeated responses")
        yield el("p", _independent(arms))
        yield table(caption, heads, rows)
    if repeats(report):
        yield note(
            "Effective n is n² / Σ m² for responses that occur m times: how varied they are. "
            "Independent draws from a model that is sure of itself repeat legitimately, and "
            "pass@k is right for them. Only responses too improbable to come up twice mean "
            "that seeds were used twice, and pass@k then claims more samples than there are."
        )


def _independent(arms: list[Repeats]) -> str:
    """Say in words what the repeats come to."""
    phrases = []
    for arm in arms:
        share = 1 - float(arm.distinct.estimate)
        if share <= 0:
            phrases.append(f"of {arm.measured.label} no response repeats")
            continue
        sentence = f"of {arm.measured.label} {percent_text(share)} % repeat an earlier one"
        if arm.copies:
            sentence += (
                f", {arm.copies:,} of them a response too improbable to be drawn twice: seeds were "
                "used twice, or samples copied"
            )
        elif math.isnan(arm.expected):
            sentence += (
                "; whether chance explains that is open, without the probabilities drawn from"
            )
        else:
            sentence += (
                f", as a model does that is sure of itself: {arm.pairs:,} equal pairs, and "
                f"{arm.expected:,.1f} are expected of independent draws"
            )
        phrases.append(sentence)
    text = "; ".join(phrases)
    return f"{text[:1].upper()}{text[1:]}."


def repeats_frame(arms: Sequence[Repeats]) -> pd.DataFrame:
    """Repeated responses, one row per arm."""
    return pd.DataFrame(
        {
            **arm.measured.key,
            "problems": arm.problems,
            "responses": arm.responses,
            "longest_repeated": arm.longest,
            "equal_pairs": arm.pairs,
            "expected_pairs": arm.expected,
            "copies": arm.copies,
            **interval_columns("distinct", arm.distinct, "distinct_"),
            **interval_columns("effective", arm.effective, "effective_"),
        }
        for arm in arms
    )


ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(repeats, repeats=repeats_frame),
)
