"""Strict and lenient verdicts of the same samples: the band, the sentence, the panel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.answer import comparison, tip_text
from rlbhpc.report.aspects.pass_at_k import pass_at_k_chart
from rlbhpc.report.aspects.robustness import conditions_tried, robustness_frame, strictness_sentence
from rlbhpc.report.chart import Area
from rlbhpc.report.gather import gather
from rlbhpc.stats.verifier_error import Told
from rlbhpc.verify.verdict import Status
from tests.report.made import SET, make_study, put_samples

PROBLEMS, N = 40, 32


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of the base a fifth of the right answers are unstated, and of the trained model none."""
    folder = tmp_path_factory.mktemp("readings") / "run"
    study = make_study(folder, PROBLEMS, N, analysis={"errors": {"base": 0.001}})
    rng = np.random.default_rng(2)
    rates = rng.beta(0.5, 1, PROBLEMS)[:, None]
    for arm, step in (("base", 0), ("rl", 100)):
        right = rng.random((PROBLEMS, N)) < rates
        stated = rng.random((PROBLEMS, N)) < (0.8 if arm == "base" else 1)
        lenient = {(int(i), int(j)): Status.RIGHT for i, j in np.argwhere(right & ~stated)}
        put_samples(study, arm, right & stated, step, lenient=lenient)
    return gather(folder)


def test_both_verdicts_of_a_sample_are_counted(read: Report) -> None:
    base, trained = read.measured_arms
    assert base.decided_by == "strict" and base.counterpart is not None
    assert base.counterpart.counts.c.sum() > base.counts.c.sum()
    assert trained.counterpart is not None
    assert (trained.counterpart.counts.c == trained.counts.c).all()


def test_curves_hold_the_band_between_the_verdicts(read: Report) -> None:
    base = read.measured_arms[0]
    assert base.curve is not None and base.counterpart is not None and base.counterpart.curve
    (panel,) = pass_at_k_chart({SET: [base]}, read.colours).panels
    bands = [mark for mark in panel.marks if isinstance(mark, Area)]
    lenient = 100 * base.counterpart.curve.interval.estimate
    assert any(np.allclose(np.max(band.high), lenient[-1]) for band in bands)


def test_the_answer_says_what_strictness_does_to_it(read: Report) -> None:
    (pair,) = read.last_comparisons
    sentence = strictness_sentence(read, pair)
    assert "lenient" in sentence
    assert sentence in {
        node if isinstance(node, str) else node.text for node in comparison(read, pair)
    }


def test_one_panel_holds_all_conditions(read: Report) -> None:
    frame = robustness_frame(conditions_tried(read))
    assert frame["condition"].tolist() == ["as asked", "lenient verdicts"]
    strict, lenient = frame["net"]
    assert lenient < strict, "the base gains by leniency"


def test_a_verifier_with_one_reading_adds_no_condition(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", PROBLEMS, N)
    rng = np.random.default_rng(3)
    for arm, step in (("base", 0), ("rl", 100)):
        put_samples(study, arm, rng.random((PROBLEMS, N)) < 0.3, step, lenient={})
    report = gather(tmp_path / "run")
    assert conditions_tried(report) == []
    assert strictness_sentence(report, report.last_comparisons[0]) == ""


def test_errors_of_the_study_go_into_the_answer(read: Report) -> None:
    assert [arm.errors for arm in read.measured_arms] == [Told(0.001), None]
    (pair,) = read.last_comparisons
    assert pair.answer.false_right[0] is not None
    assert bool(tip_text(pair)) == bool(pair.answer.tips)
