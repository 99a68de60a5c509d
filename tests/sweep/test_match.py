"""Entropy matching: the bisection, and the temperature found for a real pair of models."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rlbhpc.cli.scoring import arm_line, match_entropy
from rlbhpc.engines.tiny import make_tiny_model
from rlbhpc.errors import UserError
from rlbhpc.study.load import load_study
from rlbhpc.sweep.load import load_engine
from rlbhpc.sweep.match import bisect, draw_problems, mean_entropy
from tests.studies import write_unloadable_model


@given(st.floats(0.1, 8), st.floats(0.06, 9), st.sampled_from([0.1, 0.01, 0.001]))
def test_bisection_finds_any_temperature(true: float, start: float, tolerance: float) -> None:
    found = bisect(lambda t: 3 * t / (1 + t), 3 * true / (1 + true), start, tolerance)
    assert abs(found.entropy - found.target) <= tolerance
    assert found.entropy == pytest.approx(3 * found.temperature / (1 + found.temperature))
    assert len(found.tried) < 30


@pytest.mark.parametrize(
    ("wanted", "tolerance", "tried"),
    [
        (2.0, 0.3, [1.0, 1.5, 2.25]),
        (2.0, 0.2, [1.0, 1.5, 2.25, 1.875]),
        (0.5, 0.1, [1.0, 0.6667, 0.4445]),
        (1.25, 0.25, [1.0]),  # as near as it has to be, above and below
        (0.75, 0.25, [1.0]),
        (1.00005, 0.00002, [1.0, 1.5, 1.25, 1.125, 1.0625, 1.0312, 1.0156, 1.0078, 1.0039,
                            1.0019, 1.001, 1.0005, 1.0002]),
    ],
)  # fmt: skip
def test_the_search_steps_to_the_other_side_and_halves(
    wanted: float, tolerance: float, tried: list[float]
) -> None:
    temperatures: list[float] = []

    def entropy(temperature: float) -> float:
        temperatures.append(temperature)
        return temperature

    with suppress(UserError):
        bisect(entropy, wanted, 1.0, tolerance)
    assert temperatures == tried


def test_an_entropy_out_of_reach_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no temperature from"):
        bisect(lambda t: min(t, 2.0), 2.5, 1.0, 0.01)
    with pytest.raises(UserError, match="nearest"):
        bisect(lambda t: 1 + math.floor(t), 1.5, 1.0, 0.01)


STUDY = """
name: match
models:
  base: {path: base}
  rl: {path: "rl-{step}", base: base, steps: [1]}
problem_sets:
  countdown: {subset: test, limit: 40}
sampling: {prompt: countdown, max_tokens: 16, n: 2}
arms:
  base: {model: base, temperature: 1.0}
  rl: {model: rl, temperature: 1.0, top_p: 0.9, stop: ["\\n\\n"]}
match_entropy:
  rl-matched: {arm: rl, to: base, tolerance: 0.02, problems: 12, n: 6}
engine: {name: hf, dtype: float32, options: {rows: 96}}
"""


def test_the_matched_arm_is_a_line_of_a_study(tmp_path: Path) -> None:
    for name in ("base", "rl-1"):
        write_unloadable_model(tmp_path / name)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace('stop: ["\\n\\n"]', 'stop: ["。", "\\n"], prompt: qwen-boxed'))
    assert arm_line(load_study(path), "rl-matched", 1.25) == (
        "rl-matched: {model: rl, prompt: qwen-boxed, temperature: 1.25, top_p: 0.9, "
        'max_tokens: 16, stop: ["。", "\\n"], n: 2}'
    )
    path.write_text(STUDY.partition("match_entropy")[0] + "engine: {name: hf}\n")
    done = CliRunner().invoke(match_entropy, [str(path)], standalone_mode=False)
    assert (done.return_value, done.output) == (4, "The study asks for no match.\n")


@pytest.mark.engine
def test_a_sharpened_model_is_heated_to_the_entropy_of_its_base(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "base", hidden_size=32, initializer_range=0.1)
    make_tiny_model(tmp_path / "rl-1", hidden_size=32, initializer_range=0.3)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    result = CliRunner().invoke(
        match_entropy, [str(path)], standalone_mode=False, catch_exceptions=False
    )
    text = result.stdout
    assert "tolerance 0.02" in text
    arm = yaml.safe_load(text.splitlines()[-1])["rl-matched"]
    assert arm["temperature"] > 1.2
    # The line that was printed makes a study whose arm has that entropy.
    written = yaml.safe_load(STUDY)
    asked = load_study(path)
    del written["match_entropy"]
    written["arms"]["rl-matched"] = arm
    path.write_text(yaml.safe_dump(written))
    study = load_study(path)
    match = asked.file.match_entropy["rl-matched"]
    problems = draw_problems(asked, match)
    assert [p.id for p in problems] == [p.id for p in draw_problems(asked, match)]
    assert len(problems) == 12
    entropies = []
    for name in ("base", "rl-matched"):
        engine = load_engine(study, "hf", study.arms[name].model, study.arms[name].steps[-1])
        entropies.append(mean_entropy(study, match, engine, name, None, problems))
        engine.close()
    # Other seeds than in the search (another arm's name), so only about as near.
    assert abs(entropies[0] - entropies[1]) < 0.15
