"""The responses of a base and its trained model to two problems, as one tree of shared beginnings.

After figure 1 of Yue et al. (2025, arXiv 2504.13837). The problems are the one that training lost
most of and the one that it gained most of. From stored tokens: `storage: {tokens: all}`.

In the report of a study: `analysis: {aspects: [./analysis/search_tree.py]}`.
Example: python analysis/search_tree.py runs/math -o figures
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlbhpc.report.aspect import Aspect, Part, Report, charts_by_set, once_each, tables_of
from rlbhpc.report.chart import Axis, Chart, Colours, Key, Panel, log_axis
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el, note
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.paper import main
from rlbhpc.report.svg import figure
from rlbhpc.store import tables
from rlbhpc.store.samples import find_samples
from rlbhpc.store.sources import Group
from rlbhpc.study.layout import Layout
from rlbhpc.verify.verdict import Status

#: Responses of a model in a tree: those with the lowest indices whose tokens are stored.
MOST_RESPONSES: Final = 24
RIGHT_COLOUR, WRONG_COLOUR, UNSEEN_COLOUR = "#2e7d32", "#c62828", "#c8c8c8"
# Width of a branch that all responses of a model pass, in pixels.
_WIDEST: Final = 4.0


@dataclass(frozen=True)
class Response:
    """A stored response: who wrote it, its tokens with their log-probabilities, and its verdict.

    ``logprobs`` are at the sampling temperature, before top-p. ``scores`` has the log-probability
    of the whole response at temperature 1 under each model that scored it, by the arm's name.
    """

    arm: str
    sample: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    is_right: bool
    scores: dict[str, float]


@dataclass(frozen=True)
class Branch:
    """Tokens ``start`` … ``stop`` - 1 that all of ``responses`` share, and where they part.

    ``row`` is the height at which it is drawn, in rows of single responses.
    """

    start: int
    stop: int
    responses: tuple[Response, ...]
    children: tuple[Branch, ...]
    row: float

    def log_probability(self, arm: str) -> float:
        """Log-probability of all tokens up to its end under a model; NaN where it never passed."""
        for response in self.responses:
            if response.arm == arm:
                return float(np.sum(response.logprobs[: self.stop]))
        return float("nan")

    def count(self, arm: str) -> int:
        """Responses of a model that pass."""
        return sum(response.arm == arm for response in self.responses)

    def walk(self) -> Iterator[Branch]:
        """Yield this branch and all behind it."""
        yield self
        for child in self.children:
            yield from child.walk()


def grow(responses: Sequence[Response], start: int = 0, first_row: int = 0) -> Branch:
    """Make the tree of some responses that share their first ``start`` tokens.

    Equal responses end in one branch. ``first_row``: row of the first response.
    """
    shortest = min(len(response.tokens) for response in responses)
    first = responses[0].tokens
    stop = start
    while stop < shortest and all(each.tokens[stop] == first[stop] for each in responses):
        stop += 1
    by_next_token: dict[int, list[Response]] = {}
    for response in responses:
        if len(response.tokens) > stop:
            by_next_token.setdefault(response.tokens[stop], []).append(response)
    ended = len(responses) - sum(map(len, by_next_token.values()))
    children = []
    row = first_row + ended
    for members in by_next_token.values():
        children.append(grow(members, stop, row))
        row += len(members)
    middle = (first_row + row - 1) / 2
    return Branch(start, stop, tuple(responses), tuple(children), middle)


@dataclass(frozen=True)
class Tree:
    """The tree of one problem; ``pair`` are the base and the trained model that answered it."""

    pair: Comparison
    problem: str
    root: Branch

    @property
    def problem_set(self) -> str:
        """The problem set of the problem."""
        return self.pair.problem_set

    @property
    def arms(self) -> tuple[str, str]:
        """Base and trained arm."""
        return self.pair.base.arm, self.pair.trained.arm


@once_each
def trees(report: Report) -> Iterator[Tree]:
    """Grow two trees of each comparison of two arms: of the most lost and the most gained problem.

    Only problems of which both models have responses with tokens count.
    """
    for pair in report.last_comparisons:
        if pair.base.arm == pair.trained.arm or len(pair.problems) < 2:
            continue
        gain = _rates(pair.trained, pair.problems) - _rates(pair.base, pair.problems)
        order = np.argsort(gain, kind="stable").tolist()
        for index in (order[0], order[-1]):
            problem = pair.problems[index]
            sides = [_responses(report, pair, side, problem) for side in (pair.base, pair.trained)]
            if all(sides):
                yield Tree(pair, problem, grow([*sides[0], *sides[1]]))


def _rates(arm: MeasuredArm, problems: Sequence[str]) -> NDArray[np.float64]:
    """Share of right samples of each problem."""
    counts = arm.counts_of(problems)
    return np.asarray(counts.c / counts.n)


def _responses(report: Report, pair: Comparison, arm: MeasuredArm, problem: str) -> list[Response]:
    """Read the responses of one arm to a problem whose tokens are stored."""
    layout = Layout(report.folder)
    stored = find_samples(layout, Group(arm.arm, arm.problem_set), {problem: None}, {arm.step})
    scores = {side.arm: _scores(layout, arm, side, problem) for side in (pair.base, pair.trained)}
    responses = []
    for sample in (found.sample for found in stored):
        if len(sample.token_ids) == 0 or len(responses) == MOST_RESPONSES:
            continue
        index = sample.key.sample
        response = Response(
            arm.arm,
            index,
            tuple(sample.token_ids.tolist()),
            tuple(sample.logprobs.astype(float).tolist()),
            sample.verdict == Status.RIGHT,
            {name: of_sample[index] for name, of_sample in scores.items() if index in of_sample},
        )
        responses.append(response)
    return responses


def _scores(
    layout: Layout, source: MeasuredArm, scorer: MeasuredArm, problem: str
) -> dict[int, float]:
    """Log-probability of an arm's scored responses to a problem under a model, by sample."""
    rows = tables.read_scores(layout, source.arm, source.problem_set, scorer.model).to_pandas()
    is_wanted = (
        (rows["problem"] == problem)
        & (rows["step"] == source.step)
        & (rows["scorer_step"] == scorer.step)
    )
    wanted = rows[is_wanted]
    return dict(zip(wanted["sample"].tolist(), wanted["logprob_sum"].tolist(), strict=True))


def section(report: Report) -> Iterator[Node]:
    """Show the trees, problem set by problem set."""
    for set_name, items in report.by_set(trees(report)):
        yield el("h3", f"{set_name}: search trees")
        yield figure(
            "Responses as one tree of shared beginnings; each panel shows which branches one model "
            "takes, as wide as the share of its responses. Dots: right and wrong ends.",
            trees_chart(items, report.colours),
        )
    if trees(report):
        yield note(
            f"At most {MOST_RESPONSES} responses of each model. The problems are those that "
            "training lost and gained most of, so their rates are extremes and no estimates. Grey "
            "branches were taken by the other model alone."
        )


def trees_chart(items: Sequence[Tree], colours: Colours) -> Chart:
    """Draw a panel for each tree and model, the same tree twice beside each other."""
    panels = []
    for tree in items:
        last = max(branch.stop for branch in tree.root.walk())
        rows = len(tree.root.responses)
        for arm in tree.arms:
            axis = Axis(-rows, 1, "", ((-rows, " "),))
            title = f"{tree.problem.partition('/')[2]}: {arm}"
            panel = Panel(log_axis([[1, last + 1]], "token"), axis, title, 240)
            _draw(panel, tree.root, arm, colours[arm])
            panels.append(panel)
    legend = (Key("right", RIGHT_COLOUR), Key("wrong", WRONG_COLOUR))
    return Chart(panels, lambda: trees_frame(items), legend)


def _draw(panel: Panel, root: Branch, arm: str, colour: str) -> None:
    """Draw the branches of a tree as one model takes them, and the ends of its responses."""
    total = max(1, root.count(arm))
    for branch in root.walk():
        for child in (*branch.children, *([branch] if branch is root else [])):
            share = child.count(arm) / total
            from_row = branch.row
            x = [child.start + 1, child.start + 1, child.stop + 1]
            y = [-from_row, -child.row, -child.row]
            width = max(0.7, _WIDEST * share) if share else 0.6
            panel.line(x, y, colour if share else UNSEEN_COLOUR, width=width)
        for response in branch.responses:
            if response.arm == arm and len(response.tokens) == branch.stop:
                end_colour = RIGHT_COLOUR if response.is_right else WRONG_COLOUR
                panel.points([branch.stop + 1], [-branch.row], end_colour)


def trees_frame(items: Sequence[Tree]) -> pd.DataFrame:
    """One row for each branch: who passes it, how probable it is, and what ends there.

    Log-probabilities are of all tokens up to the branch's end, under the models that took it; at
    the end of a response also its score under the model that did not write it.
    """
    rows = []
    for tree in items:
        base, trained = tree.arms
        for branch in tree.root.walk():
            ends = [each for each in branch.responses if len(each.tokens) == branch.stop]
            row: dict[str, object] = {
                "problem_set": tree.problem_set,
                "problem": tree.problem,
                "base": base,
                "trained": trained,
                "start": branch.start,
                "stop": branch.stop,
                "right_ends": sum(each.is_right for each in ends),
                "wrong_ends": sum(not each.is_right for each in ends),
            }
            for side, arm in (("base", base), ("trained", trained)):
                scores = [each.scores[arm] for each in ends if arm in each.scores]
                row[f"{side}_responses"] = branch.count(arm)
                row[f"{side}_log_probability"] = branch.log_probability(arm)
                row[f"{side}_log_score"] = scores[0] if scores else float("nan")
            rows.append(row)
    return pd.DataFrame(rows)


charts = charts_by_set("search_tree", trees, trees_chart)

ASPECT = Aspect(Part.RESPONSES, section, tables=tables_of(trees, search_tree=trees_frame))

if __name__ == "__main__":
    main(__doc__, charts)
