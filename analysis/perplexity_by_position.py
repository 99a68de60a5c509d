"""Perplexity at the start, in the middle and at the end of responses.

In the report of a study: `analysis: {aspects: [./analysis/perplexity_by_position.py]}`.
Example: python analysis/perplexity_by_position.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import (
    TOKENS,
    Aspect,
    Part,
    Report,
    charts_by_set,
    once_each,
    read_frames,
    tables_of,
)
from rlbhpc.report.aspects.responses import compared_responses
from rlbhpc.report.chart import Axis, Chart, Colours, Panel, log_axis
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import interval_columns, number_text
from rlbhpc.report.svg import figure
from rlbhpc.stats import Interval
from rlbhpc.store.parts import ONE_IN, in_lot
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import study_of

#: Tokens of each part.
WINDOW: Final = 32
PARTS: Final = ("first", "middle", "last")


def perplexity_by_position(
    logprobs: list[ArrayLike], window: int = 32
) -> dict[str, NDArray[np.float64]]:
    """Perplexity of the first, the middle and the last tokens of each response.

    Where two models differ over a response tells whether training changed how an answer starts
    or how it is carried out.

    ``logprobs``: per-token log-probabilities of each response. ``window``: tokens per part, the
    middle one centred. A response of fewer than three windows is too short for disjoint parts and
    gives NaN.

    >>> parts = perplexity_by_position([[-1.0, -1.0, -2.0, -2.0, -3.0, -3.0]], window=2)
    >>> {name: value.round(2).tolist() for name, value in parts.items()}
    {'first': [2.72], 'middle': [7.39], 'last': [20.09]}
    """
    if window < 1:
        raise UserError(f"a part of {window} tokens has no perplexity; take one token at least")
    rows = []
    for response in logprobs:
        tokens = np.asarray(response, np.float64)
        if len(tokens) < 3 * window:
            rows.append([np.nan] * 3)
            continue
        middle = (len(tokens) - window) // 2
        parts = tokens[:window], tokens[middle : middle + window], tokens[-window:]
        rows.append([float(np.exp(-part.mean())) for part in parts])
    table = np.asarray(rows, np.float64).reshape(-1, 3)
    return {name: table[:, i] for i, name in enumerate(("first", "middle", "last"))}


@dataclass(frozen=True)
class Positions:
    """Perplexity by position of the responses of one arm under the model that wrote them.

    At the sampling temperature, before top-p: what is stored of each token is the log-probability
    that it was drawn with.

    ``parts``: by name of the part, geometric mean over responses with its interval over problems.
    ``responses, problems``: responses that are long enough for three parts, and their problems.
    ``short``: responses that are not.
    """

    measured: MeasuredArm
    parts: dict[str, Interval]
    responses: int
    problems: int
    short: int


@once_each
def positions(report: Report) -> Iterator[Positions]:
    """Work out perplexities by position where the log-probabilities of tokens are stored.

    Of a study that stores them for a lot of samples only those of the lot count: the others that
    are stored were chosen for being right.
    """
    study = study_of(Layout(report.folder))
    policy = study.file.storage.tokens if study else "all"
    if policy == "none":
        return
    most = TOKENS * ONE_IN if policy == "sampled" else TOKENS
    costs = [(written.measured, written.cost) for written in compared_responses(report)]
    for arm, every in read_frames(report, costs, ("problem", "sample", "seed", "logprobs"), most):
        frame = every[every["logprobs"].map(lambda tokens: tokens is not None and len(tokens) > 0)]
        if policy == "sampled":
            frame = frame[in_lot(frame["seed"].to_numpy())]
        yield from _of(report, arm, frame)


def _of(report: Report, arm: MeasuredArm, frame: pd.DataFrame) -> Iterator[Positions]:
    values = perplexity_by_position(list(frame["logprobs"]), WINDOW)
    logs = pd.DataFrame({name: np.log(value) for name, value in values.items()})
    logs["problem"] = frame["problem"].astype(str).to_numpy()
    long = logs.dropna()
    if long["problem"].nunique() < 2:
        return
    groups = long.groupby("problem", sort=False)
    sizes = groups.size().to_numpy()
    parts = {
        name: _exp(report.ratio(groups[name].sum(), sizes, tuple(groups.groups))) for name in PARTS
    }
    yield Positions(arm, parts, len(long), len(sizes), len(logs) - len(long))


def _exp(log: Interval) -> Interval:
    # No perplexity is below 1.
    estimate, lower, upper = (np.exp(np.fmax(v, 0)) for v in (log.estimate, log.lower, log.upper))
    return replace(log, estimate=estimate, lower=lower, upper=upper)


def section(report: Report) -> Iterator[Node]:
    """Perplexity by position, problem set by problem set."""
    for set_name, arms in report.by_set(positions(report)):
        caption = (
            f"Perplexity of the first, the middle and the last {WINDOW} tokens of a response "
            "under the model that wrote it, at the sampling temperature and before top-p, with "
            "intervals over problems."
        )
        rows: list[list[Cell]] = [
            [arm.measured.label, arm.problems, arm.responses, arm.short,
             *(number_text(value, 3) for value in arm.parts.values())]
            for arm in arms
        ]  # fmt: skip
        heads = ["arm", "problems", "responses", "too short", *PARTS]
        yield el("h3", f"{set_name}: perplexity by position")
        yield from (el("p", _where(arm)) for arm in arms)
        yield figure(caption, positions_chart(arms, report.colours))
        yield table(f"Perplexity on {set_name} by position, geometric mean", heads, rows)
        yield note(
            "Where two models differ tells whether training changed how a response starts or "
            f"how it is carried out. Responses of fewer than {3 * WINDOW} tokens are too short "
            "for three parts and are left out."
        )


def _where(arm: Positions) -> str:
    """Say in words where a model is surest."""
    by_value = sorted(arm.parts, key=lambda name: float(arm.parts[name].estimate))
    surest, least = by_value[0], by_value[-1]
    clear = arm.parts[surest].high < arm.parts[least].low
    if not clear:
        return f"{arm.measured.label} is about as sure of itself at all three places."
    return (
        f"{arm.measured.label} is surest in the {surest} tokens, "
        f"{number_text(arm.parts[surest], 3)}, and least sure in the {least} ones, "
        f"{number_text(arm.parts[least], 3)}."
    )


def positions_chart(arms: Sequence[Positions], colours: Colours) -> Chart:
    """Draw one line per arm over the three parts, base dashed, with intervals."""
    limits = [
        side for arm in arms for value in arm.parts.values() for side in (value.lower, value.upper)
    ]
    ticks = tuple((float(i), f"{name} tokens") for i, name in enumerate(PARTS))
    panel = Panel(Axis(-0.5, len(PARTS) - 0.5, "", ticks), log_axis(limits, "perplexity"))
    for number, arm in enumerate(arms):
        middle, low, high = (
            np.array([float(getattr(arm.parts[name], side)) for name in PARTS])
            for side in ("estimate", "lower", "upper")
        )
        # A little apart, so that intervals of several arms can be told from each other.
        place = np.arange(len(PARTS)) + 0.06 * (number - (len(arms) - 1) / 2)
        name, colour = arm.measured.arm, colours[arm.measured.arm]
        panel.line(place, middle, colour, dash=colours.dash(name), width=1.2)
        panel.points(place, middle, colour, low, high, name=name)
        panel.end(middle, name, colour)
    legend = colours.legend(arm.measured.arm for arm in arms)
    return Chart([panel], lambda: positions_frame(arms), legend)


def positions_frame(arms: Sequence[Positions]) -> pd.DataFrame:
    """Perplexity with its interval, one row per arm and part."""
    return pd.DataFrame(
        {
            **arm.measured.key,
            "part": name,
            **interval_columns("perplexity", value),
            "responses": arm.responses,
            "too_short": arm.short,
        }
        for arm in arms
        for name, value in arm.parts.items()
    )


charts = charts_by_set("perplexity_by_position", positions, positions_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(positions, perplexity_positions=positions_frame),
    metrics=("perplexity",),
)

if __name__ == "__main__":
    main(__doc__, charts)
