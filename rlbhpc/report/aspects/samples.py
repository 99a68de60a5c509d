"""What became of the samples, what a study's own statistics say, and what models remember."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pandas as pd

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import ANSWERED, BOTH
from rlbhpc.report.aspect import Aspect, Part, Report, once_each, read_variables, tables_of
from rlbhpc.report.markup import Node, el, note, table
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import (
    FloatArray,
    IntArray,
    interval_columns,
    interval_text,
    percent_text,
    stack_rows,
)
from rlbhpc.stats import Interval
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.sweep.remember import PROBE


def section(report: Report) -> Iterator[Node]:
    """Show what was asked for, what came, and how it was judged, as tables and notes.

    ``arm.tally``: how many samples of an arm at one step are missing, judged, right, and so on; its
    values are in the order of the columns.
    """
    heads = ["arm", "set", "problems", "asked", "missing", "judged", "right", "no answer",
             "timeouts", "truncated", "failed", "verifier errors"]  # fmt: skip
    rows = [
        [arm.label, arm.problem_set, len(arm.problems), *asdict(arm.tally).values()]
        for arm in report.measured_arms
    ]
    yield table("What became of the samples", heads, rows)
    yield note(
        "Judged samples are the n of every rate; no answer, timeouts of the verifier and truncated "
        "responses are among them and count as not right, unless they are. Missing and failed "
        "samples and verifier errors are left out, never counted as wrong. A dash: not known."
    )
    if report.notes:
        yield el("ul", *(el("li", text) for text in report.notes))


def samples_frame(arms: Sequence[MeasuredArm]) -> pd.DataFrame:
    """What became of the samples, one row per arm, step and set; empty where it is not known.

    ``arm.tally``: how many are missing, judged, right, and so on. ``arm.topped_up``: problems that
    have more samples than were first requested of each.
    """
    return pd.DataFrame(
        {
            **arm.key,
            "problems": len(arm.problems),
            "problems_without_samples": int((~arm.has_samples).sum()),
            "samples_per_problem": arm.depth,
            "topped_up": arm.topped_up,
            **asdict(arm.tally),
        }
        for arm in arms
    ).convert_dtypes()


ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=lambda report: {"samples": samples_frame(report.measured_arms)},
)


@once_each
def own_statistics(report: Report) -> Iterator[tuple[MeasuredArm, str, Interval]]:
    """Yield each statistic that the study brings, with its mean for each compared arm.

    ``reference``: names a Python function of samples and right ones of each problem.
    ``equal_counts``: those of the samples that every problem has.
    """
    for reference in report.settings.statistics:
        for arm in report.compared_arms:
            if arm.has_samples.any():
                counts = arm.equal_counts(arm.sampled_rows)
                values = _statistic_of_problems(reference, counts.n, counts.c)
                mean = report.mean(values, arm.sampled_problems)
                yield arm, plugins.label(reference), mean


def _statistic_of_problems(reference: str, samples: IntArray, right: IntArray) -> FloatArray:
    """Call a study's statistic, and check that it gives a value from 0 to 1 for each problem.

    ``reference``: names the function, ``./mine.py:name``. ``samples, right``: of each problem.
    """
    plugin = plugins.find("statistics", reference)
    setting = f"analysis.statistics: {reference}"
    if plugin is None or not callable(plugin.value):
        raise UserError(f"{setting}: allowed: a file with a function statistic(n, c)")
    try:
        values = np.asarray(plugin.value(samples, right), np.float64)
    except Exception as error:
        raise UserError(f"{setting}: it raised {type(error).__name__}: {error}") from None
    if values.shape != samples.shape or not ((values >= 0) & (values <= 1)).all():
        raise UserError(
            f"{setting}: allowed: a value from 0 to 1 for each of {len(samples)} problems"
        )
    return values


def own_frame(report: Report) -> pd.DataFrame:
    """One row per arm, step, problem set and statistic."""
    return pd.DataFrame(
        {**arm.key, "statistic": name, **interval_columns("value", mean, sound=True)}
        for arm, name, mean in own_statistics(report)
    )


def own_section(report: Report) -> Iterator[Node]:
    """The means of the study's own statistics in one table; nothing where it has none.

    A statistic is a Python function of the study. ``own_statistics`` yields it with its mean over
    problems for each arm.
    """
    rows = [
        [name, arm.problem_set, arm.label, percent_text(float(mean.estimate)),
         f"{percent_text(mean.low)} to {percent_text(mean.high)}"]
        for arm, name, mean in own_statistics(report)
    ]  # fmt: skip
    if rows:
        yield el("h3", "Statistics of this study")
        heads = ["statistic", "problem set", "arm", "mean", "interval"]
        yield table("Means over problems, percent", heads, rows)


OWN = Aspect(
    Part.RESPONSES, own_section, tables=lambda report: {"own_statistics": own_frame(report)}
)


# Ids that the page names; all of them stand in the table of the export.
_NAMED_IDS: Final = 8


@dataclass(frozen=True)
class Memorised:
    """One arm on one probe, which shows a share of each question.

    ``completed, answered``: share of samples that complete the question, and that give its answer,
    for each of ``measured.sampled_problems``. ``mean_completed, mean_answered``: their means over
    problems.
    """

    measured: MeasuredArm
    share: float
    completed: FloatArray
    answered: FloatArray
    mean_completed: Interval
    mean_answered: Interval

    @property
    def known(self) -> list[str]:
        """Problems whose question was completed word for word at least once."""
        problems = self.measured.sampled_problems
        return [problems[row] for row in np.flatnonzero(self.completed > 0)]


@once_each
def memorised(report: Report) -> Iterator[Memorised]:
    """Measure what each arm remembers of each probed set.

    A *probe* shows the beginning of each question. A sample *completes* it if it goes on word for
    word, which is its verdict "right", and may give the answer too, which its stored answer says.
    ``provenance``: how the samples of a group were made; that of a probe has the share shown.
    ``read_variables`` gives ``[problem, sample]``.
    """
    probed = [arm for arm in report.measured_arms if PROBE in report.provenance.get(arm.group, {})]
    answer_codes = [answer_id(BOTH), answer_id(ANSWERED)]
    for arm, (answers,) in read_variables(report, probed, ("answer",)):
        # All samples until sampling ends at a right one would hold too many right ones.
        counts = arm.equal_counts(arm.sampled_rows)
        has_answer = np.isin(answers[arm.sampled_rows], answer_codes)
        completed = counts.c / counts.n
        answered = has_answer.sum(axis=1) / counts.n
        yield Memorised(
            arm,
            float(report.provenance[arm.group][PROBE]),
            completed,
            answered,
            mean_completed=report.mean(completed, arm.sampled_problems),
            mean_answered=report.mean(answered, arm.sampled_problems),
        )


def memorised_section(report: Report) -> Iterator[Node]:
    """Show how much of each probed set a model completes, and which problems, as a table.

    A *probe* shows the beginning of each question. ``probe.known``: problems that were completed
    word for word at least once.
    """
    probes = memorised(report)
    if not probes:
        return
    rows = []
    for probe in probes:
        more = " …" if len(probe.known) > _NAMED_IDS else ""
        rows.append(
            [probe.measured.problem_set, probe.measured.label, f"{100 * probe.share:g} %",
             len(probe.completed), interval_text(probe.mean_completed),
             interval_text(probe.mean_answered), ", ".join(probe.known[:_NAMED_IDS]) + more]
        )  # fmt: skip
    heads = ["set", "arm", "shown", "problems", "completed, %", "answered, %", "completed problems"]
    yield el("h3", "Contamination")
    yield table("Partial-prompt probes", heads, rows, wide=(6,))
    yield note(
        "A probe shows the beginning of a question. Completed: the response goes on as the "
        "question does, word for word, which a model that has never read the set hardly ever "
        "does. Answered: it also gives the right answer, though part of the question is "
        "missing. `rlbhpc select RUN ARM SET 0-0` lists the problems that were never "
        "completed, for the key `ids` of a problem set."
    )


def memorised_frame(probes: Sequence[Memorised]) -> pd.DataFrame:
    """How often each probed question was completed and answered, one row per arm and problem.

    A *probe* shows a share of each question. Both columns are shares of the samples of a problem.
    """
    return stack_rows(
        {
            **probe.measured.key,
            "shown": probe.share,
            "problem": probe.measured.sampled_problems,
            "completed": probe.completed,
            "answered": probe.answered,
        }
        for probe in probes
    )


MEMORISED = Aspect(
    Part.SAMPLES,
    memorised_section,
    tables=tables_of(memorised, contamination=memorised_frame),
)
