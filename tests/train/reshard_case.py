"""Two steps of training from the newest state in a folder, on any number of ranks.

Run as a program by `test_ranks`: ``MODEL FOLDER STAGE-DTYPE[-lora]...`` does so for each case,
saves, and writes the weights beside the states.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist

from rlbhpc.train import checkpoint
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.learner import Learner
from rlbhpc.train.settings import Settings
from tests.train.step_case import update, weights

IDENTITY = "the same run"
initialize = deepspeed.initialize


def in_groups(config: dict[str, Any], **rest: Any) -> Any:
    """ZeRO-3 steps the parameters in groups; a tiny model has several of so many elements."""
    config["zero_optimization"]["sub_group_size"] = 20_000
    return initialize(config=config, **rest)


deepspeed.initialize = in_groups


def steps(
    model: Path, folder: Path, stage: int, dtype: Literal["float32", "bfloat16"], lora_rank: int
) -> None:
    """Policy and critic, from where they stand, two steps on."""
    settings = Settings(
        steps=6, learning_rate=1e-2, sampler_cap=0.0, zero_stage=stage, dtype=dtype,
        lora_rank=lora_rank,
        micro_tokens=100,  # nine micro-batches: of two ranks one has a stand-in
    )  # fmt: skip
    trained = Learner(model, settings, make_algorithm("ppo"))
    saved = checkpoint.load_state(trained, folder, IDENTITY) or {"step": 0}
    last = saved["step"] + 2
    for step in (last - 1, last):
        given = update(signal=float(step))
        values = trained.values(given.responses)
        trained.update(replace(given, values=values, returns=values + given.advantages), step)
    checkpoint.save_state(trained, folder, last, {"identity": IDENTITY})
    after = torch.cat([weights(trained), trained.values(update().responses).flatten()])
    if dist.get_rank() == 0:
        torch.save(after, folder / f"after-{last}.pt")


def main(model: str, folder: str, *cases: str) -> None:
    for case in cases:
        stage, dtype, *lora = case.split("-")
        steps(Path(model), Path(folder) / case, int(stage), dtype, 2 * len(lora))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
