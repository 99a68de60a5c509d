"""What a training run will do and hold, and the nearest setting that fits, before it starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PreTrainedModel

from rlbhpc.engines.hf_model import model_kind, read_config
from rlbhpc.engines.tiny import tiny_config
from rlbhpc.errors import UserError
from rlbhpc.study.schema import Recipe
from rlbhpc.study.study import Study
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.batch import SPREAD, MicroBatch, Response, assemble
from rlbhpc.train.checkpoint import read_progress, states
from rlbhpc.train.deepspeed_engine import BUCKET
from rlbhpc.train.learner import DTYPES
from rlbhpc.train.policy import (
    BYTES_PER_LOGIT,
    Policy,
    adapt,
    chunk_rows,
    plain_size,
    recompute_layers,
)
from rlbhpc.train.recipes import algorithm_of, rollout_rows, settings_of
from rlbhpc.train.settings import Settings

# ---- forecast ------------------------------------------------------------------------------------
# What a training run will do and hold, told before it starts.
#
# Memory is what a rank keeps for certain, part by part. Activations are counted by running one
# micro-batch on tensors without data, so any architecture's are right as far as attention does not
# keep its matrix; fragmentation and libraries come on top.


BYTES = {"float32": 4, "bfloat16": 2}
# What is there only while a micro-batch is on its way.
PASSING: Final = ("activations", "output layer", "gathered weights")
# Share of a GPU that stays free for CUDA, libraries and fragmentation.
RESERVE: Final = 0.1
# Elements that ZeRO-3 lets be whole at a time: DeepSpeed's own choice.
LIVE: Final = 1_000_000_000
# One mode for a model and what is run on it: views of weights are known by their storage.
FAKE = FakeTensorMode(allow_non_fake_inputs=True)


@dataclass(frozen=True)
class Forecast:
    """One training run, before it starts.

    ``work`` counts what is sampled and updated over the whole run; ``memory`` is in bytes of one
    rank, by part. ``flop`` are at most 2 per parameter and token that is read or sampled, 6 that is
    trained on (Kaplan et al. 2020, arXiv 2001.08361), 4 where the parameter stands still, attention
    left out; None for supervised training, whose texts have the length that they have. ``loading``
    are the bytes of the models while ZeRO-3 has not divided the last of them yet, 0 where nothing
    is divided. ``share`` of a device's memory is left to training while vLLM samples. ``handed``
    are the bytes of the weights that vLLM has of its own, ``largest`` those of the largest of them.
    """

    model: str
    algorithm: str
    parameters: int
    ranks: int
    work: Mapping[str, int]
    memory: Mapping[str, int]
    flop: float | None
    loading: int
    share: float
    handed: int
    largest: int
    settings: Mapping[str, Any]

    @property
    def total(self) -> int:
        """Bytes of one rank in all."""
        return sum(self.memory.values())

    def shortfall(self, limit: int) -> str:
        """Why so many bytes of a device are not enough, with the numbers; empty if they are."""
        vllm = limit * (1 - self.share)
        if self.handed > vllm:
            return (
                f"`rollout_memory` gives vLLM {vllm / 2**30:.1f} GiB, and its weights alone take "
                f"{self.handed / 2**30:.1f}"
            )
        lasting = {name: size for name, size in self.memory.items() if name not in PASSING}
        # vLLM's weights are filled one by one, each from a whole copy.
        handing = lasting | {"weights handed to vLLM": self.handed + self.largest}
        usable = limit * (1 - RESERVE)
        for phase, memory, room in (
            ("while models are loaded, ", {"weights not yet divided": self.loading}, usable),
            ("", self.memory, usable),
            ("while vLLM samples, ", lasting, limit * self.share),
            ("while vLLM gets its weights, ", handing, usable),
        ):
            needed = sum(memory.values())
            if needed <= room:
                continue
            parts = sorted(memory.items(), key=lambda part: -part[1])
            largest = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in parts[:3])
            return (
                f"{phase}one rank holds {needed / 2**30:.1f} GiB at least and has "
                f"{room / 2**30:.1f} of {limit / 2**30:.1f}; the largest parts are {largest} GiB"
            )
        return ""


def without_data(config: Any, settings: Settings) -> Policy:
    """The policy with shapes and types alone: a model of any size costs nothing."""
    with FAKE:
        model = model_kind(config).from_config(config, dtype=DTYPES[settings.dtype])
        if settings.lora_rank:
            adapt(model, settings.lora_rank, settings.seed)
        return Policy(model)


def work_of(settings: Settings, algorithm: Algorithm | None) -> dict[str, int]:
    """What a run samples and updates."""
    per_step = settings.prompts_per_step * settings.samples_per_prompt
    updates = settings.epochs * (per_step // settings.responses_per_update)
    work = {"steps": settings.steps}
    if algorithm is None:
        return work | {"pairs": settings.steps * per_step, "updates": settings.steps}
    responses = settings.steps * algorithm.responses_per_step(settings)
    refilled = responses * algorithm.refills
    return work | {
        "prompts": settings.steps * settings.prompts_per_step,
        "responses": responses,
        **({"responses of refills at most": refilled} if refilled else {}),
        "updates": settings.steps * updates,
        "response tokens at most": (responses + refilled) * settings.max_tokens,
    }


def flop_of(
    every: int, learning: int, reference: int, settings: Settings, algorithm: Algorithm | None
) -> float | None:
    """Operations of a run over ``every`` parameter, of which so many are ``learning``.

    ``reference`` counts the parameters of the model that a penalty is measured against.
    """
    if algorithm is None:
        return None
    work = work_of(settings, algorithm)
    # Tries of tasks, greedy responses and what is refilled are sampled, and not learnt from.
    lessons = settings.prompts_per_step * settings.samples_per_prompt
    lesson_tokens = settings.steps * lessons * settings.max_tokens
    # Old log-probs are read again where an update is not exactly on-policy, or a reward needs them.
    read = work["updates"] > work["steps"] or bool(algorithm.kl_beta)
    compared = reference if settings.kl_loss or algorithm.kl_beta else 0
    critic = algorithm.NEEDS_CRITIC
    trained = settings.epochs * (1 + critic)
    once = every * (2.0 * (read + critic) + 4 * trained) + 2.0 * compared
    sampling = 2.0 * every * work["response tokens at most"]
    return sampling + lesson_tokens * (once + 2.0 * learning * trained)


def memory_of(
    policy: Policy,
    settings: Settings,
    algorithm: Algorithm | None,
    ranks: int,
    rows: int,
    reference: int = 0,
) -> dict[str, int]:
    """Bytes that one rank holds, by part, where ``rows`` responses are sampled at a time.

    ``reference`` counts the parameters of a teacher; 0 where the policy's start is the reference.
    """
    config, parameters = policy.model.config.get_text_config(), plain_size(policy)
    memory = _training_state_bytes("policy", policy.model, 0, settings, ranks)
    width = settings.micro_tokens
    if algorithm is not None:
        width = settings.max_tokens  # a response is never cut, whatever a micro-batch may hold
        if algorithm.NEEDS_CRITIC:
            body = policy.model.base_model
            memory |= _training_state_bytes("critic", body, config.hidden_size, settings, ranks)
        if settings.kl_loss or algorithm.kl_beta:
            memory["reference weights"] = (reference or parameters) * BYTES[settings.dtype]
        if settings.rollouts == "hf":
            memory["sampler weights"] = parameters * BYTES[settings.dtype]
            most = min(rows, settings.responses_per_rank(ranks))
            memory["sampler cache"] = _cache_bytes(config, settings, most)
    batch = _largest_batch(settings, width, ranks)
    memory["output layer"] = _output_layer_bytes(policy, settings, len(batch.targets))
    if settings.zero_stage == 3:
        memory["gathered weights"] = min(LIVE, parameters) * BYTES[settings.dtype]
    memory["activations"] = _activation_bytes(policy, settings, batch)
    return memory


def loading_of(policy: Policy, memory: Mapping[str, int], settings: Settings) -> int:
    """Bytes that one rank holds at most while its models are loaded, by ZeRO-3 alone.

    Each model is whole on every GPU before DeepSpeed divides it; the critic comes last, beside all
    of the policy's state.
    """
    if settings.zero_stage < 3:
        return 0
    size = BYTES[settings.dtype]
    whole_policy = sum(p.numel() for p in policy.parameters()) * size
    loading = whole_policy + memory["policy weights"]
    if "critic weights" in memory:
        state = sum(held for part, held in memory.items() if part.startswith("policy "))
        whole_critic = policy.model.base_model.num_parameters() * size
        loading = max(loading, state + whole_critic + memory["critic weights"])
    return loading


def _training_state_bytes(
    name: str, model: PreTrainedModel, beside: int, settings: Settings, ranks: int
) -> dict[str, int]:
    """Weights, gradients and optimiser of one trained model, as the ZeRO stage divides them.

    ``beside`` counts what learns and is no part of the model.

    DeepSpeed keeps 32-bit master weights beside 16-bit ones, and gradients are added up in 32 bits
    wherever a ZeRO stage or 16-bit weights ask for it (Rajbhandari et al. 2020, arXiv 1910.02054).
    """
    stage, size = settings.running_stage, BYTES[settings.dtype]
    parameters = model.num_parameters() + beside
    learning = model.num_parameters(only_trainable=True) + beside

    def share(count: int, byte: int, from_stage: int) -> int:
        return count * byte // (ranks if stage >= from_stage else 1)

    moments = share(learning, 8 if size == 4 and not stage else 12, 1)
    return {
        f"{name} weights": share(parameters, size, 3),
        f"{name} gradients": share(learning, 4, 2),
        f"{name} optimiser": 0 if settings.offload else moments,
        f"{name} buffer": min(BUCKET, learning) * size if stage else 0,
    }


def _output_layer_bytes(policy: Policy, settings: Settings, tokens: int) -> int:
    """Logits of one chunk, and the gradient of the weights that is added up over all chunks."""
    weight = policy.model.get_output_embeddings().weight
    rows = chunk_rows(len(weight))
    gradient = 0
    if weight.requires_grad:
        gradient = weight.numel() * (4 if tokens > rows else BYTES[settings.dtype])
    return min(rows, tokens) * len(weight) * BYTES_PER_LOGIT + gradient


def _cache_bytes(config: Any, settings: Settings, rows: int) -> int:
    """Keys and values of all rows at their longest, the prompts left out."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tokens = rows * settings.max_tokens
    return int(2 * config.num_hidden_layers * heads * head * tokens * BYTES[settings.dtype])


def _largest_batch(settings: Settings, width: int, ranks: int) -> MicroBatch:
    """The full micro-batch that takes most: prompts apart, and as much padding as there can be."""
    shorter = math.ceil(width / SPREAD)
    room = (settings.micro_tokens - width) // shorter
    others = min(room, -(-settings.responses_per_update // ranks) - 1)
    responses = [
        Response((i,), np.zeros(n, np.int32)) for i, n in enumerate([width] + [shorter] * others)
    ]
    return assemble(responses, np.arange(len(responses)))


# Of the models and micro-batches that were run already: a study trains many from one.
_COUNTED: dict[tuple[object, ...], tuple[int, int]] = {}


def _activation_bytes(policy: Policy, settings: Settings, batch: MicroBatch) -> int:
    """Bytes that are kept of a micro-batch for its gradient, with layers recomputed or not."""
    config = policy.model.config
    key = (
        config.to_json_string(), settings.dtype, settings.lora_rank, settings.temperature,
        *(tuple(rows.shape) for rows in batch.rows),
    )  # fmt: skip
    if key not in _COUNTED:
        whole = _saved_tensor_bytes(policy, settings, batch)
        recompute_layers(policy.model)
        _COUNTED[key] = whole, _saved_tensor_bytes(policy, settings, batch)
    whole, between = _COUNTED[key]
    if not settings.recompute:
        return whole
    # The layer whose gradient is due has its own again.
    return between + (whole - between) // int(config.get_text_config().num_hidden_layers)


def _saved_tensor_bytes(policy: Policy, settings: Settings, batch: MicroBatch) -> int:
    """Bytes that autograd keeps of a micro-batch, counted on tensors without data."""
    kept: dict[int, int] = {}
    # The graph's tensors are held here, so that an address stands for one of them only.
    held: list[torch.Tensor] = []
    own = {p.untyped_storage()._cdata for p in policy.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            held.append(tensor)
            kept[storage._cdata] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with FAKE, hooks:
        policy(batch, settings.temperature).logprobs.sum()
    return sum(kept.values())


# ---- fit -----------------------------------------------------------------------------------------
# What a recipe's training takes on the device at hand, and the nearest setting that fits it.
#
# A recipe that says nothing of ``rollouts``, ``dtype``, ``recompute``, ``zero_stage`` and
# ``offload`` gets on a GPU what a GPU is for, and of ZeRO the least that fits.


#: Ways to divide the training state over ranks, from the least to the most that is given up.
ONE_RANK: Final = ((0, False), (0, True))
RANKS: Final = ((2, False), (3, False), (3, True))
MOST_RANKS: Final = 1024


def forecast(study: Study, model: str, ranks: int, limit: int = 0) -> Forecast:
    """Tell what training ``model`` on so many ranks will do and hold.

    ``limit`` is the memory of a rank's GPU in bytes; 0 where there is none.
    """
    recipe = _recipe_of(study, model)
    settings = settings_of(recipe, study.last_step(model), gpu=limit > 0)
    pinned = _saved_zero(study, model)
    if not limit or {"zero_stage", "offload"} & recipe.options.keys():
        ways = [(settings.zero_stage, settings.offload)]
    else:
        ways = [pinned] if pinned else list(RANKS if ranks > 1 else ONE_RANK)
    for stage, offload in ways:
        divided = replace(settings, zero_stage=stage, offload=offload)
        foretold = forecast_of(study, model, divided, ranks)
        if not limit or not foretold.shortfall(limit):
            break
    return foretold


def forecast_of(study: Study, model: str, settings: Settings, ranks: int) -> Forecast:
    """Tell what training ``model`` with these settings will do and hold."""
    recipe = _recipe_of(study, model)
    algorithm = algorithm_of(recipe)
    policy = without_data(_start_config(study, model), settings)
    parameters = plain_size(policy)
    beside = algorithm is not None and settings.rollouts == "vllm"
    largest = max(p.numel() for p in policy.parameters())
    learning = policy.model.num_parameters(only_trainable=True)
    reference = parameters
    if algorithm is not None and algorithm.reference_model:
        reference = _teacher_parameters(study, algorithm.reference_model, settings)
    memory = memory_of(policy, settings, algorithm, ranks, rollout_rows(study), reference)
    return Forecast(
        model, recipe.algorithm, parameters, ranks, work_of(settings, algorithm), memory,
        flop_of(parameters, learning, reference, settings, algorithm),
        loading=loading_of(policy, memory, settings),
        share=1 - settings.rollout_memory if beside else 1.0,
        handed=parameters * BYTES[settings.dtype] if beside else 0,
        largest=largest * BYTES[settings.dtype] if beside else 0,
        settings=asdict(settings),
    )  # fmt: skip


def refuse_what_cannot_fit(study: Study, foretold: Forecast, limit: int) -> None:
    """Refuse a training that a rank's memory is too small for, with the nearest that fits."""
    why = foretold.shortfall(limit)
    if not why:
        return
    changes = nearest_that_fits(study, foretold, limit)
    if changes is None:
        way_out = "Nothing that could be set makes it fit; take a smaller model or larger GPUs"
    else:
        listed = ", ".join(f"{name}: {json.dumps(value)}" for name, value in changes.items())
        way_out = f"The nearest setting that fits: {{{listed}}} under the recipe's `options`"
        if "ranks" in changes:
            way_out += " (`ranks` are GPUs that share the training)"
    raise UserError(f"model {foretold.model}: {why}. {way_out}")


def nearest_that_fits(study: Study, foretold: Forecast, limit: int) -> dict[str, Any] | None:
    """Fewest changes, the mildest first, with which a training fits; None if nothing does."""
    start = Settings(**foretold.settings)
    changes: dict[str, Any] = {}

    def fits(options: Mapping[str, Any]) -> bool:
        named = {name: value for name, value in options.items() if name != "ranks"}
        ranks = options.get("ranks", foretold.ranks)
        tried = forecast_of(study, foretold.model, replace(start, **named), ranks)
        return not tried.shortfall(limit)

    for name, value in _memory_savers(start, foretold, limit):
        changes[name] = value
        if fits(changes):
            break
    else:
        return None
    # What turned out to be of no use on the way is taken back.
    for name in list(changes):
        rest = {key: value for key, value in changes.items() if key != name}
        if rest and fits(rest):
            changes = rest
    if "zero_stage" in changes and start.offload:
        changes["offload"] = True  # a recipe that names a stage has neither chosen for it
    return changes


def _memory_savers(settings: Settings, foretold: Forecast, limit: int) -> Iterator[tuple[str, Any]]:
    """Changes that make a rank hold less, in the order in which they cost."""
    if foretold.handed:
        # Its cache and its own buffers take a tenth more, and a little of any GPU.
        yield "rollout_memory", round(min(0.9, 1.1 * foretold.handed / limit + 0.02), 2)
    if not settings.recompute:
        yield "recompute", True
    if settings.micro_tokens > settings.max_tokens:
        yield "micro_tokens", settings.max_tokens
    if settings.zero_stage < 3 and foretold.ranks > 1:
        yield "zero_stage", 3
    if not settings.offload:
        yield "offload", True
    ranks = foretold.ranks
    while ranks < MOST_RANKS:
        ranks *= 2
        yield "zero_stage", 3
        yield "ranks", ranks


def settings_here(study: Study, model: str) -> Settings:
    """Settings of a training that starts now, on the device of this process."""
    limit = device_memory()
    if not limit:
        return settings_of(_recipe_of(study, model), study.last_step(model))
    foretold = forecast(study, model, int(os.environ.get("WORLD_SIZE", "1")), limit)
    refuse_what_cannot_fit(study, foretold, limit)
    return Settings(**foretold.settings)


def device_memory() -> int:
    """Bytes of this process's GPU; 0 where there is none."""
    if not torch.cuda.is_available():
        return 0
    # Asked of the first GPU, every rank of a node would hold a part of it from here on.
    own = int(os.environ.get("LOCAL_RANK", "0"))
    return int(torch.cuda.mem_get_info(own)[1])


def _recipe_of(study: Study, model: str) -> Recipe:
    training = study.models[model].train
    assert training is not None
    return study.file.recipes[training.recipe]


def _saved_zero(study: Study, model: str) -> tuple[int, bool] | None:
    """How a run that goes on had divided its state, whatever would be chosen today."""
    for state in reversed(states(study.layout.states(model))):
        progress = read_progress(state)
        if progress is not None and "zero_stage" in progress:
            return progress["zero_stage"], progress["offload"]
    return None


def _teacher_parameters(study: Study, teacher: str, settings: Settings) -> int:
    """Parameters of the model that an algorithm measures against."""
    folder = study.folder(teacher, study.last_step(teacher))
    made = (folder / "config.json").is_file()
    config = read_config(folder) if made else _start_config(study, teacher)
    return plain_size(without_data(config, replace(settings, lora_rank=0)))


def _start_config(study: Study, model: str) -> Any:
    """Configuration of the model that a training starts from, trained itself or not yet."""
    while (training := study.models[model].train) is not None and training.from_ is not None:
        model = training.from_
        folder = study.folder(model, study.last_step(model))
        if (folder / "config.json").is_file():
            return read_config(folder)
    if training is None:
        raise UserError(f"model {model}: no config.json in its folder; bring it there first")
    shape = dict(study.file.recipes[training.recipe].architecture)
    return tiny_config(shape.pop("model_type", "qwen2"), **shape)
