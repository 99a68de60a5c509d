"""pass@(k, T) in a report: shown where samples are episodes of turns, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects import turns
from rlbhpc.report.gather import gather
from rlbhpc.stats import answer
from tests.report.made import frames_of, make_study, put_samples

PROBLEMS, N, LONGEST = 30, 16, 5


@pytest.fixture
def with_turns(tmp_path: Path) -> Report:
    """A base of plain responses, and a trained arm whose episodes take one to five turns."""
    return report_with_turns(tmp_path, base_rate=0.2, trained_rate=0.6)


def report_with_turns(folder: Path, base_rate: float, trained_rate: float) -> Report:
    study = make_study(folder / "run", PROBLEMS, N)
    rng = np.random.default_rng(2)
    put_samples(study, "base", rng.random((PROBLEMS, N)) < base_rate)
    put_samples(study, "rl", rng.random((PROBLEMS, N)) < trained_rate, 100)
    report = gather(study.layout.root)
    group = report.tree["rl/math"]
    lengths = rng.integers(1, LONGEST + 1, group["verdict"].shape).astype(np.int32)
    dims = group["verdict"].dims
    columns = {"n_turns": (dims, lengths), "n_tool_calls": (dims, lengths - 1)}
    group.dataset = group.to_dataset().assign(columns)
    return report


def words(nodes: Any) -> str:
    return " ".join(text for node in nodes if hasattr(node, "itertext") for text in node.itertext())


def test_the_surface_rises_in_turns_and_ends_at_the_usual_curve(with_turns: Report) -> None:
    frame = frames_of(with_turns)["turns"]
    trained = frame[frame["arm"] == "rl"].pivot(index="turns", columns="k", values="pass_at_k")
    assert trained.index.tolist() == [1, 2, 4, 5]
    assert (np.diff(trained, axis=0) >= 0).all()
    arm = next(arm for arm in with_turns.measured_arms if arm.arm == "rl")
    assert arm.curve is not None
    usual = [float(arm.curve.at(k).estimate) for k in trained.columns]
    assert trained.loc[5].tolist() == pytest.approx(usual)
    plain = frame[frame["arm"] == "base"]
    assert plain["turns"].unique().tolist() == [1], "a response is an episode of one turn"
    assert "right within T turns" in words(turns.section(with_turns))
    (chart,) = [chart for _, chart in turns.ASPECT.charts(with_turns)]
    assert all(panel.marks for panel in chart.panels)
    assert chart.panels[-1].y.label.startswith("k at")


def test_no_panel_is_empty_where_no_arm_solves_half_of_the_problems(tmp_path: Path) -> None:
    report = report_with_turns(tmp_path, base_rate=0.01, trained_rate=0.02)
    ((_, chart),) = turns.ASPECT.charts(report)
    assert chart.panels and all(panel.marks for panel in chart.panels)


def test_lost_and_gained_at_each_limit_are_the_answer_of_its_counts(with_turns: Report) -> None:
    (pair,) = with_turns.last_comparisons
    found = turns.limited_answers(with_turns)
    assert [each.limit for each in found] == [1, 2, 4, 5]
    lengths = turns.episodes(with_turns)[id(pair.trained)].turns
    within_two = (pair.trained.is_right & (lengths <= 2)).sum(axis=1)
    alone = answer(pair.base_counts, replace(pair.trained_counts, c=within_two))
    assert found[1].answer.gained.estimate == pytest.approx(alone.gained.estimate, abs=1e-3)
    assert found[1].answer.gained.count == alone.gained.count
    assert found[0].answer.gained.count <= found[-1].answer.gained.count
    assert found[-1].answer.net.estimate == pytest.approx(float(pair.net.estimate))
    assert "within T turns" in words(turns.comparison(with_turns, pair))


def test_a_budget_of_calls_buys_episodes_at_their_mean_calls(with_turns: Report) -> None:
    (curve,) = turns.call_budgets(with_turns)
    calls = turns.episodes(with_turns)[id(curve.measured)].calls
    assert curve.budgets[0] == pytest.approx(calls[curve.measured.is_judged].mean())
    usual = curve.measured.curve
    assert usual is not None
    assert float(curve.rates.estimate[0]) == pytest.approx(float(usual.interval.estimate[0]))


def test_an_arm_that_is_told_its_limit_has_no_smaller_ones(with_turns: Report) -> None:
    arm = with_turns.study_arms["rl"]
    told = SimpleNamespace(**{**vars(arm.sampling), "turns": SimpleNamespace(told=True)})
    arms = {**with_turns.study_arms, "rl": SimpleNamespace(sampling=told)}
    report = replace(with_turns, study_arms=arms)  # type: ignore[arg-type]
    limits = {each.limit for each in turns.turn_limits(report) if each.measured.arm == "rl"}
    assert limits == {LONGEST}


def test_plain_samples_show_nothing_of_turns(report: Report) -> None:
    assert not list(turns.section(report)) and not turns.limited_answers(report)
    assert not {"turns", "turns_answers", "budget_calls"} & set(frames_of(report))
