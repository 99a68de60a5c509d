"""pass@k of every arm at every step on every set, as the summaries of other tools have it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlbhpc.store.reader import open_cube
from rlbhpc.study.layout import Layout
from rlbhpc.study.study import Study


@dataclass(frozen=True)
class Score:
    """Mean pass@k over problems, its standard error over them, and its interval.

    A single problem has no error: NaN.
    """

    k: int
    value: float
    standard_error: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Measurement:
    """What was measured of one arm at one step on one set.

    ``scores`` are at the powers of two that every problem has the samples for; ``stands_on`` is
    the provenance of the samples, empty for counts alone.
    """

    arm: str
    model: str
    problem_set: str
    step: int
    problems: int
    scores: tuple[Score, ...]
    stands_on: dict[str, Any]

    @property
    def name(self) -> str:
        """The arm, with its step where it is a checkpoint of a line."""
        return f"{self.arm}-{self.step}" if self.step else self.arm


def measurements(layout: Layout) -> Iterator[Measurement]:
    """Everything that a run has measured, arm by arm."""
    tree = open_cube(layout.root)
    for node in tree.subtree:
        if node.attrs.get("kind") not in {"samples", "counts"}:
            continue
        group = node.to_dataset()
        counts = group.rlb.counts()
        most = int(counts["n"].values.max(initial=0))
        if not most:
            continue
        sizes = 2 ** np.arange(most.bit_length())
        arm, model, problem_set = (str(group[x].item()) for x in ("arm", "model", "problem_set"))
        curves = node.rlb.curves(sizes).isel(arm=0, problem_set=0)
        rates = group.rlb.pass_at_k(sizes)
        for step in curves["step"].values.tolist():
            yield Measurement(
                arm, model, problem_set, step, group.sizes["problem"],
                tuple(_scores(curves.sel(step=step), rates.sel(step=step))),
                json.loads(group.attrs.get("provenance", "{}")),
            )  # fmt: skip


def _scores(curve: Any, rates: Any) -> Iterator[Score]:
    for k in curve["k"].values.tolist():
        point = curve.sel(k=k)
        value = float(point["pass_at_k"])
        if np.isnan(value):
            continue
        lower, upper = point["bounds"].values.tolist()
        of_problems = rates.sel(k=k).values
        several = len(of_problems) > 1
        error = float(of_problems.std(ddof=1) / np.sqrt(len(of_problems))) if several else np.nan
        yield Score(k, value, error, lower, upper)


def model_source(study: Study | None, model: str) -> str:
    """What others call a model: its name on the hub or at its server, else that in the study."""
    entry = study.models.get(model) if study else None
    if entry is None:
        return model
    if entry.hub:
        return entry.hub.partition("@")[0]
    if entry.endpoint is not None:
        return entry.endpoint.model
    return model
