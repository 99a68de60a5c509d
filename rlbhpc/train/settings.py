"""Settings of one training run, with every default written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rlbhpc.errors import UserError
from rlbhpc.study.complaints import Share, Weight, Whole, check_values
from rlbhpc.study.fields import Count, Seed, Words
from rlbhpc.study.keys import Turns
from rlbhpc.study.schema import FREE_OPTIONS

# What may change when a run goes on: its length, its pieces, its memory, its saves.
FREE = FREE_OPTIONS | {"steps"}

Rewards = Annotated[
    Mapping[str, float | Mapping[str, float]], Words("a mapping from rewards to their weights")
]
MiniBatch = Annotated[
    int, Field(ge=0), Words("a whole number of responses, 0 for the whole rollout")
]
Rates = Annotated[
    list[float] | None,
    Words("two shares of right responses, the lower one first, such as [0.1, 0.9]"),
]
MemoryShare = Annotated[
    float, Field(gt=0, lt=1), Words("a share of a GPU's memory, above 0 and below 1")
]
Band = Annotated[
    list[float] | None,
    Words("two ratios of probabilities, the lower one first, such as [0.5, 5.0]"),
]


@dataclass(frozen=True)
class Traces:
    """Worked Countdown traces: the share that hits the target, and how many there are.

    Training goes through them again and again. Their number is not tied to that of the steps: a
    run that is prolonged must keep its data.
    """

    hit: Share = 1.0
    count: Count = 50_000

    def __post_init__(self) -> None:
        """Refuse a value of another type or out of range."""
        check_values(self)


@dataclass(frozen=True)
class Settings:
    """What an RL run does, apart from its algorithm.

    A rollout is prompts_per_step × samples_per_prompt responses; ``mini_batch`` of them are one
    optimiser step, 0 for all, which is then exactly on-policy. Its top-p is always 1: the trainer's
    log-probs are those of the full distribution, and a nucleus would bias every ratio by the mass
    it drops. ``rollouts`` by ``hf`` repeat themselves bit for bit on the CPU, ``vllm`` is faster
    for models of more than some millions of parameters and takes ``rollout_memory`` of a GPU beside
    the learner. ``rollout_tensor_parallel`` ranks hold one copy of vLLM's model together.
    ``kl_loss`` weighs a reference penalty in the loss (the penalty in the reward belongs to the
    algorithm), ``entropy_bonus`` the mean token entropy. ``sampler_cap`` bounds the importance
    weight that corrects the sampler's numbers towards the trainer's; 0 switches it off, as it does
    ``grad_clip``. ``sampler_band`` takes its place: a weight outside becomes 0 (IcePop, whose
    authors take [0.5, 5.0]). ``sequence_band`` leaves out responses whose mean ratio of trainer to
    sampler, the geometric one, lies outside. ``mask_truncated`` leaves responses that hit
    ``max_tokens`` out of the loss. With ``turns`` a response is an episode in which the model calls
    tools; ``max_tokens`` counts what it writes in all its turns.

    With ``success_rate`` only problems are drawn whose share of right responses, when they were
    drawn last, lies in this band, or that have not been drawn. They are selected anew every
    ``select_every`` steps; one outside is still tried in one of ``retry_passes`` passes. ``hints``
    is the share of a teacher's response that a problem without a success begins with. Of the
    responses to a prompt up to ``replays`` are right ones of earlier steps, of which
    ``replay_buffer`` are kept.

    ``micro_tokens``, a prompt counted with each of its responses, is the memory knob, and
    ``recompute`` computes layers again when their gradient is due: a quarter more work, a small
    part of the memory. The result depends on neither. ``lora_rank`` 0 trains the weights
    themselves; adapters want a learning rate about ten times as large. The learning rate halves
    every ``half_life`` steps once it is warm; a decay that does not look at the last step lets a
    run be prolonged without changing what it has done. A kill loses at most ``save_every`` steps.
    """

    steps: Count
    prompts_per_step: Count = 256
    samples_per_prompt: Count = 8
    mini_batch: MiniBatch = 0
    epochs: Count = 1
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    max_tokens: Count = 8192
    rollouts: Literal["hf", "vllm"] = "hf"
    rollout_memory: MemoryShare = 0.3
    rollout_tensor_parallel: Count = 1
    learning_rate: Weight = 1e-6
    critic_learning_rate: Weight = 1e-5
    warmup_steps: Whole = 0
    half_life: Whole = 0
    weight_decay: Weight = 0.0
    grad_clip: Weight = 1.0
    kl_loss: Weight = 0.0
    kl_kind: Literal["k2", "k3"] = "k2"
    entropy_bonus: float = 0.0
    sampler_cap: Weight = 2.0
    sampler_band: Band = None
    sequence_band: Band = None
    mask_truncated: bool = False
    micro_tokens: Count = 4096
    recompute: bool = False
    lora_rank: Annotated[int, Field(ge=0), Words("a whole number, 0 for no adapters")] = 0
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    offload: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"
    save_every: Count = 10
    rewards: Rewards = dataclasses.field(default_factory=lambda: {"correct": 1.0})
    seed: Seed = 0
    turns: Turns | None = None
    success_rate: Rates = None
    select_every: Count = 1
    retry_passes: Count = 10
    hints: Annotated[float, Field(ge=0, lt=1)] = 0.0
    replays: Whole = 0
    replay_buffer: Count = 1000

    def __post_init__(self) -> None:
        """Refuse what cannot be run, with the numbers.

        A band is a lower and an upper bound on a ratio of probabilities. A mini-batch must divide
        the rollout, which is all responses of one step.
        """
        check_values(self)
        for name in ("sampler_band", "sequence_band"):
            band = getattr(self, name)
            if band is not None and not (len(band) == 2 and 0 <= band[0] <= 1 <= band[1]):
                raise UserError(
                    f"{name}: found {band}; allowed: two ratios, one up to 1 and one from 1 on, "
                    "such as [0.5, 5.0]"
                )
        self._check_selection()
        rollout = self.prompts_per_step * self.samples_per_prompt
        if self.mini_batch and rollout % self.mini_batch:
            raise UserError(
                f"mini_batch: found {self.mini_batch}, which does not divide the rollout of "
                f"{self.prompts_per_step} × {self.samples_per_prompt} = {rollout} responses"
            )

    def _check_selection(self) -> None:
        """Refuse a band that no group can hit, and replays without fresh responses or a weight."""
        has_weight = self.sampler_cap or self.sampler_band
        n_fresh = self.samples_per_prompt - self.replays
        if self.replays and (n_fresh < 1 or not has_weight or self.turns):
            raise UserError(
                f"replays: found {self.replays}; allowed: fewer than the {self.samples_per_prompt} "
                "samples_per_prompt, without `turns`, and with a `sampler_cap` or `sampler_band`, "
                "which weigh what another policy sampled"
            )
        band = self.success_rate
        if band is None:
            return
        shares = [n_right / n_fresh for n_right in range(n_fresh + 1)]
        if len(band) != 2 or not any(band[0] <= share <= band[1] for share in shares):
            raise UserError(
                f"success_rate: found {band}, which no share of {n_fresh} responses lies in; "
                "allowed: two shares, the lower one first, such as [0.1, 0.9]"
            )

    @property
    def responses_per_update(self) -> int:
        """Responses in one optimiser step."""
        return self.mini_batch or self.prompts_per_step * self.samples_per_prompt

    @property
    def running_stage(self) -> int:
        """The ZeRO stage that is run: without one DeepSpeed offloads nothing."""
        return self.zero_stage or 2 * self.offload

    def sampler_copies(self, ranks: int) -> int:
        """Copies of vLLM's model that so many ranks hold: ``rollout_tensor_parallel`` share one."""
        copies, remainder = divmod(ranks, self.rollout_tensor_parallel)
        if remainder:
            raise UserError(
                f"rollout_tensor_parallel: found {self.rollout_tensor_parallel}, which does not "
                f"divide the {ranks} GPUs of the training; take one of its divisors"
            )
        return copies

    def responses_per_rank(self, ranks: int) -> int:
        """Most responses that one rank samples in a step: prompts are dealt out whole."""
        return -(-self.prompts_per_step // ranks) * self.samples_per_prompt

    @property
    def essence(self) -> str:
        """What must stay the same for a run to go on, as text.

        ``FREE`` are the settings that may change. A setting at its default is left out, so that one
        that is added later changes no old run.
        """
        default = vars(Settings(self.steps))
        given = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if name not in FREE and value != default[name]
        ]
        return " ".join(given)

    def learning_rate_at(self, step: int, peak: float) -> float:
        """Rate of step 1, 2, …: linear warm-up, then constant or halved every ``half_life``."""
        if step < self.warmup_steps:
            return peak * step / self.warmup_steps
        if not self.half_life:
            return peak
        return float(peak * 2.0 ** ((self.warmup_steps - step) / self.half_life))
