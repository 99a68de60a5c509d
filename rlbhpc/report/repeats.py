"""Repeated responses: whether samples that should be independent are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlbhpc.report.gather import Report
from rlbhpc.report.measured import Measured
from rlbhpc.report.responses import Responses
from rlbhpc.report.stored import has_samples, read, some_problems
from rlbhpc.stats import Interval
from rlbhpc.stats.diversity import duplicates
from rlbhpc.stats.mean_interval import mean_interval
from rlbhpc.verify.verdict import Status


@dataclass(frozen=True)
class Repeats:
    """Responses of one arm that say the same, letter by letter, as another to the same problem.

    Attributes
    ----------
    distinct
        Different responses per response, mean over problems.
    effective
        Effective number of samples per sample, Kish's n² / Σ m² over n, for responses that occur
        m times.
    longest
        Tokens of the longest response that occurs twice; 0 where none does. A short answer may
        repeat by itself, a long one only if a seed was used twice.
    responses, problems
        What was read.
    """

    of: Measured
    distinct: Interval
    effective: Interval
    longest: int
    responses: int
    problems: int


def repeats(report: Report, shown: Sequence[Responses]) -> list[Repeats]:
    """Look for repeated responses of some arms; nothing where no texts are stored."""
    found = []
    for written in shown:
        one = written.of
        if not has_samples(report, one):
            continue
        problems = some_problems(written)
        columns = ("problem", "sample", "verdict", "n_tokens", "text")
        frame = read(report, one, problems, columns).to_pandas()
        frame = frame[(frame["verdict"] != Status.FAILED) & (frame["text"] != "")]
        if len(frame):
            found.append(_of(report, one, frame))
    return found


def _of(report: Report, one: Measured, frame: pd.DataFrame) -> Repeats:
    hashed = pd.util.hash_array(frame["text"].to_numpy(object))
    frame = frame.assign(text=hashed, problem=frame["problem"].astype(str))
    groups = frame.groupby("problem", sort=False)
    each = [duplicates(group["text"].to_numpy()) for _, group in groups]
    twice = frame[frame.duplicated(["problem", "text"])]
    # A subset of the problems has weights of its own.
    weights = report.draws.of(tuple(groups.groups))
    n = np.array([single.n for single in each])
    prob, how = report.settings.prob, "problem bootstrap"
    distinct = mean_interval(np.array([o.distinct for o in each]) / n, weights, prob, how)
    effective = mean_interval(np.array([o.effective_n for o in each]) / n, weights, prob, how)
    longest = int(twice["n_tokens"].max()) if len(twice) else 0
    return Repeats(one, distinct, effective, longest, len(frame), len(each))
