"""Memory and seconds of a training step on GPUs, calculated: two tables of docs/sizing.md.

Memory is what ``rlbhpc train --dry-run`` forecasts. Seconds follow from rates that the page states,
so that a reader can put in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from transformers import Qwen2Config

from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.forecast import count_memory, make_policy_without_data
from rlbhpc.train.policy import count_base_parameters
from rlbhpc.train.settings import Settings

#: From the published config.json of each Qwen2.5.
SHAPES: Final[dict[str, dict[str, int]]] = {
    "7B": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
    },
    "32B": {
        "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 152_064,
    },
    "72B": {
        "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152_064,
    },
}  # fmt: skip
LONGEST: Final = 16_384
#: Parts of a forecast in the order of the table's columns.
PARTS: Final = (
    "policy weights", "policy gradients", "policy optimiser", "policy buffer", "output layer",
    "gathered weights", "activations",
)  # fmt: skip


@dataclass(frozen=True)
class Card:
    """A GPU: GiB, then per second: operations in bfloat16, bytes of its memory, of its network."""

    name: str
    memory: float
    operations: float
    reads: float
    network: float


# Published peaks, and the network of a usual node of each: 400 and 200 Gbit for a GPU.
H100: Final = Card("H100", 80, 989e12, 3.35e12, 50e9)
A800: Final = Card("A800", 80, 312e12, 2.04e12, 25e9)
#: Shares of a peak that are reached: by training, by reading a prompt or a response, by memory. The
#: first two are an H200's (docs/gpu.md, part ``rates``), whose operations are the H100's.
TRAINS, READS, MOVES = 0.37, 0.4, 0.7
#: What vLLM has of a GPU while it samples, where a recipe does not say.
SHARE: Final = Settings(steps=1).rollout_memory


@dataclass(frozen=True)
class Case:
    """A training on GPUs: its division, its rollout, and what of a GPU vLLM has while it samples.

    ``drawn`` is how many responses are sampled for each that is trained on.
    """

    model: str
    card: Card
    ranks: int
    stage: int
    responses: int
    updates: int
    vllm: float
    mean: int = 4096
    drawn: float = 1.0
    offload: bool = False
    gpus_per_sampler: int = 1
    lora_rank: int = 0

    @property
    def settings(self) -> Settings:
        """What the recipe would say."""
        return Settings(
            steps=1, prompts_per_step=self.responses // 16, samples_per_prompt=16,
            mini_batch=self.responses // self.updates if self.updates > 1 else 0,
            max_tokens=LONGEST, micro_tokens=LONGEST, dtype="bfloat16", recompute=True,
            rollouts="vllm", zero_stage=self.stage, offload=self.offload,
            lora_rank=self.lora_rank, rollout_tensor_parallel=self.gpus_per_sampler,
        )  # fmt: skip


MEMORY: Final = (
    Case("7B", H100, 8, 2, 2048, 1, SHARE),
    Case("7B", H100, 8, 3, 2048, 1, SHARE),
    Case("7B", H100, 2, 3, 2048, 1, SHARE, offload=True),
    Case("32B", H100, 32, 3, 2048, 1, 0.86),
    Case("32B", H100, 128, 3, 8192, 16, 0.86),
    Case("32B", H100, 8, 3, 2048, 1, SHARE, offload=True, gpus_per_sampler=8),
    Case("32B", H100, 16, 3, 2048, 1, SHARE, gpus_per_sampler=8),
    Case("72B", H100, 64, 3, 2048, 1, SHARE, gpus_per_sampler=8),
    Case("72B", H100, 8, 3, 2048, 1, SHARE, gpus_per_sampler=8, lora_rank=32),
)
SECONDS: Final = (
    Case("7B", H100, 8, 2, 2048, 1, SHARE),
    Case("7B", H100, 32, 2, 2048, 1, SHARE),
    Case("32B", H100, 128, 3, 8192, 1, 0.86),
    Case("32B", H100, 128, 3, 8192, 16, 0.86),
    Case("32B", A800, 128, 3, 8192, 16, 0.86, drawn=2.0),
)


@cache
def parameters(model: str) -> int:
    return count_base_parameters(
        make_policy_without_data(Qwen2Config(**SHAPES[model]), MEMORY[0].settings)
    )


def memory_rows() -> Iterator[str]:
    """GiB of one GPU by part."""
    yield from head(
        "model", "GPUs", "ZeRO", "weights", "gradients", "optimiser", "buffer", "output layer",
        "gathered", "activations", "together", "vLLM's weights",
    )  # fmt: skip
    for case in MEMORY:
        policy = make_policy_without_data(Qwen2Config(**SHAPES[case.model]), case.settings)
        held = count_memory(policy, case.settings, make_algorithm("grpo"), case.ranks, rows=256)
        assert set(held) <= set(PARTS), held.keys()
        sizes = [*(held.get(part, 0) for part in PARTS), sum(held.values())]
        sizes.append(2 * parameters(case.model) // case.gpus_per_sampler)
        stage = f"{case.stage}, offload" if case.offload else str(case.stage)
        name = f"{case.model} LoRA" if case.lora_rank else case.model
        cells = [name, str(case.ranks), stage]
        yield row(cells + [f"{size / 2**30:.1f}" for size in sizes])


def seconds_rows() -> Iterator[str]:
    """Seconds of a step by phase."""
    yield from head(
        "model", "GPUs", "responses", "updates", "sampling", "of it the tail", "old log-probs",
        "training", "new weights", "step",
    )  # fmt: skip
    for case in SECONDS:
        phases = seconds(case)
        whole = sum(phases) - phases[1]
        cells = [case.model, f"{case.ranks} {case.card.name}"]
        sampled = f" of {case.responses * case.drawn:,.0f}" if case.drawn > 1 else ""
        cells += [f"{case.responses:,}{sampled}", str(case.updates)]
        yield row(cells + [f"{value:,.0f}" for value in (*phases, whole)])


def seconds(case: Case) -> tuple[float, float, float, float, float]:
    """Sampling, the part of it in which only the longest run, old log-probs, training, weights."""
    shape, card = SHAPES[case.model], case.card
    layers, width = shape["num_hidden_layers"], shape["hidden_size"]
    weights = 2.0 * parameters(case.model)
    cached = 4.0 * layers * width * shape["num_key_value_heads"] / shape["num_attention_heads"]
    tokens = case.responses * case.mean / case.ranks
    # Lengths fall off exponentially: a token of a response sees `mean` before it on average.
    forward = weights + 4.0 * layers * width * case.mean

    free = case.vllm * card.memory * 2**30 - weights
    rows = min(case.drawn * case.responses / case.ranks, free / (cached * case.mean))
    in_waves = case.drawn * tokens / rows
    turns = max(float(LONGEST), in_waves)
    read = (turns * weights + case.drawn * tokens * case.mean * cached) / (MOVES * card.reads)
    sampling = read + case.drawn * tokens * forward / (READS * card.operations)
    tail = (turns - in_waves) * weights / (MOVES * card.reads)

    old = tokens * forward / (READS * card.operations) if case.updates > 1 else 0.0
    # Forward, forward again where layers are recomputed, and backward, which is two of them.
    training = 4 * tokens * forward / (TRAINS * card.operations)
    if case.stage == 3:  # gathered for each pass over each micro-batch
        passes = 3 * max(case.updates, tokens / LONGEST) + (case.updates > 1) * tokens / LONGEST
        training += passes * weights / (MOVES * card.network)
    else:
        training += case.updates * 2 * weights / (MOVES * card.network)
    sync = weights / (MOVES * card.network) + 2 * weights / (MOVES * card.reads)
    return sampling, tail, old, training, sync


def head(*columns: str) -> list[str]:
    return [row(columns), "|" + "---|" * len(columns)]


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
