"""What rollouts are sampled with: an engine in the learner's own process, on its device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from rlbhpc.engines.engine import Engine, make_engine

if TYPE_CHECKING:
    from rlbhpc.train.loop import Run


def rollout_engine(run: Run, rows: int) -> Engine:
    """The engine of this rank, with ``rows`` responses side by side."""
    settings = run.settings
    if settings.rollouts == "vllm":
        longest = max(len(prompt.ids) for prompt in run.prompts) + settings.max_tokens
        # Beside other ranks an engine joins the world that they have made.
        joined = {"distributed_executor_backend": "external_launcher"}
        return make_engine(
            "vllm", run.base, rows=rows, dtype=settings.dtype, max_length=longest,
            memory=settings.rollout_memory, options=joined if dist.get_world_size() > 1 else {},
        )  # fmt: skip
    if not torch.cuda.is_available():
        return make_engine("hf", run.base, rows=rows)
    # The learner has made its rank's GPU the current one.
    device = f"cuda:{torch.cuda.current_device()}"
    return make_engine("hf", run.base, rows=rows, device=device, dtype=settings.dtype)
