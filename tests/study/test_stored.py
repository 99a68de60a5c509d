"""Studies as runs keep them, and what a study answers about its arms and models."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlbhpc.errors import UserError
from rlbhpc.study.keys import Block
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study, stored_study, study_of
from rlbhpc.study.plugin_check import self_contained
from rlbhpc.study.study import FORMAT, Study, load_problems


def test_a_study_as_it_was_launched_is_read_as_it_is(study_file: Path) -> None:
    study = load_study(study_file)
    stored = study_file.parent / "study.json"
    stored.write_text(study.to_json())
    assert '"question": "Où?"' in load_study(study_file, ["question=Où?"]).to_json()
    study_file.unlink()
    assert load_study(stored) == stored_study(stored) == study
    with pytest.raises(UserError, match=r"study\.json: a study as it was launched takes no --set"):
        load_study(stored, ["seed=1"])
    with pytest.raises(UserError, match=r"none\.json: no such file"):
        load_study(study_file.parent / "none.json")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"seed": 7', '"seed": 8', "not a study as rlbhpc stores it (ValueError); plan the study"),
        (
            f'"format": {FORMAT}',
            '"format": 9',
            "this study was written in format 9, and this version of rlbhpc reads 1; use the",
        ),
        ("math500", "\udcff", "run `rlbhpc sample` or `launch` again"),
    ],
)
def test_a_damaged_study_is_named(study_file: Path, old: str, new: str, said: str) -> None:
    text = load_study(study_file).to_json()
    # A record of before has no check of its own.
    lines = [line for line in text.splitlines() if '"check"' not in line or old == '"seed": 7']
    stored = study_file.parent / "study.json"
    stored.write_bytes("\n".join(lines).replace(old, new).encode(errors="surrogateescape"))
    with pytest.raises(UserError) as refused:
        stored_study(stored)
    assert str(refused.value).startswith(f"{stored}: ") and said in str(refused.value)
    assert str(refused.value).endswith("; run `rlbhpc sample` or `launch` again")


def test_a_run_may_have_no_study(study_file: Path) -> None:
    study = load_study(study_file)
    assert study_of(study.layout) is None
    assert study_of(Layout(study_file)) is None
    study.layout.root.mkdir(parents=True)
    study.layout.study.write_text(study.to_json())
    assert study_of(study.layout) == study
    # Records from before the check are read too.
    lines = [line for line in study.to_json().splitlines() if '"check"' not in line]
    assert Study.from_json("\n".join(lines)) == study


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ["prompts={bare: {shots: {from: math-train, n: 1}}}"],
            "--set: prompts.bare: bare is a registered prompt; name yours differently",
        ),
        (["arms.base.prompt=models.txt"], "arms.base.prompt: not a prompt file: "),
        (["scores.outside.texts=models"], "scores.outside.texts: not a file: "),
        (["models.base.path=own.txt"], "models.base.path: not a folder: "),
        (
            ["models.line.path='none/{step}'"],
            "no checkpoint of step 100 at 'HERE/none/{step}'; steps there: none",
        ),
        (
            ["models.base.path=models/bsae"],
            "no such folder: 'HERE/models/bsae'; did you mean base?",
        ),
        (
            ["models.base={path: m, hub: a/b}"],
            "'HERE/m'; where there is a network: hf download a/b --local-dir HERE/m",
        ),
        (
            ["models.base={path: m n, hub: a/b@v1}"],
            "hf download a/b --revision v1 --local-dir 'HERE/m n'",
        ),
        (
            ["problem_sets.math500={set: aime24, path: data/x y}"],
            "problem_sets.math500.path: no such file or folder: 'HERE/data/x y'; where there is a"
            " network: rlbhpc stage aime24 --to HERE/data",
        ),
        (["problem_sets.math500.ids=none.txt"], "problem_sets.math500: HERE/none.txt: "),
        (["arms.base.max_tokens=32768"], "found 32768; model base holds 32,768 tokens, prompt"),
        (["recipes.grpo.max_tokens=32768"], "found 32768; model rl holds 32,768 tokens, prompt"),
        (["models.rl.train.from=null"], "models.rl.train: no `from`, and recipe grpo has no"),
        (
            ["models.line.base=null", "arms.line.steps=[0]"],
            "found 0; allowed: a step of model line: 100, 200; for step 0 name its `base`",
        ),
        (
            ["arms.line.steps=[100, 300]"],
            "steps[1]: found 300; allowed: a step of model line: 0, 100, 200",
        ),
        (
            ["problem_sets.mine={path: x}"],
            "'mine' is not a registered problem set; say with `set:` which one it is: gsm8k, math",
        ),
    ],
)
def test_what_is_looked_up_and_missing(
    study_file: Path, changes: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study_file.parent)
    (study_file.parent / "models.txt").mkdir()
    with pytest.raises(UserError) as refused:
        load_study(study_file, changes)
    assert said.replace("HERE", str(study_file.parent)) in str(refused.value)


def test_what_just_fits_is_accepted(study_file: Path) -> None:
    study = load_study(study_file, ["arms.base.max_tokens=32767", "recipes.grpo.max_tokens=32767"])
    assert study.arms["base"].sampling.max_tokens == 32_767
    fields = "{question: problem, gold: answer, id: unique_id}"
    own = f"problem_sets.mine={{path: {study_file.parent}/math500.jsonl, fields: {fields}}}"
    ids = study_file.parent / "ids.txt"
    ids.write_text("other/test/algebra/3.json\n")
    chosen = load_study(study_file, [own, f"problem_sets.mine.ids={ids}"])
    assert chosen.problem_ids("mine") == ("mine/test/algebra/3.json",)
    assert chosen.first_with_image("mine") is None


def test_right_samples_end_a_problem_below_its_n(study_file: Path) -> None:
    def rule(*changes: str) -> int:
        return load_study(study_file, changes).stop_after("base", "math500")

    assert rule() == 0
    assert rule("arms.base.stop_after=7") == 7
    assert rule("arms.base.stop_after=8") == 0, "all n are drawn anyway"
    assert rule("arms.base.stop_after=3", "problem_sets.math500.stop_after=2") == 2
    assert rule("arms.base.stop_after=3", "problem_sets.math500.stop_after=0") == 0
    block = load_study(study_file, ["arms.base.stop_after=7"]).block("base", "math500", 0)
    assert (block.n, block.stop_after, block.size) == (8, 7, 16)
    assert block != Block(**vars(block)), "blocks are compared by identity, as arrays are"


def test_trainings_that_differ_in_their_seed_are_one(study_file: Path) -> None:
    assert load_study(study_file).trainings() == {}
    seeds = "recipes.grpo.seed=[0, 1]"
    assert load_study(study_file, [seeds]).trainings() == {"rl": ("rl-s0", "rl-s1")}
    other = "arms.more={model: rl, temperature: 0.9}"
    pooled = {"rl": ("rl-s0", "rl-s1"), "more": ("more-s0", "more-s1")}
    assert load_study(study_file, [seeds, other]).trainings() == pooled
    twins = ["recipes.twin={algorithm: grpo, problems: math-train, seed: 3}",
             "models.twin={train: {from: base, recipe: twin}, steps: [150, 300]}",
             "arms.twin={model: twin}"]  # fmt: skip
    assert load_study(study_file, twins).trainings() == {}, "other settings, another training"


def test_an_arm_is_compared_with_the_nearest_one_before_it(study_file: Path) -> None:
    def pairs(*changes: str) -> list[tuple[str, str]]:
        return load_study(study_file, ["analysis=null", *changes]).comparisons()

    further = ["models.rl2={train: {from: rl, recipe: grpo}, steps: [5]}", "arms.rl2={model: rl2}"]
    assert pairs(*further) == [("base", "line"), ("base", "rl"), ("rl", "rl2")]
    without = ["arms.rl=null", "scores.rl-under-base=null", "match_entropy=null"]
    assert pairs(*further, *without) == [("base", "line"), ("base", "rl2")]
    assert pairs("arms.rl.temperature=0.9") == [("base", "line")]
    assert pairs("arms.rl.prompt=completion") == [("base", "line")]
    assert pairs("arms.rl.problem_sets=[math-train]") == [("base", "line")]


def test_the_engine_of_an_arm(study_file: Path) -> None:
    study = load_study(study_file, ["arms.base.engine=vllm"])
    assert [study.engine(arm) for arm in ("base", "rl", "far")] == ["vllm", "hf", "endpoint"]
    assert study.name == "small"
    assert study.seed == 7
    set_of_study = study.problem_sets["math500"].model_copy(update={"verifier": "choice"})
    problem = load_problems("math500", set_of_study)[0]
    assert (problem.verifier, problem.set_name) == ("choice", "math500")


def test_files_that_a_study_brings_are_copied_for_its_jobs(study_file: Path) -> None:
    mine, same = (study_file.parent / name for name in ("mine.py", "same.py"))
    for file in (mine, same):
        file.write_text("ENGINE = 1\n")
    study = load_study(study_file, [f"arms.base.engine={mine}:ENGINE", f"arms.rl.engine={same}"])
    alone = self_contained(study)
    assert alone == self_contained(study)
    assert list(alone.plugins.values()) == list(study.plugins.values())
    engine, _, name = alone.engine("base").partition(":")
    assert (Path(engine).read_text(), name) == ("ENGINE = 1\n", "ENGINE")
    copies = sorted(path.name for path in Path(engine).parent.iterdir())
    assert copies == ["mine.py", "same.py"]
    Path(engine).unlink()
    mine.write_text("ENGINE = 2\n")
    with pytest.raises(
        UserError, match=rf"{mine} was changed just now; run the same command again"
    ):
        self_contained(study)
    assert not Path(engine).exists()
