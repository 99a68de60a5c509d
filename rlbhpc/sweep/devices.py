"""Which devices a process may use."""

from __future__ import annotations

import os
import shutil
import subprocess


def devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none on a CPU host."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return listed.stdout.split()
