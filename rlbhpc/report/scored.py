"""Perplexity of stored texts under models: who finds whose text likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.report.gather import Report
from rlbhpc.stats.perplexities import Spread, perplexity, perplexity_over_steps, spread
from rlbhpc.store.cube_schema import SCORES
from rlbhpc.store.reader import open_cube

#: Responses of a problem that count over steps, as in the study.
RESPONSES: Final = 32


@dataclass(frozen=True)
class Scored:
    """Texts of one source at one step under one model at one step.

    Attributes
    ----------
    problem_set, source, step
        Whose texts: an arm at a training step, or the name of a file of texts.
    scorer, scorer_step
        The model that scored them.
    perplexity
        ``[problem, sample]``; NaN where there is no text.
    """

    problem_set: str
    source: str
    step: int
    scorer: str
    scorer_step: int
    perplexity: NDArray[np.float64]

    @property
    def label(self) -> str:
        """Name the texts and the model."""
        return f"{_name(self.source, self.step)}\nunder {_name(self.scorer, self.scorer_step)}"

    @property
    def spread(self) -> Spread:
        """Distribution over all responses."""
        return spread(self.perplexity)


@dataclass(frozen=True)
class Evolution:
    """Median perplexity over training: of one source under one model, steps rising.

    Attributes
    ----------
    over
        What changes: ``"step"`` of the source, ``"scorer_step"``, or ``"both"`` together.
    steps, values
        Median of the first responses of each problem, mean over problems.
    each
        ``[step, problem]`` medians behind it.
    """

    problem_set: str
    source: str
    scorer: str
    over: str
    steps: tuple[int, ...]
    values: NDArray[np.float64]
    each: NDArray[np.float64]


def scored(report: Report) -> list[Scored]:
    """Read every combination of texts and model that was scored."""
    found = []
    for node in open_cube(report.folder).subtree:
        if node.attrs.get("kind") != SCORES:
            continue
        group = node.to_dataset().transpose("problem", "sample", "step", "scorer_step")
        values = perplexity(group["logprob_sum"].values, group["n_tokens"].values)
        names = [str(group[name].item()) for name in ("problem_set", "source", "scorer")]
        for i, step in enumerate(group["step"].values.tolist()):
            for j, at in enumerate(group["scorer_step"].values.tolist()):
                part = values[:, :, i, j]
                if not np.isnan(part).all():
                    found.append(Scored(names[0], names[1], step, names[2], at, part))
    return found


def evolutions(found: Sequence[Scored]) -> list[Evolution]:
    """Put together what was scored at several steps of one of the two models.

    A line is one source at all its steps under one model, one text under all steps of a model,
    or a model's own texts as both go on.
    """
    lines: dict[tuple[str, str, str, str, int], list[Scored]] = {}
    for one in found:
        key = (one.problem_set, one.source, one.scorer)
        lines.setdefault((*key, "scorer_step", one.step), []).append(one)
        lines.setdefault((*key, "step", one.scorer_step), []).append(one)
        if one.step == one.scorer_step:
            lines.setdefault((*key, "both", 0), []).append(one)
    made = []
    for (problem_set, source, scorer, over, fixed), line in lines.items():
        changes = "scorer_step" if over == "scorer_step" else "step"
        line.sort(key=lambda one: getattr(one, changes))
        if len(line) < 2:
            continue
        stacked = np.stack([one.perplexity for one in line])
        logs, ones = -np.log(stacked), np.ones_like(stacked)
        names = {
            "step": (source, _name(scorer, fixed)),
            "scorer_step": (_name(source, fixed), scorer),
            "both": (source, scorer),
        }[over]
        each = np.nanmedian(stacked[:, :, :RESPONSES], axis=2)
        made.append(
            Evolution(
                problem_set,
                *names,
                over,
                tuple(getattr(one, changes) for one in line),
                perplexity_over_steps(logs, ones, RESPONSES),
                each,
            )
        )
    return made


def _name(name: str, step: int) -> str:
    return f"{name}, step {step}" if step else name
