"""The wheel of this checkout, built beside it so that the checkout stays as it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]


def build_wheel(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "rlbhpc", source / "rlbhpc")
    shutil.copytree(ROOT / "configs/clusters", source / "configs/clusters")
    words = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run([sys.executable, *PIP, *words], check=True)
    (wheel,) = folder.glob("rlbhpc-*.whl")
    return wheel
