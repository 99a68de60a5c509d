"""The quickstart's question to sharpened models, from its file to the answer."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import tostring

import numpy as np
import pytest

from rlbhpc.errors import DONE, UserError
from rlbhpc.report.aspects import responses, sharpening
from rlbhpc.report.gather import gather
from rlbhpc.store.reader import open_cube
from rlbhpc.study.load import load_study
from tests.children import Child
from tests.store import reading
from tests.studies import untrained
from tests.sweep.conftest import write_study

CONFIGS = Path(__file__).parents[2] / "configs"
POWER = {"alpha": 4, "moves": 3, "block": 8}
WHOLE = {"temperature": 1.0, "top_p": 1.0, "power": POWER}


@pytest.mark.engine
@pytest.mark.core
def test_the_toy_study_says_what_part_of_the_lead_sharpening_reaches(tmp_path: Path) -> None:
    changes = [f"output={tmp_path / 'run'}", "problem_sets.countdown-test.limit=6"]
    changes += [f"arms.{arm}.n=4" for arm in ("base", "rl")]
    changes += [f"arms.{arm}.n=2" for arm in ("base-power", "rl-power")]
    file = CONFIGS / "quickstart-power.yaml"
    options = [f"--set={change}" for change in changes]
    assert Child("sample", str(file), *options).ended() == DONE
    study = load_study(file, changes)
    cube = open_cube(study.layout.root)
    powered, plain = cube["rl-power/countdown-test"], cube["rl/countdown-test"]
    assert "n_moves" in powered and "n_moves" not in plain
    assert (powered["n_tokens_drawn"] > powered["n_tokens"]).all()
    rows = reading.rows(study.layout, "rl-power", "countdown-test").table.to_pylist()
    assert all(json.loads(row["trace"])["n_moves"] >= 4 for row in rows)

    report = gather(study.layout.root)
    (found,) = sharpening.sharpenings(report)
    assert (found.sharpened.arm, found.pair.trained.arm) == ("base-power", "rl")
    rates = [
        float(cube[f"{arm}/countdown-test"]["right"].mean()) for arm in ("base", "base-power", "rl")
    ]
    estimate = (rates[1] - rates[0]) / (rates[2] - rates[0])
    assert float(found.share.estimate) == pytest.approx(estimate, rel=1e-4)
    moves = sharpening.ASPECT.frames(report)["moves"]
    assert moves["arm"].tolist() == ["base-power", "rl-power"]
    assert moves["accepted_share"].between(0, 1).all()
    costs = {measure.measured.arm: measure.cost for measure in responses.responses(report)}
    drawn = powered["n_tokens_drawn"].mean("sample").squeeze()
    np.testing.assert_allclose(costs["rl-power"], drawn)
    page = "".join(tostring(node, encoding="unicode") for node in sharpening.section(report))
    assert "base-power" in page and "moves" in page


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"temperature": 0.6}, "temperature 1"),
        ({"top_p": 0.9}, "top_p 1"),
        ({"stop": ["."]}, "stop"),
        ({"top_k": 5}, "cuts"),
        ({"power": {**POWER, "moves": 0}}, "moves"),
        ({"power": {"alpha": 4}}, "moves"),
    ],
)
def test_power_beside_what_would_not_be_exact_is_refused(
    tmp_path: Path, settings: dict[str, object], word: str
) -> None:
    path = write_study(tmp_path, arms={"sharp": {**WHOLE, **settings}})
    with pytest.raises(UserError, match=rf"sharp.*{word}"):
        load_study(path)


def test_an_endpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    text = untrained("study", arms={"sharp": WHOLE})
    server = "endpoint: {url: 'http://localhost:1/v1', model: m}"
    path.write_text(text.replace("path: model", server))
    with pytest.raises(UserError, match=r"arms\.sharp\.power: .*endpoint.*hf, vllm"):
        load_study(path)
