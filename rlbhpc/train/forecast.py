"""What a training run will do and hold, and the nearest setting that fits, before it starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PreTrainedModel

from rlbhpc.engines.hf_model import model_class, read_config
from rlbhpc.engines.tiny import tiny_config
from rlbhpc.errors import UserError
from rlbhpc.study.schema import Recipe
from rlbhpc.study.study import Study
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.batch import MAX_LENGTH_RATIO, MicroBatch, Response, pack_responses
from rlbhpc.train.checkpoint import list_states, read_progress
from rlbhpc.train.deepspeed_engine import BUCKET_ELEMENTS
from rlbhpc.train.learner import DTYPES
from rlbhpc.train.policy import (
    BYTES_PER_LOGIT,
    Policy,
    add_adapters,
    count_base_parameters,
    recompute_layers,
    tokens_per_chunk,
)
from rlbhpc.train.recipes import algorithm_of, rollout_rows, settings_of
from rlbhpc.train.settings import Settings

# Bytes of a number.
BYTES = {"float32": 4, "bfloat16": 2}
GIB = 2**30
# What is there only while a micro-batch is on its way.
TRANSIENT_PARTS: Final = ("activations", "output layer", "gathered weights")
# Share of a GPU that stays free for CUDA, libraries and fragmentation.
RESERVE: Final = 0.1
# Elements that ZeRO-3 lets be whole at a time: DeepSpeed's own choice.
GATHERED_ELEMENTS: Final = 1_000_000_000
# One mode for a model and what is run on it: views of weights are known by their storage.
FAKE = FakeTensorMode(allow_non_fake_inputs=True)


# ---- forecast ------------------------------------------------------------------------------------
# Memory is what a rank keeps for certain, part by part. Activations are counted by running one
# micro-batch on tensors without data, so any architecture's are right as far as attention does not
# keep its matrix; fragmentation and libraries come on top.


@dataclass(frozen=True)
class Forecast:
    """What one training run will do and hold.

    ``work`` counts what is sampled and updated over the whole run; ``memory`` is in bytes of one
    rank, by part. ``share`` of a device's memory is left to training while vLLM samples. ``handed``
    are the bytes of the weights that one rank's vLLM has of its own, ``largest`` those of the
    largest weight.
    """

    model: str
    algorithm: str
    parameters: int
    ranks: int
    work: Mapping[str, int]
    memory: Mapping[str, int]
    share: float
    handed: int
    largest: int
    settings: Settings

    @property
    def total(self) -> int:
        """Bytes of one rank in all."""
        return sum(self.memory.values())

    def shortfall(self, limit: int) -> str:
        """Why ``limit`` bytes of a device are too few, in a sentence; empty if they are enough.

        ``memory`` has the bytes of each part that one rank holds. Transient parts are there only
        while a micro-batch is on its way, the lasting ones always. The phases of a run hold
        different parts, and each must fit. ``share`` of the device is training's while vLLM
        samples; ``handed`` are the bytes of vLLM's own weights and ``largest`` those of its largest
        weight. ``RESERVE`` is the share of a device that stays free for libraries.
        """
        vllm_bytes = limit * (1 - self.share)
        if self.handed > vllm_bytes:
            return (
                f"`rollout_memory` gives vLLM {vllm_bytes / GIB:.1f} GiB, and its weights alone "
                f"take {self.handed / GIB:.1f}"
            )
        usable = limit * (1 - RESERVE)
        lasting = {part: size for part, size in self.memory.items() if part not in TRANSIENT_PARTS}
        # vLLM's weights are filled one by one, each from a whole copy.
        handing_over = lasting | {"weights handed to vLLM": self.handed + self.largest}
        phases = (
            ("", self.memory, usable),
            ("while vLLM samples, ", lasting, limit * self.share),
            ("while vLLM gets its weights, ", handing_over, usable),
        )
        for phase, parts, available in phases:
            needed = sum(parts.values())
            if needed > available:
                by_size = sorted(parts.items(), key=lambda part: -part[1])
                largest = ", ".join(f"{name} {size / GIB:.1f}" for name, size in by_size[:3])
                return (
                    f"{phase}one rank holds {needed / GIB:.1f} GiB at least and has "
                    f"{available / GIB:.1f} of {limit / GIB:.1f}; the largest parts are {largest} "
                    "GiB"
                )
        return ""


def make_policy_without_data(config: Any, settings: Settings) -> Policy:
    """The policy with shapes and types alone: a model of any size costs nothing."""
    with FAKE:
        model = model_class(config).from_config(config, dtype=DTYPES[settings.dtype])
        if settings.lora_rank:
            add_adapters(model, settings.lora_rank, settings.seed)
        return Policy(model)


def count_work(settings: Settings, algorithm: Algorithm | None) -> dict[str, int]:
    """What a run samples and updates in all; ``algorithm`` is None for supervised training.

    A refill samples new prompts in place of groups that teach nothing.
    """
    steps = settings.steps
    responses_per_step = settings.prompts_per_step * settings.samples_per_prompt
    if algorithm is None:
        return {"steps": steps, "pairs": steps * responses_per_step, "updates": steps}
    mini_batches = responses_per_step // settings.responses_per_update
    responses = steps * algorithm.responses_per_step(settings)
    refilled = responses * algorithm.refills
    work = {
        "steps": steps,
        "prompts": steps * settings.prompts_per_step,
        "responses": responses,
    }
    if refilled:
        work["responses of refills at most"] = refilled
    work["updates"] = steps * settings.epochs * mini_batches
    work["response tokens at most"] = (responses + refilled) * settings.max_tokens
    return work


def count_memory(
    policy: Policy,
    settings: Settings,
    algorithm: Algorithm | None,
    ranks: int,
    rows: int,
    teacher_parameters: int = 0,
) -> dict[str, int]:
    """Bytes that one rank holds, by part, where ``rows`` responses are sampled at a time.

    A rank is one of the processes that train together, each on its own GPU. ``policy`` has shapes
    and no data. ``teacher_parameters`` is 0 where the reference is the model that training starts
    from.
    """
    config = policy.model.config.get_text_config()
    parameters = count_base_parameters(policy)
    # Bytes of one number.
    number = BYTES[settings.dtype]
    memory = _training_state_bytes("policy", policy.model, 0, settings, ranks)
    longest_response = settings.micro_tokens
    if algorithm is not None:
        # A response is never cut, whatever a micro-batch may hold.
        longest_response = settings.max_tokens
        if algorithm.NEEDS_CRITIC:
            body = policy.model.base_model
            memory |= _training_state_bytes("critic", body, config.hidden_size, settings, ranks)
        if settings.kl_loss or algorithm.kl_beta:
            is_divided = settings.zero_stage == 3
            reference_bytes = (teacher_parameters or parameters) * number
            memory["reference weights"] = reference_bytes // (ranks if is_divided else 1)
        if settings.rollouts == "hf":
            memory["sampler weights"] = parameters * number
            sampled_rows = min(rows, settings.responses_per_rank(ranks))
            memory["sampler cache"] = _cache_bytes(config, settings, sampled_rows)
    batch = _largest_batch(settings, longest_response, ranks)
    memory["output layer"] = _output_layer_bytes(policy, settings, len(batch.targets))
    if settings.zero_stage == 3:
        memory["gathered weights"] = min(GATHERED_ELEMENTS, parameters) * number
    memory["activations"] = _activation_bytes(policy, settings, batch)
    return memory


def _training_state_bytes(
    name: str, model: PreTrainedModel, head_parameters: int, settings: Settings, ranks: int
) -> dict[str, int]:
    """Bytes of weights, gradients and optimiser of one trained model on one rank, by part.

    ``head_parameters`` learn beside the model. ZeRO divides the optimiser from stage 1 on,
    gradients from 2, weights from 3. DeepSpeed keeps 32-bit master weights beside 16-bit ones, and
    gradients are added up in 32 bits wherever a ZeRO stage or 16-bit weights ask for it
    (Rajbhandari et al. 2020, arXiv 1910.02054).
    """
    stage = settings.running_stage
    # Bytes of one number.
    number = BYTES[settings.dtype]
    parameters = model.num_parameters() + head_parameters
    trained = model.num_parameters(only_trainable=True) + head_parameters
    is_plain_adam = settings.dtype == "float32" and stage == 0
    adam_bytes = 8 if is_plain_adam else 12  # two moments; with them a copy of the weight

    def of_one_rank(total: int, first_divided_stage: int) -> int:
        return total // ranks if stage >= first_divided_stage else total

    return {
        f"{name} weights": of_one_rank(parameters * number, 3),
        f"{name} gradients": of_one_rank(trained * 4, 2),
        f"{name} optimiser": 0 if settings.offload else of_one_rank(trained * adam_bytes, 1),
        f"{name} buffer": min(BUCKET_ELEMENTS, trained) * number if stage else 0,
    }


def _output_layer_bytes(policy: Policy, settings: Settings, n_tokens: int) -> int:
    """Bytes of one chunk's logits, and of the weights' gradient that is added up over all chunks.

    The output layer runs on a chunk of the ``n_tokens`` at a time. A frozen one has no gradient.
    """
    weight = policy.model.get_output_embeddings().weight
    vocabulary = len(weight)
    chunk_tokens = tokens_per_chunk(vocabulary)
    logit_bytes = min(chunk_tokens, n_tokens) * vocabulary * BYTES_PER_LOGIT
    if not weight.requires_grad:
        return logit_bytes
    # Over several chunks the gradient is added up in 32 bits.
    number = 4 if n_tokens > chunk_tokens else BYTES[settings.dtype]
    return logit_bytes + weight.numel() * number


def _cache_bytes(config: Any, settings: Settings, rows: int) -> int:
    """Keys and values of all rows at their longest, the prompts left out."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers_per_token = 2 * config.num_hidden_layers * heads * head_dim
    return int(numbers_per_token * rows * settings.max_tokens * BYTES[settings.dtype])


def _largest_batch(settings: Settings, longest: int, ranks: int) -> MicroBatch:
    """The full micro-batch that takes most memory, made of token ids 0.

    Its prompts are one token each and not shared. One response has ``longest`` tokens, and the
    others are the shortest that attention still pads to that length, which wastes most.
    """
    shorter = math.ceil(longest / MAX_LENGTH_RATIO)
    n_fitting = (settings.micro_tokens - longest) // shorter
    # No more than one rank's share of an update, rounded up.
    n_others = min(n_fitting, -(-settings.responses_per_update // ranks) - 1)
    lengths = [longest] + [shorter] * n_others
    responses = [
        Response((number,), np.zeros(length, np.int32)) for number, length in enumerate(lengths)
    ]
    return pack_responses(responses, np.arange(len(responses)))


# Bytes without and with recomputing, of what was counted already: a study trains many models from
# one start.
_counted_activations: dict[tuple[object, ...], tuple[int, int]] = {}


def _activation_bytes(policy: Policy, settings: Settings, batch: MicroBatch) -> int:
    """Bytes that are kept of a micro-batch for its gradient, with layers recomputed or not.

    Both are counted once for each shape and remembered. ``keeping_all`` is without recomputing;
    ``keeping_inputs`` is with it, where only the input of each layer is kept.
    """
    config = policy.model.config
    row_shapes = [tuple(rows.shape) for rows in batch.attention_rows]
    key = (
        config.to_json_string(), settings.dtype, settings.lora_rank, settings.temperature,
        *row_shapes,
    )  # fmt: skip
    if key not in _counted_activations:
        keeping_all = _saved_tensor_bytes(policy, settings, batch)
        recompute_layers(policy.model)
        _counted_activations[key] = keeping_all, _saved_tensor_bytes(policy, settings, batch)
    keeping_all, keeping_inputs = _counted_activations[key]
    if not settings.recompute:
        return keeping_all
    # The layer whose gradient is due has all of its own again.
    n_layers = int(config.get_text_config().num_hidden_layers)
    return keeping_inputs + (keeping_all - keeping_inputs) // n_layers


def _saved_tensor_bytes(policy: Policy, settings: Settings, batch: MicroBatch) -> int:
    """Bytes that autograd saves of a micro-batch, counted on tensors without data.

    ``FAKE`` runs the model on shapes alone. Each tensor that is saved for the gradient passes
    through ``count``, once for each storage and without the weights, which are counted elsewhere.
    """
    saved_bytes: dict[int, int] = {}
    # Held until the end, so that an address stands for one tensor only.
    saved_tensors: list[torch.Tensor] = []
    weights = {p.untyped_storage()._cdata for p in policy.parameters()}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved_tensors.append(tensor)
            saved_bytes[storage._cdata] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with FAKE, hooks:
        policy(batch, settings.temperature).logprobs.sum()
    return sum(saved_bytes.values())


# ---- fit -----------------------------------------------------------------------------------------
# A recipe that says nothing of ``rollouts``, ``dtype``, ``recompute``, ``zero_stage`` and
# ``offload`` gets on a GPU what a GPU is for, and of ZeRO the least that fits.

# ZeRO stage and offload, from the least to the most that is given up.
ZERO_OF_ONE_RANK: Final[tuple[tuple[int, bool], ...]] = ((0, False), (0, True))
ZERO_OF_RANKS: Final[tuple[tuple[int, bool], ...]] = ((2, False), (3, False), (3, True))


def forecast(study: Study, model: str, ranks: int, limit: int = 0) -> Forecast:
    """Tell what training ``model`` on so many ranks will do and hold.

    ``limit`` is the memory of a rank's GPU in bytes; 0 where there is none. Where the recipe does
    not name them, the ZeRO stage and offload are the first choice that fits, from the one that
    gives up least; a run that goes on keeps those of its saved state.
    """
    recipe = _recipe_of(study, model)
    settings = settings_of(recipe, study.last_step(model), gpu=limit > 0)
    saved_zero = _zero_of_saved_state(study, model)
    choices = ZERO_OF_RANKS if ranks > 1 else ZERO_OF_ONE_RANK
    if not limit or {"zero_stage", "offload"} & recipe.options.keys():
        choices = ((settings.zero_stage, settings.offload),)
    elif saved_zero is not None:
        choices = (saved_zero,)
    for stage, offload in choices:
        divided = replace(settings, zero_stage=stage, offload=offload)
        foretold = forecast_with(study, model, divided, ranks)
        if not limit or not foretold.shortfall(limit):
            break
    return foretold


def forecast_with(study: Study, model: str, settings: Settings, ranks: int) -> Forecast:
    """Tell what training ``model`` with these settings will do and hold.

    A recipe of the study says how a model is trained. ``parameters`` are those of the model without
    adapters, and ``reference`` those of the model that a penalty is measured against. ``handed``
    are the bytes of the weights that vLLM gets for sampling.
    """
    recipe = _recipe_of(study, model)
    algorithm = algorithm_of(recipe)
    policy = make_policy_without_data(_start_config(study, model), settings)
    parameters = count_base_parameters(policy)
    reference = parameters
    if algorithm is not None and algorithm.reference_model:
        reference = _teacher_parameters(study, algorithm.reference_model, settings)
    memory = count_memory(policy, settings, algorithm, ranks, rollout_rows(study), reference)
    share, handed, largest = 1.0, 0, 0
    if algorithm is not None and settings.rollouts == "vllm":
        # Bytes of one number.
        number = BYTES[settings.dtype]
        share = 1 - settings.rollout_memory
        settings.sampler_copies(ranks)
        handed = parameters * number // settings.rollout_tensor_parallel
        largest = max(p.numel() for p in policy.parameters()) * number
    return Forecast(
        model=model,
        algorithm=recipe.algorithm,
        parameters=parameters,
        ranks=ranks,
        work=count_work(settings, algorithm),
        memory=memory,
        share=share,
        handed=handed,
        largest=largest,
        settings=settings,
    )


def refuse_what_cannot_fit(foretold: Forecast, limit: int) -> None:
    """Refuse a training that ``limit`` bytes, the memory of a rank's GPU, are too few for."""
    reason = foretold.shortfall(limit)
    if reason:
        raise UserError(
            f"model {foretold.model}: {reason}. Set `rollout_memory`, `rollout_tensor_parallel`, "
            "`recompute: true`, a smaller `micro_tokens`, `zero_stage: 3` or `offload: true` under "
            "the recipe's `options`, or share the training among more GPUs"
        )


def settings_for_this_device(study: Study, model: str) -> Settings:
    """Settings of a training that starts now, on the device of this process.

    On a GPU they are those of the forecast that fits its memory; a training that cannot fit is
    refused.
    """
    limit = device_memory()
    if not limit:
        return settings_of(_recipe_of(study, model), study.last_step(model))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    foretold = forecast(study, model, ranks, limit)
    refuse_what_cannot_fit(foretold, limit)
    return foretold.settings


def device_memory() -> int:
    """Bytes of this process's GPU; 0 where there is none."""
    if not torch.cuda.is_available():
        return 0
    # Asked of the first GPU, every rank of a node would hold a part of it from here on.
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    _, total_bytes = torch.cuda.mem_get_info(local_rank)
    return int(total_bytes)


def _recipe_of(study: Study, model: str) -> Recipe:
    training = study.models[model].train
    assert training is not None
    return study.file.recipes[training.recipe]


def _zero_of_saved_state(study: Study, model: str) -> tuple[int, bool] | None:
    """ZeRO stage and offload of the newest whole state, which a resumed run must keep."""
    for state in reversed(list_states(study.layout.states(model))):
        progress = read_progress(state)
        if progress is not None and "zero_stage" in progress:
            return progress["zero_stage"], progress["offload"]
    return None


def _teacher_parameters(study: Study, teacher: str, settings: Settings) -> int:
    """Number of parameters of the model that an algorithm measures against.

    The teacher is another model of the study. If it is not there yet, its start tells its shape.
    """
    folder = study.folder(teacher, study.last_step(teacher))
    if (folder / "config.json").is_file():
        config = read_config(folder)
    else:
        config = _start_config(study, teacher)
    without_adapters = replace(settings, lora_rank=0)
    return count_base_parameters(make_policy_without_data(config, without_adapters))


def _start_config(study: Study, model: str) -> Any:
    """Configuration of the model that a training starts from, be that trained yet or not.

    A model of the study may start from another (``from_``), and so on: the first whose folder
    exists is read. A chain that ends at random weights has the shape that the first recipe
    describes.
    """
    training = study.models[model].train
    while training is not None and training.from_ is not None:
        start = training.from_
        folder = study.folder(start, study.last_step(start))
        if (folder / "config.json").is_file():
            return read_config(folder)
        model = start
        training = study.models[model].train
    if training is None:
        raise UserError(f"model {model}: no config.json in its folder; bring it there first")
    shape = dict(study.file.recipes[training.recipe].architecture)
    return tiny_config(shape.pop("model_type", "qwen2"), **shape)
