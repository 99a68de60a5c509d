"""DeepSpeed, reduced to what training here needs of it."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import time
from argparse import Namespace
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

import click
import deepspeed
import torch
import torch.distributed as dist
from deepspeed import ops
from deepspeed.checkpoint.ds_to_universal import main as convert
from torch import Tensor, nn

from rlbhpc.errors import UserError
from rlbhpc.train.settings import Settings

# Elements of the buffer in which ZeRO reduces gradients: DeepSpeed's own choice, 2 GB in 32 bits. A
# smaller model takes no more than it has.
BUCKET: Final = 500_000_000
# How long ranks wait for each other: the longest response of a rollout, or one rank that puts a
# state together, takes longer than DeepSpeed's 10 minutes. A rank that ends takes the others along.
PATIENCE: Final = timedelta(hours=12)


def init_ranks() -> None:
    """Join the ranks that torchrun or srun started; alone, be a world of one."""
    if "RANK" not in os.environ:
        # Every DeepSpeed engine asks for it. A launch in this process puts the environment back as
        # it was when it ends, while the world of one stays.
        os.environ["LOCAL_RANK"] = "0"
    if dist.is_initialized():
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if "RANK" not in os.environ:
        # Nobody else is to be met: no address is needed, and none is left to child processes.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    # A faster all-reduce between ranks of one CPU host, which DeepSpeed would compile at first use:
    # over a minute, and a compiler on every node, for what only tests and toys run on.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=backend, verbose=False, timeout=PATIENCE)
    if backend == "gloo":
        # A rank that ends while gloo's threads run is aborted now and then, its work done. NCCL
        # bears it, and would make a rank that failed wait for those that did not.
        atexit.register(_leave_group)


def _leave_group() -> None:
    """Leave, and wait until gloo's threads have nothing left to do, with Python's lock free.

    They go on after their group was destroyed, for DeepSpeed holds it in many places. One that lets
    go of its last tensor only when the interpreter has begun to end is ended for wanting the lock,
    and the process with it (pytorch#179291, pytorch#190489).
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    deadline, seen_asleep = time.monotonic() + 10, 0  # seconds, lest an end wait for ever
    while seen_asleep < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
        seen_asleep = seen_asleep + 1 if _gloo_sleeps() else 0


def _gloo_sleeps() -> bool:
    """Whether the system has every thread that works off collectives asleep; if unknown, yes."""
    for thread in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):
            name, _, state = thread.read_text().partition("(")[2].rpartition(") ")
            if name == "pt_gloo_runloop" and not state.startswith("S"):
                return False
    return True


def wrap(module: nn.Module, settings: Settings) -> Any:
    """Give a module to DeepSpeed with AdamW; its rate is set at every step.

    Accumulation is unmanaged: any number of ``backward`` calls, then one ``step``. The losses carry
    the one global constant themselves (see ``losses.row_weights``), so DeepSpeed may not divide by
    an accumulation count of its own.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    stage = settings.running_stage
    zero: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": min(BUCKET, sum(p.numel() for p in trained)),
    }
    if settings.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    plain = stage == 0 and settings.dtype == "float32"
    config: dict[str, Any] = {
        # DeepSpeed asks for it at start and uses none of it in unmanaged accumulation.
        "train_micro_batch_size_per_gpu": 1,
        "managed_gradient_accumulation": False,
        # Of a plain optimiser the clipping is ours, see below.
        "gradient_clipping": 0.0 if plain else settings.grad_clip,
        "zero_optimization": zero,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": 0.0, "weight_decay": settings.weight_decay, "torch_adam": True, "fused": True,
            },
        },
        "steps_per_print": 10**9,
    }  # fmt: skip
    if stage >= 1:
        # Gradients would accumulate in the model's dtype: the stages would disagree in bfloat16.
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    engine, *_ = deepspeed.initialize(model=module, model_parameters=trained, config=config)

    def clip(optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        most = settings.grad_clip or math.inf
        optimizer._global_grad_norm = nn.utils.clip_grad_norm_(parameters, most)

    # DeepSpeed's own optimisers (ZeRO's, and that of bfloat16) clip and keep the norm. Around a
    # plain one DeepSpeed throws it away, so there the clipping is done here, after the ranks'
    # gradients are reduced and before the optimiser reads them; the norm is kept as theirs is.
    if plain:
        engine.optimizer.register_step_pre_hook(clip)
    elif stage == 0:
        # DeepSpeed would add these up in 16 bits, where a long sum no longer grows, and has counted
        # a step of its own, which made room for Adam's moments.
        for parameter in trained:
            parameter.grad_dtype = torch.float32
        for state in engine.optimizer.optimizer.state.values():
            state["step"].zero_()
    return engine


def gather_shards(engine: Any, parameters: list[Tensor]) -> Any:
    """Context in which ZeRO-3's shards of ``parameters`` are whole; every rank must enter it."""
    sharded = engine.zero_optimization_stage() == 3
    return deepspeed.zero.GatheredParameters(parameters, enabled=sharded)


def save(engine: Any, folder: Path, tag: str) -> None:
    """Save weights that learn and their optimiser as ``tag``; frozen ones are read from the start.

    Every rank must call it.
    """
    engine.save_checkpoint(str(folder), tag=tag, exclude_frozen_parameters=True)


def load(engine: Any, folder: Path, tag: str, saved_ranks: int) -> None:
    """Load the state ``tag`` that ``saved_ranks`` ranks saved, on however many there are now.

    ZeRO's files hold one rank's part each. For another number of ranks they are put together into
    DeepSpeed's universal form first, which any number can read; it is removed again.
    """
    whole = folder / f"{tag}-universal"
    _remove_universal(whole)
    # Parameters that stand still are in no state.
    strict = all(parameter.requires_grad for parameter in engine.module.parameters())
    if saved_ranks == dist.get_world_size() or engine.zero_optimization_stage() == 0:
        engine.load_checkpoint(str(folder), tag=tag, load_module_strict=strict)
        return
    if dist.get_rank() == 0:
        click.echo(f"{folder}: putting the parts of {saved_ranks} ranks together", err=True)
        _convert_to_universal(folder / tag, whole, saved_ranks)
    dist.barrier()
    engine._config.load_universal_checkpoint = True
    engine.load_checkpoint(str(folder), tag=whole.name, load_module_strict=strict)
    engine._config.load_universal_checkpoint = False
    for parameter, state in engine.optimizer.optimizer.state.items():
        # DeepSpeed leaves one count of steps, on the CPU, to all groups of ZeRO-3 together: a fused
        # optimiser wants it on the device, and would count it up once per group.
        state["step"] = state["step"].to(parameter.device, copy=True)
    dist.barrier()
    _remove_universal(whole)


def _convert_to_universal(parts: Path, whole: Path, ranks: int) -> None:
    """Join the ranks' parts of a saved state into one form that any number of ranks reads."""
    wanted = Namespace(
        input_folder=str(parts), output_folder=str(whole), num_extract_workers=1,
        num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True,
    )  # fmt: skip
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            convert(wanted)
    except KeyError:
        raise UserError(
            f"{parts}: no optimiser step was taken before this state was saved, and such a state "
            f"cannot be dealt out to other ranks; go on with {ranks} ranks for a step"
        ) from None


def _remove_universal(whole: Path) -> None:
    """Remove a universal form, be it used up or left by a run that was killed in between."""
    if dist.get_rank() == 0:
        shutil.rmtree(whole, ignore_errors=True)
        whole.with_name("latest_universal").unlink(missing_ok=True)


def all_sum(values: Tensor) -> Tensor:
    """Sum of a tensor over all ranks."""
    total = values.clone()
    dist.all_reduce(total)
    return total


def any_rank(flag: bool) -> bool:
    """Whether the flag is up on any rank: all stop together or none."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return bool(all_sum(torch.tensor([int(flag)], device=device)).item())
