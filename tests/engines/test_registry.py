"""What the registry says of an engine is what the engine takes, and what it refuses it names."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlbhpc.engines.completion import Completion, Finish, Request
from rlbhpc.engines.engine import (
    ENGINES,
    Kind,
    Score,
    check_settings,
    failed_completion,
    make_engine,
    too_long,
)
from rlbhpc.errors import UserError


@pytest.mark.engine
@pytest.mark.parametrize("kind", ENGINES)
def test_the_settings_of_an_engine_are_its_keyword_arguments(kind: str) -> None:
    engine = ENGINES[kind]
    maker = getattr(importlib.import_module(engine.module), engine.name)
    taken = inspect.signature(maker).parameters.values()
    assert engine.settings == tuple(p.name for p in taken if p.kind is p.KEYWORD_ONLY)


# Of a module: what a study file that says nothing gets.
DEFAULTS = {
    "hf": {"rows": 256, "dtype": "float32", "device": "cpu"},
    "vllm": {
        "rows": 256, "dtype": "auto", "max_length": None, "tensor_parallel": 1, "data_parallel": 1,
        "memory": 0.9, "options": None,
    },
    "endpoint": {
        "chat": False, "key_env": None, "context": None, "concurrency": 32, "tries": 8,
        "timeout": 1800.0, "top_logprobs": 5,
    },
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("kind", ENGINES)
def test_what_an_engine_takes_where_nothing_is_said(kind: str) -> None:
    maker = getattr(importlib.import_module(ENGINES[kind].module), ENGINES[kind].name)
    taken = inspect.signature(maker).parameters.values()
    assert DEFAULTS[kind] == {p.name: p.default for p in taken if p.default is not p.empty}


LOGIN_NODE = """
import sys
import rlbhpc.engines.checkpoints, rlbhpc.engines.endpoint, rlbhpc.engines.engine
import rlbhpc.engines.checkpoints, rlbhpc.engines.folder
import rlbhpc.engines.tokens, rlbhpc.engines.tiny, rlbhpc.engines.vllm_engine
import rlbhpc.train.algorithms, rlbhpc.train.recipes, rlbhpc.train.rewards
import rlbhpc.train.settings
print({"torch", "transformers", "vllm", "PIL"} & set(sys.modules))
"""


def test_to_know_of_engines_takes_nothing_of_what_they_run_on() -> None:
    """`rlbhpc.train` itself is for whoever trains; what a check reads of it is not."""
    done = subprocess.run(
        [sys.executable, "-c", LOGIN_NODE], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (
            "vlm",
            {},
            f"found 'vlm'; nearest: vllm; allowed: {', '.join(ENGINES)}, or a file such as .*",
        ),
        ("xyz", {}, f"found 'xyz'; allowed: {', '.join(ENGINES)}, or a file such as ./mine.py"),
        ("hf", {"row": 1}, "engine hf: no setting 'row'; it has rows, dtype, device"),
        *(
            ("hf", {"rows": rows}, f"engine hf: rows is {rows!r}; allowed: a whole number, at .* 1")
            for rows in (0, -1, 1.0, True, "4")
        ),
        ("vllm", {"data_parallel": 2}, "engine vllm: data_parallel: .* one copy .*"),
        ("vllm", {"max_length": "x" * 99}, f"engine vllm: max_length is '{'x' * 59}; allowed: .*"),
    ],
)
def test_a_setting_that_an_engine_cannot_have_is_refused(
    kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        make_engine(kind, "m", **settings)
    assert re.fullmatch(said, str(refused.value))


def test_an_engine_of_ones_own_is_asked_for_its_settings(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class ENGINE:\n    def __init__(self, model, rows=1, size=2): ...\n")
    for settings, said in (
        ({"other": 1}, "no setting 'other'; it has rows, size"),
        ({"rows": 0}, "rows is 0; allowed: a whole number, at least 1"),
    ):
        with pytest.raises(UserError, match=said):
            check_settings(str(mine), settings)
    check_settings(str(mine), {"rows": 3, "size": 0})


def test_counts_from_one_on_and_none_at_all_are_settings() -> None:
    check_settings("vllm", {"rows": 1, "max_length": None, "memory": 0.5})


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "why"),
    [
        (0, 1, "the prompt has no tokens"),
        (1, 63, ""),
        (60, 4, ""),
        (
            60, 5,
            "prompt of 60 tokens + max_tokens 5 exceeds the 64 that the model can hold; lower "
            "max_tokens to at most 4",
        ),
        (
            70, 1,
            "prompt of 70 tokens + max_tokens 1 exceeds the 64 that the model can hold; lower "
            "max_tokens to at most 0",
        ),
    ],
)  # fmt: skip
def test_a_prompt_and_its_longest_response_have_to_fit(
    prompt: int, max_tokens: int, why: str
) -> None:
    assert too_long(prompt, max_tokens, 64) == why


@pytest.mark.parametrize("kind", [Completion, Request, Score, Kind])
def test_what_engines_are_handed_and_give_stays_as_it_is(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen


def test_a_request_that_failed_has_nothing_but_a_reason() -> None:
    done = failed_completion(Request(7, (1, 2), 3), "no")
    assert (done.tag, done.text, done.finish, done.error) == (7, "", Finish.ERROR, "no")
    for numbers, dtype in (
        (done.token_ids, "int32"), (done.logprobs, "float32"), (done.entropies, "float32"),
    ):  # fmt: skip
        assert numbers.dtype == dtype and not len(numbers)


def test_room_for_more_than_a_model_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(_: str) -> None:
        raise InterruptedError

    monkeypatch.setattr("rlbhpc.engines.vllm_engine._set_environment", begun)
    monkeypatch.setattr("rlbhpc.engines.vllm_engine.Tokens", lambda _: None)
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    for length in (None, 1, 64):
        with pytest.raises(InterruptedError):
            make_engine("vllm", tmp_path, max_length=length)
    with pytest.raises(UserError) as refused:
        make_engine("vllm", tmp_path, max_length=65)
    assert str(refused.value) == f"engine vllm: max_length 65, but {tmp_path} holds 64"
