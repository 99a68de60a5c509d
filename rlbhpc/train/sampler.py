"""What rollouts are sampled with: an engine in the learner's own process, on its device."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.folder import context_length
from rlbhpc.errors import UserError

if TYPE_CHECKING:
    from rlbhpc.train.loop import Run


def rollout_engine(run: Run, rows: int) -> Engine:
    """The engine of this rank, with at most ``rows`` responses side by side."""
    settings = run.settings
    rows = min(rows, settings.responses_per_rank(dist.get_world_size()))
    if settings.rollouts == "vllm":
        return _vllm(run, rows)
    if not torch.cuda.is_available():
        return make_engine("hf", run.base, rows=rows)
    # The learner has made its rank's GPU the current one.
    device = f"cuda:{torch.cuda.current_device()}"
    return make_engine("hf", run.base, rows=rows, device=device, dtype=settings.dtype)


def _vllm(run: Run, rows: int) -> Engine:
    settings = run.settings
    if run.sight is not None and importlib.util.find_spec("torchvision") is None:
        raise UserError(
            "rollouts: vllm shows no images without torchvision; install the build that belongs to "
            "torch, or leave `rollouts` at hf"
        )
    longest = max(map(len, map(run.read, run.prompts))) + settings.max_tokens
    if run.algorithm.MAKES_TASKS:  # of any length
        longest = context_length(run.base)
    # While the learner works, the engine rests and gives back its memory.
    options: dict[str, Any] = {"enable_sleep_mode": torch.cuda.is_available()}
    if dist.get_world_size() > 1:  # the engine joins the world that the ranks have made
        options["distributed_executor_backend"] = "external_launcher"
    try:
        return make_engine(
            "vllm", run.base, rows=rows, dtype=settings.dtype, memory=settings.rollout_memory,
            max_length=min(longest, context_length(run.base)),
            options=options,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(
            "vLLM does not start beside the learner with rollout_memory "
            f"{settings.rollout_memory}: {error}"
        ) from error
