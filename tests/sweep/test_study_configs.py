"""The study's own files: each is in order, and each runs from its first verb to its last."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.sweep.study_folder import CONFIGS, canary, study_folder

NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem != "common")
# What a real study of this kind asks for when its problem sets are whole is in the docs; here are
# the pairs that it compares.
PAIRS = {
    "ablations": 3, "algorithms": 6, "code": 3, "distillation": 4, "magistral": 1, "math": 6,
    "perplexity": 1, "recipes": 4, "temperature": 3, "vision": 1,
}  # fmt: skip


def rlbhpc(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", *map(str, words)], text=True, capture_output=True,
        check=False, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_study_is_in_order(name: str, tmp_path: Path) -> None:
    found = json.loads(rlbhpc("check", study_folder(tmp_path, name), "--json"))
    assert len(found["comparisons"]) == PAIRS[name]


def test_the_page_on_sizes_has_a_row_for_each() -> None:
    page = (CONFIGS.parents[1] / "docs" / "sizing.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)\.yaml`", page, re.M)) == NAMES


@pytest.mark.slow
def test_training_on_figures_that_it_would_not_show_is_refused(tmp_path: Path) -> None:
    path = study_folder(tmp_path, "vision")
    tree = yaml.safe_load(path.read_text())
    tree["models"]["rl"] = {"train": {"from": "base", "recipe": "blind"}, "steps": [1]}
    tree["recipes"] = {"blind": {"algorithm": "grpo", "problems": "mathvista", "prompt": "easyr1"}}
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(AssertionError, match=r"64\n.*recipes\.blind: mathvista/.* has images"):
        rlbhpc("check", path)


@pytest.mark.slow
def test_scores_of_answers_to_figures_are_refused(tmp_path: Path) -> None:
    path = study_folder(tmp_path, "vision")
    tree = yaml.safe_load(path.read_text())
    tree["scores"] = {"own": {"responses": "base", "model": "base"}}
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(AssertionError, match=r"64\n.*scores\.own: mathv\w+/.* has images"):
        rlbhpc("score", path)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"magistral"}))
def test_a_study_runs_from_its_models_to_its_report(name: str, tmp_path: Path) -> None:
    """Everything is there but the size: random weights, two problems a set, two samples each."""
    study, run = canary(study_folder(tmp_path, name)), tmp_path / "run"
    at = ("--set", f"output={run}")
    rlbhpc("train", study, *at, codes=(0, 4))
    rlbhpc("sample", study, *at)
    rlbhpc("score", study, *at, codes=(0, 4))
    rlbhpc("compact", run)
    rlbhpc("report", run, codes=(0, 3))
    assert (run / "report" / "report.html").stat().st_size < 5_000_000
    rlbhpc("sample", study, *at, codes=(4,))
