"""Every block of analysis/tour.md runs, on a run with the arms that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.made import SET, make_study, put_samples

TOUR = Path(__file__).parents[2] / "analysis/tour.md"


def test_the_tour_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(tmp_path / "run", problems=12, n=256)
    rng = np.random.default_rng(3)
    solved = rng.random((12, 256)) < np.array([0.3] * 10 + [0.02, 0])[:, None]
    put_samples(study, "base", solved, step=0)
    # The trained arm never solves the eleventh problem, which the base solves now and then.
    put_samples(study, "rl", solved & (np.arange(12) < 8)[:, None], step=100)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")

    names: dict[str, Any] = {}
    text = TOUR.read_text().replace("runs/quickstart", "run").replace("countdown-test", SET)
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, names)

    assert names["curve"].sel(k=256).item() == pytest.approx(solved.any(1).mean())
    assert list(names["lost"].values) == [f"{SET}/{i}" for i in (8, 9, 10)]
    assert names["difference"]["difference"].sel(k=256).item() == pytest.approx(-3 / 12)
    assert (tmp_path / "tour.png").stat().st_size > 0
