"""The Study: blocks of keys, fingerprints, its hash, and its way through JSON."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rlbhpc.errors import UserError
from rlbhpc.study.keys import SampleKey, sample_seed
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from tests.sweep.conftest import keys_of
from tools.check_structure import unfrozen


def test_blocks_cover_every_key_once(study_file: Path) -> None:
    study = load_study(study_file)
    blocks = list(study.blocks())
    keys = keys_of(study)
    assert len(keys) == len(set(keys)) == sum(block.size for block in blocks) == 128
    assert len({sample_seed(study.seed, key) for key in keys}) == len(keys)
    assert SampleKey("rl", 150, study.problem_ids("math500")[0], 7) in keys
    assert {key.set_name for key in keys} == {"math500"}
    for block in blocks:
        assert block.fingerprints.dtype == np.int64
        assert len(block.fingerprints) == len(block.problems)
        for problem, found in zip(block.problems, block.fingerprints, strict=True):
            assert found == study.request_fingerprint(block.arm, block.step, problem)


def test_the_request_names_all_that_determines_a_sample(study_file: Path) -> None:
    study = load_study(study_file)
    problem = study.problem_ids("math500")[0]
    assert study.request("base", 0, problem) == {
        "seed": 7,
        "model": study.digests["base"][0],
        "prompt": study.prompts["qwen-boxed"].digest,
        "temperature": 0.6,
        "top_p": 0.95,
        "max_tokens": 1024,
        "stop": ["</answer>"],
        "problem": study.problem_hashes["math500"][problem],
    }


def prints(study: Study, arm: str = "base") -> list[int]:
    return [int(one) for one in study.block(arm, "math500", study.arms[arm].steps[0]).fingerprints]


@pytest.mark.parametrize(
    "change",
    ["seed=8", "arms.base.temperature=0.7", "sampling.top_p=0.9", "sampling.max_tokens=1000",
     "sampling.stop=[]", "sampling.prompt=completion", "arms.base.model=far", "sampling.top_k=20",
     "arms.base.min_p=0.1", "sampling.repetition_penalty=1.1", "sampling.presence_penalty=-0.5",
     "sampling.frequency_penalty=0.5", "sampling.stop_token_ids=[7]"],
)  # fmt: skip
def test_what_changes_the_request_changes_every_fingerprint(study_file: Path, change: str) -> None:
    before, after = load_study(study_file), load_study(study_file, [change])
    assert not set(prints(before)) & set(prints(after))


@pytest.mark.parametrize(
    "change",
    ["name=other", "question=Why?", "cluster=big", "engine.tensor_parallel=4", "sampling.n=99",
     "storage.tokens=none", "output=/tmp/x", "verification.paper=true", "analysis.k=[1]",
     "engine.options={x: 1}", "engine.name=vllm", "arms.base.temperature=0.60",
     "sampling.top_k=0", "sampling.min_p=0", "sampling.repetition_penalty=1",
     "sampling.presence_penalty=0", "sampling.min_tokens=0", "sampling.stop_token_ids=[]"],
)  # fmt: skip
def test_what_does_not_leaves_every_fingerprint(study_file: Path, change: str) -> None:
    before, after = load_study(study_file), load_study(study_file, [change])
    assert prints(before) == prints(after)


@pytest.mark.parametrize(
    "change",
    ["name=other", "question=Why?", "cluster=big", "engine.tensor_parallel=4", "output=/tmp/x",
     "storage.tokens=none", "engine.options={x: 1}", "models.base.hub=a/b", "seed=007",
     "arms.base.steps=[0]", "arms.base.problem_sets=[math500]", "arms.base.engine=hf"],
)  # fmt: skip
def test_the_hash_is_over_meaning(study_file: Path, change: str) -> None:
    assert load_study(study_file, [change]).hash == load_study(study_file).hash


@pytest.mark.parametrize(
    "change",
    ["seed=8", "sampling.n=17", "arms.base.temperature=0.61", "arms.line.steps=[200]",
     "verification.paper=true", "analysis.confidence=0.9", "scores.outside.per_problem=3",
     "problem_sets.math500.n=9", "engine.dtype=bfloat16", "recipes.grpo.seed=1",
     "arms.more={model: base, temperature: 0.1}", "match_entropy.rl-matched.tolerance=0.02"],
)  # fmt: skip
def test_the_hash_changes_with_meaning(study_file: Path, change: str) -> None:
    assert load_study(study_file, [change]).hash != load_study(study_file).hash


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same mapping with its keys in another order, at every level."""
    if isinstance(value, dict):
        items = [(key, shuffled(inner, rng)) for key, inner in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(one, rng) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(5))
def test_form_has_no_part_in_the_hash(study_file: Path, seed: int) -> None:
    before = load_study(study_file)
    content = shuffled(yaml.safe_load(study_file.read_text()), random.Random(seed))
    study_file.write_text(
        "# a comment\n" + yaml.safe_dump(content, sort_keys=False, default_flow_style=seed % 2 == 0)
    )
    after = load_study(study_file)
    assert after.hash == before.hash
    assert set(after.arms.values()) == set(before.arms.values())


def test_moving_everything_leaves_the_hash(study_file: Path) -> None:
    before = load_study(study_file)
    moved = study_file.parent.rename(study_file.parent.parent / "elsewhere")
    after = load_study(moved / "study.yaml")
    assert after.hash == before.hash
    assert [p for a in after.arms for p in prints(after, a)] == [
        p for a in before.arms for p in prints(before, a)
    ]


#: A text of each file that a study names, and another one in its place.
EDITS = {
    "models/base/model.safetensors": ("weights", "Weights"),
    "math500.jsonl": ("What", "How much"),
    "own.txt": ("A:", "Answer:"),
    "texts.jsonl": ('"r"', '"s"'),
}


@pytest.mark.parametrize("name", EDITS)
def test_content_has_a_part_in_the_hash(study_file: Path, name: str) -> None:
    before = load_study(study_file).hash
    file = study_file.parent / name
    file.write_text(file.read_text().replace(*EDITS[name]))
    assert load_study(study_file).hash != before


def test_through_json_and_back(study_file: Path) -> None:
    study = load_study(study_file)
    again = Study.from_json(study.to_json())
    assert again == study
    assert again.hash == study.hash
    assert again.to_json() == study.to_json()
    assert [b.fingerprints.tolist() for b in again.blocks()] == [
        b.fingerprints.tolist() for b in study.blocks()
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"format": 99}', '{"format": 1}', '{"format": 1, "study": 5}']
)
def test_a_damaged_record_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        Study.from_json(text)


def test_a_record_with_a_part_missing_is_refused(study_file: Path) -> None:
    record = json.loads(load_study(study_file).to_json())
    for key in record.keys() - {"check"}:
        less = {name: value for name, value in record.items() if name != key}
        with pytest.raises(UserError):
            Study.from_json(json.dumps(less))


def test_workers_read_the_record_without_models_or_yaml(study_file: Path) -> None:
    text = load_study(study_file).to_json()
    for file in (study_file, study_file.parent / "own.txt"):
        file.unlink()
    (study_file.parent / "models").rename(study_file.parent / "gone")
    study = Study.from_json(text)
    assert len(list(study.blocks())) == 8
    assert study.prompts[study.arms["hot-t1.0"].prompt].text == "Q: {question}\nA:"


GOLDEN = {
    # A change of these means that every stored sample in the world stops counting.
    "base": [884431450590380914, 305659248500048401],
}


def test_the_hash_is_golden(study_file: Path) -> None:
    assert load_study(study_file).hash == "6ae1885e9ef0b81e"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("sampling.top_k=-1", "allowed: a whole number from 0 to 10,000,000"),
        ("sampling.min_p=1.5", "allowed: a number from 0 to 1"),
        ("arms.base.repetition_penalty=0", "allowed: a number above 0 and up to 10"),
        ("sampling.presence_penalty=3", "allowed: a number from -2 to 2"),
        ("sampling.stop_token_ids=[3, 3]", "3 stands twice in the list"),
        ("sampling.min_tokens=4", "`min_tokens` goes without `stop`"),
    ],
)
def test_a_bad_sampling_value_is_refused(study_file: Path, change: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        load_study(study_file, [change])


def test_fingerprints_are_golden(study_file: Path) -> None:
    assert prints(load_study(study_file)) == GOLDEN["base"]


def test_records_of_this_room_cannot_be_changed() -> None:
    files = (Path(__file__).parents[2] / "rlbhpc/study").rglob("*.py")
    assert list(unfrozen({path: ast.parse(path.read_text()) for path in files})) == []
