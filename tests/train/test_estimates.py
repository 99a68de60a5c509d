"""Work and memory of a training that is still to come, against formulas worked out by hand."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from rlbhpc.engines.tiny import tiny_config
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.forecast import (
    _largest_batch,
    count_memory,
    count_work,
    make_policy_without_data,
)
from rlbhpc.train.settings import Settings

pytestmark = pytest.mark.engine


def settings(**changes: Any) -> Settings:
    sizes = {"steps": 5, "prompts_per_step": 6, "samples_per_prompt": 4, "max_tokens": 16}
    return Settings(**{**sizes, **changes})


@pytest.mark.parametrize(
    ("algorithm", "changes", "expected"),
    [
        ("grpo", {}, (5, 30, 120, 5)),
        ("grpo", {"mini_batch": 8, "epochs": 3}, (5, 30, 120, 45)),
        ("remax", {"mini_batch": 12}, (5, 30, 150, 10)),
        ("dapo", {}, (5, 30, 120, 5)),
    ],
)
def test_work_is_counted_in_prompts_responses_and_updates(
    algorithm: str, changes: dict[str, int], expected: tuple[int, ...]
) -> None:
    work = count_work(settings(**changes), make_algorithm(algorithm))
    refilled = work.pop("responses of refills at most", 0)
    assert refilled == (10 * expected[2] if algorithm == "dapo" else 0)
    assert work == dict(
        zip(("steps", "prompts", "responses", "updates"), expected, strict=True)
    ) | {"response tokens at most": (expected[2] + refilled) * 16}
    assert count_work(settings(), None) == {"steps": 5, "pairs": 120, "updates": 5}


def held(algorithm: str | None, ranks: int = 1, rows: int = 256, **changes: Any) -> dict[str, int]:
    given = settings(**changes)
    policy = make_policy_without_data(tiny_config("qwen2"), given)
    chosen = None if algorithm is None else make_algorithm(algorithm)
    return count_memory(policy, given, chosen, ranks, rows)


# Parameters of the tiny model: embedding and output layer; per layer queries, keys and values with
# biases, output, three of the MLP and two norms; the last norm.
HEAD = 259 * 64
BODY = HEAD + 2 * (64 * 64 + 64 + 2 * (64 * 32 + 32) + 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
SIZE = BODY + HEAD


@pytest.mark.parametrize(
    ("stage", "dtype", "offload", "per_parameter"),
    [
        # Weights, gradients, optimiser and buffer, on four ranks.
        (0, "float32", False, (4, 4, 8, 0)),
        (0, "bfloat16", False, (2, 4, 12, 0)),
        (1, "float32", False, (4, 4, 3, 4)),
        (2, "bfloat16", False, (2, 1, 3, 2)),
        (2, "bfloat16", True, (2, 1, 0, 2)),
        (0, "bfloat16", True, (2, 1, 0, 2)),
        (3, "bfloat16", False, (0.5, 1, 3, 2)),
    ],
)
def test_training_states_are_divided_as_the_stage_says(
    stage: int, dtype: str, offload: bool, per_parameter: tuple[float, ...]
) -> None:
    memory = held("ppo", 4, zero_stage=stage, dtype=dtype, offload=offload)
    for name, size in (("policy", SIZE), ("critic", BODY + 64)):
        parts = [
            memory[f"{name} {part}"] for part in ("weights", "gradients", "optimiser", "buffer")
        ]
        assert parts == [int(size * each) for each in per_parameter]
    assert memory.get("gathered weights") == ((2 * SIZE) if stage == 3 else None)
    assert "reference weights" not in memory


def test_sampler_and_reference_are_beside_the_policy() -> None:
    memory = held("grpo", kl_loss=0.1, lora_rank=2, dtype="bfloat16")
    assert memory["reference weights"] == memory["sampler weights"] == 2 * SIZE
    # Keys and values: layers, heads of 32 and the tokens of all rows; 24 responses are sampled.
    assert memory["sampler cache"] == 2 * 2 * 32 * (24 * 16) * 2
    assert held("grpo", rows=10)["sampler cache"] == 2 * 2 * 32 * (10 * 16) * 4
    # Six prompts on four ranks: one has two of them.
    assert held("grpo", ranks=4)["sampler cache"] == 2 * 2 * 32 * (2 * 4 * 16) * 4
    beside = {"sampler weights", "sampler cache", "reference weights"}
    assert not beside & held("grpo", rollouts="vllm").keys()
    assert not beside & held(None).keys()
    learning = 2 * 2 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128))
    assert memory["policy gradients"] == 4 * learning
    assert memory["policy weights"] == 2 * (SIZE + learning)


def test_the_output_layer_holds_a_chunk_and_its_own_gradient() -> None:
    """Sixteen bytes of a logit, of 67,108,864 at a time; the gradient grows in 32 bits."""
    assert held("grpo", micro_tokens=1)["output layer"] == 16 * 259 * 16 + HEAD * 4
    rows = (1 << 26) // 259
    long: dict[str, Any] = {"max_tokens": rows + 1, "micro_tokens": 1, "dtype": "bfloat16"}
    assert held("grpo", **long)["output layer"] == rows * 259 * 16 + HEAD * 4
    long["max_tokens"] = rows
    assert held("grpo", **long)["output layer"] == rows * 259 * 16 + HEAD * 2
    assert held("grpo", **long, lora_rank=2)["output layer"] == rows * 259 * 16


@pytest.mark.parametrize(
    ("width", "micro_tokens", "mini_batch", "ranks", "lengths"),
    [
        (60, 100, 0, 1, [60, 40]),
        (60, 99, 0, 1, [60]),
        (60, 59, 0, 1, [60]),
        (60, 220, 0, 1, [60, 40, 40, 40, 40]),
        (60, 220, 0, 8, [60, 40, 40]),
        (60, 220, 1, 1, [60]),
    ],
)
def test_the_largest_micro_batch_is_full_and_padded_most(
    width: int, micro_tokens: int, mini_batch: int, ranks: int, lengths: list[int]
) -> None:
    given = settings(micro_tokens=micro_tokens, mini_batch=mini_batch)
    batch = _largest_batch(given, width, ranks)
    assert batch.lengths.tolist() == lengths
    assert batch.input_ids.numel() == sum(lengths)
    assert len(batch.attention_rows) == 1


def test_recomputed_layers_keep_what_goes_into_them_and_one_of_them_whole() -> None:
    kept = {
        recompute: held("grpo", recompute=recompute, micro_tokens=64)["activations"]
        for recompute in (False, True)
    }
    assert held("grpo", recompute=False, micro_tokens=64)["activations"] == kept[False]
    assert kept[True] < kept[False]


def test_what_stands_still_does_not_learn() -> None:
    policy = make_policy_without_data(tiny_config("qwen2"), settings())
    assert policy.model.num_parameters(only_trainable=True) == SIZE
