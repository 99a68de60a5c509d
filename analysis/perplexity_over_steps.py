"""Perplexity over training: median per problem, mean over problems.

In the report of a study: `analysis: {aspects: [./analysis/perplexity_over_steps.py]}`.
Example: python analysis/perplexity_over_steps.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.aspects.perplexity import Scored, checkpoint_name, scored
from rlbhpc.report.chart import Chart, Colours, Key, Panel, log_axis, step_axis
from rlbhpc.report.markup import Node, el, table
from rlbhpc.report.paper import main
from rlbhpc.report.phrases import FloatArray, stack_rows
from rlbhpc.report.svg import figure
from rlbhpc.stats.perplexities import perplexity

#: Responses of a problem that count over steps, as in the study.
RESPONSES: Final = 32
# Problems that are drawn.
_DRAWN_PROBLEMS: Final = 60


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


def perplexity_over_steps(
    logprob_sum: ArrayLike, n_tokens: ArrayLike, responses: int = 32
) -> NDArray[np.float64]:
    """Perplexity over training as in the study: median per problem, mean over problems.

    ``logprob_sum, n_tokens``: of shape (steps, problems, responses); NaN or 0 tokens where there is
    no response. ``responses``: how many of the first responses of each problem count; the study
    takes 32. Gives one value per step, over the problems that have a response at every step, so
    that no step is easier by its problems.
    """
    values = perplexity(logprob_sum, n_tokens)
    if values.ndim != 3:
        raise UserError("perplexity over steps needs step, problem and response dimensions")
    values = values[:, :, :responses]
    has_response = ~np.isnan(values).all(axis=2)
    at_every_step = has_response.all(axis=0)
    if not at_every_step.any():
        return np.full(len(values), np.nan)
    problem_medians = np.nanmedian(values[:, at_every_step], axis=2)
    return np.asarray(problem_medians.mean(axis=1))


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
        fixed_source, fixed_scorer = (
            checkpoint_name(source, scores.step),
            checkpoint_name(scorer, scores.scorer_step),
        )
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


def section(report: Report) -> Iterator[Node]:
    """Show perplexity over training as a figure and a table, by problem set."""
    for set_name, over_training in report.by_set(evolutions(report)):
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


charts = charts_by_set("perplexity_over_steps", evolutions, perplexity_steps_chart)

ASPECT = Aspect(
    Part.RESPONSES,
    section,
    tables=tables_of(evolutions, perplexity_steps=perplexity_steps_frame),
    metrics=("perplexity",),
    charts=charts,
)

if __name__ == "__main__":
    main(__doc__, charts)
