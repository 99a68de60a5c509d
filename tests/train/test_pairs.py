"""What supervised training learns ends where it should, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tokenizers.processors import TemplateProcessing

from rlbhpc.engines.completion import Finish
from rlbhpc.engines.tiny import SPECIAL, make_tiny_model
from rlbhpc.engines.tokens import Tokens
from rlbhpc.errors import DONE, UserError
from rlbhpc.study.load import load_study
from rlbhpc.study.schema import Teacher
from rlbhpc.study.study import Study
from rlbhpc.train.batch import Response
from rlbhpc.train.learner import Learner, PolicyScorer
from rlbhpc.train.prepare import prepare
from rlbhpc.train.recipes import settings_of
from rlbhpc.train.sft import learning_pairs, teacher_lessons
from rlbhpc.verify.verdict import Status
from tests.children import Child
from tests.store import reading

pytestmark = pytest.mark.engine

STUDY = """
name: toy
models:
  base: {path: MODEL}
  read: {train: {from: base, recipe: reading}, steps: [1]}
  taught: {train: {from: base, recipe: teaching}, steps: [1]}
recipes:
  reading: {algorithm: sft, texts: pairs.jsonl}
  teaching: {algorithm: sft, teacher: {arm: base, keep: all, per_problem: 4}}
problem_sets:
  toy: {set: countdown, subset: test, limit: 4}
arms:
  base: {model: base, prompt: countdown, temperature: 1.0, max_tokens: 150, n: 4}
engine: {name: hf, dtype: float32}
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A chat model: its configuration names an end of documents, too, with a smaller number."""
    model = make_tiny_model(tmp_path / "tiny", hidden_size=32)
    own = Tokens(model).tokenizer.eos_token_id
    ends = {"eos_token_id": [own - 1, own]}
    (model / "generation_config.json").write_text(json.dumps(ends))
    pair = {"prompt": "1 + 1 =", "response": " 2"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    path = tmp_path / "toy.yaml"
    path.write_text(STUDY.replace("MODEL", str(model)))
    return load_study(path)


def learnt(study: Study, recipe: str) -> list[Response]:
    chosen = study.file.recipes[recipe]
    tokens = Tokens(study.folder("base", 0))
    return list(learning_pairs(study, chosen, tokens, settings_of(chosen, 1)))


def test_a_response_ends_with_the_tokenisers_own_end(study: Study) -> None:
    tokens = Tokens(study.folder("base", 0))
    assert len(tokens.eos) == 2
    (pair,) = learnt(study, "reading")
    assert pair.token_ids[-1] == tokens.tokenizer.eos_token_id != min(tokens.eos)


def test_special_tokens_are_the_prompts_alone(study: Study) -> None:
    tokenizer = Tokens(study.folder("base", 0)).tokenizer
    begin = tokenizer.convert_tokens_to_ids(SPECIAL[1])
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single=f"{SPECIAL[1]} $A", special_tokens=[(SPECIAL[1], begin)]
    )
    tokenizer.save_pretrained(study.folder("base", 0))
    (pair,) = learnt(study, "reading")
    assert pair.prompt_ids[0] == begin and begin not in pair.token_ids
    scorer = PolicyScorer(cast(Learner, None), Tokens(study.folder("base", 0)))
    assert scorer.encode(" 2") == tuple(pair.token_ids[:-1])
    assert scorer.decode(pair.token_ids.tolist()) == " 2"


def test_a_training_without_anything_to_begin_with_is_refused(study: Study, tmp_path: Path) -> None:
    run = prepare(study, "read")
    assert run.settings.steps == 1 and list(run.exports) == [1]
    (tmp_path / "pairs.jsonl").write_text("")
    with pytest.raises(UserError, match=r"recipe reading: there is no response to learn from$"):
        prepare(study, "read")
    (tmp_path / "tiny" / "config.json").unlink()
    with pytest.raises(UserError, match="the model to start from is not there; train or stage ba"):
        prepare(study, "read")


@pytest.mark.slow
def test_a_teachers_response_that_was_cut_off_gets_no_end(study: Study, tmp_path: Path) -> None:
    assert Child("sample", str(tmp_path / "toy.yaml")).ended() == DONE
    tokens = Tokens(study.folder("base", 0))
    table = reading.rows(study.layout, "base", "toy", ("problem", "sample", "finish", "text")).table
    finishes = table["finish"].to_pylist()
    assert {Finish.EOS, Finish.LENGTH} <= set(finishes)
    pairs = learnt(study, "teaching")
    assert len(pairs) == len(finishes)
    for pair, finish in zip(pairs, finishes, strict=True):
        assert (pair.token_ids[-1] == tokens.end) == (finish != Finish.LENGTH)
    columns = ("problem", "sample", "verdict", "text")
    rows = reading.rows(study.layout, "base", "toy", columns).table.to_pylist()
    few = teacher_lessons(study, Teacher(arm="base", keep="all", per_problem=3))
    assert [lesson.response[0][1] for lesson in few] == [r["text"] for r in rows if r["sample"] < 3]
    right = teacher_lessons(study, Teacher(arm="base", per_problem=4))
    expected = [r["text"] for r in rows if r["verdict"] == Status.RIGHT]
    assert [lesson.response[0][1] for lesson in right] == expected
    pictured = SimpleNamespace(
        prompts=study.prompts,
        arms=study.arms,
        sets=study.sets,
        layout=study.layout,
        problems=lambda name: [replace(p, images=(b"x",)) for p in study.problems(name)],
    )
    with pytest.raises(UserError, match=r"^teacher base: \S+ has images, and sft shows none$"):
        next(teacher_lessons(cast(Study, pictured), Teacher(arm="base")))


def test_a_lesson_of_several_turns_teaches_what_the_model_writes(study: Study) -> None:
    turns = [["model", "ab"], ["tool", "cde"], ["model", "f"]]
    path = Path(study.file.recipes["reading"].texts or "")
    path.write_text(json.dumps({"prompt": "?", "response": turns}) + "\n")
    tokens = Tokens(study.folder("base", 0))
    (pair,) = learnt(study, "reading")
    assert tokens.decode(pair.token_ids.tolist()) == "abcdef"
    assert tokens.decode(pair.model_ids.tolist()) == "abf"
    assert pair.model_ids[-1] == tokens.end


@pytest.mark.parametrize("response", [7, ["abc"], [["model", "a", "b"]], [["model"]]])
def test_turns_that_are_none_are_told_with_their_line(study: Study, response: object) -> None:
    path = Path(study.file.recipes["reading"].texts or "")
    good = json.dumps({"prompt": "?", "response": "!"})
    path.write_text(f"{good}\n{json.dumps({'prompt': '?', 'response': response})}\n")
    with pytest.raises(UserError, match=rf"^{path}:2: response: found "):
        learnt(study, "reading")
