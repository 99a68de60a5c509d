"""One optimiser step on fixed responses; run as a program by `test_step`, on any number of ranks.

Writes the gradient's norm, the gradient and the new weights as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import numpy as np
import torch

from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.batch import Response
from rlbhpc.train.learner import Learner, Update
from rlbhpc.train.settings import Settings


def responses(count: int = 10) -> list[Response]:
    rng = np.random.default_rng(5)
    return [
        Response(
            tuple(rng.integers(0, 250, rng.integers(3, 20)).tolist()),
            rng.integers(0, 250, rng.integers(1, 60)).astype(np.int32),
        )
        for _ in range(count)
    ]


def update(signal: float = 1.0) -> Update:
    every = responses()
    width = max(len(r.token_ids) for r in every)
    advantages = torch.zeros(len(every), width)
    values = np.random.default_rng(6).normal(size=len(every)) * signal
    for i, r in enumerate(every):
        advantages[i, : len(r.token_ids)] = float(values[i])
    return Update(
        responses=every,
        advantages=advantages,
        sampler_logprobs=torch.zeros_like(advantages),
        kept=torch.ones(len(every), dtype=torch.bool),
    )


def learner(
    model: Path,
    zero_stage: int,
    micro_tokens: int,
    aggregation: str = "token",
    ratio: str = "token",
    sampler_cap: float = 0.0,
    **changes: Any,
) -> Learner:
    settings = Settings(
        steps=1, prompts_per_step=2, samples_per_prompt=5, learning_rate=1e-2, max_tokens=64,
        zero_stage=zero_stage, micro_tokens=micro_tokens, sampler_cap=sampler_cap, **changes,
    )  # fmt: skip
    return Learner(model, settings, make_algorithm("grpo", aggregation=aggregation, ratio=ratio))


def weights(of: Learner) -> torch.Tensor:
    return torch.cat([w.flatten().cpu() for _, w in of.named_weights()])


def gradient(of: Learner) -> torch.Tensor:
    """The clipped gradient of the one step that was taken: Adam's first moment over 1 − β₁.

    Weights would be a poor witness: at its first step Adam divides each gradient by its own size,
    which blows the rounding of the smallest ones up to the size of the largest.
    """
    from deepspeed.utils import safe_get_full_optimizer_state

    optimizer = of.policy.optimizer
    if of.policy.zero_optimization_stage():
        parameters = of.policy.module.parameters()
        moments = [safe_get_full_optimizer_state(p, "exp_avg") for p in parameters]
    elif isinstance(optimizer, torch.optim.Optimizer):
        moments = [optimizer.state[p]["exp_avg"] for p in of.policy.module.parameters()]
    else:  # bfloat16: float32 copies of the weights, in an order of DeepSpeed's own
        moments = [state["exp_avg"] for state in optimizer.optimizer.state.values()]
    return torch.cat([moment.flatten().float() for moment in moments]) / (1 - 0.9)


def main() -> None:
    model, out, *cases = sys.argv[1:]
    results = []
    for case in cases:
        stage, budget, *words = case.split(":")
        trained = learner(
            Path(model), int(stage), int(budget), recompute="recompute" in words,
            dtype="bfloat16" if "bfloat16" in words else "float32",
        )  # fmt: skip
        metrics = trained.update(update(), 1)
        tensors = gradient(trained), weights(trained).float()
        results.append((metrics["actor/grad_norm"], *(tensor.tolist() for tensor in tensors)))
    if int(os.environ.get("RANK", "0")) == 0:
        Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
