"""Perplexity at the start, in the middle and at the end of responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.gather import Report, read_study
from rlbhpc.report.measured import Measured
from rlbhpc.report.responses import Responses
from rlbhpc.report.stored import TOKENS, has_samples, read, some_problems
from rlbhpc.stats import Interval
from rlbhpc.stats.perplexities import perplexity_by_position
from rlbhpc.stats.ratio import ratio_interval
from rlbhpc.store.tokens import ONE_IN, in_lot

#: Tokens of each part.
WINDOW: Final = 32
PARTS: Final = ("first", "middle", "last")


@dataclass(frozen=True)
class Positions:
    """Perplexity by position of the responses of one arm under the model that wrote them.

    At the sampling temperature, before top-p: what is kept of each token is the log-probability
    that it was drawn with.

    Attributes
    ----------
    parts
        By name of the part, geometric mean over responses with its interval over problems.
    responses, problems
        Responses that are long enough for three parts, and their problems.
    short
        Responses that are not.
    """

    of: Measured
    parts: dict[str, Interval]
    responses: int
    problems: int
    short: int


def positions(report: Report, shown: Sequence[Responses]) -> list[Positions]:
    """Work out perplexities by position where the log-probabilities of tokens are kept.

    Of a study that keeps them for a lot of samples only those of the lot count: the others that
    are kept were chosen for being right.
    """
    study = read_study(report.folder)
    policy = study.file.storage.tokens if study else "all"
    found = []
    for written in shown:
        one = written.of
        if policy == "none" or not has_samples(report, one):
            continue
        most = TOKENS * ONE_IN if policy == "sampled" else TOKENS
        columns = ("problem", "sample", "seed", "logprobs")
        table = read(report, one, some_problems(written, most), columns)
        frame = table.to_pandas()
        frame = frame[frame["logprobs"].map(lambda tokens: tokens is not None and len(tokens) > 0)]
        if policy == "sampled":
            frame = frame[in_lot(frame["seed"].to_numpy())]
        made = _of(report, one, frame)
        if made is not None:
            found.append(made)
    return found


def _of(report: Report, one: Measured, frame: pd.DataFrame) -> Positions | None:
    values = perplexity_by_position(list(frame["logprobs"]), WINDOW)
    table = pd.DataFrame({name: np.log(value) for name, value in values.items()})
    table["problem"] = frame["problem"].astype(str).to_numpy()
    long = table.dropna()
    if long["problem"].nunique() < 2:
        return None
    groups = long.groupby("problem", sort=False)
    weights = report.draws.of(tuple(groups.groups))
    sizes = groups.size().to_numpy()
    parts = {
        name: _exp(ratio_interval(groups[name].sum(), sizes, weights, report.settings.prob))
        for name in PARTS
    }
    return Positions(one, parts, len(long), len(sizes), len(table) - len(long))


def _exp(log: Interval) -> Interval:
    # No perplexity is below 1.
    estimate, lower, upper = (np.exp(np.fmax(v, 0)) for v in (log.estimate, log.lower, log.upper))
    return replace(log, estimate=estimate, lower=lower, upper=upper)
