"""The answer in words, with the numbers that it stands on."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import Report
from rlbhpc.report.markup import Node, el


def comparison(_: Report, pair: Comparison) -> list[Node]:
    """What follows from one comparison, in sentences."""
    return [el("p", sentence) for sentence in pair.words]


def conclusions_frame(pairs: Sequence[Comparison]) -> pd.DataFrame:
    """The answer with the numbers that it stands on, one row per comparison at its last step."""
    return pd.DataFrame([_conclusion(pair) for pair in pairs])


def _conclusion(pair: Comparison) -> dict[str, object]:
    answer, crossing = pair.answer, pair.crossing
    findings = {
        f"{name}{end}": value
        for name, finding in (("lost", answer.lost), ("gained", answer.gained))
        for end, value in (
            ("", str(finding.verdict)), ("_share", finding.estimate), ("_low", finding.low),
            ("_high", finding.high), ("_count", finding.count),
        )
    }  # fmt: skip
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
        "crossings": ", ".join(str(k) for k in crossing.first_k.tolist()),
        "crossing_sets": " ".join(str(part) for part in crossing.sets),
        "p_crossing": crossing.probability,
        "p_moved": pair.curve.p_moved,
        "p_moved_holm": pair.p_moved_holm,
        **cells,
        "p_mcnemar": pair.solved.p_value if pair.solved else float("nan"),
        "p_mcnemar_holm": pair.p_solved_holm,
        **support,
        "words": " ".join(pair.words),
    }


ASPECT = Aspect(
    Part.COMPARISONS,
    comparison=comparison,
    tables=lambda report: {"conclusions": conclusions_frame(report.final)},
    waits=True,
)
