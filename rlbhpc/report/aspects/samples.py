"""What became of the samples, and what the verifier's errors may make of the curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.markup import Cell, Node, el, note, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import percent
from rlbhpc.stats.verifier_error import verifier_floor

#: Shares of wrong answers accepted for which the floor is shown.
RATES: Final = (1e-5, 1e-4, 1e-3)


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
        floors = verifier_floor(RATES, arm.counts[arm.sampled].reach)
        rows.append(
            [arm.label, arm.problem_set, *(percent((n or 0) / t.judged) for n in shares),
             *(percent(float(floor)) for floor in floors)]
        )  # fmt: skip
    if not rows:
        return
    heads = ["arm", "set", "no answer, %", "timeouts, %", "truncated, %",
             *(f"f = {rate:g}" for rate in RATES)]  # fmt: skip
    caption = "Shares of judged samples; floor in percent that false positives at a rate f make"
    yield el("h3", "The verifier")
    yield table(caption, heads, rows)
    yield note(
        "The floor is the pass@K, at the largest K that all problems have, of problems that are "
        "never solved, if the verifier accepts a wrong answer with probability f: 1 − (1 − f)^K. "
        "A curve that does not rise above the floor of the audited f shows nothing."
    )


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
    metrics=("verifier floor",),
)
