"""The claim card: the answer of a report with all that it holds for, as `claim.json`.

Its shape is versioned: a key may be added under one version, never changed or taken away.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from rlbhpc import __version__
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.answer import settings_of
from rlbhpc.report.aspects.samples import Memorised, memorised
from rlbhpc.report.compare import Comparison
from rlbhpc.report.measured import MeasuredArm
from rlbhpc.report.phrases import file_number
from rlbhpc.stats import Interval
from rlbhpc.stats.joint import Finding

CLAIM: Final = "claim.json"


def _finite_or_null(value: object) -> object:
    if not isinstance(value, float):
        return value
    return file_number(value) if math.isfinite(value) else None


#: A number, or null where there is none.
Number = Annotated[float | None, BeforeValidator(_finite_or_null)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Bounds(_Entry):
    """An estimate with its interval."""

    estimate: Number
    lower: Number
    upper: Number

    @classmethod
    def of(cls, interval: Interval) -> Bounds:
        """Take the interval of a single number."""
        return cls(estimate=float(interval.estimate), lower=interval.low, upper=interval.high)


class Found(_Entry):
    """Whether problems were lost, or gained."""

    verdict: Literal["yes", "no", "undecided"]
    share: Bounds
    """Share of problems like these."""
    count: int
    """Problems that only this side solved in K samples."""

    @classmethod
    def of(cls, finding: Finding) -> Found:
        """Take what the answer says of one side."""
        share = Bounds(estimate=finding.estimate, lower=finding.low, upper=finding.high)
        return cls(verdict=finding.verdict.value, share=share, count=finding.count)


class Side(_Entry):
    """One of the two models, and how it was asked and judged."""

    arm: str
    model: str
    step: int
    model_digest: str | None
    samples_per_problem: int
    stop_after: int
    """Right samples at which a problem ended; 0 where none did."""
    sampling: dict[str, Any]
    """Temperature, top-p, longest response and all else that decides a draw."""
    prompt: str | None
    prompt_digest: str | None
    grader: str | None
    """What judged the answers; null where it is not known."""
    engine: str | None
    failed: int | None
    """Samples that are neither right nor wrong and count in nothing."""
    missing: int
    truncated: int | None


class Probe(_Entry):
    """How well a model knows the questions of a set: it saw the beginning of each."""

    arm: str
    step: int
    problem_set: str
    """The probe's; its problems carry the ids of the questions."""
    shown: float
    """Share of each question."""
    completed: Bounds
    """Share of responses that go on as the question does, word for word."""
    answered: Bounds
    """Share of responses with the right answer."""
    known: list[str]
    """Questions that were completed at least once."""

    @classmethod
    def of(cls, probe: Memorised) -> Probe:
        """Take what the report says of one arm on one probe.

        A *probe* shows a share of each question, to see what the model remembers.
        """
        return cls(
            arm=probe.measured.arm,
            step=probe.measured.step,
            problem_set=probe.measured.problem_set,
            shown=probe.share,
            completed=Bounds.of(probe.mean_completed),
            answered=Bounds.of(probe.mean_answered),
            known=probe.known,
        )


class Claim(_Entry):
    """What one comparison says."""

    answer: str
    """The answer in a word, by the rule of docs/statistics.md."""
    sentences: list[str]
    problem_set: str
    problems: int
    problems_left_out: list[str]
    K: int
    """Samples of each problem that the answer speaks about."""
    base: Side
    trained: Side
    net: Bounds
    """Trained − base pass@K."""
    first: Bounds
    """Trained − base pass@1."""
    lost: Found
    gained: Found
    crossings: list[int]
    p_moved_holm: Number
    p_mcnemar_holm: Number
    comparisons: int
    """Comparisons that share the error of this answer."""
    contamination: list[Probe]
    """What the study's probes say of these two models; empty where none was made."""


class Card(_Entry):
    """The file."""

    schema_name: Literal["rlbhpc.claim"] = "rlbhpc.claim"
    schema_version: Literal[1] = 1
    rlbhpc: str
    study: str
    study_hash: str
    question: str
    interval_probability: float
    bootstrap_replicates: int
    bootstrap_seed: int
    margin: float
    """Difference that counts as the same."""
    claims: list[Claim]
    notes: list[str]


def claim_card(report: Report) -> bytes:
    """The claim card of a report as JSON: each answer with all that it holds for.

    ``last_comparisons``: each base with its last checkpoint. ``margin``: difference that counts as
    the same.
    """
    settings = report.settings
    card = Card(
        rlbhpc=__version__,
        study=report.name,
        study_hash=report.study_hash,
        question=report.question,
        interval_probability=settings.prob,
        bootstrap_replicates=settings.replicates,
        bootstrap_seed=settings.seed,
        margin=settings.margin,
        claims=[_claim(report, pair) for pair in report.last_comparisons],
        notes=list(report.notes),
    )
    return (card.model_dump_json(indent=2) + "\n").encode()


def claim_schema() -> str:
    """Give the JSON schema of the claim card, for whoever reads it."""
    return json.dumps(Card.model_json_schema(), indent=2) + "\n"


def _claim(report: Report, pair: Comparison) -> Claim:
    """The entry of one comparison: its answer, both models, the numbers, and what they remember.

    *Probes* show the beginning of each question to see what a model remembers; those of either
    model at its step belong to the claim. ``pair.reach``: samples of each problem that count.
    ``pair.net``: difference at that k; ``pair.pointwise[0]`` at k = 1. ``first_k``: where the
    curves cross.
    """
    answer = pair.answer
    checkpoints = [(side.model, side.step) for side in (pair.base, pair.trained)]
    probes = [
        Probe.of(probe)
        for probe in memorised(report)
        if (probe.measured.model, probe.measured.step) in checkpoints
    ]
    return Claim(
        answer=answer.headline,
        sentences=list(pair.words),
        problem_set=pair.problem_set,
        problems=len(pair.problems),
        problems_left_out=list(pair.left_out),
        K=pair.reach,
        base=_side(report, pair.base),
        trained=_side(report, pair.trained),
        net=Bounds.of(pair.net),
        first=Bounds.of(pair.pointwise[0]),
        lost=Found.of(answer.lost),
        gained=Found.of(answer.gained),
        crossings=pair.crossing.first_k.tolist(),
        p_moved_holm=pair.p_moved_holm,
        p_mcnemar_holm=pair.p_solved_holm,
        comparisons=pair.comparisons,
        contamination=probes,
    )


def _side(report: Report, arm: MeasuredArm) -> Side:
    """The entry of one of the two models: how it was sampled and judged, and what came of it.

    ``stored``: how the arm's samples on this problem set were made. ``arm.tally``: how many are
    missing, failed, and so on.
    """
    stored = report.provenance.get(arm.group, {})
    sampling = settings_of(report, arm)
    prompt, grader = sampling.pop("prompt"), sampling.pop("grader")
    return Side(
        arm=arm.arm,
        model=arm.model,
        step=arm.step,
        model_digest=stored.get("model_digests", {}).get(str(arm.step)),
        samples_per_problem=arm.depth,
        stop_after=arm.stop_after,
        sampling=sampling,
        prompt=prompt,
        prompt_digest=stored.get("prompt"),
        grader=grader,
        engine=stored.get("engine"),
        failed=arm.tally.failed,
        missing=arm.tally.missing,
        truncated=arm.tally.truncated,
    )
