"""Predictions: what a plan costs, in closed forms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlbhpc.launch.host.task import span_seconds
from rlbhpc.launch.prepare import Rates, gpu_hours, measured_rates
from rlbhpc.store import checked
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan, Shard, Span

RATES = Rates(tokens=1_000.0, start=60.0, source="as given")


def plan_of(shards: int, tokens: int) -> Plan:
    return Plan(
        "study",
        tuple(
            Shard(i, "vllm", "m", 0, tokens, (Span("a", "s", 0, "s/p", 64 * i, 64 * (i + 1)),))
            for i in range(shards)
        ),
    )


def test_cost_of_a_plan() -> None:
    assert gpu_hours(plan_of(10, 360_000), RATES, 1) == pytest.approx(10 * 420 / 3600)
    assert gpu_hours(plan_of(10, 360_000), RATES, 4) == pytest.approx(4 * 10 * 420 / 3600)
    assert gpu_hours(plan_of(0, 0), RATES, 4) == 0


def test_rates_are_those_of_attempts_that_ended(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert measured_rates(read_attempts(layout)) is None
    begun = {"plan": "p", "shard": 0, "started": 100.0}
    whole = {**begun, "loaded": 110.0, "ended": 160.0, "tokens": 5_000}
    checked.write(layout.attempts / "a.json", whole)
    checked.write(layout.attempts / "b.json", {**begun, "loaded": 130.0})
    found = measured_rates(read_attempts(layout))
    assert found is not None
    assert (found.tokens, found.start) == (100.0, 10.0)
    assert found.source == "1 attempts of this run"


@pytest.mark.parametrize(("seconds", "rate"), [(0.0, None), (0.5, 100.0)])
def test_a_rate_needs_some_time_to_be_measured(
    tmp_path: Path, seconds: float, rate: float | None
) -> None:
    layout = Layout(tmp_path)
    short = {"plan": "p", "shard": 0, "started": 100.0, "loaded": 110.0, "tokens": 50}
    checked.write(layout.attempts / "a.json", {**short, "ended": 110.0 + seconds})
    checked.write(layout.attempts / "b.json", {**short, "ended": 900.0, "tokens": 0})
    unloaded = {name: value for name, value in short.items() if name != "loaded"}
    checked.write(layout.attempts / "c.json", {**unloaded, "ended": 900.0})
    found = measured_rates(read_attempts(layout))
    assert (found and found.tokens) == rate


@pytest.mark.parametrize(
    ("span", "expected"),
    [("90", 5_400), ("10:30", 630), ("04:00:00", 14_400), ("1-00:00:00", 86_400),
     ("2-12", 216_000), ("1-01:30", 91_800), ("UNLIMITED", math.inf)],
)  # fmt: skip
def test_times_of_sbatch(span: str, expected: int) -> None:
    assert span_seconds(span) == expected
