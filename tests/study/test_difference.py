"""What changed, and which stored samples stay valid; never one too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.study.difference import Difference, diff
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study


def compare(file: Path, *changes: str) -> Difference:
    return diff(load_study(file), load_study(file, changes))


def state(found: Difference) -> dict[str, str]:
    """Per block: all, some or none of the stored samples stay valid, or it is not asked for."""
    return {
        f"{b.arm}@{b.step}": "gone"
        if not b.asked
        else "all"
        if b.valid == b.problems
        else f"{b.valid}/{b.problems}"
        for b in found.blocks
    }


ALL = ["base@0", "line@0", "line@200", "rl@150", "rl@300", "hot-t1.0@0", "hot-t1.2@0", "far@0"]


def test_nothing_changed(study_file: Path) -> None:
    found = compare(study_file)
    assert set(state(found).values()) == {"all"}


@pytest.mark.parametrize(
    "change",
    [
        "sampling.n=99",
        "cluster=null",
        "engine.tensor_parallel=2",
        "arms.new={model: base}",
        "prompts.new={shots: {from: math-train, n: 1}}",
        "models.rl.steps=[150, 300, 450]",
    ],
)
def test_harmless_changes_keep_everything(study_file: Path, change: str) -> None:
    found = compare(study_file, change)
    assert set(state(found).values()) == {"all"}


def test_a_sampling_setting_concerns_its_arms(study_file: Path) -> None:
    found = compare(study_file, "arms.rl.temperature=0.9")
    assert state(found) == dict.fromkeys(ALL, "all") | {"rl@150": "0/2", "rl@300": "0/2"}
    assert "rl, math500, step 150: 0 of 2 problems stay valid (other temperature)" in [
        str(block) for block in found.blocks
    ]


def test_a_model_concerns_its_steps(study_file: Path) -> None:
    old = load_study(study_file)
    (study_file.parent / "models/line-200/model.safetensors").write_bytes(b"other")
    found = diff(old, load_study(study_file))
    assert state(found) == dict.fromkeys(ALL, "all") | {"line@200": "0/2"}


def test_a_base_concerns_all_that_comes_from_it(study_file: Path) -> None:
    old = load_study(study_file)
    (study_file.parent / "models/base/model.safetensors").write_bytes(b"other")
    found = diff(old, load_study(study_file))
    assert state(found) == dict.fromkeys(ALL, "0/2") | {"line@200": "all", "far@0": "all"}


def test_a_prompt_file_concerns_its_arms(study_file: Path) -> None:
    old = load_study(study_file)
    (study_file.parent / "own.txt").write_text("Question: {question}\nA:")
    found = diff(old, load_study(study_file))
    assert state(found) == dict.fromkeys(ALL, "all") | {"hot-t1.0@0": "0/2", "hot-t1.2@0": "0/2"}


def test_one_problem_concerns_that_problem(study_file: Path) -> None:
    old = load_study(study_file)
    local_id = old.problem_ids("math500")[0]
    number = local_id.rpartition("/")[2].removesuffix(".json")
    file = study_file.parent / "math500.jsonl"
    file.write_text(file.read_text().replace(f"What is {number} ", f"What was {number} "))
    found = diff(old, load_study(study_file))
    assert state(found) == dict.fromkeys(ALL, "1/2")


def test_what_is_no_longer_asked_for_is_kept(study_file: Path) -> None:
    found = compare(study_file, "arms.line=null", "arms.rl.steps=[300]")
    gone = {"line@0": "gone", "line@200": "gone", "rl@150": "gone"}
    assert state(found) == dict.fromkeys(ALL, "all") | gone


def test_a_seed_concerns_everything(study_file: Path) -> None:
    assert set(state(compare(study_file, "seed=8")).values()) == {"0/2"}


def test_a_valid_sample_was_asked_for_in_exactly_this_way(study_file: Path) -> None:
    """Whatever the change: valid means that the fingerprint is the same."""
    old = load_study(study_file)
    changes = ["seed=1", "sampling.prompt=completion", "arms.base.model=line", "sampling.n=3",
               "problem_sets.math500.subset='holdout[2]'", "arms.base.steps=[0]"]  # fmt: skip
    for change in changes:
        new: Study = load_study(study_file, [change])
        for block in diff(old, new).blocks:
            if block.asked:
                before = old.block(block.arm, block.set_name, block.step)
                after = new.block(block.arm, block.set_name, block.step)
                stored = dict(zip(before.problems, before.fingerprints, strict=True))
                same = sum(
                    stored.get(problem) == found
                    for problem, found in zip(after.problems, after.fingerprints, strict=True)
                )
                assert block.valid == same, change


def test_the_lines_and_values_of_a_difference(study_file: Path) -> None:
    found = compare(study_file, "arms.far=null", "sampling.n=99", "arms.line.steps=[0]")
    lines = [str(block) for block in found.blocks]
    assert lines[0] == "base, math500, step 0: all stored samples stay valid"
    assert lines[2] == "line, math500, step 200: no longer asked for; its samples stay on disk"
    record = found.as_dict()
    assert list(record) == ["stored", "other_verifier"]
    assert record["stored"][0] == {
        "arm": "base", "set_name": "math500", "step": 0, "valid": 2, "problems": 2,
        "because": (), "asked": True,
    }  # fmt: skip
    assert record["other_verifier"] == []


def test_other_problems_and_verifiers_are_told(study_file: Path) -> None:
    old = load_study(study_file)
    changes = ["problem_sets.math500.subset='holdout[2]'", "problem_sets.math500.verifier=choice"]
    found = diff(old, load_study(study_file, changes))
    assert str(found.blocks[0]) == (
        "base, math500, step 0: 0 of 3 problems stay valid (other problem, new problems)"
    )
    assert found.judged == ("math500",)
    lenient = load_study(study_file, ["verification.decides=lenient"])
    assert diff(load_study(study_file), lenient).judged == ("math-train", "math500")
