"""Train one step with DeepSpeed and save; run as a program by `test_checkpoints` on two ranks.

Arguments: model folder, where to save the ZeRO checkpoint, where to save the weights as they are,
ZeRO stage.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from transformers import AutoModelForCausalLM

from rlbhpc.train.deepspeed_engine import init_ranks


def main(model: str, checkpoint: str, plain: str, stage: int) -> None:
    init_ranks()
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=module.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
        },
    )
    torch.manual_seed(engine.global_rank)
    ids = torch.randint(0, 256, (2, 16))
    engine.backward(engine(input_ids=ids, labels=ids).loss)
    engine.step()
    engine.save_checkpoint(checkpoint, tag="global_step1")
    with deepspeed.zero.GatheredParameters(list(module.parameters()), enabled=stage == 3):
        if engine.global_rank == 0:
            state = {k: v.detach().clone() for k, v in module.state_dict().items()}
            torch.save(state, plain)
    torch.distributed.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
