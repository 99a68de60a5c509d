"""How arms differ beyond right and wrong: who solves what, votes, reliability, repeats."""

from __future__ import annotations

from rlbhpc.report.beyond import compared
from rlbhpc.report.details import Details
from rlbhpc.report.figures.majority import majority_figure
from rlbhpc.report.figures.solvable import solvable_figure, solvable_frame
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounds, ends, percent
from rlbhpc.report.repeats import Repeats
from rlbhpc.report.responses import Votes
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.sections.perplexity import perplexities
from rlbhpc.report.sections.settings import settings

# Groups of problems that a table lists, the largest ones.
_GROUPS = 24


def behaviour(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Solvable sets, votes, settings, perplexity, reliability, repeats: what a run has."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.problem_set for one in report.measured):
        shown = [one for one in compared(report) if one.problem_set == set_name]
        if len(shown) > 1:
            caption = (
                "Problems by the exact set of arms that solve them at least once in equally many "
                "samples; the ids are in solvable.csv."
            )
            name = f"solvable-{set_name}"
            nodes.append(el("h3", f"{set_name}: who solves what"))
            nodes.append(pen.figure(name, caption, solvable_figure, shown, pen.colours))
            nodes.append(_solvable(shown, set_name))
    for set_name in dict.fromkeys(one.of.problem_set for one in details.votes):
        held = [one for one in details.votes if one.of.problem_set == set_name]
        caption = (
            "Bold: chance that the most frequent answer of k samples is right, ties split, with "
            "its interval. Thin: chance that any of them is right. What lies between is there but "
            "not found by a vote."
        )
        name = f"majority-{set_name}"
        nodes.append(el("h3", f"{set_name}: majority votes"))
        nodes.append(pen.figure(name, caption, majority_figure, held, pen.bases, pen.colours))
        nodes += [_votes(held, set_name), _answers(held, set_name)]
    return [*nodes, *settings(details, pen), *perplexities(details, pen), *_reliability(details),
            *_repeats(details)]  # fmt: skip


def _solvable(shown: list[Measured], set_name: str) -> Node:
    frame = solvable_frame(shown)
    sizes = frame.groupby("arms", sort=False).size().head(_GROUPS)
    rows: list[list[Cell]] = [[str(arms) or "none", int(size)] for arms, size in sizes.items()]
    reach = int(frame["samples"].iloc[0]) if len(frame) else 0
    caption = f"Problems of {set_name} by who solves them in {reach:,} samples"
    return table(caption, ["solved by exactly", "problems"], rows)


def _votes(held: list[Votes], set_name: str) -> Node:
    sizes = sorted({int(k) for one in held for k in one.k.tolist()})
    rows: list[list[Cell]] = []
    for one in held:
        at = {int(k): i for i, k in enumerate(one.k.tolist())}
        cells = [bounds(one.majority, at[k]) if k in at else "–" for k in sizes]
        left = float(one.any_right.estimate[-1] - one.majority.estimate[-1])
        rows.append([one.of.label, *cells, percent(left)])
    heads = ["arm", *(f"k = {k:,}" for k in sizes), "there but not found, at the last k"]
    return table(f"maj@k on {set_name}, percent", heads, rows)


def _answers(held: list[Votes], set_name: str) -> Node:
    rows: list[list[Cell]] = [
        [one.of.label, one.samples, ends(one.entropy), ends(one.distinct)] for one in held
    ]
    heads = ["arm", "samples", "answer entropy, nat", "distinct answers"]
    return table(f"Answers on {set_name}, per problem", heads, rows)


def _reliability(details: Details) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.of.problem_set for one in details.reliability):
        here = [one for one in details.reliability if one.of.problem_set == set_name]
        names = list(dict.fromkeys(name for one in here for name in one.values))
        rows: list[list[Cell]] = [
            [one.of.label, *(bounds(one.values[n]) if n in one.values else None for n in names)]
            for one in here
        ]
        heads = ["arm", *names]
        nodes.append(el("h3", f"{set_name}: reliability"))
        nodes.append(table(f"Reliability on {set_name}, percent", heads, rows))
    if nodes:
        nodes.append(
            el(
                "p",
                "pass^k: all of k right. G-Pass: at least half of them. mG-Pass: the mean over "
                "shares above a half. Cover@τ: share of problems whose success rate is at least τ, "
                "from a fitted distribution. Bayes@N: pass@1 of exactly these problems under a "
                "flat prior on each rate.",
                class_="soft",
            )
        )
    return nodes


def _repeats(details: Details) -> list[Node]:
    """Show whether samples that should be independent are."""
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.of.problem_set for one in details.repeats):
        here = [one for one in details.repeats if one.of.problem_set == set_name]
        rows: list[list[Cell]] = [
            [one.of.label, one.problems, one.responses, bounds(one.distinct),
             bounds(one.effective), one.longest or None]
            for one in here
        ]  # fmt: skip
        heads = ["arm", "problems read", "responses", "distinct, %", "effective n, % of n",
                 "longest repeated, tokens"]  # fmt: skip
        nodes += [
            el("h3", f"{set_name}: repeated responses"),
            el("p", _independent(here)),
            table(f"Responses on {set_name} that repeat another letter by letter", heads, rows),
        ]
    if nodes:
        nodes.append(
            el(
                "p",
                "n samples of which some are copies show as much as fewer independent ones: the "
                "effective n is n² / Σ m² for responses that occur m times. A short answer may "
                "come up twice by itself; long responses that repeat mean that seeds were used "
                "twice, and pass@k then claims more samples than there are.",
                class_="soft",
            )
        )
    return nodes


def _independent(here: list[Repeats]) -> str:
    """Say in words what the repeats come to."""
    told = []
    for one in here:
        share = 1 - float(one.distinct.estimate)
        if share <= 0:
            told.append(f"of {one.of.label} no response repeats")
        else:
            told.append(
                f"of {one.of.label} {percent(share)} % are copies, so that n samples are worth "
                f"{percent(float(one.effective.estimate))} % of n"
            )
    text = "; ".join(told)
    return f"{text[:1].upper()}{text[1:]}."
