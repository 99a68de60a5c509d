"""A login node has no torch, nor what needs it: everything but the work itself runs there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.made import SAMPLED, TRAINED, cluster_of, study_in

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "vllm", "deepspeed")
RLBHPC = ("-m", "rlbhpc")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this environment without the heavy ones."""
    folder = tmp_path_factory.mktemp("packages")
    own = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for path in own.iterdir():
        if not path.name.startswith(HEAVY) and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


def call(packages: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": f"{ROOT}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-S", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", [SAMPLED, TRAINED])
def test_a_study_is_checked_launched_and_looked_at(
    packages: Path, tmp_path: Path, text: str
) -> None:
    assert "No module named 'torch'" in call(packages, tmp_path, "-c", "import torch").stderr
    path, study = study_in(tmp_path / "s", text)
    cluster_of(tmp_path)
    table = str(tmp_path / "site.yaml")
    for words, code in (
        ((*RLBHPC, "check", str(path)), 0),
        ((*RLBHPC, "plan", str(path)), 0),
        ((*RLBHPC, "launch", str(path), "--cluster", table), 0),
        ((*RLBHPC, "status", str(path)), 3),
        ((*RLBHPC, "doctor", str(path)), 0),
    ):
        done = call(packages, tmp_path, *words)
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
    scripts = {script.stem for script in (study.layout.launches / "0001").glob("*.sbatch")}
    assert {"sample", "compact", "report"} <= scripts
    assert ("train-rl" in scripts) == (text is TRAINED)
