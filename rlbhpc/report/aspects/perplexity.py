"""Perplexity of stored texts under models: who finds whose text likely, and over training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each
from rlbhpc.report.chart import INK, Chart, Colours, Key, Panel, log_axis, row_axis, step_axis
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.phrases import BoolArray, FloatArray, IntArray, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats.perplexities import (
    PerplexitySummary,
    perplexity,
    perplexity_over_steps,
    summarize_perplexities,
)
from rlbhpc.store.cube_schema import SCORES

#: Responses of a problem that count over steps, as in the study.
RESPONSES: Final = 32
# Points drawn of one text and model; the quartiles are those of all. And problems over steps.
_DRAWN_POINTS: Final = 150
_DRAWN_PROBLEMS: Final = 60


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
        return f"{_name(self.source, self.step)} under {_name(self.scorer, self.scorer_step)}"

    @property
    def summary(self) -> PerplexitySummary:
        """Distribution over all responses."""
        return summarize_perplexities(self.perplexity)

    @property
    def right_summary(self) -> PerplexitySummary:
        """Distribution over the right answers."""
        return summarize_perplexities(np.where(self.right, self.perplexity, np.nan))


@dataclass(frozen=True)
class Evolution:
    """Median perplexity of one source under one model over training, steps rising.

    ``changing``: whose step changes: ``"step"`` of the source, ``"scorer_step"``, or ``"both"``
    together. ``medians``: ``[step, problem]``, of the first responses of each problem. ``means``:
    their mean over problems.
    """

    problem_set: str
    source: str
    scorer: str
    changing: str
    steps: tuple[int, ...]
    means: FloatArray
    medians: FloatArray


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


@once_each
def evolutions(report: Report) -> Iterator[Evolution]:
    """Put together what was scored at several steps of one of the two models.

    That is one source at all its steps under one model, one text under all steps of a model, or a
    model's own texts as both go on. ``Scored``: the texts of a source (an arm) at one step, under a
    scorer (a model) at one step. The key of a series says what changes, and names the side that
    does not with its step.
    """
    series: dict[tuple[str, str, str, str], list[Scored]] = {}
    for scores in scored(report):
        source, scorer = scores.source, scores.scorer
        fixed_source, fixed_scorer = _name(source, scores.step), _name(scorer, scores.scorer_step)
        keys = [("scorer_step", fixed_source, scorer), ("step", source, fixed_scorer)]
        if scores.step == scores.scorer_step:
            keys.append(("both", source, scorer))
        for key in keys:
            series.setdefault((scores.problem_set, *key), []).append(scores)
    for (problem_set, changing, source, scorer), members in series.items():
        if len(members) > 1:
            members.sort(key=lambda scores: (scores.step, scores.scorer_step))
            yield _evolution(problem_set, changing, source, scorer, members)


def _evolution(
    problem_set: str, changing: str, source: str, scorer: str, scores: list[Scored]
) -> Evolution:
    """Perplexity of one source of texts under one model over training steps.

    ``changing``: whose step changes: ``"step"`` of the source, ``"scorer_step"``, or ``"both"``.
    ``scores``: steps rising; they become an array ``[step, problem, sample]``.
    ``perplexity_over_steps`` takes log-probabilities and numbers of tokens; a perplexity is that of
    a text of one token.
    """
    perplexities = np.stack([each.perplexity for each in scores])
    steps = [each.scorer_step if changing == "scorer_step" else each.step for each in scores]
    one_token = np.ones_like(perplexities)
    means = perplexity_over_steps(-np.log(perplexities), one_token, RESPONSES)
    medians = np.nanmedian(perplexities[:, :, :RESPONSES], axis=2)
    return Evolution(problem_set, source, scorer, changing, tuple(steps), means, medians)


def _name(name: str, step: int) -> str:
    return f"{name}, step {step}" if step else name


def section(report: Report) -> Iterator[Node]:
    """Show the perplexity of texts under the models that scored them, and over training, by set.

    ``scored``: texts of one source at one step, as one model scored them. ``evolutions``: the same
    over the steps of either. ``report.by_set`` yields each problem set with what belongs to it.
    """
    evolutions_of_set = dict(report.by_set(evolutions(report)))
    for set_name, scores in report.by_set(scored(report)):
        yield el("h3", f"{set_name}: perplexity")
        yield figure(
            "Perplexity of stored responses under the models that scored them, at temperature "
            "1, prompt excluded, end-of-text included. Dot: median; line: quartiles.",
            perplexity_chart(scores, report.colours),
        )
        yield _summaries_table(scores, set_name)
        # Texts that were scored at several steps are among those that were scored at all.
        over_training = evolutions_of_set.get(set_name)
        if over_training is None:
            continue
        yield el("h3", f"{set_name}: perplexity over training")
        yield figure(
            "Perplexity over training: median of the first 32 responses of a problem, mean "
            "over problems that have responses at every step; thin lines are single problems.",
            perplexity_steps_chart(over_training, report.colours),
        )
        heads = ["text of", "under", "from step", "perplexity", "to step", "perplexity", "problems"]
        rows = [
            [each.source, each.scorer, each.steps[0], float(each.means[0]), each.steps[-1],
             float(each.means[-1]), int((~np.isnan(each.medians)).all(axis=0).sum())]
            for each in over_training
        ]  # fmt: skip
        yield table(f"Perplexity on {set_name} from the first to the last step", heads, rows)


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


def perplexity_steps_chart(evolutions: Sequence[Evolution], colours: Colours) -> Chart:
    """Draw the median of each problem thinly and the mean over problems boldly, over steps.

    ``each.medians``: ``[step, problem]``. ``each.changing``: whose step changes; the curve has the
    colour of that arm.
    """
    steps = [step for each in evolutions for step in each.steps]
    y = log_axis([each.medians for each in evolutions], "perplexity, median of a problem")
    panel = Panel(step_axis(steps), y, height=220)
    legend = []
    for each in evolutions:
        colour = colours[each.scorer if each.changing == "scorer_step" else each.source]
        for medians in each.medians.T[:_DRAWN_PROBLEMS]:
            panel.line(each.steps, medians, colour, width=0.6, opacity=0.18)
        name = f"{each.source} under {each.scorer}"
        panel.line(each.steps, each.means, colour)
        panel.points(each.steps, each.means, colour, name=name)
        legend.append(Key(name, colour))
    return Chart([panel], lambda: perplexity_steps_frame(evolutions), tuple(legend))


def perplexity_steps_frame(evolutions: Sequence[Evolution]) -> pd.DataFrame:
    """Mean over problems of median perplexity, one row per pair of source and scorer, and step.

    ``each.changing``: whose step changes. ``each.means``: by step. ``each.medians``: ``[step,
    problem]``.
    """
    return stack_rows(
        {
            "problem_set": each.problem_set,
            "source": each.source,
            "scorer": each.scorer,
            "over": each.changing,
            "step": each.steps,
            "perplexity": each.means,
            "problems": (~np.isnan(each.medians)).sum(axis=1),
        }
        for each in evolutions
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
