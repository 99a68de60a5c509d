"""What the field measures since: strata, Cover@τ with its difference, the area, sharpening."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.cover_at_tau import log_area, posterior_above
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects import difference
from rlbhpc.report.compare import Comparison
from rlbhpc.report.gather import gather
from rlbhpc.stats.interval import paired_interval
from rlbhpc.verify.verdict import Status
from tests.report.made import frames_of
from tests.report.scripts import script, with_scripts

COVER = script("cover_at_tau")
SHARPENING = script("sharpening")


@pytest.fixture(scope="module")
def rich(rich_run: Path) -> Report:
    return gather(rich_run)


def words(nodes: list[object]) -> str:
    return " ".join(text for node in nodes if hasattr(node, "itertext") for text in node.itertext())


def test_quarters_are_sorted_by_even_samples_and_compared_on_odd_ones(report: Report) -> None:
    (pair,) = report.last_comparisons
    parts = [p for p in difference.strata(report) if p.by == difference.BY_RATE]
    assert sum(part.problems for part in parts) == len(pair.problems)
    assert [part.base_at_1 for part in parts] == sorted(part.base_at_1 for part in parts)
    assert pair.base.verdicts is not None and pair.trained.verdicts is not None
    ours, theirs = pair.base.verdicts[pair.base_rows], pair.trained.verdicts[pair.trained_rows]
    judged = (ours >= Status.WRONG) & (ours <= Status.TIMEOUT)
    right = ours == Status.RIGHT
    rate = right[:, ::2].sum(axis=1) / judged[:, ::2].sum(axis=1)
    lowest = rate <= np.quantile(rate, 0.25)
    assert parts[0].problems == lowest.sum()
    odd = right[:, 1::2].sum(axis=1) / judged[:, 1::2].sum(axis=1)
    trained = (theirs == Status.RIGHT)[:, 1::2].mean(axis=1)
    assert parts[0].base_at_1 == pytest.approx(odd[lowest].mean())
    assert float(parts[0].at_1.estimate) == pytest.approx((trained - odd)[lowest].mean())
    solved = odd > 0
    assert parts[0].lost == (solved & ~(trained > 0))[lowest].sum()


def test_the_words_of_a_problem_set_are_strata(rich: Report) -> None:
    pair = rich.last_comparisons[0]
    rich.memo.pop(difference.strata.__wrapped__, None)  # type: ignore[attr-defined]
    number = {problem: i for i, problem in enumerate(pair.problems)}
    group = rich.tree[pair.base.group]
    places = [number.get(problem, 0) for problem in group["problem"].values]
    group.coords["level"] = ("problem", [str(place % 2) for place in places])
    group.coords["subject"] = ("problem", [str(place) for place in places])
    parts = [part for part in difference.strata(rich) if part.pair is pair]
    levels = [part for part in parts if part.by == "level"]
    assert [part.name for part in levels] == ["0", "1"]
    assert not [part for part in parts if part.by == "subject"], "an id of each is no stratum"
    gains = pair.trained_counts.c - pair.base_counts.c
    assert float(levels[0].at_1.estimate) == pytest.approx(gains[::2].mean() / 32)
    cells = sum(part.lost for part in levels), sum(part.gained for part in levels)
    assert pair.solved is not None
    assert cells == (len(pair.solved.base_only), len(pair.solved.trained_only))
    assert "level: 1" in words(difference.strata_table(rich, pair))
    assert set(frames_of(with_scripts(rich))["strata"]["by"]) == {"level", difference.BY_RATE}


def test_a_power_of_one_is_the_base_as_it_was_sampled(rich: Report) -> None:
    for found in SHARPENING.sharpenings(rich):
        sides = found.pair
        assert float(found.value.estimate[0]) == pytest.approx(
            sides.base_counts.pass_at_k(1).mean()
        )
        assert float(found.rest.estimate[0]) == pytest.approx(
            float(found.pair.curve.pointwise.estimate[0])
        )
        assert found.effective_n[0] == 32
        assert (np.diff(found.effective_n) <= 0).all(), "the sharper, the fewer samples count"
        assert found.effective_n[found.chosen] >= SHARPENING.LEAST_EFFECTIVE / 2
    assert {found.pair.base.arm for found in SHARPENING.sharpenings(rich)} >= {"base"}
    assert "samples that still count" in words(
        SHARPENING.comparison(rich, rich.last_comparisons[0])
    )
    assert set(frames_of(with_scripts(rich))["sharpening"]["samples"]) == {"all", "odd"}


def test_nothing_is_sharpened_of_counts_alone(rich: Report) -> None:
    pair: Comparison = rich.last_comparisons[0]
    assert not list(SHARPENING.comparison(replace(rich, last_comparisons=()), pair))


def test_cover_and_area_stand_beside_their_differences(rich: Report) -> None:
    found = COVER.covered(rich)
    trained = next(arm for arm in found if arm.pair is not None and arm.measured.arm == "grpo")
    assert trained.pair is not None and trained.cover_difference is not None
    assert (np.diff(trained.cover.estimate) <= 0).all()
    pair = trained.pair
    weights = rich.settings.weights(trained.pair.problems)
    above = [
        posterior_above(side, COVER.LEVELS) for side in (pair.base_counts, pair.trained_counts)
    ]
    again = paired_interval(above[1] - above[0], weights, 0.95)
    assert trained.cover_difference.lower.tolist() == again.lower.tolist()
    assert trained.area is not None and trained.area_difference is not None
    areas = log_area(pair.trained_counts, 32) - log_area(pair.base_counts, 32)
    assert float(trained.area_difference.estimate) == pytest.approx(areas.mean())
    base = next(arm for arm in found if arm.measured.arm == "base")
    assert base.pair is None and base.cover_difference is None
    frames = frames_of(with_scripts(rich))
    assert set(frames["cover"]["tau"]) == set(COVER.LEVELS.tolist())
    assert {"area", "area_lower", "difference"} <= set(frames["area"])
    assert {"answer_entropy", "answer_entropy_lower"} <= set(frames["answers"])
