"""What a rank holds while it loads a model under ZeRO-3, and its frozen reference.

Run as a program by `test_ranks`: ``MODEL OUT`` writes one line of JSON for each rank.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
import torch.distributed as dist

from rlbhpc.train import deepspeed_engine as ds
from rlbhpc.train.algorithms import make_algorithm
from rlbhpc.train.learner import Learner
from rlbhpc.train.policy import Policy
from rlbhpc.train.settings import Settings


def peak_bytes() -> int:
    """Most memory that this process has had, files that are only mapped left out."""
    status = Path("/proc/self/status").read_text()
    mapped = int(re.findall(r"RssFile:\s+(\d+)", status)[0])
    return 1024 * (int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) - mapped)


def main(model: Path, out: Path) -> None:
    """Load a policy and a learner with its reference, and say what that took."""
    settings = Settings(steps=1, zero_stage=3, kl_loss=0.1)
    ds.init_ranks()
    before = peak_bytes()
    with ds.divide_while_loading(settings):
        policy = Policy.load(model, torch.float32)
    grown = peak_bytes() - before
    weights = list(policy.parameters())
    learner = Learner(model, settings, make_algorithm("grpo"))
    learner.load_reference(model)
    reference = dict(learner.named_reference_weights())
    moved = {name: weight + 1 for name, weight in reference.items()}
    learner.set_reference(moved.items())
    line = {
        "whole": sum(4 * weight.ds_numel for weight in weights),
        "share": sum(4 * weight.ds_tensor.numel() for weight in weights),
        "largest": max(4 * weight.ds_numel for weight in weights),
        "grown": grown,
        "same": all(
            torch.equal(weight, reference[f"model.{name}"])
            for name, weight in learner.named_weights()
        ),
        "moved": all(
            torch.equal(weight, moved[name]) for name, weight in learner.named_reference_weights()
        ),
    }
    (out / f"{dist.get_rank()}.json").write_text(json.dumps(line))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
