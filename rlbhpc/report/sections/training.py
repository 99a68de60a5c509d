"""Over training: curves of the trainer, checkpoints, entropy and perplexity as training goes on."""

from __future__ import annotations

from rlbhpc.report.details import Details
from rlbhpc.report.figures.algorithms import algorithms_figure
from rlbhpc.report.figures.checkpoints import checkpoints_figure
from rlbhpc.report.figures.entropy import entropy_figure
from rlbhpc.report.figures.palette import Colours, bases_of
from rlbhpc.report.figures.perplexity import perplexity_steps_figure
from rlbhpc.report.figures.training import training_figure
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el
from rlbhpc.report.sections.parts import figure


def over_training(report: Report, details: Details, colours: Colours) -> list[Node]:
    """Show what changes with training; nothing for a run of one checkpoint and no curves."""
    nodes: list[Node] = []
    if details.training:
        drawn = training_figure(details.training, colours)
        caption = "Training curves as the trainer logged them, all models."
        nodes += [el("h3", "Training"), figure(drawn, "training", caption)]
    for line, last in zip(report.lines, report.final, strict=True):
        if len(line.steps) > 1:
            caption = (
                "Left: the base dashed, checkpoints from dark to light. Right: pass@1 (open) and "
                "pass@K (filled) with intervals, step 0 is the base."
            )
            slug = f"checkpoints-{last.slug}"
            nodes.append(el("h3", f"Checkpoints: {last.title}"))
            nodes.append(figure(checkpoints_figure(line, colours), slug, caption))
    if len({one.trained.arm for one in report.final}) > 1:
        caption = (
            "Algorithms side by side: pass@1, pass@K and the gap between pass@K of the base and "
            "pass@1 (smaller is better), each with its interval. Dashed: the base."
        )
        nodes.append(el("h3", "Algorithms"))
        nodes.append(figure(algorithms_figure(report.final, colours), "algorithms", caption))
    for set_name in dict.fromkeys(one.problem_set for one in details.evolutions):
        here = [one for one in details.evolutions if one.problem_set == set_name]
        caption = (
            "Perplexity over training: median of the first 32 responses of a problem, mean over "
            "problems that have responses at every step; thin lines are single problems."
        )
        drawn = perplexity_steps_figure(here, colours)
        nodes.append(el("h3", f"{set_name}: perplexity over training"))
        nodes.append(figure(drawn, f"perplexity-steps-{set_name}", caption))
    return nodes + _entropy(report, details, colours)


def _entropy(report: Report, details: Details, colours: Colours) -> list[Node]:
    nodes: list[Node] = []
    for set_name in dict.fromkeys(one.of.problem_set for one in details.responses):
        shown = [one for one in details.responses if one.of.problem_set == set_name]
        nodes += [
            el("h3", f"{set_name}: entropy and length"),
            figure(
                entropy_figure(shown, bases_of(report), colours),
                f"entropy-{set_name}",
                "Entropy of the next token over all response tokens, at the sampling temperature "
                "and before top-p, and tokens per response, both with intervals over problems; "
                "on the right pass@K against entropy, arrows along the steps.",
            ),
        ]
    return nodes
