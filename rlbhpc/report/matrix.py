"""The answer in one matrix: what became of each problem set under each trained arm."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from rlbhpc.report.aspect import Report
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note
from rlbhpc.report.phrases import UNSOUND, bounds, several, signed
from rlbhpc.stats import Word

_KINDS: Final = {
    Word.TRADES: "both",
    Word.LOST_YET_AHEAD: "both",
    Word.GAINED_YET_BEHIND: "both",
    Word.SHRINKS: "lost",
    Word.LOST: "lost",
    Word.BEHIND: "lost",
    Word.EXPANDS: "gained",
    Word.GAINED: "gained",
    Word.AHEAD: "gained",
    Word.NO_LOSS: "open",
    Word.NO_GAIN: "open",
    Word.UNDECIDED: "open",
    Word.SLOWER: "open",
    Word.QUICKER: "open",
}
_SIGNS: Final = {"lost": "▼", "gained": "▲", "both": "⇅", "same": "=", "open": "?"}


def verdict(pair: Comparison) -> str:
    """The word of a comparison behind a sign that needs no colour."""
    return f"{sign(pair)} {pair.answer.headline}"


def sign(pair: Comparison) -> str:
    """The sign of what a comparison says."""
    return _SIGNS[_kind(pair)]


def _kind(pair: Comparison) -> str:
    return _KINDS.get(pair.answer.word, "same")


def counts(pair: Comparison) -> str:
    """``only base 25, only trained 9 of 128``: problems that only one of the two solves."""
    lost, gained = pair.answer.lost, pair.answer.gained
    left_out = f", {len(pair.left_out):,} left out" if pair.left_out else ""
    return f"only base {lost.count}, only trained {gained.count} of {lost.problems:,}{left_out}"


def net(pair: Comparison) -> str:
    """``net −4.1 [−8.0, −0.5]``: the difference at the largest k with its interval."""
    return f"net {bounds(pair.net, sign=True)}"


def quick(pair: Comparison) -> str:
    """The difference at k = 1."""
    return signed(float(pair.pointwise.estimate[0]))


def several_bases(report: Report) -> bool:
    """Whether an arm's name alone does not say what it is compared with."""
    return len({pair.base.arm for pair in report.final}) > 1


def matrix(report: Report) -> ET.Element:
    """Lay out arms × problem sets; on a narrow screen each cell is a line of its own."""
    sets = [name for name, _ in report.by_set(report.final)]
    arms = dict.fromkeys((pair.trained.arm, pair.base.arm) for pair in report.final)
    heads: list[Node] = [el("th", "arm", scope="col"), *(el("th", s, scope="col") for s in sets)]
    rows = []
    for trained, base in arms:
        pairs = {
            pair.base.problem_set: (number, pair)
            for number, pair in enumerate(report.final)
            if (pair.trained.arm, pair.base.arm) == (trained, base)
        }
        against = f" against {base}" if several_bases(report) else ""
        cells = [_cell(set_name, *pairs[set_name]) if set_name in pairs else el("td", "–")
                 for set_name in sets]  # fmt: skip
        step = next(iter(pairs.values()))[1].trained.step
        name = el("th", trained, el("small", f"{against}{f' step {step:,}' if step else ''}"),
                  scope="row")  # fmt: skip
        rows.append(el("tr", name, *cells))
    body = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="matrix")
    reach = sorted({pair.reach for pair in report.final})
    sizes = f"{reach[0]:,}" if len(reach) == 1 else f"{reach[0]:,} to {reach[-1]:,}"
    level = f"{100 * report.settings.prob:g} %"
    bases = ", ".join(dict.fromkeys(base for _, base in arms))
    doubt = f" {UNSOUND}" if any("?" in net(pair) for pair in report.final) else ""
    if any(_kind(pair) == "open" and pair.net.sign for pair in report.final):
        doubt += (
            " Where an interval without 0 stands beside ?, the word needs more: words share one "
            f"error over all questions of {several(len(report.final), 'comparison')}, and each "
            "interval has its own."
        )
    words = note(
        f"Against {bases}, in K = {sizes} samples of each problem. Counts: problems that only the "
        "base, or only the trained arm, solves in them. Words ask more: a problem is lost if it "
        "takes the trained arm ten times the samples of the base, gained the other way round. "
        f"Net: trained − base pass@K in points with its {level} interval.{doubt}"
    )
    return el("div", body, words, class_="answer")


def _cell(set_name: str, number: int, pair: Comparison) -> ET.Element:
    word = el("a", pair.answer.headline, href=f"#comparison-{number + 1}", class_="word")
    lines = [el("span", el("span", sign(pair), class_="sign"), " ", word, class_="line")]
    estimate, bracket, ends = net(pair).partition("[")
    interval = el("span", estimate, el("span", f"{bracket}{ends}", class_="whole"), class_="line")
    lines += [el("span", counts(pair), class_="line"), interval]
    return el("td", *lines, class_=_kind(pair), data_set=set_name)


def line(pair: Comparison) -> str:
    """One line of a comparison: for the heads of the folded parts, and for a terminal."""
    return (
        f"{sign(pair)} {pair.trained.arm} against {pair.base.arm} on {pair.problem_set}: "
        f"{pair.answer.headline}; {counts(pair)}; {net(pair)} at k = {pair.reach:,}, "
        f"{quick(pair)} at k = 1"
    )
