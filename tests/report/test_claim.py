"""The claim card: it says what the report says, and stays in its schema."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.answer import net_text
from rlbhpc.report.aspects.checkpoints import steps_frame
from rlbhpc.report.aspects.difference import difference_frame
from rlbhpc.report.claim import claim_card, claim_schema
from rlbhpc.report.gather import gather
from rlbhpc.study.schema import StudyFile
from rlbhpc.sweep.remember import PROBE
from tests.report.made import SET, make_study, put_counts, put_samples


@pytest.fixture
def card(report: Report) -> dict[str, Any]:
    return json.loads(claim_card(report))


def test_it_holds_the_answer_and_its_conditions(report: Report, card: dict[str, Any]) -> None:
    (pair,) = report.last_comparisons
    (claim,) = card["claims"]
    assert (card["schema_name"], card["schema_version"]) == ("rlbhpc.claim", 1)
    assert claim["answer"] == pair.answer.headline
    assert claim["sentences"] == list(pair.words)
    assert claim["K"] == pair.reach
    net = {"estimate": float(pair.net.estimate), "lower": pair.net.low, "upper": pair.net.high}
    assert claim["net"] == pytest.approx(net, rel=1e-5)
    assert claim["lost"]["count"] == pair.answer.lost.count
    arm = report.study_arms[pair.trained.arm]
    trained = claim["trained"]
    assert trained["arm"] == pair.trained.arm
    assert trained["sampling"]["temperature"] == arm.sampling.temperature
    assert trained["prompt"] == arm.prompt
    assert trained["missing"] == pair.trained.tally.missing == 64
    assert claim["contamination"] == []
    assert card["notes"] == list(report.notes)


@pytest.mark.parametrize(
    ("n", "base", "trained", "ending"),
    [
        (16, [0, 4, 8] * 4, [16, 4, 8, *[0, 4, 8] * 3], "] ?"),
        (1, [0, 1] * 20, [0, 1] * 19 + [1, 1], "+2.5"),
    ],
)
def test_all_parts_give_the_intervals_of_the_answer(
    n: int, base: list[int], trained: list[int], ending: str, tmp_path: Path
) -> None:
    """Tables and claims had bounds at k = 1 where sentences have none; ``?`` stood in tables."""
    study = make_study(tmp_path, len(base), n)
    put_counts(study, "base", base, n)
    put_counts(study, "rl", trained, n, 100)
    report = gather(tmp_path)
    (pair,) = report.last_comparisons
    assert np.isnan(pair.answer.efficiency.low)
    tables = difference_frame([pair]), steps_frame([pair])
    assert all(frame.loc[frame["k"] == 1, "lower"].isna().all() for frame in tables)
    (claim,) = json.loads(claim_card(report))["claims"]
    assert claim["first"]["lower"] is claim["first"]["upper"] is None
    assert net_text(pair).endswith(ending)
    sentence = f"At k = {n} trained minus base is {net_text(pair).removeprefix('net ')} points"
    assert any(words.startswith(sentence) for words in pair.words)


def test_probes_of_its_two_models_stand_with_a_claim(report: Report) -> None:
    group = f"base/{SET}"
    probe = {group: {**report.provenance[group], PROBE: 0.4}}
    (claim,) = json.loads(claim_card(replace(report, provenance=report.provenance | probe)))[
        "claims"
    ]
    assert [(p["arm"], p["step"], p["shown"]) for p in claim["contamination"]] == [("base", 0, 0.4)]


def test_it_stays_in_its_schema(card: dict[str, Any]) -> None:
    schema = json.loads(claim_schema())
    jsonschema.validate(card, schema)
    del card["claims"][0]["K"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(card, schema)


def test_it_is_written_beside_the_page_in_the_same_bytes(report: Report) -> None:
    assert claim_card(report) == claim_card(report)
    assert b"NaN" not in claim_card(report)


def test_verdicts_of_a_verifier_that_was_edited_are_counted(tmp_path: Path) -> None:
    """After `n` was raised, the verifier of today judged the new samples alone."""
    n, file = 4, "/study/check.py"
    study = make_study(tmp_path, 3, n)
    record = study.file.model_dump(mode="json", by_alias=True)
    record["problem_sets"][SET]["verifier"] = file
    own = StudyFile.model_validate(record)
    study = replace(study, file=own, plugins={file: "check.py@new"})
    study.layout.study.write_text(study.to_json())
    right = [[True, False, True, False]] * 3
    put_samples(study, "base", right, graders=["check.py@old"] * 2 + ["check.py@new"] * 2)
    put_samples(study, "rl", right, 100, graders=["check.py@new"] * n)
    card = json.loads(claim_card(gather(tmp_path)))
    assert card["notes"][0] == (
        "base on math: 6 of 12 verdicts are of check.py@old and not of check.py@new, the study's "
        "verifier; `rlbhpc verify RUN --into NEW` judges all of them with it."
    )
    assert not any("rl on math: " in note for note in card["notes"])
    printed = CliRunner().invoke(cli, ["report", str(tmp_path)]).output
    assert card["notes"][0] in " ".join(printed.split())
    (claim,) = card["claims"]
    assert claim["base"]["grader"] == "check.py@new, check.py@old"
    assert claim["trained"]["grader"] == "check.py@new"
