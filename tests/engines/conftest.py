from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlbhpc.engines.engine import Engine, make_engine
from rlbhpc.engines.tiny import make_tiny_model
from tests.engines.support import SECOND_END


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 whose next-token distributions are neither flat nor certain.

    Its generation_config.json asks for what no request asks for, and its config.json for another
    type than a CPU's, as those of real models do: no engine may listen. It has two tokens that end
    a response, to which all must.
    """
    folder = tmp_path_factory.mktemp("models") / "qwen2"
    make_tiny_model(folder, initializer_range=0.1)
    asked = json.loads((folder / "generation_config.json").read_text())
    asked["eos_token_id"].append(SECOND_END)
    asked |= {"repetition_penalty": 1.5, "do_sample": True, "temperature": 0.1, "top_k": 3}
    (folder / "generation_config.json").write_text(json.dumps(asked))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    return folder


@pytest.fixture(scope="session")
def hf(tiny: Path) -> Iterator[Engine]:
    engine = make_engine("hf", tiny, rows=64)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def vllm(tiny: Path) -> Iterator[Engine]:
    """An engine for one file: when a later one of the same process ends, it takes this one along.

    vLLM keeps its groups of devices in global variables.
    """
    engine = make_engine("vllm", tiny, rows=64)
    yield engine
    engine.close()


@pytest.fixture(params=["hf", "vllm"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn, those of a file where it has its own."""
    engine: Engine = request.getfixturevalue(request.param)
    return engine
