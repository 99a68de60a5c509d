"""Seeds of a recipe as one arm, and named means over problem sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.answer import (
    means,
    means_frame,
    pooled_answers,
    pooled_lines,
    recipes,
    recipes_frame,
)
from rlbhpc.report.gather import gather
from rlbhpc.report.page import page
from rlbhpc.report.write import latex
from rlbhpc.stats import Verdict
from rlbhpc.store import tables
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep import looks
from rlbhpc.sweep.looks import LookRecord
from tests.report.golden import agree, frame_lines, page_lines, printed
from tests.report.made import frames_of
from tests.study.folder import write_model, write_problems

RUNS = ("rl-s0", "rl-s1", "rl-s2")
SETS = ("easy", "hard")
STUDY = """
name: seeds
models:
  base: {path: models/base}
  rl: {train: {from: base, recipe: grpo}, steps: [10]}
  other: {train: {from: base, recipe: kl}, steps: [10]}
recipes:
  grpo: &grpo {algorithm: grpo, problems: learn, prompt: completion, seed: [0, 1, 2]}
  kl: {<<: *grpo, seed: 0, kl: 0.1}
problem_sets:
  easy: &set {set: math500, path: math500.jsonl}
  hard: *set
  learn: *set
sampling: {prompt: completion, temperature: 0.6, max_tokens: 64, n: 64}
arms:
  base: {model: base}
  rl: {model: rl}
  other: {model: other}
analysis:
  margin: 0.03
  averages: [{name: Both, problem_sets: [easy, hard]}]
"""


def study_of_seeds(folder: Path) -> Study:
    write_model(folder / "models/base")
    write_problems(folder / "math500.jsonl", 60)
    file = folder / "study.yaml"
    file.write_text(STUDY)
    study = load_study(file)
    study.layout.root.mkdir(parents=True)
    study.layout.study.write_text(study.to_json())
    return study


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Report:
    study = study_of_seeds(tmp_path_factory.mktemp("seeds"))
    rng = np.random.default_rng(2)
    for set_name in SETS:
        base = rng.beta(0.5, 1.5, 60)
        for arm in ("base", *RUNS, "other"):
            lost = rng.random(60) < 0.25
            p = base if arm in ("base", "other") else np.where(lost, 0.0, np.sqrt(base))
            step = 0 if arm == "base" else 10
            counts = zip(study.problem_ids(set_name), rng.binomial(64, p), strict=True)
            cells = {(step, problem): (64, int(c)) for problem, c in counts}
            tables.put_counts(study.layout, arm, set_name, arm, cells)
    return gather(study.layout.root)


def test_seeds_and_means_are_shown_as_they_were_found_right(pooled: Report) -> None:
    agree("pooled_page", page_lines(page(pooled)))
    agree("pooled_tables", frame_lines(frames_of(pooled)))
    agree("pooled_latex", latex(pooled).split("\n"))
    agree("pooled_wide", printed(pooled, 160))
    agree("pooled_narrow", printed(pooled, 50))


def test_seeds_of_one_recipe_are_one_arm(pooled: Report) -> None:
    assert pooled.settings.trainings == {"rl": RUNS}
    assert [(r.name, r.problem_set) for r in recipes(pooled)] == [("rl", s) for s in SETS]
    for recipe in recipes(pooled):
        alone = [p for p in pooled.last_comparisons if p.trained.arm in RUNS]
        nets = [float(p.net.estimate) for p in alone if p.base.problem_set == recipe.problem_set]
        assert float(recipe.answer.net.estimate) == pytest.approx(np.mean(nets))
        assert recipe.answer.seeds == 3
        assert recipe.answer.margin == alone[0].answer.margin == 0.03
        assert recipe.answer.states.lost is Verdict.YES
    assert list(recipes_frame(recipes(pooled))["recipe"]) == ["rl", "rl"]


def test_a_mean_has_the_name_and_the_interval_of_independent_sets(pooled: Report) -> None:
    mean = next(m for m in means(pooled) if m.trained == "rl-s0")
    pairs = [p for p in pooled.last_comparisons if p.trained.arm == "rl-s0"]
    assert mean.name == "Both"
    assert mean.k == 64
    assert float(mean.at_k.estimate) == pytest.approx(np.mean([p.net.estimate for p in pairs]))
    widths = [p.net.high - p.net.low for p in pairs]
    assert mean.at_k.high - mean.at_k.low == pytest.approx(np.hypot(*widths) / 2)
    assert len(means_frame(means(pooled))) == 2 * 4


def test_both_stand_with_the_answer(pooled: Report) -> None:
    text = "".join(
        "".join(node.itertext()) for node in pooled_answers(pooled) if not isinstance(node, str)
    )
    easy = next(recipe for recipe in recipes(pooled) if recipe.problem_set == "easy")
    assert f"3 seeds of rl against base on easy: {easy.answer.headline}" in text
    assert "standard deviation" in text
    assert any(line.startswith("Both: rl-s0 against base") for line in pooled_lines(pooled))


def test_seeds_that_looks_decided_are_pooled_without_them(pooled: Report) -> None:
    pair = next(p for p in pooled.last_comparisons if p.trained.arm in RUNS)
    base, trained = ((side.arm, side.step) for side in (pair.base, pair.trained))
    answer = pair.answer
    look = LookRecord(
        base, trained, pair.problem_set, pair.reach, pair.margin, 1, "", 0.5, answer.lost,
        answer.gained, "decided",
    )  # fmt: skip
    layout = Layout(pooled.folder)
    looks.write(layout, [look])
    after = {recipe.problem_set: recipe for recipe in recipes(gather(pooled.folder))}
    layout.looks.unlink()
    for recipe in recipes(pooled):
        # As text: from Python 3.13 on, two answers with a NaN are never equal.
        assert repr(after[recipe.problem_set].answer) == repr(recipe.answer)
        tells = "one test of the first 64 samples" in after[recipe.problem_set].words[-1]
        assert tells == (recipe.problem_set == pair.problem_set)
