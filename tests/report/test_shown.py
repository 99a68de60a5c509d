"""What a report reads beyond verdicts: responses, votes, training, scores, temperatures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.answer import comparison, conditions
from rlbhpc.report.aspects.perplexity import scored
from rlbhpc.report.aspects.responses import budget_text, budgets, responses
from rlbhpc.report.aspects.training import training
from rlbhpc.report.gather import gather
from rlbhpc.stats import pass_at_k, pass_hat_k
from rlbhpc.store.reader import open_cube
from rlbhpc.verify.verdict import Status
from tests.report.made import make_study, put_samples
from tests.report.rich import ARMS, PROBLEMS, STEPS, N
from tests.report.scripts import script
from tests.stats.exact_majority import maj_at_k_of

MAJORITY = script("majority")


@pytest.fixture(scope="module")
def rich(rich_run: Path) -> Report:
    return gather(rich_run)


def test_entropy_and_length_are_over_tokens_of_judged_samples(report: Report) -> None:
    (base, _) = responses(report)
    cells = open_cube(report.folder)["base/math"].to_dataset().isel(step=0)
    verdict, tokens = cells["verdict"].values, cells["n_tokens"].values
    judged = np.isin(verdict, (0, 1, 2, 3))
    assert judged.sum() == judged.size - 1, "one generation failed"
    entropy = cells["entropy_sum"].values[judged].sum() / tokens[judged].sum()
    assert float(base.entropy.estimate) == pytest.approx(entropy, rel=1e-6)
    assert float(base.tokens.estimate) == pytest.approx(tokens[judged].mean())
    assert base.entropy.lower < entropy < base.entropy.upper


def test_votes_are_held_among_thefirst_judged_samples(report: Report) -> None:
    base, trained = MAJORITY.votes(report)
    assert base.k[-1] == 31, "a problem with a failed generation has no 32nd vote"
    cells = open_cube(report.folder)["base/math"].to_dataset().isel(step=0)
    rows = [i for i in range(40) if i != 5]
    right = cells["verdict"].values[rows, :31] == Status.RIGHT
    exact = maj_at_k_of(cells["answer"].values[rows, :31], right, [31]).ravel()
    curve = base.majority.estimate[-1] * 40
    assert abs(curve - exact.sum()) <= 1
    assert (trained.majority.estimate <= trained.any_right.estimate + 0.02).all()


def test_a_failed_sample_gives_its_vote_to_the_next(report: Report) -> None:
    one = replace(report.measured_arms[0], verdicts=np.array([[1, 4, 0, 1, 1]], np.int8))
    answers = np.array([[10, 11, 12, 13, 14]])
    ids, right = MAJORITY.first_judged(one, answers, np.array([0]), 3)
    assert (ids.tolist(), right.tolist()) == ([[10, 12, 13]], [[True, False, True]])


def test_training_curves_come_from_the_cube_and_from_the_trainer(rich: Report) -> None:
    found = {one.model: one.frame for one in training(rich)}
    assert set(found) == {"grpo-run", "ppo-run"}
    assert "entropy, nat per token" in found["grpo-run"] and len(found["grpo-run"]) == 150


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path, report: Report) -> None:
    folder = tmp_path / "training" / "m"
    folder.mkdir(parents=True)
    row = json.dumps({"step": 1, "critic/rewards/mean": 0.5})
    (folder / "dynamics.jsonl").write_text(f'{row}\n{{"step": 2, "critic/rew')
    kept = [json.dumps({"step": step, "text": f"at {step}"}) for step in (1, 2, 3, 3)]
    (folder / "rollouts.jsonl").write_text("\n".join([*kept, '{"step": 4, "text": "\\\\boxed{4}']))
    (report.folder / "training").mkdir()
    (folder).rename(report.folder / "training" / "m")
    try:
        (found,) = training(replace(report))
        assert found.frame["reward"].tolist() == [0.5]
        assert [row["text"] for row in found.rollouts] == ["at 1", "at 3", "at 3"]
    finally:
        for name in ("dynamics", "rollouts"):
            (report.folder / "training" / "m" / f"{name}.jsonl").unlink()


def test_scores_are_kept_apart_by_text_model_and_both_steps(rich: Report) -> None:
    found = scored(rich)
    assert {(one.source, one.scorer) for one in found} == {
        ("base", "start"), ("base", "grpo-run"), ("grpo", "start"), ("grpo", "grpo-run"),
        ("reference", "start"),
    }  # fmt: skip
    own = [one for one in found if (one.source, one.scorer) == ("grpo", "grpo-run")]
    assert [(one.step, one.scorer_step) for one in own] == [(s, s) for s in STEPS]
    lines = {
        (one.source, one.scorer, one.changing): one
        for one in script("perplexity_over_steps").evolutions(rich)
    }
    assert lines["grpo", "grpo-run", "both"].steps == STEPS
    line = lines["base", "grpo-run", "scorer_step"]
    assert line.steps == STEPS and (np.diff(line.means) > 0).all()
    one = next(o for o in found if (o.source, o.scorer, o.scorer_step) == ("base", "grpo-run", 50))
    medians = np.median(one.perplexity[:10], axis=1)
    assert line.means[0] == pytest.approx(medians.mean())


def test_right_answers_have_a_perplexity_of_their_own(rich: Report) -> None:
    for scores in scored(rich):
        if scores.source == "reference":
            assert not scores.right.any(), "nobody judged texts of a file"
            continue
        (arm,) = (m for m in rich.measured_arms if (m.arm, m.step) == (scores.source, scores.step))
        right = arm.verdicts[:10, :8] == Status.RIGHT if arm.verdicts is not None else None
        np.testing.assert_array_equal(scores.right[:10, :8], right)
        logs = np.log(scores.perplexity[scores.right & ~np.isnan(scores.perplexity)])
        assert scores.right_summary.responses == len(logs) < scores.summary.responses
        assert scores.right_summary.geometric_mean == pytest.approx(np.exp(logs.mean()))


def test_envelopes_take_the_best_temperature_of_each_side(rich: Report) -> None:
    (one,) = script("temperature").temperatures(rich)
    assert (one.base, one.trained) == ("start", "grpo-run")
    assert [(t, arm.arm) for t, arm in one.arms[0]] == [(0.6, "base"), (1.0, "base-hot")]
    for side, envelope in zip(one.arms, one.envelopes, strict=True):
        curves = [arm.curve for _, arm in side]
        best = np.max([curve.interval.estimate for curve in curves if curve], axis=0)
        np.testing.assert_allclose(envelope.interval.estimate, best)
    assert one.problems == PROBLEMS


def test_no_envelope_without_a_study(rich: Report) -> None:
    assert script("temperature").temperatures(replace(rich, study_arms={})) == []


def test_guessable_problems_are_those_of_the_arm_that_does_not_think(rich: Report) -> None:
    (one,) = script("guess_filtered").unguessed(rich)
    counts = next(m.counts for m in rich.measured_arms if m.arm == "no-think")
    guessed = [i for i in range(PROBLEMS) if 0 < counts.c[i] < 0.05 * counts.n[i]]
    assert one.guessed == tuple(f"math/{i}" for i in guessed)
    for kept in one.arms:
        assert kept.curve is not None
        assert kept.curve.support[0] == PROBLEMS - len(guessed)


def test_beyond_n_is_predicted_to_ten_times_n_and_checked(rich: Report) -> None:
    found = script("extrapolation").beyond(rich)
    assert [one.measured for one in found] == rich.compared_arms
    for one in found:
        assert one.prediction.k[-1] == 320 and one.check is not None and one.check.n == 3


def test_a_budget_buys_what_its_tokens_buy(rich: Report) -> None:
    measured = responses(rich)
    found = budgets(rich)
    assert [one.measured for one in found] == [
        one for one in rich.measured_arms if any(one is other for other in rich.compared_arms)
    ]
    base = next(one for one in found if one.measured.arm == "base")
    cost = next(one.cost for one in measured if one.measured is base.measured)
    last = np.flatnonzero(~np.isnan(base.rates.estimate))[-1]
    bought = np.floor(base.budgets[last] / cost * (1 + 1e-12)).astype(int)
    values = pass_at_k(base.measured.counts.n, base.measured.counts.c, bought)
    assert bought.max() <= N
    assert float(base.rates.estimate[last]) == pytest.approx(values.mean())
    assert all((one.budgets == base.budgets).all() for one in found), "arms share their budgets"


def test_a_straggler_ends_no_budget(tmp_path: Path) -> None:
    study = make_study(tmp_path / "run", 60, 16)
    right = np.random.default_rng(3).random((60, 16)) < 0.3
    right[59, :2] = True
    for arm, step in (("base", 0), ("rl", 100)):
        late = {(59, sample): Status.FAILED for sample in range(2, 16)}
        put_samples(study, arm, right, step, verdicts=late)
    for curve in budgets(gather(tmp_path / "run")):
        usable = curve.budgets[~np.isnan(curve.rates.estimate)]
        # A response has 17.5 tokens on average; two of them would buy 21 tokens a problem.
        assert usable[-1] > 8 * 17.5


def test_budgets_have_no_exponent() -> None:
    texts = [budget_text(budget) for budget in (0.0123, 12.34, 999.4, 999.6, 1414.2, 5.2e6)]
    assert texts == ["0.0123", "12.3", "999", "1,000", "1,414", "5,200,000"]


def test_reliability_is_that_of_the_statistics(rich: Report) -> None:
    (one, *_) = script("reliability").reliability(rich)
    n, c = one.measured.counts.n, one.measured.counts.c
    assert float(one.values["pass^8"].estimate) == pytest.approx(pass_hat_k(n, c, 8).mean())
    assert one.values["pass^8"].estimate < one.values["pass@1"].estimate
    # n = 32: rates that would be missed with a chance of 5 % or more.
    assert (1 - one.threshold) ** 32 == pytest.approx(0.05)
    assert one.fixed.model_based[-1] and not one.fixed.model_based[0]


def test_answers_are_counted(rich: Report) -> None:
    (one, *_) = MAJORITY.votes(rich)
    assert 1 <= float(one.distinct.estimate) <= 2, "the made-up answers are True and False"
    assert 0 <= float(one.entropy.estimate) <= 0.75


def test_arms_of_the_study_are_known(rich: Report) -> None:
    assert {name: arm.sampling.temperature for name, arm in rich.study_arms.items()} == {
        name: temperature for name, (_, temperature, _) in ARMS.items()
    }


def test_an_answer_names_what_it_holds_for(rich: Report) -> None:
    judged = {name: {**stored, "rlbhpc": "7.5"} for name, stored in rich.provenance.items()}
    rich = replace(rich, provenance=judged)
    for pair in rich.last_comparisons:
        words = conditions(rich, pair)
        for name in ("Checkpoint", "temperature", "prompt", "grader"):
            assert f"{name}: " in words
            assert f"{name}: not known" not in words
        assert "grader: rlbhpc 7.5" in words
        assert f"step {pair.trained.step:,} against step {pair.base.step:,}" in words
        assert words.endswith(f"K = {pair.reach:,}.")
        assert words in "".join(
            "".join(node.itertext()) for node in comparison(rich, pair) if not isinstance(node, str)
        )
