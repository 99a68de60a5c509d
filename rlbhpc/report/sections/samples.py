"""What became of the samples."""

from __future__ import annotations

from typing import Final

from rlbhpc.report.details import Details
from rlbhpc.report.figures.curves import pass_at_k_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import percent, several
from rlbhpc.report.sections.audited import audited_styles
from rlbhpc.report.sections.curves import pass_at_k_table
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.sections.regraded import regraded
from rlbhpc.stats.verifier_floor import verifier_floor

#: Shares of wrong answers accepted for which the floor is shown.
RATES: Final = (1e-5, 1e-4, 1e-3)


def samples(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Count what was asked, what came, and how it was judged."""
    rows: list[list[Cell]] = []
    for one in report.measured:
        t = one.tally
        rows.append(
            [one.label, one.problem_set, len(one.problems), t.asked, t.missing, t.judged, t.right,
             t.no_answer, t.timeouts, t.truncated, t.failed, t.verifier_errors]
        )  # fmt: skip
    heads = ["arm", "set", "problems", "asked", "missing", "judged", "right", "no answer",
             "timeouts", "truncated", "failed", "verifier errors"]  # fmt: skip
    return [
        table("What became of the samples", heads, rows),
        el(
            "p",
            "Judged samples are the n of every rate; no answer, timeouts of the verifier and "
            "truncated responses are among them and count as not right, unless they are. Missing "
            "and failed samples and verifier errors are left out, never counted as wrong. A dash: "
            "not known.",
            class_="soft",
        ),
        el("ul", *(el("li", note) for note in report.notes)),
        *judging(report, details, pen),
    ]


def judging(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Say what the verifier and lucky guesses may make of the curves."""
    return [
        *_verifier(report), *audited_styles(details.audited), *regraded(details.verdicts, pen),
        *_unguessed(report, details, pen),
    ]  # fmt: skip


def _verifier(report: Report) -> list[Node]:
    """Shares that the verifier decides, and what its errors would make of large k."""
    rows: list[list[Cell]] = []
    for one in report.measured:
        t = one.tally
        if not t.judged or t.timeouts is None:
            continue
        shares = (t.no_answer, t.timeouts, t.truncated)
        floors = verifier_floor(RATES, one.counts[one.sampled].reach)
        rows.append(
            [one.label, one.problem_set, *(percent((n or 0) / t.judged) for n in shares),
             *(percent(float(f)) for f in floors)]
        )  # fmt: skip
    if not rows:
        return []
    heads = ["arm", "set", "no answer, %", "timeouts, %", "truncated, %",
             *(f"f = {rate:g}" for rate in RATES)]  # fmt: skip
    return [
        el("h3", "The verifier"),
        table(
            "Shares of judged samples; floor in percent that false positives at a rate f make",
            heads,
            rows,
        ),
        el(
            "p",
            "The floor is the pass@K, at the largest K that all problems have, of problems that "
            "are never solved, if the verifier accepts a wrong answer with probability f: "
            "1 − (1 − f)^K. A curve that does not rise above the floor of the audited f shows "
            "nothing.",
            class_="soft",
        ),
    ]


def _unguessed(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Curves without the problems that are answered now and then without reasoning."""
    nodes: list[Node] = []
    for one in details.unguessed:
        caption = (
            f"pass@k without the {several(len(one.guessed), 'problem')} that {one.by} answers at "
            "a rate above 0 and below 5 % without reasoning: at large k these are guessed."
        )
        nodes.append(el("h3", f"{one.problem_set}: without guessable problems"))
        nodes.append(
            pen.figure(
                f"unguessed-{one.problem_set}", caption, pass_at_k_figure, one.kept, pen.bases,
                pen.colours,
            )
        )  # fmt: skip
        shown = [arm for arm in one.kept if arm.curve]
        if shown:
            words = f"pass@k on {one.problem_set} without guessable problems, percent"
            nodes.append(pass_at_k_table(report, words, shown))
    return nodes
