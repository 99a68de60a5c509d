"""What a report knows: the answer in every direction, and everything that is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Report
from rlbhpc.report.gather import _topic_notes, gather
from rlbhpc.stats import Verdict, Word, coverage, delta_se, pass_at_k
from rlbhpc.verify.verdict import Status
from tests.report.conftest import PROBLEMS, N
from tests.report.made import SET, make_study, put_counts, put_samples, rates
from tests.report.scripts import script


@pytest.mark.parametrize("kind", ["shrinks", "expands", "only sharpens", "unchanged"])
def test_the_answer_follows_the_data(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    problems, n = 600, 256
    study = make_study(tmp_path, problems, n)
    for arm, p in zip(("base", "rl"), rates(kind, problems, rng), strict=True):
        put_counts(study, arm, rng.binomial(n, p), n, 100 if arm == "rl" else 0)
    (one,) = gather(tmp_path).last_comparisons
    assert one.answer.word == Word(kind)
    assert (one.base.label, one.trained.label) == ("base", "rl, step 100")


def test_few_problems_decide_nothing(tmp_path: Path) -> None:
    study = make_study(tmp_path, 12, 16)
    put_counts(study, "base", [0, 1, 2, 3] * 3, 16)
    put_counts(study, "rl", [2, 0, 4, 8] * 3, 16, 100)
    (one,) = gather(tmp_path).last_comparisons
    assert one.answer.lost.verdict is one.answer.gained.verdict is Verdict.UNDECIDED
    assert "undecided" in " ".join(one.words)


def test_what_a_curve_leaves_out_is_told_as_it_is(tmp_path: Path) -> None:
    """One failed sample is not far fewer."""
    study = make_study(tmp_path, 50, 16)
    verdicts = {(0, 3): Status.FAILED}
    put_samples(study, "base", np.tile(np.arange(16) < 4, (50, 1)), verdicts=verdicts)
    report = gather(tmp_path)
    [base] = report.measured_arms
    assert (len(base.curve_rows), base.curve.k[-1] if base.curve else 0) == (49, 16)
    cover = script("cover_at_tau")
    assert [area.k.tolist() for area in [cover.area_frame(cover.covered(report))]] == [[16]]
    said = " ".join(report.notes)
    assert "leaves out 1 problem with fewer samples than 98 % of the others" in said


def test_nothing_that_is_missing_is_silent(report: Report) -> None:
    base, trained = report.measured_arms
    assert base.tally.asked == trained.tally.asked == PROBLEMS * N
    assert (base.tally.missing, trained.tally.missing) == (0, 2 * N)
    assert (base.tally.timeouts, base.tally.failed, base.tally.no_answer) == (1, 1, 1)
    assert base.tally.truncated == report.measured_arms[0].tally.truncated > 0
    assert base.tally.judged == PROBLEMS * N - 1
    assert int(base.counts.n[5]) == N - 1
    said = " ".join(report.notes)
    assert f"{2 * N:,} of {PROBLEMS * N:,} samples are missing; 2 of {PROBLEMS} problems" in said
    assert "1 sample neither right nor wrong: 1 generation and 0 verifications failed" in said
    assert "left out 2 problems" in said
    assert f"k ends at {N - 1} and not at {N}" in said


def test_the_numbers_are_those_of_the_statistics(report: Report) -> None:
    (one,) = report.last_comparisons
    base, trained = (m.verdicts[: PROBLEMS - 2] for m in (one.base, one.trained))
    n = np.isin(base, (0, 1, 2, 3)).sum(axis=1), np.isin(trained, (0, 1, 2, 3)).sum(axis=1)
    c = (base == Status.RIGHT).sum(axis=1), (trained == Status.RIGHT).sum(axis=1)
    for i in range(2):
        expected = pass_at_k(n[i][:, None], c[i][:, None], one.curve.k).mean(axis=0)
        np.testing.assert_allclose((one.base_rates, one.trained_rates)[i], expected, rtol=1e-12)
    (gap,) = script("delta_se").gaps(report)
    assert gap.k == 16
    expected = delta_se(pass_at_k(n[0], c[0], 16).mean(), (c[1] / n[1]).mean())
    np.testing.assert_allclose(gap.difference.estimate, expected)
    assert one.reach == N - 1
    # Both arms with their first 31 judged samples: the failed one of problem 5 is passed over.
    first = [base[:, : N - 1] == 1, trained[:, : N - 1] == 1]
    first[0][5] = np.delete(base[5], 6) == 1
    assert one.solved is not None
    table = coverage(first[0].sum(axis=1), first[1].sum(axis=1))
    assert one.solved.counts == table.counts


def test_problems_that_a_rule_chose_for_more_count_with_their_first_samples(
    tmp_path: Path,
) -> None:
    study = make_study(tmp_path, 6, 4)
    right = np.zeros((6, 8), bool)
    right[:, 6] = True  # found only by the samples that were asked for on top
    put_samples(study, "base", right)
    one = gather(tmp_path).measured_arms[0]
    assert (one.depth, one.topped_up, int(one.counts.c.sum())) == (4, 6, 0)
    assert list(one.counts.n) == [4] * 6


def test_p_values_are_adjusted_over_all_comparisons(tmp_path: Path) -> None:
    study = make_study(tmp_path, 30, 16, steps=(50, 100))
    rng = np.random.default_rng(2)
    put_counts(study, "base", rng.binomial(16, 0.2, 30), 16)
    for step in (50, 100):
        put_counts(study, "rl", rng.binomial(16, 0.6, 30), 16, step)
    report = gather(tmp_path, [("base", "rl"), ("rl", "rl")])
    assert [c.trained.step for c in report.last_comparisons] == [100, 100]
    assert [[c.trained.step for c in line] for line in report.comparisons_by_lineage] == [
        [50, 100],
        [100],
    ]
    assert report.last_comparisons[1].base.step == 50
    p = report.last_comparisons[0].curve.p_moved
    assert p < 0.01 < report.last_comparisons[1].curve.p_moved
    assert report.last_comparisons[0].p_moved_holm == pytest.approx(2 * p)
    assert np.isnan(report.comparisons_by_lineage[0][0].p_moved_holm)


def test_an_empty_run_says_what_to_do(tmp_path: Path) -> None:
    put_samples(make_study(tmp_path, 3, 4), "base", np.zeros((3, 4), bool), missing=3)
    with pytest.raises(UserError, match="nothing to report; make some with") as caught:
        gather(tmp_path)
    assert caught.value.code == NOTHING_TO_DO


def test_without_a_study_pairs_must_be_named(tmp_path: Path) -> None:
    study = make_study(tmp_path, 10, 16)
    put_counts(study, "base", np.arange(10), 16)
    put_counts(study, "rl", np.arange(10) + 4, 16)
    study.layout.study.unlink()
    report = gather(tmp_path)
    assert not report.last_comparisons
    assert any("--compare BASE:TRAINED" in note for note in report.notes)
    (one,) = gather(tmp_path, [("base", "rl")]).last_comparisons
    assert one.title == f"rl against base on {SET}"
    with pytest.raises(UserError, match="no arm 'lr'; there are base, rl"):
        gather(tmp_path, [("base", "lr")])


def test_the_study_says_which_k_and_which_level(tmp_path: Path) -> None:
    study = make_study(tmp_path, 20, 16, analysis={"k": [1, 5, 100], "confidence": 0.8})
    put_counts(study, "base", np.arange(20) % 17, 16)
    report = gather(tmp_path)
    (one,) = report.measured_arms
    assert one.curve is not None
    assert report.k(16) == [1, 5]
    assert 5 in one.curve.k and 100 not in one.curve.k
    assert one.curve.interval.prob == 0.8


def test_subjects_that_move_together_are_told_unless_they_are_the_cluster(report: Report) -> None:
    (pair,) = report.last_comparisons
    by_difference = np.argsort(pair.curve.differences[:, -1])
    topics = {pair.problems[row]: str(rank // 10) for rank, row in enumerate(by_difference)}
    told = " ".join(_topic_notes(pair, topics))
    assert f"k = {pair.reach:,}" in told and "analysis.cluster: subject" in told
    mixed = {problem: str(number % 4) for number, problem in enumerate(topics)}
    assert not list(_topic_notes(pair, mixed))
    assert not list(_topic_notes(pair, {}))
