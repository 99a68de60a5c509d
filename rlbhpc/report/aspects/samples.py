"""What became of the samples, what a study's own statistics say, and what models remember."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc import plugins
from rlbhpc.errors import UserError
from rlbhpc.problems.problem import ANSWERED, BOTH
from rlbhpc.report.aspect import Aspect, Part, Report, once_each, read_variables, tables_of
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import interval_columns, interval_text, percent_text, stack_rows
from rlbhpc.stats import Interval
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.sweep.remember import PROBE


def section(report: Report) -> Iterator[Node]:
    """Count what was asked for, what came, and how it was judged."""
    rows: list[list[Cell]] = []
    for arm in report.measured:
        t = arm.tally
        rows.append(
            [arm.label, arm.problem_set, len(arm.problems), t.asked, t.missing, t.judged, t.right,
             t.no_answer, t.timeouts, t.truncated, t.failed, t.verifier_errors]
        )  # fmt: skip
    heads = ["arm", "set", "problems", "asked", "missing", "judged", "right", "no answer",
             "timeouts", "truncated", "failed", "verifier errors"]  # fmt: skip
    yield table("What became of the samples", heads, rows)
    yield note(
        "Judged samples are the n of every rate; no answer, timeouts of the verifier and truncated "
        "responses are among them and count as not right, unless they are. Missing and failed "
        "samples and verifier errors are left out, never counted as wrong. A dash: not known."
    )
    if report.notes:
        yield el("ul", *(el("li", text) for text in report.notes))
    rows = []
    for arm in report.measured:
        t = arm.tally
        if not t.judged or t.timeouts is None:
            continue
        shares = (t.no_answer, t.timeouts, t.truncated)
        percents = [percent_text((number or 0) / t.judged) for number in shares]
        rows.append([arm.label, arm.problem_set, *percents])
    if not rows:
        return
    heads = ["arm", "set", "no answer, %", "timeouts, %", "truncated, %"]
    yield table("Shares of judged samples", heads, rows)


def samples_frame(measured: Sequence[Measured]) -> pd.DataFrame:
    """What became of the samples, one row per arm, step and set; empty where it is not known."""
    return pd.DataFrame(
        {
            **arm.key,
            "problems": len(arm.problems),
            "problems_without_samples": int((~arm.sampled).sum()),
            "samples_per_problem": arm.depth,
            "topped_up": arm.topped_up,
            **asdict(arm.tally),
        }
        for arm in measured
    ).convert_dtypes()


ASPECT = Aspect(
    Part.SAMPLES,
    section,
    tables=lambda report: {"samples": samples_frame(report.measured)},
)


@once_each
def own_statistics(report: Report) -> Iterator[tuple[Measured, str, Interval]]:
    """Each statistic of the study for each compared arm."""
    for name in report.settings.statistics:
        for arm in report.compared:
            if arm.sampled.any():
                counts = arm.equal_counts(arm.rows)
                mean = report.mean(_values(name, counts.n, counts.c), arm.sampled_problems)
                yield arm, plugins.label(name), mean


def _values(name: str, n: NDArray[np.int64], c: NDArray[np.int64]) -> NDArray[np.float64]:
    """What a statistic says of each problem; from 0 to 1, as its interval needs."""
    plugin = plugins.find("statistics", name)
    place = f"analysis.statistics: {name}"
    if plugin is None or not callable(plugin.value):
        raise UserError(f"{place}: allowed: a file with a function statistic(n, c)")
    try:
        values = np.asarray(plugin.value(n, c), np.float64)
    except Exception as error:
        raise UserError(f"{place}: it raised {type(error).__name__}: {error}") from None
    if values.shape != n.shape or not ((values >= 0) & (values <= 1)).all():
        raise UserError(f"{place}: allowed: a value from 0 to 1 for each of {len(n)} problems")
    return values


def own_frame(report: Report) -> pd.DataFrame:
    """One row per arm, step, problem set and statistic."""
    return pd.DataFrame(
        {
            **arm.key,
            "statistic": name,
            **interval_columns("value", value, sound=True),
        }
        for arm, name, value in own_statistics(report)
    )


def own_section(report: Report) -> Iterator[Node]:
    """One table over all of them."""
    rows = [
        [name, arm.problem_set, arm.label, percent_text(float(value.estimate)),
         f"{percent_text(value.low)} to {percent_text(value.high)}"]
        for arm, name, value in own_statistics(report)
    ]  # fmt: skip
    if rows:
        heads = ["statistic", "problem set", "arm", "mean", "interval"]
        yield el("h3", "Statistics of this study")
        yield table("Means over problems, percent", heads, rows)


OWN = Aspect(
    Part.RESPONSES, own_section, tables=lambda report: {"own_statistics": own_frame(report)}
)


# Ids that the page names; all of them stand in the table of the export.
NAMED: Final = 8


@dataclass(frozen=True)
class Memorised:
    """One arm on one probe.

    ``share`` of each question was shown; ``completed`` and ``answered`` are shares of samples, per
    problem of ``of.sampled_problems``, with intervals of their means over problems.
    """

    of: Measured
    share: float
    completed: NDArray[np.float64]
    answered: NDArray[np.float64]
    completion: Interval
    answer: Interval

    @property
    def known(self) -> list[str]:
        """Problems whose question was completed word for word at least once."""
        ids = self.of.sampled_problems
        return [ids[i] for i in np.flatnonzero(self.completed > 0)]


@once_each
def memorised(report: Report) -> Iterator[Memorised]:
    """Read every probe of a run."""
    probes = [arm for arm in report.measured if PROBE in report.provenance.get(arm.group, {})]
    for arm, (ids,) in read_variables(report, probes, ("answer",)):
        # Of the samples that every problem is asked for: up to its last right one, right ones
        # abound.
        counts, problems = arm.equal_counts(arm.rows), arm.sampled_problems
        right_answers = np.isin(ids[arm.rows], [answer_id(BOTH), answer_id(ANSWERED)])
        completed, answered = counts.c / counts.n, right_answers.sum(axis=1) / counts.n
        share = float(report.provenance[arm.group][PROBE])
        means = report.mean(completed, problems), report.mean(answered, problems)
        yield Memorised(arm, share, completed, answered, *means)


def memorised_section(report: Report) -> Iterator[Node]:
    """Show how much of each probed set a model completes, and which problems."""
    results = memorised(report)
    if not results:
        return
    rows: list[list[Cell]] = [
        [
            result.of.problem_set,
            result.of.label,
            f"{100 * result.share:g} %",
            len(result.completed),
            interval_text(result.completion),
            interval_text(result.answer),
            ", ".join(result.known[:NAMED]) + (" …" if len(result.known) > NAMED else ""),
        ]
        for result in results
    ]
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


def memorised_frame(results: list[Memorised]) -> pd.DataFrame:
    """One row per arm, probe and problem."""
    return stack_rows(
        {
            **result.of.key,
            "shown": result.share,
            "problem": result.of.sampled_problems,
            "completed": result.completed,
            "answered": result.answered,
        }
        for result in results
    )


MEMORISED = Aspect(
    Part.SAMPLES,
    memorised_section,
    tables=tables_of(memorised, contamination=memorised_frame),
)
