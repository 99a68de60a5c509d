"""The study that `rlbhpc init --base A --trained B` writes: whole files, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rlbhpc.errors import UserError
from rlbhpc.study.draft import (
    ON_CPUS,
    ON_GPUS,
    Draft,
    ModelSource,
    read_sets,
    write_new,
    write_study,
)
from tests.study.folder import write_model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two models of Qwen's chat format and one of few words."""
    monkeypatch.chdir(tmp_path)
    for name in ("base", "rl", "it's"):
        write_model(tmp_path / "models" / name)
        (tmp_path / "models" / name / "tokenizer.json").write_text('{"content": "<|im_start|>"}')
        (tmp_path / "models" / name / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "models/it's/config.json").write_text('{"vocab_size": 4095}')
    return tmp_path


FOR_GPUS = """\
# rlbhpc init --base Qwen/Q --trained o/rl@v1 --on math500,aime24 --cluster site
# Sizes for GPUs. Every key is explained in docs/study-file.md.

name: rl-against-Q
question: Did training move the boundary of Q, or only how efficiently it samples?

models:
  base:
    path: models/Q
    hub: Qwen/Q
  trained:
    path: models/rl
    hub: o/rl@v1
    base: base                           # the pair to compare

problem_sets:
  math500: {path: data/math500}
  aime24: {path: data/aime24, n: 1024}

sampling:                                # what both arms share
  temperature: 0.6
  top_p: 0.95
  max_tokens: 16384
  n: 256                                   # samples per problem: the largest k

arms:                                    # how each model is asked
  base: {model: base, prompt: qwen-boxed, stop: ["\\nuser\\n"]}
  trained: {model: trained, prompt: qwen-boxed, stop: ["\\nuser\\n"]}

scores:                                  # perplexity of the trained answers
  trained-under-base: {responses: trained, model: base}
  trained-under-trained: {responses: trained, model: trained}

cluster: site
"""


def test_the_whole_file_for_gpus(folder: Path) -> None:
    (folder / "models/rl").rename(folder / "elsewhere")
    sources = ModelSource.read("--base", "Qwen/Q"), ModelSource.read("--trained", "o/rl@v1")
    assert Draft(*sources, ("math500", "aime24"), "site", ON_GPUS).text(folder) == FOR_GPUS


def pair(sets: tuple[str, ...] = ("math500",), base: str = "Qwen/Qwen2.5-7B") -> Draft:
    sources = ModelSource.read("--base", base), ModelSource.read("--trained", "o/rl@main")
    return Draft(*sources, sets, None, ON_GPUS)


def test_models_of_the_hub_lie_where_they_will_be_fetched_to(folder: Path) -> None:
    text = pair(("aime24", "math500")).text(folder)
    assert "    path: models/Qwen2.5-7B\n    hub: Qwen/Qwen2.5-7B\n" in text
    assert "    path: models/rl\n    hub: o/rl@main\n" in text
    assert "  aime24: {path: data/aime24, n: 1024}\n  math500: {path: data/math500}\n" in text
    assert "  max_tokens: 16384\n  n: 256 " in text
    assert "trained-under-base" in text


def prompts(draft: Draft) -> list[str]:
    return [asking.prompt for asking in draft.askings]


def test_the_prompt_follows_the_model_and_the_sets(folder: Path) -> None:
    assert prompts(pair()) == ["qwen-boxed"] * 2
    assert prompts(pair(base="meta-llama/Llama-3.1-8B")) == ["completion-boxed"] * 2
    assert prompts(pair(("humaneval+", "mbpp+"))) == ["evalplus"] * 2
    assert prompts(pair(("countdown",))) == ["countdown-words"] * 2
    with pytest.raises(UserError, match=r"math500 qwen-boxed, mbpp"):
        _ = pair(("math500", "mbpp+")).askings
    assert prompts(replace(pair(("math500", "mbpp+")), given_prompt="bare")) == ["bare"] * 2


@pytest.mark.parametrize(
    ("base", "trained", "chats"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "o/rl", (True, True)),
        ("google/gemma-2-9b-it", "o/rl", (True, True)),
        ("meta-llama/Llama-3.1-8B", "o/Llama-3.1-8B-Instruct", (False, True)),
        ("allenai/OLMo-2-1124-7B", "o/writer", (False, False)),
    ],
)
def test_an_instruct_model_gets_its_own_chat_format(
    folder: Path, base: str, trained: str, chats: tuple[bool, bool]
) -> None:
    models = ModelSource.read("--base", base), ModelSource.read("--trained", trained)
    draft = Draft(*models, ("math500",), None, ON_GPUS)
    assert tuple(bool(asking.chat) for asking in draft.askings) == chats
    study = yaml.safe_load(draft.text(folder))
    made = study.get("prompts", {})
    for arm, is_chat in zip(study["arms"].values(), chats, strict=True):
        assert (arm["prompt"] in made) == is_chat
    assert ("analysis" in study) == (chats[0] != chats[1]), "two prompts make no pair by themselves"


@pytest.mark.parametrize("sets", [("math500",), ("countdown",), ("humaneval+",), ("mmlu-pro",)])
@pytest.mark.parametrize("base", ["Qwen/Q", "o/base", "o/m-it"])
def test_no_model_is_let_ramble(folder: Path, sets: tuple[str, ...], base: str) -> None:
    study = yaml.safe_load(pair(sets, base).text(folder))
    for arm in study["arms"].values():
        ends = arm.get("stop") or "chat" in arm["prompt"]
        assert ends or study["sampling"]["max_tokens"] <= 2048


def test_a_file_of_the_users_own_is_a_problem_set(folder: Path) -> None:
    own = folder / "my set.jsonl"
    own.write_text('{"problem": "1 + 1?", "answer": "2", "level": 1}\n')
    draft = replace(pair(read_sets(str(own))), n=7)
    study = yaml.safe_load(draft.text(folder))
    fields = {"question": "problem", "gold": "answer"}
    entry = {"path": str(own), "verifier": "math", "fields": fields}
    assert study["problem_sets"] == {"my-set": entry}
    assert study["sampling"]["n"] == 7
    write_study(draft, folder / "s.yaml")
    own.write_text('{"text": "1 + 1?"}\n')
    with pytest.raises(UserError, match=r"text.*question, problem, prompt"):
        read_sets(str(own))


def test_responses_leave_room_for_the_question(folder: Path) -> None:
    models = [ModelSource.read("--base", f"models/{name}") for name in ("base", "rl")]
    (folder / "models/rl/config.json").write_text('{"max_position_embeddings": 200}')
    assert "max_tokens: 150\n" in Draft(*models, ("countdown",), None, ON_CPUS).text(folder)


def test_a_toy_on_a_laptop_is_asked_what_needs_no_download(folder: Path) -> None:
    toy = ModelSource.read("--base", "models/it's")
    lines = Draft(toy, toy, ("countdown",), None, ON_CPUS).text(folder / "sub").splitlines()
    assert lines[1] == (
        "# Sizes for a machine without GPUs: a first look; for an answer raise `n` and `limit`."
        " Every key is explained in docs/study-file.md."
    )
    for line in (
        "name: it-s-against-it-s",
        "    path: '../models/it''s'",
        "  countdown: {limit: 64}",
        "  base: {model: base, prompt: countdown}",
        "  max_tokens: 64",
        "engine: {name: hf}                       # needs no GPU",
    ):
        assert line in lines
    assert lines[-1].startswith("engine: ")
    (folder / "models/it's/config.json").write_text('{"vocab_size": 4096}')
    assert prompts(Draft(toy, toy, ("countdown",), None, ON_CPUS)) == ["countdown-words"] * 2


def test_sets_are_cut_to_the_size_of_the_machine(folder: Path) -> None:
    base = ModelSource.read("--base", "models/base")
    sets = ("math500", "aime24", "countdown")
    cut = Draft(base, base, sets[:2], None, ON_CPUS).text(folder)
    assert "  math500: {path: data/math500, limit: 64}\n  aime24: {path: data/aime24, li" in cut
    assert "aime24: {path: data/aime24, limit: 64}\n" in cut
    assert "  countdown: {limit: 500}\n" in Draft(base, base, sets[2:], None, ON_GPUS).text(folder)


def test_a_folder_beside_the_current_one_is_written_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ModelSource.read("--base", "models/base")
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    text = Draft(base, base, ("math500",), None, ON_CPUS).text(folder / "work")
    assert f"    path: {folder}/models/base\n" in text
    (folder / "models/base/tokenizer.json").unlink()
    assert prompts(Draft(base, base, ("math500",), None, ON_CPUS)) == ["completion-boxed"] * 2


@pytest.mark.parametrize(
    ("word", "name"),
    [("o/a_b.c+d@v/1", None), ("o/" + "x" * 50, "x" * 36), ("o/--", "model"), ("o/-a b-", None)],
)
def test_a_model_has_a_name_for_files(folder: Path, word: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(UserError, match="no such folder, and no owner/name of a model on the"):
            ModelSource.read("--base", word)
    else:
        assert ModelSource.read("--base", word).name == name


def test_words_of_the_option_are_sets(folder: Path) -> None:
    assert read_sets(" math500, aime24,,math500") == ("math500", "aime24")
    with pytest.raises(UserError, match="--on: names no problem set"):
        read_sets(" , ")
    with pytest.raises(UserError, match="'math50' is unknown"):
        read_sets("math500,math50")


def test_a_file_is_written_once(folder: Path) -> None:
    base = ModelSource.read("--base", "models/base")
    draft = Draft(base, base, ("math500",), None, ON_CPUS)
    file = write_study(draft, Path("deep/mine.yaml"))
    assert file.read_text() == draft.text(folder / "deep")
    with pytest.raises(UserError, match=r"deep/mine\.yaml exists; choose another name with -o"):
        write_study(draft, file)
    with pytest.raises(
        UserError, match=r"mine\.yaml/x\.yaml cannot .*File exists: 'deep/mine\.yaml'"
    ):
        write_new(file / "x.yaml", "")
    with pytest.raises(UserError, match=r"x\.yaml cannot be written: .*File name too long"):
        write_new(Path("x" * 300 + ".yaml"), "")
