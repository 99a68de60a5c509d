"""Perplexity of stored texts under models: who finds whose text likely, and over training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once, once_each
from rlbhpc.report.draw.chart import INK, Chart, Colours, Key, Panel, log_axis, row_axis, step_axis
from rlbhpc.report.draw.svg import figure
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import stack_rows
from rlbhpc.stats.perplexities import (
    PerplexitySummary,
    perplexity,
    perplexity_over_steps,
    summarize_perplexities,
)
from rlbhpc.store.cube_schema import SCORES
from rlbhpc.verify.verdict import Status

#: Responses of a problem that count over steps, as in the study.
RESPONSES: Final = 32
# Points drawn of one condition; the quartiles are those of all. And problems drawn over steps.
_POINTS: Final = 150
_PROBLEMS: Final = 60


@dataclass(frozen=True)
class Scored:
    """Texts of one source at one step under one model at one step.

    ``problem_set, source, step``: whose texts: an arm at a training step, or the name of a file of
    texts. ``scorer, scorer_step``: the model that scored them. ``perplexity``: ``[problem,
    sample]``; NaN where there is no text. ``right``: which of them are right answers; none of texts
    whose verdicts are not stored.
    """

    problem_set: str
    source: str
    step: int
    scorer: str
    scorer_step: int
    perplexity: NDArray[np.float64]
    right: NDArray[np.bool_]

    @property
    def label(self) -> str:
        """Name the texts and the model."""
        return f"{_name(self.source, self.step)} under {_name(self.scorer, self.scorer_step)}"

    @property
    def spread(self) -> PerplexitySummary:
        """Distribution over all responses."""
        return summarize_perplexities(self.perplexity)

    @property
    def right_spread(self) -> PerplexitySummary:
        """Distribution over the right answers."""
        return summarize_perplexities(np.where(self.right, self.perplexity, np.nan))


@dataclass(frozen=True)
class Evolution:
    """Median perplexity over training: of one source under one model, steps rising.

    ``over``: what changes: ``"step"`` of the source, ``"scorer_step"``, or ``"both"`` together.
    ``steps, values``: median of the first responses of each problem, mean over problems. ``each``:
    ``[step, problem]`` medians behind it.
    """

    problem_set: str
    source: str
    scorer: str
    over: str
    steps: tuple[int, ...]
    values: NDArray[np.float64]
    each: NDArray[np.float64]


@once_each
def scored(report: Report) -> Iterator[Scored]:
    """Read every combination of texts and model that was scored."""
    for group in report.groups(SCORES):
        group = group.transpose("problem", "sample", "step", "scorer_step")
        values = perplexity(group["logprob_sum"].values, group["n_tokens"].values)
        set_name, source, scorer = (
            str(group[name].item()) for name in ("problem_set", "source", "scorer")
        )
        for i, step in enumerate(group["step"].values.tolist()):
            for j, scorer_step in enumerate(group["scorer_step"].values.tolist()):
                part = values[:, :, i, j]
                if not np.isnan(part).all():
                    right = _right(report, group, (source, set_name, step))
                    yield Scored(set_name, source, step, scorer, scorer_step, part, right)


def _right(report: Report, group: xr.Dataset, source: tuple[str, str, int]) -> NDArray[np.bool_]:
    """Which texts of a group of scores are right answers of their arm."""
    problems, places = group["problem"].values.tolist(), group["sample"].values
    right = np.zeros((len(problems), len(places)), bool)
    for arm in report.measured:
        if (arm.arm, arm.problem_set, arm.step) == source and arm.verdicts is not None:
            rows, deep = arm.rows_of(problems), places < arm.verdicts.shape[1]
            verdicts = arm.verdicts[np.ix_(rows, places[deep])]
            right[:, deep] = (verdicts == Status.RIGHT) & (rows >= 0)[:, None]
    return right


@once
def evolutions(report: Report) -> list[Evolution]:
    """Put together what was scored at several steps of one of the two models.

    A line is one source at all its steps under one model, one text under all steps of a model,
    or a model's own texts as both go on.
    """
    lines: dict[tuple[str, str, str, str, int], list[Scored]] = {}
    for scores in scored(report):
        key = (scores.problem_set, scores.source, scores.scorer)
        lines.setdefault((*key, "scorer_step", scores.step), []).append(scores)
        lines.setdefault((*key, "step", scores.scorer_step), []).append(scores)
        if scores.step == scores.scorer_step:
            lines.setdefault((*key, "both", 0), []).append(scores)
    return [
        _evolution(*key, sorted(line, key=lambda scores: (scores.step, scores.scorer_step)))
        for key, line in lines.items()
        if len(line) > 1
    ]


def _evolution(
    problem_set: str, source: str, scorer: str, over: str, fixed: int, line: list[Scored]
) -> Evolution:
    stacked = np.stack([scores.perplexity for scores in line])
    names = {
        "step": (source, _name(scorer, fixed)),
        "scorer_step": (_name(source, fixed), scorer),
        "both": (source, scorer),
    }[over]
    steps = [scores.scorer_step if over == "scorer_step" else scores.step for scores in line]
    values = perplexity_over_steps(-np.log(stacked), np.ones_like(stacked), RESPONSES)
    each = np.nanmedian(stacked[:, :, :RESPONSES], axis=2)
    return Evolution(problem_set, *names, over, tuple(steps), values, each)


def _name(name: str, step: int) -> str:
    return f"{name}, step {step}" if step else name


def section(report: Report) -> Iterator[Node]:
    """Texts under the models that scored them, then over training, set by set."""
    lines_of = dict(report.by_set(evolutions(report)))
    # What changes over training was scored, so that no set has lines alone.
    for set_name, scores in report.by_set(scored(report)):
        caption = (
            "Perplexity of stored responses under the models that scored them, at temperature "
            "1, prompt excluded, end-of-text included. Dot: median; line: quartiles."
        )
        yield el("h3", f"{set_name}: perplexity")
        yield figure(caption, perplexity_chart(scores, report.colours))
        yield _spreads(scores, set_name)
        if set_name not in lines_of:
            continue
        lines = lines_of[set_name]
        caption = (
            "Perplexity over training: median of the first 32 responses of a problem, mean "
            "over problems that have responses at every step; thin lines are single problems."
        )
        yield el("h3", f"{set_name}: perplexity over training")
        yield figure(caption, perplexity_steps_chart(lines, report.colours))
        rows: list[list[Cell]] = [
            [line.source, line.scorer, line.steps[0], float(line.values[0]), line.steps[-1],
             float(line.values[-1]), int((~np.isnan(line.each)).all(axis=0).sum())]
            for line in lines
        ]  # fmt: skip
        heads = ["text of", "under", "from step", "perplexity", "to step", "perplexity", "problems"]
        yield table(f"Perplexity on {set_name} from the first to the last step", heads, rows)


def perplexity_chart(scores: Sequence[Scored], colours: Colours) -> Chart:
    """Draw each combination of text and model as a strip with median and quartiles, on log x."""
    jitter = np.random.default_rng(0)
    x = log_axis([s.perplexity for s in scores], "perplexity of a response")
    panel = Panel(x, row_axis(max(len(scores), 1)), height=40 * max(len(scores), 1))
    for number, combination in enumerate(scores):
        values = combination.perplexity[~np.isnan(combination.perplexity)]
        count = min(_POINTS, len(values))
        points = values[np.linspace(0, len(values) - 1, count).astype(int)]
        spread, name = combination.spread, combination.label
        middle = panel.row(number, f"{name}: {spread.median:.3f}")
        place = middle + jitter.uniform(-0.2, 0.2, len(points))
        panel.dots(points, place, colours[combination.source])
        quartiles = spread.lower_quartile, spread.upper_quartile
        panel.points(spread.median, middle, INK, *quartiles, name=name, sideways=True)
    return Chart([panel], lambda: perplexity_frame(scores))


def perplexity_frame(scores: Sequence[Scored]) -> pd.DataFrame:
    """Distribution of perplexities, one row per text and model."""
    return pd.DataFrame(
        {
            "problem_set": combination.problem_set,
            "source": combination.source,
            "step": combination.step,
            "scorer": combination.scorer,
            "scorer_step": combination.scorer_step,
            **vars(combination.spread),
            **{f"right_{name}": value for name, value in vars(combination.right_spread).items()},
        }
        for combination in scores
    )


def perplexity_steps_chart(lines: Sequence[Evolution], colours: Colours) -> Chart:
    """Draw the median of each problem thinly and the mean over problems boldly, over steps."""
    y = log_axis([line.each for line in lines], "perplexity, median of a problem")
    panel = Panel(step_axis([step for line in lines for step in line.steps]), y, height=220)
    legend = []
    for line in lines:
        colour = colours[line.scorer if line.over == "scorer_step" else line.source]
        for values in line.each.T[:_PROBLEMS]:
            panel.line(line.steps, values, colour, width=0.6, opacity=0.18)
        name = f"{line.source} under {line.scorer}"
        panel.line(line.steps, line.values, colour)
        panel.points(line.steps, line.values, colour, name=name)
        legend.append(Key(name, colour))
    return Chart([panel], lambda: perplexity_steps_frame(lines), tuple(legend))


def perplexity_steps_frame(lines: Sequence[Evolution]) -> pd.DataFrame:
    """Mean over problems of median perplexity, one row per pair and step."""
    return stack_rows(
        {
            "problem_set": line.problem_set,
            "source": line.source,
            "scorer": line.scorer,
            "over": line.over,
            "step": line.steps,
            "perplexity": line.values,
            "problems": (~np.isnan(line.each)).sum(axis=1),
        }
        for line in lines
    )


def _spreads(scores: list[Scored], set_name: str) -> Node:
    rows: list[list[Cell]] = []
    for combination in scores:
        distribution, right = combination.spread, combination.right_spread
        rows.append(
            [combination.source, combination.step, combination.scorer, combination.scorer_step,
             distribution.responses, distribution.median, distribution.lower_quartile,
             distribution.upper_quartile, _mean(distribution), right.responses, _mean(right)]
        )  # fmt: skip
    heads = [
        "text of", "step", "under", "step", "responses", "median", "lower quartile",
        "upper quartile", "geometric mean", "right answers", "their geometric mean",
    ]  # fmt: skip
    caption = f"Perplexity on {set_name}; 95 % intervals of means over problems"
    return table(caption, heads, rows)


def _mean(distribution: PerplexitySummary) -> str:
    if math.isnan(distribution.geometric_mean):
        return "–"
    ends = f" [{distribution.lower:.3f}, {distribution.upper:.3f}]"
    return f"{distribution.geometric_mean:.3f}{'' if math.isnan(distribution.lower) else ends}"


charts = charts_by_set("perplexity", scored, perplexity_chart)
step_charts = charts_by_set("perplexity_over_steps", evolutions, perplexity_steps_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=lambda report: {
        "perplexity": perplexity_frame(scored(report)),
        "perplexity_steps": perplexity_steps_frame(evolutions(report)),
    },
    metrics=("perplexity",),
    charts=charts,
)
