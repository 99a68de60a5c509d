"""The answer in words, with the numbers that it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el
from rlbhpc.report.measured import Measured
from rlbhpc.study.schema import MoreSampling


def comparison(report: Report, pair: Comparison) -> list[Node]:
    """What follows from one comparison, in sentences, and under which conditions."""
    return [el("p", sentence) for sentence in (*pair.words, conditions(report, pair))]


def conditions(report: Report, pair: Comparison) -> str:
    """Name checkpoints, temperature, prompt, grader and K, the trained arm first.

    An answer holds for these alone.
    """
    sides = pair.trained, pair.base
    steps = _both([f"step {side.step:,}" for side in sides])
    both_asked = [asked_of(report, side) for side in sides]
    parts = [
        f"Checkpoint: {steps}",
        f"temperature: {_both([_value(a, 'temperature') for a in both_asked])}",
        f"top-p: {_both([_value(a, 'top_p') for a in both_asked])}",
        *(
            f"{name.replace('_', ' ')}: {_both([_value(a, name) for a in both_asked])}"
            for name in MoreSampling.model_fields
            if any(name in a for a in both_asked)
        ),
        f"prompt: {_both([_value(a, 'prompt') for a in both_asked])}",
        f"grader: {_both([_value(a, 'grader') for a in both_asked])}",
        f"K = {pair.reach:,}",
    ]
    return "; ".join(parts) + "."


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
    findings = {
        f"{name}{end}": value
        for name, finding in (("lost", answer.lost), ("gained", answer.gained))
        for end, value in (
            ("", str(finding.verdict)), ("_share", finding.estimate), ("_low", finding.low),
            ("_high", finding.high), ("_count", finding.count),
        )
    }  # fmt: skip
    further = {
        f"{name}{end}": value
        for name, contrast in zip(("fit", "fit_10k", "fit_limit"), answer.contrasts, strict=True)
        for end, value in (("", contrast.fit), ("_low", contrast.low), ("_high", contrast.high))
    }
    support = {
        f"{name}{end}": float(getattr(value, field))
        for name, value in (pair.support or {}).items()
        for end, field in (("", "estimate"), ("_lower", "lower"), ("_upper", "upper"))
    }
    cells = pair.solved.counts if pair.solved else {}
    return {
        "problem_set": pair.base.problem_set,
        "base": pair.base.arm,
        "base_step": pair.base.step,
        "trained": pair.trained.arm,
        "step": pair.trained.step,
        "answer": str(answer.word),
        **findings,
        "problems": len(pair.problems),
        "problems_left_out": len(pair.left_out),
        "k": pair.reach,
        "difference": float(pair.net.estimate),
        "lower": float(pair.net.lower),
        "upper": float(pair.net.upper),
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


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"conclusions": conclusions_frame(report)},
    waits=True,
)
