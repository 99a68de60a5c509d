"""Perplexity of stored texts under models: who finds whose text likely."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.chart import INK, Chart, Colours, Panel, log_axis, row_axis
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.phrases import BoolArray, FloatArray, IntArray
from rlbhpc.report.svg import figure
from rlbhpc.stats.perplexities import (
    PerplexitySummary,
    perplexity,
    summarize_perplexities,
)
from rlbhpc.store.cube_schema import SCORES

# Points drawn of one text and model; the quartiles are those of all.
_DRAWN_POINTS: Final = 150


@dataclass(frozen=True)
class Scored:
    """Texts of one source at one step, as one model at one step scored them.

    ``source, step``: an arm at a training step, or the name of a file of texts. ``scorer,
    scorer_step``: the model. ``perplexity``: ``[problem, sample]``; NaN where there is no text.
    ``right``: which texts are right answers; none where no verdicts are stored.
    """

    problem_set: str
    source: str
    step: int
    scorer: str
    scorer_step: int
    perplexity: FloatArray
    right: BoolArray

    @property
    def label(self) -> str:
        """Name the texts and the model."""
        source = checkpoint_name(self.source, self.step)
        return f"{source} under {checkpoint_name(self.scorer, self.scorer_step)}"

    @property
    def summary(self) -> PerplexitySummary:
        """Distribution over all responses."""
        return summarize_perplexities(self.perplexity)

    @property
    def right_summary(self) -> PerplexitySummary:
        """Distribution over the right answers."""
        return summarize_perplexities(np.where(self.right, self.perplexity, np.nan))


@once_each
def scored(report: Report) -> Iterator[Scored]:
    """Read every combination of texts and model that was scored.

    A group of the run's results has the texts of one source, an arm at some steps, and the
    log-probabilities that one model, the scorer, gives them at some steps. ``values``: perplexities
    ``[problem, sample, step, scorer_step]``; NaN where there is no text.
    """
    for group in report.groups(SCORES):
        group = group.transpose("problem", "sample", "step", "scorer_step")
        values = perplexity(group["logprob_sum"].values, group["n_tokens"].values)
        problem_set = str(group["problem_set"].item())
        source, scorer = str(group["source"].item()), str(group["scorer"].item())
        problems, samples = group["problem"].values.tolist(), group["sample"].values
        for i, step in enumerate(group["step"].values.tolist()):
            right = _right_texts(report, source, problem_set, step, problems, samples)
            for j, scorer_step in enumerate(group["scorer_step"].values.tolist()):
                at_steps = values[:, :, i, j]
                if not np.isnan(at_steps).all():
                    yield Scored(problem_set, source, step, scorer, scorer_step, at_steps, right)


def _right_texts(
    report: Report, source: str, problem_set: str, step: int, problems: list[str],
    samples: IntArray,
) -> BoolArray:  # fmt: skip
    """Which samples of a source are right answers, ``[problem, sample]``.

    ``source``: an arm, or a file of texts, which has no verdicts and so no right answers.
    ``problems, samples``: ids and numbers along the axes of the result. ``rows``: positions of the
    problems in the arm; −1 where it lacks one. ``judged``: columns for which the arm has verdicts.
    """
    right = np.zeros((len(problems), len(samples)), bool)
    for arm in report.measured_arms:
        if (arm.arm, arm.problem_set, arm.step) == (source, problem_set, step):
            rows = arm.rows_of(problems)
            judged = np.flatnonzero(samples < arm.is_right.shape[1])
            verdicts = arm.is_right[np.ix_(rows, samples[judged])]
            right[:, judged] = verdicts & (rows >= 0)[:, None]
    return right


def checkpoint_name(name: str, step: int) -> str:
    """A model or arm with its step, which is left out where it is 0."""
    return f"{name}, step {step}" if step else name


def section(report: Report) -> Iterator[Node]:
    """Show the perplexity of texts under the models that scored them, by set.

    ``scored``: texts of one source at one step, as one model scored them. ``report.by_set``
    yields each problem set with what belongs to it.
    """
    for set_name, scores in report.by_set(scored(report)):
        yield el("h3", f"{set_name}: perplexity")
        yield figure(
            "Perplexity of stored responses under the models that scored them, at temperature "
            "1, prompt excluded, end-of-text included. Dot: median; line: quartiles.",
            perplexity_chart(scores, report.colours),
        )
        yield _summaries_table(scores, set_name)


def perplexity_chart(scores: Sequence[Scored], colours: Colours) -> Chart:
    """Draw a row for each pair of text and model: a strip of dots with median and quartiles, log x.

    A dot is one response; ``drawn`` are the positions of evenly spread ones. ``jitter`` moves dots
    up and down, so that they don't hide each other.
    """
    jitter = np.random.default_rng(0)
    x = log_axis([each.perplexity for each in scores], "perplexity of a response")
    panel = Panel(x, row_axis(len(scores)), height=40 * len(scores))
    for number, each in enumerate(scores):
        values = each.perplexity[~np.isnan(each.perplexity)]
        drawn = np.linspace(0, len(values) - 1, min(_DRAWN_POINTS, len(values))).astype(int)
        summary = each.summary
        middle = panel.row(number, f"{each.label}: {summary.median:.3f}")
        heights = middle + jitter.uniform(-0.2, 0.2, len(drawn))
        panel.dots(values[drawn], heights, colours[each.source])
        panel.points(
            summary.median, middle, INK, summary.lower_quartile, summary.upper_quartile,
            name=each.label, sideways=True,
        )  # fmt: skip
    return Chart([panel], lambda: perplexity_frame(scores))


def perplexity_frame(scores: Sequence[Scored]) -> pd.DataFrame:
    """Distribution of perplexities, one row per source of texts and model.

    Columns that begin with ``right_`` are of the right answers alone.
    """
    return pd.DataFrame(
        {
            "problem_set": each.problem_set,
            "source": each.source,
            "step": each.step,
            "scorer": each.scorer,
            "scorer_step": each.scorer_step,
            **vars(each.summary),
            **{f"right_{name}": value for name, value in vars(each.right_summary).items()},
        }
        for each in scores
    )


def _summaries_table(scores: list[Scored], set_name: str) -> Node:
    """Distribution of perplexities as a table, one row per source of texts and model.

    ``each.source, each.scorer``: whose texts, and the model that scored them; both have a step.
    ``right_summary``: of the right answers alone.
    """
    rows = []
    for each in scores:
        every, right = each.summary, each.right_summary
        rows.append(
            [each.source, each.step, each.scorer, each.scorer_step, every.responses, every.median,
             every.lower_quartile, every.upper_quartile, _mean_text(every), right.responses,
             _mean_text(right)]
        )  # fmt: skip
    heads = [
        "text of", "step", "under", "step", "responses", "median", "lower quartile",
        "upper quartile", "geometric mean", "right answers", "their geometric mean",
    ]  # fmt: skip
    caption = f"Perplexity on {set_name}; 95 % intervals of means over problems"
    return table(caption, heads, rows)


def _mean_text(summary: PerplexitySummary) -> str:
    if math.isnan(summary.geometric_mean):
        return "–"
    if math.isnan(summary.lower):
        return f"{summary.geometric_mean:.3f}"
    return f"{summary.geometric_mean:.3f} [{summary.lower:.3f}, {summary.upper:.3f}]"


charts = charts_by_set("perplexity", scored, perplexity_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(scored, perplexity=perplexity_frame),
    metrics=("perplexity",),
    charts=charts,
)
