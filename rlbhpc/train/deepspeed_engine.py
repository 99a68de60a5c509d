"""DeepSpeed, reduced to what training here needs of it."""

from __future__ import annotations

import atexit
import math
import os
import re
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

import click
import deepspeed
import torch
import torch.distributed as dist
from deepspeed import ops
from deepspeed.checkpoint import ds_to_universal
from torch import Tensor, nn
from transformers.integrations.deepspeed import (
    set_hf_deepspeed_config,
    unset_hf_deepspeed_config,
)

from rlbhpc.errors import UserError
from rlbhpc.train.settings import Settings

# Elements of the buffer in which ZeRO reduces gradients: DeepSpeed's own choice, 2 GB in 32 bits. A
# smaller model takes no more than it has.
BUCKET_ELEMENTS: Final = 500_000_000
# How long ranks wait for each other: the longest response of a rollout, or one rank that puts a
# state together, takes longer than DeepSpeed's 10 minutes. A rank that ends takes the others along.
COLLECTIVE_TIMEOUT: Final = timedelta(hours=12)
# How long the end of a process may wait for gloo's threads.
GLOO_SECONDS: Final = 10.0


def init_ranks() -> None:
    """Join the ranks that torchrun or srun started; without any, become a group of one.

    A rank is one of the processes that train together, each with its own GPU.
    """
    has_launcher = "RANK" in os.environ
    if not has_launcher:
        # Every DeepSpeed engine asks for it. A launch in this process puts the environment back as
        # it was when it ends, while the group of one stays.
        os.environ["LOCAL_RANK"] = "0"
    if dist.is_initialized():
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if not has_launcher:
        # A store in memory needs no address, so child processes inherit none.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    # A faster all-reduce between ranks of one CPU host, which DeepSpeed would compile at first use:
    # over a minute, and a compiler on every node, for what only tests and toys run on.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=backend, verbose=False, timeout=COLLECTIVE_TIMEOUT)
    if backend == "gloo":
        # A process that ends while gloo's threads run is sometimes aborted. NCCL has no such
        # problem, and leaving its group would make a failed rank wait for the others.
        atexit.register(_leave_gloo_group)


def _leave_gloo_group() -> None:
    """Destroy the process group, and wait until gloo's threads have nothing left to do.

    gloo is the library by which ranks exchange data on CPUs. DeepSpeed holds references to the
    group, so its threads outlive it. A thread that releases its last tensor while the interpreter
    ends is killed as it asks for the interpreter's lock, and the process is aborted with it
    (pytorch#179291, pytorch#190489). The threads must be found asleep three times in a row.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    deadline = time.monotonic() + GLOO_SECONDS
    asleep_in_a_row = 0
    while asleep_in_a_row < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
        asleep_in_a_row = asleep_in_a_row + 1 if _gloo_threads_sleep() else 0


def _gloo_threads_sleep() -> bool:
    """Whether Linux says that each gloo thread of this process sleeps; True on other systems.

    gloo is the library by which ranks exchange data on CPUs. State S is a sleeping thread.
    """
    for stat_file in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            # The file reads: thread id (name) state …
            thread = re.match(r"\d+ \((.*)\) (\w)", stat_file.read_text())
            if thread and thread[1] == "pt_gloo_runloop" and thread[2] != "S":
                return False
    return True


class DividedLoading:
    """Tells transformers, which asks while it loads a model, to let ZeRO-3 divide the weights."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Keep DeepSpeed's configuration, which transformers hands to ``zero.Init``."""
        self.config = config

    def is_zero3(self) -> bool:
        """Whether weights are divided among the ranks."""
        return True


@contextmanager
def divide_while_loading(settings: Settings) -> Iterator[None]:
    """Let a model that transformers reads in this context be divided at once under ZeRO-3.

    Rank 0 reads the files, weight by weight, and no rank holds more than its share and the weights
    of one layer. At other stages nothing changes.
    """
    if settings.running_stage < 3:
        yield
        return
    # transformers keeps a weak reference, so this name has to stay.
    loading = DividedLoading(_engine_config(settings, BUCKET_ELEMENTS))
    set_hf_deepspeed_config(loading)
    try:
        yield
    finally:
        unset_hf_deepspeed_config()


def wrap_frozen(module: nn.Module, settings: Settings) -> Any:
    """Give a module that does not learn to DeepSpeed, which gathers its weights layer by layer.

    ZeRO-3 has divided them among the ranks. At other stages each rank keeps the module whole.
    """
    if settings.running_stage < 3:
        return module
    config = _engine_config(settings, BUCKET_ELEMENTS)
    del config["optimizer"], config["zero_optimization"]["reduce_bucket_size"]
    config["zero_optimization"].pop("offload_optimizer", None)
    engine, *_ = deepspeed.initialize(model=module, config=config)
    return engine


def wrap(module: nn.Module, settings: Settings) -> Any:
    """Give a module to DeepSpeed with AdamW, whose learning rate the caller sets at every step.

    The ZeRO stage says what ranks divide among them: nothing (0), optimiser (1), gradients (2),
    weights (3). Any number of ``backward`` calls is followed by one ``step``. The losses carry the
    one global constant themselves (see ``row_weights``), so DeepSpeed may not divide by an
    accumulation count of its own. A plain optimiser is PyTorch's own, without one of DeepSpeed's
    around it.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    stage = settings.running_stage
    # A weight that is divided already says itself how many numbers it has in all.
    config = _engine_config(settings, sum(getattr(p, "ds_numel", p.numel()) for p in trained))
    engine, *_ = deepspeed.initialize(model=module, model_parameters=trained, config=config)
    if _has_plain_optimizer(settings):
        engine.optimizer.register_step_pre_hook(_make_clipping_hook(settings.grad_clip))
    elif stage == 0:
        # DeepSpeed would add these up in 16 bits, where a long sum no longer grows, and has counted
        # a step of its own, which made room for Adam's moments.
        for parameter in trained:
            parameter.grad_dtype = torch.float32
        for state in optimizer_states(engine):
            state["step"].zero_()
    return engine


def _has_plain_optimizer(settings: Settings) -> bool:
    """Whether PyTorch's optimiser runs as it is, without one of DeepSpeed's around it."""
    return settings.running_stage == 0 and settings.dtype == "float32"


def _engine_config(settings: Settings, n_trained: int) -> dict[str, Any]:
    """DeepSpeed's configuration for a module of which ``n_trained`` numbers learn.

    The ZeRO stage says what ranks divide among them: nothing (0), optimiser (1), gradients (2),
    weights (3). The learning rate of 0 is replaced at every step.
    """
    stage = settings.running_stage
    zero: dict[str, Any] = {
        "stage": stage,
        "reduce_bucket_size": min(BUCKET_ELEMENTS, n_trained),
    }
    if settings.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    adam = {
        "lr": 0.0,
        "weight_decay": settings.weight_decay,
        "torch_adam": True,
        "fused": True,
    }
    config: dict[str, Any] = {
        # DeepSpeed asks for it at start and uses none of it in unmanaged accumulation.
        "train_micro_batch_size_per_gpu": 1,
        "managed_gradient_accumulation": False,
        # A plain optimiser is clipped by our own hook.
        "gradient_clipping": 0.0 if _has_plain_optimizer(settings) else settings.grad_clip,
        "zero_optimization": zero,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "optimizer": {"type": "AdamW", "params": adam},
        "steps_per_print": 10**9,
    }
    if stage >= 1:
        # Gradients would accumulate in the model's dtype: the stages would disagree in bfloat16.
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


def _make_clipping_hook(max_norm: float) -> Callable[..., None]:
    """Hook that clips gradients before a plain optimiser's step, and keeps their norm.

    DeepSpeed's own optimisers clip and keep the norm; around a plain one DeepSpeed throws it away.
    The hook runs after the ranks' gradients were reduced. A ``max_norm`` of 0 clips nothing.
    """

    def clip_gradients(optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        limit = max_norm or math.inf
        optimizer._global_grad_norm = nn.utils.clip_grad_norm_(parameters, limit)

    return clip_gradients


def optimizer_states(engine: Any) -> list[dict[str, Any]]:
    """What PyTorch's optimiser keeps of each parameter, under DeepSpeed's where there is one."""
    optimizer = engine.optimizer
    return [*getattr(optimizer, "optimizer", optimizer).state.values()]


def gather_shards(parameters: list[Tensor], writing_rank: int | None = None) -> Any:
    """Context in which ZeRO-3's shards of ``parameters`` are whole; every rank must enter it.

    What ``writing_rank`` changes of them is kept; by default nothing is.
    """
    is_divided = hasattr(parameters[0], "ds_id")
    return deepspeed.zero.GatheredParameters(
        parameters, modifier_rank=writing_rank, enabled=is_divided
    )


def save(engine: Any, folder: Path, tag: str) -> None:
    """Save weights that learn and their optimiser as ``tag``; every rank must call it.

    Frozen weights are left out: a run that goes on reads them from its base model again.
    """
    engine.save_checkpoint(str(folder), tag=tag, exclude_frozen_parameters=True)


def load(engine: Any, folder: Path, tag: str, saved_ranks: int) -> None:
    """Load the state ``tag`` that ``saved_ranks`` ranks saved, on however many there are now.

    ZeRO's files hold one rank's shard each. For another number of ranks they are joined into
    DeepSpeed's universal form first, which any number can read; it is removed again.
    """
    universal = folder / f"{tag}-universal"
    _remove_universal(universal)
    # Frozen parameters are in no state, so their absence must be no error.
    is_strict = all(parameter.requires_grad for parameter in engine.module.parameters())
    if saved_ranks == dist.get_world_size() or engine.zero_optimization_stage() == 0:
        engine.load_checkpoint(str(folder), tag=tag, load_module_strict=is_strict)
        return
    if dist.get_rank() == 0:
        click.echo(f"{folder}: putting the parts of {saved_ranks} ranks together", err=True)
        _convert_to_universal(folder / tag, universal, saved_ranks)
    dist.barrier()
    engine._config.load_universal_checkpoint = True
    engine.load_checkpoint(str(folder), tag=universal.name, load_module_strict=is_strict)
    engine._config.load_universal_checkpoint = False
    for parameter, state in engine.optimizer.optimizer.state.items():
        # DeepSpeed leaves one count of steps, on the CPU, to all groups of ZeRO-3 together: a fused
        # optimiser wants it on the device, and would count it up once per group.
        state["step"] = state["step"].to(parameter.device, copy=True)
    dist.barrier()
    _remove_universal(universal)


def _convert_to_universal(shards: Path, universal: Path, ranks: int) -> None:
    """Join the shards of a saved state into one form that any number of ranks reads.

    ``shards`` and ``universal`` are the folders before and after. DeepSpeed prints much on the way,
    which is thrown away, and raises a KeyError where the optimiser has no state yet.
    """
    arguments = Namespace(
        input_folder=str(shards),
        output_folder=str(universal),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,
    )
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            ds_to_universal.main(arguments)
    except KeyError:
        raise UserError(
            f"{shards}: no optimiser step was taken before this state was saved, and such a state "
            f"cannot be dealt out to other ranks; go on with {ranks} ranks for a step"
        ) from None


def _remove_universal(universal: Path) -> None:
    """Remove a universal form that was used, or that a killed run left behind."""
    if dist.get_rank() == 0:
        shutil.rmtree(universal, ignore_errors=True)
        universal.with_name("latest_universal").unlink(missing_ok=True)


def all_sum(values: Tensor) -> Tensor:
    """Sum of a tensor over all ranks."""
    total = values.clone()
    dist.all_reduce(total)
    return total


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank, so that all ranks stop together."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return bool(all_sum(torch.tensor([int(flag)], device=device)).item())
