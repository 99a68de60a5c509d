"""What a study asks for beyond samples: verification, scores, matched arms, analysis."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlbhpc.study.fields import (
    ArmName,
    Count,
    Entry,
    FilePath,
    ModelName,
    PluginName,
    Samples,
    Seed,
    SetNames,
    Tag,
    Text,
)


class Verification(Entry):
    """How answers are judged."""

    timeout: Annotated[float, Field(gt=0, le=3_600)] = 3.0
    """Processor seconds that `rlbhpc audit` gives Math-Verify for one answer, and that a verifier
    of your own has for one, before it is tried alone with four times as many. Programs have the
    time that their benchmark gives them.
    """
    paper: bool = False
    """Also keep the verdicts of the published study's lenient grader on answers in mathematics, as
    the cube's variable `paper` beside the sound ones.
    """
    code: Literal["sound", "compat"] = "sound"
    """Judge programs soundly, or as the official harness of the benchmark would."""
    unsafe: bool = False
    """Run programs even where no sandbox is available; every such verdict is marked."""


class ScoreRequest(Entry):
    """Log-probability of texts under a model, from which perplexity follows.

    The texts are the responses of an arm, or those of a file; all steps of the model score them.
    """

    model: ModelName
    """The model that scores."""
    responses: ArmName | None = None
    """Score what this arm answered …"""
    texts: FilePath | None = None
    """… or the prompt–response pairs of this file."""
    per_problem: Count = 32
    """Responses per problem, the lowest sample indices first."""

    @model_validator(mode="after")
    def _one_source(self) -> ScoreRequest:
        if (self.responses is None) == (self.texts is None):
            raise ValueError("give either `responses` or `texts`")
        return self


class EntropyMatch(Entry):
    """A new arm at the temperature at which one arm has the entropy of another.

    The temperature is found by bisection on a seeded subset of the problems, until the mean token
    entropies differ by at most ``tolerance``.
    """

    arm: ArmName
    """The arm whose temperature is searched."""
    to: ArmName
    """The arm whose entropy it should have."""
    tolerance: Annotated[float, Field(gt=0, le=1), Tag("tol")] = 0.01
    """Largest difference of the entropies, in nats per token."""
    problems: Count = 64
    """Problems of the subset."""
    n: Samples = 8
    """Samples per problem of the subset."""
    seed: Seed = 0
    """Decides which problems form the subset."""


class Comparison(Entry):
    """Two arms to compare: the question of the study."""

    base: ArmName
    """The arm before training."""
    trained: ArmName
    """The arm after it."""


class Average(Entry):
    """Problem sets whose mean has a name, each with the same weight."""

    name: Text
    """The name, such as MAvg."""
    problem_sets: SetNames
    """The sets."""


class Analysis(Entry):
    """What the report shows. Without this section: everything that the samples allow."""

    compare: list[Comparison] = Field(default_factory=list)
    """Pairs of arms. When empty, each arm of a trained model with the arm of its base that has
    the same prompt and sampling.
    """
    k: list[Count] = Field(default_factory=list)
    """The k of pass@k; when empty, the powers of two up to n."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Level of every interval."""
    bootstrap: Count = 1_000
    """Resamples for the bootstrap intervals."""
    statistics: list[PluginName] = Field(default_factory=list)
    """Statistics of your own: functions `statistic(n, c)` of the samples and right samples of each
    problem, which give a value per problem. The report shows their means with intervals.
    """
    aspects: list[PluginName] = Field(default_factory=list)
    """Figures and tables of your own: files with an `ASPECT`, as in `rlbhpc/report/aspects/`."""
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Share of problems, and difference in pass@k, that counts as the same."""
    averages: list[Average] = Field(default_factory=list)
    """Means over problem sets."""
