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

from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.study.expand import expand
from rlbhpc.study.schema import Recipe
from rlbhpc.study.tree import load_tree, read_tree
from tests.engines.server import serving
from tests.sweep.study_folder import CONFIGS, FAMILIES, canary, study_folder

NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem != "common")
# What a real study of this kind asks for when its problem sets are whole is in the docs; here are
# the pairs that it compares.
PAIRS = {
    "ablations": 3, "algorithms": 6, "code": 3, "distillation": 4, "magistral": 1, "math": 6,
    "math_stopped": 6, "perplexity": 1, "recipes": 5, "temperature": 3, "vision": 1,
    "absolute-zero": 2, "controls": 6, "exploration": 11, "rlpr": 4, "ttrl": 2,
    "absolute-zero-table": 9, "olmo3": 2, "power": 2, "tools": 2,
}  # fmt: skip


def rlbhpc(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rlbhpc", *map(str, words)], text=True, capture_output=True,
        check=False, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# From hkust-nlp/simpleRL-reason (README, train_grpo_math_tune_ray.sh), sail-sg/understand-r1-zero
# (examples/qwen2.5-math-7b.sh), verl's recipe/dapo at 2bb42ba~1, Code-R1's main_grpo.sh, and
# hiyouga/EasyR1 (examples/config.yaml with the clip ranges and the mean of its ActorConfig).
PUBLISHED = {
    "simplerl": {
        "rollout": 8192, "updates": 4, "max_tokens": 8192, "learning_rate": 5e-7, "kl_loss": 1e-4,
        "kl_kind": "k3", "entropy_bonus": 1e-3, "weight_decay": 0.01, "warmup_steps": 0,
        "scale": "group", "clip_high": 0.2, "aggregation": "token",
    },
    "oat": {
        "rollout": 1024, "updates": 8, "max_tokens": 3000, "learning_rate": 1e-6, "kl_loss": 0,
        "entropy_bonus": 0, "weight_decay": 0, "warmup_steps": 0, "scale": "none",
        "aggregation": "constant",
    },
    "dapo": {
        "rollout": 8192, "updates": 16, "max_tokens": 20480, "learning_rate": 1e-6, "kl_loss": 0,
        "weight_decay": 0.1, "warmup_steps": 10, "clip_low": 0.2, "clip_high": 0.28,
        "dual_clip": 10, "overlong_buffer": 4096, "max_refills": 10, "aggregation": "token",
        # Half of what lies between right and wrong.
        "rewards": {"correct": 2.0}, "overlong_factor": 1.0,
    },
    "code-r1": {
        "rollout": 256, "updates": 1, "max_tokens": 4096, "learning_rate": 5e-7, "kl_loss": 1e-3,
        "kl_kind": "k3", "entropy_bonus": 1e-3, "weight_decay": 0.01, "scale": "group",
        "clip_high": 0.2, "aggregation": "token",
    },
    "easyr1": {
        "rollout": 2560, "updates": 4, "max_tokens": 2048, "learning_rate": 1e-6, "kl_loss": 1e-2,
        "kl_kind": "k3", "entropy_bonus": 0, "weight_decay": 0.01, "warmup_steps": 0,
        "scale": "group", "ddof": 1, "clip_low": 0.2, "clip_high": 0.3, "dual_clip": 3.0,
        "aggregation": "token", "rewards": {"correct": 0.9, "format": 0.1},
    },
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_numbers_that_were_published(name: str) -> None:
    from rlbhpc.train.recipes import algorithm_of, settings_of

    tree = read_tree(CONFIGS / "recipes.yaml").plain()
    recipe = Recipe.model_validate(tree["recipes"][name])
    settings, algorithm = settings_of(recipe, 1), algorithm_of(recipe)
    rollout = settings.prompts_per_step * settings.samples_per_prompt
    found = {**vars(algorithm), **vars(settings), "rollout": rollout}
    found["updates"] = settings.epochs * rollout // (settings.mini_batch or rollout)
    assert {key: found[key] for key in PUBLISHED[name]} == PUBLISHED[name]


def test_the_study_asks_for_what_its_authors_ran() -> None:
    """LeapLabTHU/limit-of-RLVR where it differs from the paper; see the templates' README."""
    study = expand(load_tree(CONFIGS / "math.yaml")).plain()
    sets, arms, models = study["problem_sets"], study["arms"], study["models"]

    def n(arm: str, problem_set: str) -> int:
        """The samples of a set, which may stand under another name for its number."""
        (name,) = (s for s in arms[arm]["problem_sets"] if sets[s].get("set", s) == problem_set)
        return int(sets[name].get("n", arms[arm]["n"]))

    few = dict.fromkeys(("math500", "minerva", "olympiadbench", "gsm8k"), 128)
    usual = {"aime24": 1024, "amc23": 1024, **few}
    other = {"llama": {"olympiadbench": 1024}, "qwen-math": {"aime24": 2048}}
    prompts = {"llama": "simplerl-abel", "qwen-32b-as-dapo": "dapo-large-k",
               "qwen-32b-dapo": "dapo-large-k"}  # fmt: skip
    for arm, entry in arms.items():
        numbers = {s: n(arm, s) for s in usual}
        assert numbers == usual | next((v for k, v in other.items() if arm.startswith(k)), {}), arm
        expected = (prompt for k, prompt in prompts.items() if arm.startswith(k))
        assert entry["prompt"] == next(expected, "qwen-boxed"), arm
        assert (entry["temperature"], entry["top_p"]) == (0.6, 0.95)
        assert entry["max_tokens"] == (3072 if arm.startswith("qwen-math") else 16384)
    revisions = {name: model["hub"].partition("@")[2] for name, model in models.items()}
    assert {name: revision for name, revision in revisions.items() if revision} == {
        "qwen-32b-dapo": "38b8075427d3f7d12075377d1e40495875066189"
    }


def test_every_published_model_has_the_type_of_its_family() -> None:
    """By the words of its name; one of a family that is not here would be taken for a Qwen."""
    hubs = re.findall(r"hub: ([\w./-]+)", "".join(map(Path.read_text, CONFIGS.glob("*.yaml"))))
    others = "google/|mistralai/|meta-llama/|allenai/|-VL-|[Ll]lama|Olmo"
    for hub in set(hubs):
        (model_type, _) = next(family for word, family in FAMILIES.items() if word in hub)
        assert (model_type == "qwen2") == (re.search(others, hub) is None), hub


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_the_study_is_in_order(name: str, tmp_path: Path) -> None:
    found = json.loads(rlbhpc("check", study_folder(tmp_path, name), "--json"))
    assert len(found["comparisons"]) == PAIRS[name]


def test_the_page_on_sizes_has_a_row_for_each() -> None:
    page = (CONFIGS.parents[1] / "docs" / "sizing.md").read_text()
    assert sorted(re.findall(r"^\| `([\w-]+)\.yaml`", page, re.M)) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "start", "why"),
    [("grpo", "blind", "which the model in .*tiny cannot be shown"),
     ("sft", "base", "and supervised training shows none")],
)  # fmt: skip
def test_training_on_figures_that_it_would_not_show_is_refused(
    tmp_path: Path, algorithm: str, start: str, why: str
) -> None:
    path = study_folder(tmp_path, "vision")
    tree = yaml.safe_load(path.read_text())
    tree["models"]["blind"] = {"path": str(tmp_path / "tiny")}
    tree["models"]["rl"] = {"train": {"from": start, "recipe": "rl"}, "steps": [1]}
    tree["recipes"] = {"rl": {"algorithm": algorithm, "problems": "mathvista", "prompt": "easyr1"}}
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(AssertionError, match=rf"64\n.*recipes\.rl: mathvista/.* has images, {why}"):
        rlbhpc("check", path)


@pytest.mark.slow
def test_scores_of_answers_to_figures_are_refused(tmp_path: Path) -> None:
    path = study_folder(tmp_path, "vision")
    tree = yaml.safe_load(path.read_text())
    tree["scores"] = {"own": {"responses": "base", "model": "base"}}
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(AssertionError, match=r"64\n.*scores\.own: mathv\w+/.* has images"):
        rlbhpc("score", path)


@pytest.mark.by_turns(5)
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"magistral"}))
def test_a_study_runs_from_its_models_to_its_report(name: str, tmp_path: Path) -> None:
    """Everything is there but the size: random weights, two problems a set, two samples each."""
    from_models_to_report(canary(study_folder(tmp_path, name)), tmp_path / "run")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_of_endpoints_runs_to_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server under both names, as it stands behind two addresses in the study."""
    monkeypatch.setenv("MISTRAL_API_KEY", "not-a-secret")
    study = canary(study_folder(tmp_path, "magistral"))
    tiny = make_tiny_model(tmp_path / "served", initializer_range=0.1)
    names = ("mistral-medium-3", "magistral-medium")
    with serving(tiny, tmp_path, "not-a-secret", *names) as port:
        url = f"endpoint.url=http://127.0.0.1:{port}/v1"
        urls = (f"--set=models.{model}.{url}" for model in ("base", "rl"))
        from_models_to_report(study, tmp_path / "run", *urls)


def from_models_to_report(study: Path, run: Path, *changes: str) -> None:
    """Every verb in turn; the second time there is nothing left to sample."""
    at = ("--set", f"output={run}", *changes)
    rlbhpc("train", study, *at, codes=(0, 4))
    rlbhpc("sample", study, *at)
    rlbhpc("score", study, *at, codes=(0, 4))
    rlbhpc("compact", run)
    rlbhpc("report", run, codes=(0, 3))
    assert (run / "report" / "report.html").stat().st_size < 5_000_000
    rlbhpc("sample", study, *at, codes=(4,))
