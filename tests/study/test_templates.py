"""The menu of `rlbhpc init`: every template checks clean where the files that it names exist."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from rlbhpc.errors import UserError
from rlbhpc.study.draft import read_template, template_menu
from rlbhpc.study.load import load_study
from tests.problems import shapes
from tests.study.folder import write_model


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every model, set and prompt that the templates name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The set itself has 2,821 problems, of which 2,000 are for training.
    records = {name: list(shape[0]) for name, shape in shapes.SHAPES.items()}
    records["omni-math-rule"] = [
        records["omni-math-rule"][0] | {"problem": f"What is {i}?"} for i in range(2_001)
    ]
    for name in template_menu():
        study = yaml.safe_load(read_template(name))
        for model in study["models"].values():
            for step in model.get("steps", [0]):
                folder = tmp_path / model.get("path", "").replace("{step}", str(step))
                if "path" in model and not folder.exists():
                    write_model(folder)
        for set_name, entry in study["problem_sets"].items():
            registered = entry.get("set", set_name)
            folder = tmp_path / entry.get("path", "")
            if "path" in entry:
                folder.mkdir(parents=True, exist_ok=True)
                # The split of Omni-MATH-Rule is made by us; those of the others are files.
                from_file = registered != "omni-math-rule" and entry.get("subset") == "train"
                split = "train" if from_file else "test"
                file = folder / f"{split}-00000-of-00001.parquet"
                pq.write_table(shapes.table(records[registered]), file)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/boxed.txt").write_text("{question}\nPut the answer into \\boxed{}.")
    return tmp_path


@pytest.mark.parametrize("name", template_menu())
def test_every_template_checks_clean(everything: Path, name: str) -> None:
    file = everything / f"{name}.yaml"
    file.write_text(read_template(name))
    study = load_study(file)
    assert study.name == name
    assert study.file.question
    assert sum(block.size for block in study.blocks()) > 0
    assert study.comparisons(), "a template without anything to compare asks nothing"


@pytest.mark.parametrize("name", template_menu())
def test_every_template_is_explained(name: str) -> None:
    text = read_template(name)
    assert text.startswith("# ")
    assert template_menu()[name] == text.splitlines()[0].removeprefix("# ")
    assert max(map(len, text.splitlines())) <= 100
    assert "docs/study-file.md" in text
    assert "\t" not in text


def test_an_unknown_template_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no template 'vison'; allowed: .* did you mean vision\?"):
        read_template("vison")


def test_six_algorithms_become_six_of_everything(everything: Path) -> None:
    file = everything / "algorithms.yaml"
    file.write_text(read_template("algorithms"))
    study = load_study(file)
    algorithms = {recipe.algorithm for recipe in study.file.recipes.values()}
    assert algorithms == {"ppo", "grpo", "reinforce++", "rloo", "remax", "dapo"}
    assert len(study.models) == len(study.arms) == 7
    assert len(study.comparisons()) == 6
    assert study.sets("base") == ("omni-test", "math500")
