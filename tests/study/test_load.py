"""Loading a whole study: what it resolves to, and one clear line for each mistake."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path

import pytest

from rlbhpc.cli.main import main
from rlbhpc.errors import UserError
from rlbhpc.store.grid import Grid
from rlbhpc.study.load import context_length, load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import store_study
from tests.study.folder import write_model


def test_a_path_may_be_a_text(study_file: Path) -> None:
    assert load_study(str(study_file)).file == load_study(study_file).file


def test_everything_is_looked_up(study_file: Path) -> None:
    study = load_study(study_file)
    assert list(study.arms) == ["base", "line", "rl", "hot-t1.0", "hot-t1.2", "far"]
    assert study.arms["line"].steps == (0, 200)
    assert study.arms["rl"].steps == (150, 300)
    assert study.arms["base"].sampling.stop == ("</answer>",)
    assert study.sets("base") == ("math500",), "the set that is trained on is not sampled"
    assert (study.n("base", "math500"), study.n("base", "math-train")) == (8, 16)
    assert [study.engine(arm) for arm in ("base", "far")] == ["hf", "endpoint"]
    assert study.problem_ids("math500")[0].startswith("math500/")
    assert {p.id for p in study.problems("math500")} == set(study.problem_ids("math500"))
    assert study.prompts[study.arms["hot-t1.0"].prompt].text == "Q: {question}\nA:"
    assert context_length(study, "rl") == 32_768
    assert study.layout.root == study_file.parent / "runs/small"


@pytest.mark.parametrize(
    ("written", "decides"),
    [("", "strict"), ("verification: lenient", "lenient"), ("verification: {timeout: 2}", "strict"),
     ("verification: {decides: lenient}", "lenient"),
     # What study files said while programs could be judged in a second way.
     ("verification: {code: sound}", "strict")],
)  # fmt: skip
def test_a_word_says_which_verdict_decides(study_file: Path, written: str, decides: str) -> None:
    text = study_file.read_text().replace("verification: {timeout: 5.0}", written)
    study_file.write_text(text)
    assert load_study(study_file).file.verification.decides == decides


def test_folders_of_checkpoints(study_file: Path) -> None:
    study = load_study(study_file)
    models = study_file.parent / "models"
    assert study.folder("base") == models / "base"
    assert study.folder("line", 200) == models / "line-200"
    assert study.folder("line", 0) == models / "base"
    assert study.folder("rl", 0) == models / "base"
    assert study.folder("rl", 150) == study.layout.checkpoint("rl", 150)
    with pytest.raises(UserError, match="served at"):
        study.folder("far")


def test_default_comparisons_pair_an_arm_with_that_of_its_base(study_file: Path) -> None:
    named = load_study(study_file)
    assert named.comparisons() == [("base", "rl"), ("base", "hot-t1.0"), ("base", "hot-t1.2")]
    found = load_study(study_file, ["analysis=null"])
    assert found.comparisons() == [("base", "line"), ("base", "rl")]


def test_an_adapter_counts_together_with_its_base(study_file: Path) -> None:
    adapter = study_file.parent / "models/adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    (adapter / "adapter_model.safetensors").write_bytes(b"a")
    change = ["models.adapter={path: models/adapter, base: base}"]
    for text in change:
        change[0] = text.replace("models/adapter", str(adapter))
    before = load_study(study_file, change)
    assert context_length(before, "adapter") == 32_768
    (study_file.parent / "models/base/model.safetensors").write_bytes(b"other")
    after = load_study(study_file, change)
    assert before.digests["adapter"] != after.digests["adapter"]
    with pytest.raises(UserError, match="say with `base:` which model it belongs to"):
        load_study(study_file, [f"models.adapter.path={adapter}"])


def test_a_trained_model_is_known_by_what_it_is_made_from(study_file: Path) -> None:
    before = load_study(study_file).digests["rl"]
    assert before[0] == load_study(study_file).digests["base"][0]
    assert len(set(before.values())) == 3
    for change in ("recipes.grpo.learning_rate=2e-6", "recipes.grpo.options.clip=0.3"):
        after = load_study(study_file, [change]).digests["rl"]
        assert after[0] == before[0]
        assert after[150] != before[150]
    own = f"recipes.grpo.prompt={study_file.parent}/own.txt"
    with_own_prompt = load_study(study_file, [own]).digests["rl"][150]
    (study_file.parent / "own.txt").write_text("{question}")
    assert load_study(study_file, [own]).digests["rl"][150] != with_own_prompt
    # A checkpoint more says nothing new about those before it.
    assert (
        load_study(study_file, ["models.rl.steps=[150, 300, 450]"]).digests["rl"][150]
        == before[150]
    )
    (study_file.parent / "models/base/model.safetensors").write_bytes(b"other")
    assert load_study(study_file).digests["rl"][150] != before[150]


def test_a_model_from_random_weights(study_file: Path) -> None:
    changes = [
        "recipes.fresh={algorithm: sft, architecture: {max_position_embeddings: 2048}}",
        "models.new={train: {recipe: fresh}, steps: [10]}",
        "arms.new={model: new}",
    ]
    study = load_study(study_file, changes)
    assert study.steps("new") == [10]
    assert context_length(study, "new") == 2048
    with pytest.raises(
        UserError, match=r"arms.new.steps\[0\]: found 0; .*for step 0 name its `base`"
    ):
        load_study(study_file, [*changes, "arms.new.steps=[0]"])
    with pytest.raises(UserError, match="starts from random weights; leave out `from`"):
        load_study(study_file, [*changes, "models.new.train.from=base"])
    with pytest.raises(UserError, match="recipe grpo has no `architecture`"):
        load_study(study_file, [*changes, "models.new.train.recipe=grpo"])


def test_a_teacher_that_learns_from_itself_is_a_cycle(study_file: Path) -> None:
    with pytest.raises(UserError, match="a cycle: rl <- rl"):
        load_study(study_file, ["recipes.grpo.teacher.arm=rl"])
    with pytest.raises(UserError, match="a cycle: rl <- rl"):
        load_study(study_file, ["recipes.grpo.options.teacher=rl"])
    load_study(study_file, ["recipes.grpo.options.teacher=[rl]"])  # its type is the algorithm's


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("arms.base.model=bas", "arms.base.model: unknown model 'bas'; allowed: base, line, rl, "),
        ("arms.base.model=bas", "far; did you mean base?"),
        ("arms.base.prompt=qwen-boxd", "unknown prompt 'qwen-boxd'; allowed: bare, boxed, "),
        ("arms.base.prompt=qwen-boxd", "did you mean qwen-boxed?"),
        ("arms.base.prompt=nowhere.txt", "arms.base.prompt: no such prompt file"),
        ("problem_sets.mine={path: x}", "'mine' is not a registered problem set; say with `set:`"),
        ("problem_sets.mine={set: math, path: x, fields: {question: q}}", "`set` and `fields`"),
        ("problem_sets.math500.path=x.jsonl", "problem_sets.math500.path: no such file or folder"),
        ("problem_sets.math500.subset=nonsense", "has no subset 'nonsense'"),
        (
            "problem_sets.math-train={set: math, subset: 'levels[5-5]'}",
            "problem_sets.math-train: no problem is in the subset 'levels[5-5]'",
        ),
        ("models.base.path=models/bas", "no such folder"),
        ("models.base={path: models/x, hub: a/b@main}", "network: hf download a/b --revision main"),
        ("problem_sets.math500.path=data/my set", "rlbhpc stage math500 --to "),
        (
            "problem_sets.mine={path: openai/gsm8k, fields: {question: q, gold: a}}",
            "hf download --repo-type dataset openai/gsm8k --local-dir ",
        ),
        ("models.line.steps=[100, 150]", "no checkpoint of step 150 at"),
        ("models.line.steps=[100, 150]", "steps there: 100, 200"),
        ("models.line.steps=[100, 100]", "100 stands twice in the list"),
        ("models.base.steps=[1]", "`steps` needs `train`, or a `path` with {step} in it"),
        ("arms.base.temprature=", "arms.base.temprature: unknown key; allowed: "),
        ("arms.base.ignore_eos=true", "arms.base.ignore_eos: unknown key; allowed: "),
        ("recipes.grpo.ignore_eos=true", "recipes.grpo.ignore_eos: unknown key; allowed: "),
        ("samplng=null", "samplng: unknown key; allowed: "),
        ("models.line.steps=null", "a line of checkpoints needs `steps`"),
        ("models.base.train={from: far, recipe: grpo}", "give exactly one of `path`, `train` and"),
        ("arms.line.steps=[0, 300]", "steps[1]: found 300; allowed: a step of model line: 0, 1"),
        ("arms.base.max_tokens=32768", "max_tokens: found 32768; model base holds 32,768 tokens"),
        ("arms.far.max_tokens=8192", "model far holds 8,192 tokens"),
        ("recipes.grpo.max_tokens=40000", "max_tokens: found 40000; model rl holds 32,768"),
        ("scores.outside.texts=none.jsonl", "scores.outside.texts: no such file"),
        ("scores.outside.responses=rl", "give either `responses` or `texts`"),
        ("match_entropy.base={arm: rl, to: base}", "match_entropy.base: base is an arm already"),
        ("analysis.compare=[{base: base, trained: hot}, {base: x, trained: rl}]", "arm 'x'; allo"),
        ("analysis.statistics=[avg]", "statistics[0]: found 'avg'; allowed: a file such as"),
        ("analysis.aspects=[mine]", "aspects[0]: found 'mine'; allowed: a file such as ./mine.py"),
        ("analysis.confidence=95", "found 95; allowed: a number above 0 and below 1"),
        ("arms.base.stop=x", "allowed: a list, of which each item is text that is not empty"),
        ("arms={base: {modle: base}}", "arms.base.modle: unknown key; allowed: model, "),
        ("arms.base.engine=no/such.py", "found 'no/such.py'; allowed: a name, or a file such as"),
        ("sampling.n='16'", "a whole number from 1 to 1,000,000; a number stands without quotes"),
        ("name=2024", 'to mean it as text, quote it: "2024"'),
        ("arms=null", "study.yaml:2: arms: missing; give a mapping"),
        ("verification.paper=yes", "found 'yes'; allowed: true or false"),
        ("inclde=x", "did you mean include?"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(study_file: Path, change: str, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        load_study(study_file, [change.replace("models/", f"{study_file.parent}/models/")])
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_hf_and_training_hold_longrope_up_to_the_original_length(study_file: Path) -> None:
    """vLLM holds what is stated; the others read longer texts with other frequencies."""
    config = study_file.parent / "models/base/config.json"
    scaling = {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096}
    config.write_text(json.dumps({**json.loads(config.read_text()), **scaling}))
    load_study(study_file, ["arms.base.max_tokens=5000", "arms.base.engine=vllm"])
    for change in ("arms.base.engine=hf", "recipes.grpo.max_tokens=5000"):
        with pytest.raises(UserError, match=r"found 5000; model .* holds 4,096 tokens"):
            load_study(study_file, ["arms.base.max_tokens=5000", "arms.base.engine=vllm", change])


def test_the_place_is_that_of_the_mistake(study_file: Path) -> None:
    text = study_file.read_text().replace("learning_rate", "learning_rat")
    study_file.write_text(text)
    line = text[: text.index("learning_rat")].count("\n") + 1
    with pytest.raises(UserError) as error:
        load_study(study_file)
    assert str(error.value) == (
        f"{study_file}:{line}: recipes.grpo.learning_rat: unknown key; allowed: algorithm, preset,"
        " problems, prompt, mixture, schedule, texts, teacher, architecture, seed,"
        " prompts_per_step, samples_per_prompt, temperature, max_tokens, learning_rate, kl,"
        " options;"
        " did you mean learning_rate?"
    )


def test_a_misspelt_key_is_told_rather_than_the_one_that_it_leaves_missing(
    study_file: Path,
) -> None:
    study_file.write_text(study_file.read_text().replace("algorithm: grpo", "algoritm: grpo"))
    with pytest.raises(UserError, match=r"algoritm: unknown key; .*did you mean algorithm\?"):
        load_study(study_file)


def test_a_mistake_in_a_default_is_told_once_and_where_it_stands(study_file: Path) -> None:
    study_file.write_text(study_file.read_text().replace("top_p: 0.95", "top_p: 95"))
    with pytest.raises(
        UserError, match=r"sampling.top_p: found 95; .* a number above 0 and up to 1$"
    ):
        load_study(study_file)


def test_a_mistake_in_an_included_file_names_that_file(study_file: Path) -> None:
    common = study_file.parent / "common.yaml"
    common.write_text("engine:\n  nme: hf\n")
    study_file.write_text("include: common.yaml\n" + study_file.read_text())
    with pytest.raises(UserError, match=r"common\.yaml:2: engine\.nme: unknown key"):
        load_study(study_file)


def test_a_problem_file_that_changed_since_planning_is_noticed(study_file: Path) -> None:
    study = load_study(study_file)
    file = study_file.parent / "math500.jsonl"
    file.write_text(file.read_text().replace("What is", "How much is"))
    with pytest.raises(UserError, match="2 problems are not what they were"):
        study.problems("math500")


def test_a_config_that_is_no_json(study_file: Path) -> None:
    (study_file.parent / "models/base/config.json").write_text("{")
    with pytest.raises(UserError, match="not readable as JSON"):
        load_study(study_file)


def test_models_with_two_parents_each_are_looked_at_once(study_file: Path) -> None:
    parents = ["base", *(f"m{i}" for i in range(40))]
    models = {
        child: {"train": {"from": parent, "recipe": f"to-{child}"}, "steps": [1]}
        for parent, child in itertools.pairwise(parents)
    }
    recipes = {
        f"to-{child}": {"algorithm": "grpo", "options": {"teacher": parent}}
        for parent, child in itertools.pairwise(parents)
    }
    changes = [f"models={json.dumps(models)}", f"recipes={json.dumps(recipes)}"]
    assert len(load_study(study_file, changes).digests["m39"]) == 2


def test_several_models_in_one_folder_of_steps(study_file: Path) -> None:
    write_model(study_file.parent / "run/global_step_7/actor/huggingface")
    path = study_file.parent / "run/global_step_{step}/actor/huggingface"
    study = load_study(study_file, [f"models.deep={{path: '{path}', steps: [7], base: base}}"])
    assert study.folder("deep", 7).is_dir()


def test_repeated_records_are_left_out_where_the_study_says_so_and_counted(
    study_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = study_file.parent / "math500.jsonl"
    records = file.read_text().splitlines()
    file.write_text("\n".join([*records, records[0], records[3]]))
    with pytest.raises(UserError, match=r"set `duplicates: drop` for this problem set"):
        load_study(study_file)
    drop = [f"problem_sets.{name}.duplicates=drop" for name in ("math500", "math-train")]
    study = load_study(study_file, drop)
    assert study.duplicates == {"math500": 2, "math-train": 2}
    assert Study.from_json(study.to_json()).duplicates == study.duplicates
    words = [str(study_file), *(word for text in drop for word in ("--set", text))]
    for verb, shown in (("check", '"duplicates_left_out": 2'), ("plan", '"math500": 2')):
        with contextlib.suppress(SystemExit):
            main([verb, *words, "--json"])
        assert shown in capsys.readouterr().out
    store_study(study)
    grid = Grid.load(study.layout.grid("base", "math500"))
    assert grid is not None
    assert grid.provenance["duplicates"] == {"math500": 2}


def test_two_problems_under_one_id_are_refused_whatever_the_study_says(study_file: Path) -> None:
    file = study_file.parent / "math500.jsonl"
    first, *others = file.read_text().splitlines()
    file.write_text("\n".join([first, *others, first.replace("0 + 1", "0 + 2")]))
    drop = [f"problem_sets.{name}.duplicates=drop" for name in ("math500", "math-train")]
    with pytest.raises(UserError, match=r"another problem than .* under the same id"):
        load_study(study_file, drop)


def test_an_endpoint_takes_no_password_in_its_address(study_file: Path) -> None:
    text = study_file.read_text()
    study_file.write_text(text.replace("http://localhost", "http://me:secret@localhost"))
    with pytest.raises(UserError, match=r"without a password; `key_env` names the key"):
        load_study(study_file)
