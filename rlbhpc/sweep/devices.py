"""Which devices a process may use."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from typing import Final

# The second is what Slurm sets in a job without a GPU.
NONE: Final = ("", "NoDevFiles", "-1")


def devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a CPU host.

    A name is an index, or `GPU-…` or `MIG-…`.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
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
