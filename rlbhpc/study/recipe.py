"""Training recipes: which algorithm, on which data, with which settings."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from rlbhpc.study.fields import (
    ArmName,
    Count,
    Entry,
    FilePath,
    Name,
    PluginName,
    PromptName,
    Seed,
    SetName,
    Tag,
    Temperature,
    Tokens,
)

# Options of how the work is cut and kept, of which what is learnt does not depend: they may change
# while a training goes on, and are no part of what a model is made by.
FREE_OPTIONS: Final = frozenset({"micro_tokens", "recompute", "rollout_memory", "save_every"})


class Teacher(Entry):
    """Responses that an arm of this study sampled, to learn from."""

    arm: ArmName
    """The arm that answered."""
    keep: Literal["right", "all"] = "right"
    """Only answers that were verified as right, or all."""
    per_problem: Count = 1
    """At most this many responses per problem, the lowest sample indices first."""


class Recipe(Entry):
    """One way to train.

    The keys that most recipes share stand here; what belongs to one algorithm goes under
    ``options``, which that algorithm checks. A key left out has the default of the algorithm and
    preset. The learning data are ``problems`` (RL), or ``texts`` or ``teacher`` (distillation).
    """

    algorithm: Annotated[PluginName, Tag("")]
    """The algorithm: grpo, ppo, rloo, sft …, or a file of your own."""
    preset: Name | None = None
    """Take the defaults of another framework: verl, trl, oat, openrlhf."""
    problems: SetName | None = None
    """The problem set whose problems are trained on."""
    prompt: PromptName | None = None
    """The prompt that the problems are put into."""
    texts: FilePath | None = None
    """A file of prompt–response pairs to learn from."""
    teacher: Teacher | None = None
    """Responses of an arm of this study to learn from."""
    architecture: dict[str, Any] = Field(default_factory=dict)
    """The shape of a new model, for training from random weights: keys of its config.json."""
    seed: Seed = 0
    """Decides the order of the data and every rollout. `seeds: [0, 1, 2]` in its place makes one
    training per seed; the report shows them as one trained arm too.
    """
    prompts_per_step: Annotated[Count | None, Tag("batch")] = None
    """Problems per training step."""
    samples_per_prompt: Annotated[Count | None, Tag("group")] = None
    """Rollouts per problem and step."""
    temperature: Temperature | None = None
    """Temperature of the rollouts."""
    max_tokens: Tokens | None = None
    """Longest rollout, in tokens."""
    learning_rate: Annotated[float, Field(gt=0, le=10), Tag("lr")] | None = None
    """Peak learning rate."""
    kl: Annotated[float, Field(ge=0, le=1_000), Tag("kl")] | None = None
    """Weight of the KL term; 0 loads no reference model."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of this one algorithm. A list is a value here; to sweep write `{sweep: [1, 2]}`."""

    @property
    def is_supervised(self) -> bool:
        """Whether it learns from responses that are given, and not from its own."""
        return self.algorithm == "sft"
