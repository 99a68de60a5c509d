"""Studies with turns: killed again and again they end with the very cube of one that was not."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlbhpc
from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN, UserError
from rlbhpc.store.compact import compact
from rlbhpc.store.schema_check import validate_cube
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from tests.children import Child
from tests.engines.callers import BLOCKS, CHAT, make_caller
from tests.store import reading
from tests.studies import HF_BY_32, untrained

# Python beside the calculator: a session is started anew where an episode is drawn again.
TABLE = {
    **BLOCKS,
    "?": [*BLOCKS["?"], "```python\n"],
    "\n```\n": [*BLOCKS["\n```\n"], "```python\n"],
    "```python\n": ["x = 3\nsum(range(x))", "x + 1"],
    "x = 3\nsum(range(x))": ["\n```\n"],
    "x + 1": ["\n```\n"],
}
TURNS = {"limit": 4, "tools": ["calculator", "python"], "format": "blocks"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_caller(tmp_path_factory.mktemp("caller"), TABLE)


def write_study(folder: Path, model: Path, turns: dict[str, Any] = TURNS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "ask.txt").write_text("{question}\n?")
    path = folder / "study.yaml"
    sampling = {"prompt": "./ask.txt", "max_tokens": 40, "turns": turns}
    path.write_text(untrained("tools", 8, str(model), HF_BY_32, **sampling))
    return path


def cube_digest(study: Study) -> dict[str, str]:
    store = compact(study.layout).store
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_sweeps_of_episodes_end_with_the_same_cube(
    model: Path, tmp_path: Path, soak: bool
) -> None:
    path = write_study(tmp_path, model)
    study = load_study(path)
    Child("--version").ended()
    start = time.monotonic()
    assert Child("sample", str(path)).ended() == DONE
    duration = time.monotonic() - start
    expected = cube_digest(study)
    counts = rlbhpc.open_cube(study.layout.root)["base/countdown"]
    n_turns = counts["n_turns"].values
    assert (n_turns >= 1).all() and n_turns.max() == TURNS["limit"]
    assert (counts["n_tool_calls"].values == n_turns - 1).all()
    assert validate_cube(study.layout.cube) == []
    rng = random.Random(3)
    kills = 0
    kills_wanted = 30 if soak else 3
    while kills < kills_wanted:
        path = write_study(tmp_path / f"killed-{kills}", model)
        study = load_study(path)
        code = -1
        while code not in (DONE, NOTHING_TO_DO):
            child = Child("sample", str(path), "--shard-tokens", str(rng.choice([300, 10**9])))
            child.wait(rng.uniform(0, 1.1 * duration))
            child.send(rng.choice([signal.SIGKILL, signal.SIGTERM]))
            code = child.ended()
            kills += code in (-signal.SIGKILL, TRY_AGAIN)
        assert cube_digest(study) == expected


@pytest.mark.engine
def test_an_episode_is_stored_with_its_turns(model: Path, tmp_path: Path) -> None:
    path = write_study(tmp_path, model, {**TURNS, "tools": ["calculator"]})
    study = load_study(path)
    assert Child("sample", str(path)).ended() == DONE
    rows = reading.rows(study.layout, "base", "countdown").table.to_pylist()
    with_calls = 0
    for row in rows:
        segments = json.loads(row["trace"])["segments"]
        written = sum(n for writer, n, *_ in segments if writer == "model")
        assert row["n_tokens"] == written
        if row["token_ids"] is not None:
            assert len(row["token_ids"]) == sum(n for _, n, *_ in segments)
            assert np.isclose(row["logprob_sum"], np.sum(row["logprobs"], dtype=float), atol=0.05)
        # The grader's text is what the model wrote last.
        assert "output" not in row["text"]
        with_calls += len(segments) > 1
    assert with_calls


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"tools": ["calculater"]}, "calculator"),
        ({"tools": []}, "turns.tools"),
        ({"limit": 0}, "turns.limit"),
        ({"format": "json"}, "blocks"),
    ],
)
def test_wrong_turns_are_told(
    changes: dict[str, Any], part: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=part):
        load_study(write_study(tmp_path, model, {**TURNS, **changes}))


def test_a_chat_prompt_tells_of_the_arms_tools(tmp_path: Path) -> None:
    model = make_caller(tmp_path / "chat", CHAT)
    path = write_study(tmp_path, model, {"limit": 3, "tools": ["calculator"]})
    text = path.read_text().replace("./ask.txt", "asked")
    for tools in ("[calculator]", "[python]"):
        prompts = f"\nprompts: {{asked: {{chat: base, tools: {tools}}}}}\n"
        path.write_text(text + prompts)
        if tools == "[calculator]":
            load_study(path)
        else:
            with pytest.raises(UserError, match="the same tools"):
                load_study(path)
