"""Over training: curves of the trainer, checkpoints, entropy and perplexity as training goes on."""

from __future__ import annotations

import numpy as np

from rlbhpc.report.chosen import Chosen
from rlbhpc.report.details import Details
from rlbhpc.report.figures.algorithms import algorithms_figure, algorithms_frame
from rlbhpc.report.figures.checkpoints import checkpoints_figure
from rlbhpc.report.figures.entropy import entropy_figure
from rlbhpc.report.figures.perplexity import perplexity_steps_figure
from rlbhpc.report.figures.training import training_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Cell, Node, el, table
from rlbhpc.report.phrases import bounds, ends, signed
from rlbhpc.report.responses import Responses
from rlbhpc.report.scored import Evolution
from rlbhpc.report.sections.parts import Pen
from rlbhpc.report.training import METRICS, Training

# Characters of a response that a table shows.
WRITTEN = 400


def over_training(report: Report, details: Details, pen: Pen) -> list[Node]:
    """Show what changes with training; nothing for a run of one checkpoint and no curves."""
    nodes: list[Node] = []
    if details.training:
        caption = "Training curves as the trainer logged them, all models."
        nodes += [
            el("h3", "Training"),
            pen.figure("training", caption, training_figure, details.training, pen.colours),
            _training(details.training),
            *_written(details.training),
        ]
    for line, last in zip(report.lines, report.final, strict=True):
        if len(line.steps) > 1:
            caption = (
                "Left: the base dashed, checkpoints from dark to light. Right: pass@1 (open) and "
                "pass@K (filled) with intervals, step 0 is the base."
            )
            slug = f"checkpoints-{last.slug}"
            nodes.append(el("h3", f"Checkpoints: {last.title}"))
            nodes.append(pen.figure(slug, caption, checkpoints_figure, line, pen.colours))
    nodes += _chosen(details.chosen)
    if len({one.trained.arm for one in report.final}) > 1:
        caption = (
            "Algorithms side by side: pass@1, pass@K and the gap between pass@K of the base and "
            "pass@1 (smaller is better), each with its interval. Dashed: the base."
        )
        nodes.append(el("h3", "Algorithms"))
        name = "algorithms"
        nodes.append(pen.figure(name, caption, algorithms_figure, report.final, pen.colours))
        nodes.append(_algorithms(report))
    for set_name in dict.fromkeys(one.problem_set for one in details.evolutions):
        here = [one for one in details.evolutions if one.problem_set == set_name]
        caption = (
            "Perplexity over training: median of the first 32 responses of a problem, mean over "
            "problems that have responses at every step; thin lines are single problems."
        )
        name = f"perplexity-steps-{set_name}"
        nodes += [
            el("h3", f"{set_name}: perplexity over training"),
            pen.figure(name, caption, perplexity_steps_figure, here, pen.colours),
            _evolutions(here, set_name),
        ]
    return nodes + _entropy(details, pen)


def _training(shown: tuple[Training, ...]) -> Node:
    """First and last tenth of every curve: one step alone is noise."""
    rows: list[list[Cell]] = []
    for one in shown:
        for name in METRICS:
            values = one.frame[name].dropna().to_numpy() if name in one.frame else np.empty(0)
            if len(values):
                part = max(1, len(values) // 10)
                first, last = float(values[:part].mean()), float(values[-part:].mean())
                rows.append([one.model, name, len(values), first, last])
    heads = ["model", "metric", "steps", "first tenth, mean", "last tenth, mean"]
    return table("Training curves from their first to their last tenth", heads, rows)


def _cut(text: str) -> str:
    return text if len(text) <= WRITTEN else f"{text[:WRITTEN]} …"


def _written(shown: tuple[Training, ...]) -> list[Node]:
    """What models wrote while they were trained, first and last: a reward is not all to look at."""
    rows: list[list[Cell]] = [
        [one.model, row["step"], row["problem"], _cut(row["text"]), row["tokens"],
         "right" if row["correct"] else "wrong", row["reward"]]
        for one in shown
        for row in one.written
    ]  # fmt: skip
    heads = ["model", "step", "problem", "response", "tokens", "verdict", "reward"]
    return [table("Responses of the first and the last step", heads, rows)] if rows else []


def _chosen(shown: tuple[Chosen, ...]) -> list[Node]:
    """Show what a checkpoint is worth on samples that did not choose it."""
    if not shown:
        return []
    rows: list[list[Cell]] = [
        [one.chosen.arm, one.base.problem_set, f"pass@{one.k:,}", one.chosen.step,
         one.checkpoints, one.problems, signed(one.on_even), bounds(one.on_odd, sign=True)]
        for one in shown
    ]  # fmt: skip
    heads = ["arm", "set", "chosen by", "step", "of", "problems",
             "even samples: − base", "odd samples: − base"]  # fmt: skip
    return [
        el("h3", "A checkpoint that the data chose"),
        *(el("p", _worth(one)) for one in shown),
        table("Best checkpoints, chosen by even samples, points", heads, rows),
        el(
            "p",
            "The best of several checkpoints looks better than it is on the samples that chose "
            "it. So even samples choose, and odd samples report, of the base as well. The answer "
            "above is that of the last checkpoint, which nobody chose by its results.",
            class_="soft",
        ),
    ]


def _worth(one: Chosen) -> str:
    sign = int(one.on_odd.sign)
    says = {1: "it leads the base", -1: "it trails the base", 0: "no difference is certain"}[sign]
    return (
        f"{one.chosen.arm} on {one.base.problem_set}: the best of {one.checkpoints} checkpoints "
        f"by pass@{one.k:,} is step {one.chosen.step:,}; on samples that had no part in that, "
        f"{says}: {bounds(one.on_odd, sign=True)} points."
    )


def _algorithms(report: Report) -> Node:
    frame = algorithms_frame(report.final)
    rows: list[list[Cell]] = []
    for (set_name, label), part in frame.groupby(["problem_set", "label"], sort=False):
        cells: dict[str, Cell] = {}
        for row in part.itertuples():
            mark = "" if row.sound else " ?"
            low, high = (f"{100 * v:.1f}" for v in (row.lower, row.upper))
            cells[str(row.metric)] = f"{100 * row.value:.1f} [{low}, {high}]{mark}"
        rows.append(
            [str(set_name), str(label), *(cells.get(m) for m in ("pass@1", "pass@K", "gap"))]
        )
    k = ", ".join(dict.fromkeys(f"{int(v):,}" for v in frame.loc[frame["metric"] == "gap", "k"]))
    heads = ["set", "arm", "pass@1, %", "pass@K, %", "gap, points"]
    return table(f"Algorithms on every problem set, K = {k}", heads, rows)


def _evolutions(here: list[Evolution], set_name: str) -> Node:
    rows: list[list[Cell]] = [
        [one.source, one.scorer, one.steps[0], float(one.values[0]), one.steps[-1],
         float(one.values[-1]), int((~np.isnan(one.each)).all(axis=0).sum())]
        for one in here
    ]  # fmt: skip
    heads = ["text of", "under", "from step", "perplexity", "to step", "perplexity", "problems"]
    return table(f"Perplexity on {set_name} from the first to the last step", heads, rows)


def _entropy(details: Details, pen: Pen) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.of.problem_set for one in details.responses):
        shown = [one for one in details.responses if one.of.problem_set == set_name]
        caption = (
            "Entropy of the next token over all response tokens, at the sampling temperature "
            "and before top-p, and tokens per response, both with intervals over problems; "
            "on the right pass@K against entropy, arrows along the steps."
        )
        name = f"entropy-{set_name}"
        nodes += [
            el("h3", f"{set_name}: entropy and length"),
            pen.figure(name, caption, entropy_figure, shown, pen.bases, pen.colours),
            _entropies(shown, set_name),
        ]
    return nodes


def _entropies(shown: list[Responses], set_name: str) -> Node:
    rows: list[list[Cell]] = [
        [one.of.arm, one.of.step, ends(one.entropy, 3), ends(one.tokens, 0)] for one in shown
    ]
    heads = ["arm", "step", "entropy, nat per token", "tokens per response"]
    return table(f"Entropy and length on {set_name}", heads, rows)
