"""Settings of one training run, with every default written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlbhpc.errors import UserError
from rlbhpc.study.recipe import FREE_OPTIONS

# What may change when a run goes on: its length, its pieces, its memory, its saves.
FREE = FREE_OPTIONS | {"steps"}


@dataclass(frozen=True)
class Settings:
    """What an RL run does, apart from its algorithm.

    Attributes
    ----------
    prompts_per_step, samples_per_prompt
        One rollout is their product.
    mini_batch
        Responses per optimiser step; 0 means the whole rollout, which is then exactly on-policy.
    epochs
        Passes over one rollout.
    temperature, max_tokens
        Of the rollouts. top-p is always 1: the trainer's log-probs are those of the full
        distribution, and a nucleus would bias every ratio by the mass it drops.
    rollouts, rollout_memory
        Engine of the rollouts: ``hf`` repeats itself bit for bit on the CPU, ``vllm`` is faster for
        models of more than some millions of parameters; and the share of a GPU that vLLM may take
        beside the learner.
    kl_loss, kl_kind
        Weight and estimator of a reference penalty in the loss (the penalty in the reward belongs
        to the algorithm).
    entropy_bonus
        Weight of the mean token entropy in the loss.
    sampler_cap
        Upper bound of the importance weight that corrects the sampler's numbers towards the
        trainer's; 0 switches the correction off.
    mask_truncated
        Leave responses that hit ``max_tokens`` out of the loss.
    micro_tokens
        Tokens of one micro-batch, a prompt counted with each of its responses: the memory knob.
        The result does not depend on it.
    recompute
        Keep the hidden states between layers alone, and compute a layer again when its gradient is
        due: a quarter more work, and a small part of the memory. The result does not depend on it.
    lora_rank
        Rank of the adapters that learn in place of the weights; 0 for none. Their learning rate is
        about ten times as large.
    half_life
        Steps in which the learning rate halves once it is warm; 0 keeps it constant. A decay that
        does not look at the last step lets a run be prolonged without changing what it has done.
    save_every
        Steps between saves of the training state. A kill loses at most this many steps.
    """

    steps: int
    prompts_per_step: int = 256
    samples_per_prompt: int = 8
    mini_batch: int = 0
    epochs: int = 1
    temperature: float = 1.0
    max_tokens: int = 8192
    rollouts: Literal["hf", "vllm"] = "hf"
    rollout_memory: float = 0.3
    learning_rate: float = 1e-6
    critic_learning_rate: float = 1e-5
    warmup_steps: int = 0
    half_life: int = 0
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    kl_loss: float = 0.0
    kl_kind: Literal["k2", "k3"] = "k2"
    entropy_bonus: float = 0.0
    sampler_cap: float = 2.0
    mask_truncated: bool = False
    micro_tokens: int = 4096
    recompute: bool = False
    lora_rank: int = 0
    zero_stage: int = 0
    offload: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"
    save_every: int = 10
    rewards: Mapping[str, float | Mapping[str, float]] = dataclasses.field(
        default_factory=lambda: {"correct": 1.0}
    )
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be run, with the numbers."""
        rollout = self.prompts_per_step * self.samples_per_prompt
        for name in ("steps", "prompts_per_step", "samples_per_prompt", "epochs", "save_every"):
            if type(getattr(self, name)) is not int:
                found = getattr(self, name)
                raise UserError(f"{name}: found {found!r}; allowed: a whole number, at least 1")
            if getattr(self, name) < 1:
                raise UserError(f"{name}: found {getattr(self, name)}; allowed: at least 1")
        for name, allowed in (
            ("kl_kind", ("k2", "k3")),
            ("dtype", ("float32", "bfloat16")),
            ("rollouts", ("hf", "vllm")),
        ):
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"{name}: found {getattr(self, name)!r}; allowed: {', '.join(allowed)}"
                )
        if type(self.mini_batch) is not int or self.mini_batch < 0:
            raise UserError(
                f"mini_batch: found {self.mini_batch!r}; allowed: a whole number of responses, "
                "0 for the whole rollout"
            )
        if self.mini_batch and rollout % self.mini_batch:
            divisors = [d for d in range(1, rollout + 1) if rollout % d == 0]
            nearest = min(divisors, key=lambda d: abs(d - self.mini_batch))
            raise UserError(
                f"mini_batch: found {self.mini_batch}, which does not divide the rollout of "
                f"{self.prompts_per_step} × {self.samples_per_prompt} = {rollout} responses; "
                f"the nearest that does is {nearest}"
            )
        if type(self.lora_rank) is not int or self.lora_rank < 0:
            raise UserError(
                f"lora_rank: found {self.lora_rank!r}; allowed: a whole number, 0 for no adapters"
            )
        if not 0 < self.rollout_memory < 1:
            raise UserError(
                f"rollout_memory: found {self.rollout_memory}; allowed: a share of a GPU, above 0 "
                "and below 1"
            )
        if self.temperature <= 0:
            raise UserError(
                f"temperature: found {self.temperature}; RL needs a sampling temperature above 0"
            )

    @property
    def responses_per_update(self) -> int:
        """Responses in one optimiser step."""
        return self.mini_batch or self.prompts_per_step * self.samples_per_prompt

    def responses_per_rank(self, ranks: int) -> int:
        """Most responses that one rank samples in a step: prompts are dealt out whole."""
        return -(-self.prompts_per_step // ranks) * self.samples_per_prompt

    @property
    def essence(self) -> str:
        """What must stay the same for a run to go on.

        A setting at its default is left out, so that one that is added later changes no old run.
        """
        given = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.name not in FREE and getattr(self, field.name) != _default(field)
        ]
        return " ".join(given)

    def learning_rate_at(self, step: int, peak: float) -> float:
        """Rate of step 1, 2, …: linear warm-up, then constant or halved every ``half_life``."""
        if step < self.warmup_steps:
            return peak * step / self.warmup_steps
        if not self.half_life:
            return peak
        return float(peak * 2.0 ** ((self.warmup_steps - step) / self.half_life))


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Build settings from a mapping; an unknown name is refused with those that exist."""
    known = [f.name for f in dataclasses.fields(Settings)]
    for name in given:
        if name not in known:
            raise UserError(f"training setting {name!r} is unknown; allowed: {', '.join(known)}")
    return Settings(**given)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
