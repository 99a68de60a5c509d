"""Train one step with FSDP and save; run as a program by `test_checkpoints` on two ranks.

Arguments: model folder, where to save as verl does, where to save as Accelerate does, where to save
the weights as they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM


def main(model: str, verl: str, trl: str, plain: str) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for layer in module.model.layers:
        fully_shard(layer)
    fully_shard(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    ids = torch.randint(0, 256, (2, 16))
    module(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    torch.save(module.state_dict(), Path(verl) / f"model_world_size_{ranks}_rank_{rank}.pt")
    state = {
        "model": get_model_state_dict(module),
        "optimizer": get_optimizer_state_dict(module, optimizer),
    }
    dcp.save(state, checkpoint_id=trl)
    whole = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    if rank == 0:
        torch.save(whole, plain)
    dist.barrier()
    sys.stdout.flush()
    # All is on disk. The interpreter's own end would race with gloo's threads, which FSDP keeps
    # alive: now and then that aborts a rank whose work is done (pytorch#179291).
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
