"""What a training run will do and hold, told before it starts.

Memory is what a rank keeps for certain, part by part. Activations are counted by running one
micro-batch on tensors without data, so any architecture's are right as far as attention does not
keep its matrix; fragmentation and libraries come on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig

from rlbhpc.engines.hf.backend import model_kind
from rlbhpc.engines.tiny import tiny_config
from rlbhpc.errors import UserError
from rlbhpc.study.study import Study
from rlbhpc.train.algorithms.algorithm import Algorithm
from rlbhpc.train.batch import SPREAD, MicroBatch, Response, assemble
from rlbhpc.train.deepspeed_engine import BUCKET
from rlbhpc.train.learner import DTYPES
from rlbhpc.train.lora import adapt, plain_size
from rlbhpc.train.policy import Policy, recompute_layers
from rlbhpc.train.recipes import algorithm_of, rollout_rows, settings_of
from rlbhpc.train.settings import Settings

BYTES = {"float32": 4, "bfloat16": 2}
# What else makes a rank hold less: in every phase, beside vLLM, and while it learns.
AT_ALL: Final = " or a `lora_rank`"
BESIDE: Final = ", a `lora_rank` or a smaller `rollout_memory`"
ALONE: Final = (
    ", a `lora_rank`, `recompute: true`, fewer `micro_tokens` or, for the sampler, fewer `rows` "
    "under `engine.options`"
)
# One mode for a model and what is run on it: views of weights are known by their storage.
FAKE = FakeTensorMode(allow_non_fake_inputs=True)


@dataclass(frozen=True)
class Forecast:
    """One training run, before it starts.

    Attributes
    ----------
    work
        What is sampled and updated, by name: counts over the whole run.
    memory
        Bytes that one rank holds, by part.
    flop
        Operations of the whole run at most: 2 per parameter and token that is read or sampled, 6
        that is trained on (Kaplan et al. 2020, arXiv 2001.08361), 4 where the parameter stands
        still, attention left out. None for supervised training, whose texts have the length that
        they have.
    share
        Share of a device's memory that is left to training while vLLM samples; while the learner
        works it has all of it.
    handed
        Bytes of the weights that vLLM has of its own.
    """

    model: str
    algorithm: str
    parameters: int
    ranks: int
    work: Mapping[str, int]
    memory: Mapping[str, int]
    flop: float | None
    share: float = 1.0
    handed: int = 0

    @property
    def total(self) -> int:
        """Bytes of one rank in all."""
        return sum(self.memory.values())

    def refuse_above(self, limit: int) -> None:
        """Refuse what cannot fit, with the numbers and what would make it smaller."""
        vllm = limit * (1 - self.share)
        if self.handed > vllm:
            raise UserError(
                f"model {self.model}: `rollout_memory` gives vLLM {vllm / 2**30:.1f} GiB, and its "
                f"weights alone take {self.handed / 2**30:.1f}; it has to be larger"
            )
        lasting = {name: size for name, size in self.memory.items() if name != "activations"}
        # vLLM's weights, and what they are copied from.
        handing = lasting | {"weights handed to vLLM": 2 * self.handed}
        for phase, memory, left, less in (
            ("", self.memory, float(limit), ALONE),
            ("while vLLM samples, ", lasting, limit * self.share, BESIDE),
            ("while vLLM gets its weights, ", handing, float(limit), AT_ALL),
        ):
            held = sum(memory.values())
            if held <= left:
                continue
            parts = sorted(memory.items(), key=lambda part: -part[1])
            largest = ", ".join(f"{name} {size / 2**30:.1f}" for name, size in parts[:3])
            raise UserError(
                f"model {self.model}: {phase}one rank holds {held / 2**30:.1f} GiB at least and "
                f"has {left / 2**30:.1f}; the largest parts are {largest} GiB. More ranks, "
                f"`zero_stage: 3`, `offload: true`{less} make it less"
            )


def forecast(study: Study, model: str, ranks: int) -> Forecast:
    """Tell what training ``model`` on so many ranks will do and hold."""
    training = study.models[model].train
    if training is None:
        raise UserError(f"model {model} is not trained by this study")
    recipe = study.file.recipes[training.recipe]
    steps = study.last_step(model)
    algorithm, settings = algorithm_of(recipe), settings_of(recipe, steps)
    policy = without_data(_config(study, model), settings)
    parameters, work = (plain_size(policy), _trained(policy)), _work(settings, algorithm)
    beside = settings.rollouts == "vllm"
    return Forecast(
        model, recipe.algorithm, parameters[0], ranks, work,
        memory_of(policy, settings, algorithm, ranks, rollout_rows(study)),
        _flop(parameters, work, settings, algorithm),
        share=1 - settings.rollout_memory if beside else 1.0,
        handed=parameters[0] * BYTES[settings.dtype] if beside else 0,
    )  # fmt: skip


def _size(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _trained(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def without_data(config: Any, settings: Settings) -> Policy:
    """The policy with shapes and types alone: a model of any size costs nothing."""
    with FAKE:
        model = model_kind(config).from_config(config, dtype=DTYPES[settings.dtype])
        if settings.lora_rank:
            adapt(model, settings.lora_rank, settings.seed)
        return Policy(model)


def _work(settings: Settings, algorithm: Algorithm | None) -> dict[str, int]:
    per_step = settings.prompts_per_step * settings.samples_per_prompt
    updates = settings.epochs * (per_step // settings.responses_per_update)
    work = {"steps": settings.steps}
    if algorithm is None:
        return work | {"pairs": settings.steps * per_step, "updates": settings.steps}
    greedy = settings.prompts_per_step if algorithm.NEEDS_GREEDY else 0
    return work | {
        "prompts": settings.steps * settings.prompts_per_step,
        "responses": settings.steps * (per_step + greedy),
        "updates": settings.steps * updates,
        "response tokens at most": settings.steps * (per_step + greedy) * settings.max_tokens,
    }


def _flop(
    parameters: tuple[int, int],
    work: Mapping[str, int],
    settings: Settings,
    algorithm: Algorithm | None,
) -> float | None:
    """Operations of a run over ``parameters``: all of them, and those that learn."""
    if algorithm is None:
        return None
    every, learning = parameters
    tokens = work["responses"] * settings.max_tokens
    # Old log-probs are read again where an update is not exactly on-policy.
    read = settings.epochs * work["steps"] < work["updates"] or settings.epochs > 1
    reference = bool(settings.kl_loss or algorithm.kl_beta)
    trained = settings.epochs * (2 if algorithm.NEEDS_CRITIC else 1)
    once = every * (2.0 + 2 * read + 2 * reference + 4 * trained)
    return tokens * (once + 2.0 * learning * trained)


def memory_of(
    policy: Policy, settings: Settings, algorithm: Algorithm | None, ranks: int, rows: int
) -> dict[str, int]:
    """Bytes that one rank holds, by part, where ``rows`` responses are sampled at a time."""
    config, parameters = policy.model.config.get_text_config(), plain_size(policy)
    memory = _states("policy", _size(policy), _trained(policy), settings, ranks)
    width = settings.micro_tokens
    if algorithm is not None:
        width = min(width, settings.max_tokens)
        if algorithm.NEEDS_CRITIC:
            body, learning = policy.model.base_model, config.hidden_size
            sizes = _size(body) + learning, _trained(body) + learning
            memory |= _states("critic", *sizes, settings, ranks)
        if settings.kl_loss or algorithm.kl_beta:
            memory["reference weights"] = parameters * BYTES[settings.dtype]
        if settings.rollouts == "hf":
            memory["sampler weights"] = parameters * BYTES[settings.dtype]
            most = min(rows, settings.responses_per_rank(ranks))
            memory["sampler cache"] = _cache(config, settings, most)
    batch = _largest_batch(settings, width, ranks)
    memory["activations"] = _activations(policy, settings, batch)
    if settings.recompute:
        recompute_layers(policy.model)
        between = _activations(policy, settings, batch)
        # The layer whose gradient is due has its own again.
        inside = (memory["activations"] - between) // config.num_hidden_layers
        memory["activations"] = between + inside
    return memory


def _states(
    name: str, parameters: int, learning: int, settings: Settings, ranks: int
) -> dict[str, int]:
    """Weights, gradients and optimiser of one trained module, as the ZeRO stage divides them.

    DeepSpeed keeps 32-bit master weights beside 16-bit ones, and gradients are added up in 32 bits
    wherever a ZeRO stage or 16-bit weights ask for it (Rajbhandari et al. 2020, arXiv 1910.02054).
    """
    stage, size = settings.zero_stage, BYTES[settings.dtype]

    def share(count: int, byte: int, from_stage: int) -> int:
        return count * byte // (ranks if stage >= from_stage else 1)

    moments = share(learning, 8 if size == 4 and not stage else 12, 1)
    return {
        f"{name} weights": share(parameters, size, 3),
        f"{name} gradients": share(learning, 4, 2),
        f"{name} optimiser": 0 if settings.offload else moments,
        f"{name} buffer": min(BUCKET, learning) * size if stage else 0,
    }


def _cache(config: Any, settings: Settings, rows: int) -> int:
    """Keys and values of all rows at their longest, the prompts left out."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tokens = rows * settings.max_tokens
    return int(2 * config.num_hidden_layers * heads * head * tokens * BYTES[settings.dtype])


def _largest_batch(settings: Settings, width: int, ranks: int) -> MicroBatch:
    """The full micro-batch that takes most: prompts apart, and as much padding as there can be."""
    shorter = math.ceil(width / SPREAD)
    room = max(0, settings.micro_tokens - width) // shorter
    others = min(room, -(-settings.responses_per_update // ranks) - 1)
    responses = [
        Response((i,), np.zeros(n, np.int32)) for i, n in enumerate([width] + [shorter] * others)
    ]
    return assemble(responses, np.arange(len(responses)))


def _activations(policy: Policy, settings: Settings, batch: MicroBatch) -> int:
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


def _config(study: Study, model: str) -> Any:
    """Configuration of the model that a training starts from, trained itself or not yet."""
    while (training := study.models[model].train) is not None and training.from_ is not None:
        model = training.from_
        folder = study.folder(model, study.last_step(model))
        if (folder / "config.json").is_file():
            return AutoConfig.from_pretrained(folder)
    if training is None:
        raise UserError(f"model {model}: no config.json in its folder; bring it there first")
    shape = dict(study.file.recipes[training.recipe].architecture)
    return tiny_config(shape.pop("model_type", "qwen2"), **shape)


def device_memory() -> int:
    """Bytes of this process's GPU; 0 where there is none."""
    return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else 0
