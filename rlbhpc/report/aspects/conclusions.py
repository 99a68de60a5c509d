"""The answer in words, with the numbers that it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part, Report
from rlbhpc.report.compare import Comparison
from rlbhpc.report.markup import Node, el
from rlbhpc.report.measured import Measured
from rlbhpc.report.phrases import bounded
from rlbhpc.stats.joint import Finding
from rlbhpc.study.schema import MoreSampling


def comparison(report: Report, pair: Comparison) -> list[Node]:
    """What follows from one comparison, in sentences, and under which conditions."""
    return [el("p", sentence) for sentence in (*pair.words, conditions(report, pair))]


def conditions(report: Report, pair: Comparison) -> str:
    """Name checkpoints, temperature, prompt, grader and K, the trained arm first.

    An answer holds for these alone.
    """
    sides = pair.trained, pair.base
    both_asked = [asked_of(report, side) for side in sides]
    more = [name for name in MoreSampling.model_fields if any(name in a for a in both_asked)]
    labels = {"temperature": "temperature", "top_p": "top-p"}
    labels |= {name: name.replace("_", " ") for name in (*more, "prompt", "grader")}
    settings = "; ".join(
        f"{label}: {_both([_value(values, name) for values in both_asked])}"
        for name, label in labels.items()
    )
    steps = _both([f"step {side.step:,}" for side in sides])
    return f"Checkpoint: {steps}; {settings}; K = {pair.reach:,}."


def asked_of(report: Report, side: Measured) -> dict[str, Any]:
    """How an arm was sampled and judged, as its study says, else as its samples do."""
    stored = report.provenance.get(f"{side.arm}/{side.problem_set}", {})
    sampling = {**stored.get("sampling", {}), "prompt": stored.get("prompt")}
    arm = report.arms.get(side.arm)
    if arm is not None:
        sampling |= {**arm.sampling.record(), "prompt": arm.prompt}
    return {**sampling, "grader": _grader(stored)}


def _grader(stored: Mapping[str, Any]) -> str | None:
    """Who judged: this program, the study's own verifier, or who wrote the imported files."""
    files = stored.get("imported", {})
    judges = {str(origin.get("judged_by", "the file")) for origin in files.values()}
    if judges:
        return ", ".join(sorted(judges))
    if "graders" in stored:
        return ", ".join(stored["graders"]) or None
    return f"rlbhpc {stored['rlbhpc']}" if "rlbhpc" in stored else None


def _value(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _both(values: list[str]) -> str:
    """Once where both arms have it, else both."""
    return " against ".join(dict.fromkeys(values))


def conclusions_frame(report: Report) -> pd.DataFrame:
    """The answer with the numbers that it stands on, one row per comparison at its last step."""
    return pd.DataFrame([_conclusion(report, pair) for pair in report.final])


def _conclusion(report: Report, pair: Comparison) -> dict[str, object]:
    answer, crossing = pair.answer, pair.crossing
    further = {
        f"{name}{end}": value
        for name, contrast in zip(("fit", "fit_10k", "fit_limit"), answer.contrasts, strict=True)
        for end, value in (("", contrast.fit), ("_low", contrast.low), ("_high", contrast.high))
    }
    support: dict[str, float] = {}
    for name, interval in (pair.support or {}).items():
        support |= bounded(name, interval, f"{name}_")
    cells = pair.solved.counts if pair.solved else {}
    return {
        "problem_set": pair.base.problem_set,
        "base": pair.base.arm,
        "base_step": pair.base.step,
        "trained": pair.trained.arm,
        "step": pair.trained.step,
        "answer": answer.headline,
        **found("lost", answer.lost),
        "lost_count": answer.lost.count,
        **found("gained", answer.gained),
        "gained_count": answer.gained.count,
        "problems": len(pair.problems),
        "problems_left_out": len(pair.left_out),
        "k": pair.reach,
        **bounded("difference", pair.net),
        **further,
        "crossings": ", ".join(str(k) for k in crossing.first_k.tolist()),
        "crossing_sets": " ".join(str(part) for part in crossing.sets),
        "p_crossing": crossing.probability,
        "p_moved": pair.curve.p_moved,
        "p_moved_holm": pair.p_moved_holm,
        **cells,
        "p_mcnemar": pair.solved.p_value if pair.solved else float("nan"),
        "p_mcnemar_holm": pair.p_solved_holm,
        **support,
        "words": " ".join((*pair.words, conditions(report, pair))),
    }


def found(name: str, finding: Finding) -> dict[str, object]:
    """Columns of what was lost, or gained."""
    return {
        name: str(finding.verdict),
        f"{name}_share": finding.estimate,
        f"{name}_low": finding.low,
        f"{name}_high": finding.high,
    }


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"conclusions": conclusions_frame(report)},
)
