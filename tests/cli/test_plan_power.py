"""`rlbhpc plan` says what a study of its size can decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.cli.sampling import power_rows, print_power
from rlbhpc.store.snapshot import COMPLETED_FLAG, RIGHT_FLAG
from rlbhpc.sweep.plan import Presence, read_presence
from tests.report.made import make_study


def test_a_plan_names_the_smallest_loss_of_each_compared_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(tmp_path / "run", 60, 64)
    present = read_presence(study.layout, list(study.blocks()))
    (row,) = power_rows(study, present)
    assert (row["base"], row["problem_set"], row["problems"], row["n"]) == ("base", "math", 60, 64)
    assert row["comparisons"] == 1
    assert 1 < row["smallest_count"] < 30
    assert row["rates"] == "a typical base"
    print_power([row])
    out = capsys.readouterr().out
    assert out.split("  ")[-2:] == ["11 (16.8 %)", "a typical base\n\n"]


def with_samples(block: Presence, completed: int, right: int) -> Presence:
    """The block with so many completed and right samples of each problem."""
    flags = np.zeros_like(block.flags)
    flags[:, :completed] |= COMPLETED_FLAG
    flags[:, :right] |= RIGHT_FLAG
    return replace(block, flags=flags)


def test_first_samples_of_the_base_say_more(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 60, 64)
    base, trained = read_presence(study.layout, list(study.blocks()))
    easy = with_samples(base, 8, 7)
    few = with_samples(base, 7, 6)
    assert power_rows(study, [few, trained]) == power_rows(study, [base, trained])
    never = with_samples(base, 8, 0)
    (sure,) = power_rows(study, [easy, trained])
    assert sure["rates"] == "its first samples"
    assert sure["smallest_count"] <= power_rows(study, [base, trained])[0]["smallest_count"]
    (hopeless,) = power_rows(study, [never, trained])
    assert hopeless["smallest_count"] is None, "a base that solves nothing loses nothing"


def test_of_a_base_that_stops_only_fair_samples_are_its_rates(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 60, 64)
    base, trained = read_presence(study.layout, list(study.blocks()))
    fixed = with_samples(base, 56, 7)
    # The 57th sample is the eighth right one by construction; those beyond it are luck.
    stopped = replace(
        with_samples(base, 64, 15),
        block=replace(base.block, stop_after=8),
        n=np.full(60, 57),
    )
    assert power_rows(study, [stopped, trained]) == power_rows(study, [fixed, trained])
    # One right sample tells no rate: without its last place nothing is left of it.
    once = replace(stopped, block=replace(base.block, stop_after=1))
    assert power_rows(study, [once, trained])[0]["rates"] == "a typical base"
