"""A tiny study on a tiny random model, made once per session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlbhpc.study.keys import SampleKey
from rlbhpc.study.study import Study
from tests.studies import HF_BY_32, untrained


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rlbhpc.engines.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden_size=32)


def write_study(
    folder: Path,
    model: Path | str = "model",
    problems: int = 6,
    engine: str = "hf",
    arms: dict[str, dict[str, Any]] | None = None,
) -> Path:
    path = folder / "tiny.yaml"
    hot = {"temperature": 1.3, "n": 4}
    settings = HF_BY_32 | {"name": engine}
    path.write_text(untrained("tiny", problems, str(model), settings, {"hot": hot} | (arms or {})))
    return path


def keys_of(study: Study) -> list[SampleKey]:
    """Every key that a study asks for."""
    return [
        SampleKey(block.arm, block.step, problem, sample)
        for block in study.blocks()
        for problem in block.problems
        for sample in range(block.n)
    ]
