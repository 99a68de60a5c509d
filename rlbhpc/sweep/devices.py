"""Which devices a process may use."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

# The second is what Slurm sets in a job without a GPU.
NONE: Final = ("", "NoDevFiles", "-1")


def devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a CPU host.

    A name is an index, or `GPU-…` or `MIG-…`.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    amd = os.environ.get("ROCR_VISIBLE_DEVICES")
    if chosen is None and amd is not None:
        # HIP numbers what this lets through anew.
        return [str(index) for index, _ in enumerate(filter(None, amd.split(",")))]
    if chosen is not None:
        names = (name.strip() for name in chosen.split(","))
        # CUDA reads up to the first that names none.
        return list(itertools.takewhile(lambda name: name not in NONE, names))
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return listed.stdout.split()


def shares(gpus: Sequence[str], gpus_per_copy: int) -> list[str]:
    """GPUs of each copy of a model that fits, in the words of CUDA_VISIBLE_DEVICES."""
    starts = range(0, len(gpus) - gpus_per_copy + 1, gpus_per_copy)
    return [",".join(gpus[start : start + gpus_per_copy]) for start in starts]
