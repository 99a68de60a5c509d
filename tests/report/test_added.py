"""Prompts, chosen checkpoints, hours, repeats, positions, a second grader: right and sparing."""

from __future__ import annotations

import io
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from rlbhpc.cli.report import report as command
from rlbhpc.errors import LeftOutWarning, UserError
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects.responses import responses
from rlbhpc.report.aspects.robustness import conditions_tried, lay_beside
from rlbhpc.report.gather import gather
from rlbhpc.report.page import page
from rlbhpc.report.terminal import print_report
from tests.report.made import frames_of
from tests.report.rich import PROBLEMS, SPEEDS, STEPS, N, make_regraded
from tests.report.scripts import script, with_scripts

HOURS = script("budget_hours")


@pytest.fixture(scope="module")
def rich(rich_run: Path) -> Report:
    return gather(rich_run)


def test_prompts_are_compared_under_equal_sampling(rich: Report) -> None:
    found = {(one.model, one.step): one for one in script("best_prompt").prompts(rich)}
    assert set(found) == {("start", 0), ("grpo-run", STEPS[-1])}
    base = found["start", 0]
    assert base.spread.prompts == ("boxed", "plain"), "no-think asks another question"
    boxed, plain = (
        next(m for m in rich.measured_arms if m.arm == a) for a in ("base-boxed", "base")
    )
    gap = (plain.counts.c - boxed.counts.c).sum() / (PROBLEMS * N)
    assert float(base.spread.spread.estimate[0]) == pytest.approx(abs(gap))
    assert float(base.spread.spread.lower[0]) < abs(gap) < float(base.spread.spread.upper[0])


def test_at_equal_entropy_the_trained_model_lies_between_its_temperatures(
    rich: Report,
) -> None:
    (one,) = script("temperature").matched(
        rich
    )  # the hot base is more random than the trained model ever is
    assert one.measured.arm == "base" and 0.6 < one.temperature < 1.0
    cold, hot = (
        next(m for m in rich.measured_arms if m.arm == arm and m.step == STEPS[-1])
        for arm in ("grpo", "grpo-hot")
    )
    share = (one.temperature - 0.6) / 0.4
    mean = (1 - share) * cold.counts.c.mean() + share * hot.counts.c.mean()
    assert float(one.difference.estimate[0]) == pytest.approx(
        (mean - one.measured.counts.c.mean()) / N
    )
    assert one.difference.lower[0] < one.difference.estimate[0] < one.difference.upper[0]


def test_the_answer_under_each_prompt_and_temperature(rich: Report) -> None:
    tried = {one.change: one.outcome.trained.arm for one in conditions_tried(rich)}
    assert tried == {"as asked": "grpo", "temperature 1": "grpo-hot", "prompt boxed": "grpo-boxed"}


def test_odd_samples_report_what_even_ones_chose(rich: Report) -> None:
    by_one, by_many = script("best_checkpoint").chosen_checkpoints(rich)[:2]
    assert by_one.k == 1 and by_many.k == N // 2 and by_one.checkpoints == len(STEPS)
    line = next(line for line in rich.lineages if len(line.checkpoints) > 1)
    right = [one.verdicts == 1 for one in line.checkpoints if one.verdicts is not None]
    best = int(np.argmax([r[:, ::2].mean() for r in right]))
    assert by_one.chosen is line.checkpoints[best]
    assert line.base.verdicts is not None
    odd = right[best][:, 1::2].mean() - (line.base.verdicts == 1)[:, 1::2].mean()
    assert float(by_one.on_odd.estimate) == pytest.approx(odd)


def test_speeds_count_the_devices_of_a_worker(rich: Report) -> None:
    found = HOURS.tokens_per_second(rich.folder)
    assert found["start", 0] == SPEEDS["start"] and found["grpo-run", 50] == SPEEDS["grpo-run"]


def test_a_damaged_plan_is_told_where_it_would_have_said_who_was_quick(
    rich: Report, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(rich.folder, tmp_path / "run"))
    (plan,) = (run / "plans").glob("*.json")
    plan.write_bytes(plan.read_bytes()[:-9])
    with pytest.warns(LeftOutWarning, match=rf"speeds of workers: .*{plan.name}"):
        assert HOURS.tokens_per_second(run) == {}
    plan.unlink()
    with warnings.catch_warnings(action="error"):
        assert HOURS.tokens_per_second(run) == {}, "a plan that is gone is no damage"


def test_hours_are_tokens_at_the_speed_of_each_model(rich: Report, tmp_path: Path) -> None:
    written = responses(rich)
    found = HOURS.budgets_in_hours(rich)
    assert {one.measured.arm for one in found} >= {"base", "grpo", "ppo"}
    for arm, model in (("base", "start"), ("ppo", "ppo-run")):
        one = next(one for one in found if one.measured.arm == arm)
        cost = next(r.cost for r in written if r.measured is one.measured)
        at = 10
        spent = one.budgets[at] * 3600 * SPEEDS[model] / PROBLEMS
        bought = np.minimum(np.floor(spent / cost * (1 + 1e-12)), N).astype(int)
        values = [
            1 - np.prod(1 - c / np.arange(N - k + 1, N + 1)) if k else 0.0
            for c, k in zip(one.measured.counts.c.astype(float), bought, strict=True)
        ]
        if not np.isnan(one.rates.estimate[at]):
            assert float(one.rates.estimate[at]) == pytest.approx(float(np.mean(values)))
    nowhere = replace(rich, folder=tmp_path)
    assert HOURS.budgets_in_hours(nowhere) == [], "no worker is known"


def test_repeated_responses_are_found(rich: Report) -> None:
    found = {one.measured.arm: one for one in script("repeats").repeats(rich)}
    base = found["base"]
    assert (base.responses, base.problems) == (PROBLEMS * N, PROBLEMS)
    # Of one problem of thirty every response came up twice.
    assert float(base.distinct.estimate) == pytest.approx(1 - 0.5 / PROBLEMS)
    assert float(base.effective.estimate) == pytest.approx(1 - 0.5 / PROBLEMS)
    assert base.longest == 10 + N - 1
    assert found["grpo"].longest == 0 and float(found["grpo"].distinct.estimate) == 1


def test_perplexity_by_position_is_that_of_the_tokens(rich: Report) -> None:
    found = {one.measured.arm: one for one in script("perplexity_by_position").positions(rich)}
    assert set(found) == {"base", "grpo"}, "of no other arm are log-probabilities kept"
    base = found["base"]
    assert (base.responses, base.short) == (4 * PROBLEMS, (N - 4) * PROBLEMS)
    first = np.float16(-1.0 + np.arange(PROBLEMS) / 100).astype(float)
    assert float(base.parts["first"].estimate) == pytest.approx(np.exp(-first.mean()), rel=1e-3)
    assert float(base.parts["last"].estimate) == pytest.approx(np.exp(0.1), rel=1e-3)
    assert found["grpo"].parts["first"].estimate < base.parts["first"].lower


def test_a_second_grader_is_compared_sample_by_sample(
    rich: Report, tmp_path: Path, run: Path
) -> None:
    other = make_regraded(tmp_path / "other", rich.folder)
    report = gather(rich.folder)
    lay_beside(report, other)
    found = {one.measured.arm: one for one in script("graders").regraded_arms(report)}
    base = found["base"]
    assert (base.gained, base.lost) == (5, 0)
    assert base.own_solved == 0 and base.other_solved > 0
    assert float(base.difference.estimate[0]) == pytest.approx(5 / (PROBLEMS * N))
    assert float(base.difference.estimate[-1]) == pytest.approx(base.other_solved / PROBLEMS)
    assert (found["grpo"].gained, found["grpo"].lost) == (0, 0)
    with pytest.raises(UserError, match="was not written by"):
        lay_beside(report, run)
    (run_note := tmp_path / "strange").mkdir()
    (run_note / "regraded.json").write_text("{}")
    with pytest.raises(UserError):
        lay_beside(report, run_note)


def test_another_grader_is_a_condition_of_each_question(rich: Report, tmp_path: Path) -> None:
    report = gather(rich.folder)
    lay_beside(report, make_regraded(tmp_path / "other", rich.folder))
    tried = {(one.question.title, one.change): one for one in conditions_tried(report)}
    by_title = {pair.title: pair for pair in gather(tmp_path / "other").last_comparisons}
    for pair in report.last_comparisons:
        if (pair.title, "as asked") in tried:
            under_other = tried[pair.title, "another grader"].outcome
            assert float(under_other.net.estimate) == float(by_title[pair.title].net.estimate)
    nets = {
        one.change: float(one.outcome.net.estimate)
        for one in tried.values()
        if one.question.trained.arm == "grpo"
    }
    # The other grader calls the base right on five problems more of thirty.
    assert nets["as asked"] - nets["another grader"] == pytest.approx(5 / PROBLEMS)
    assert {"another grader, temperature 1", "another grader, prompt boxed"} <= set(nets)


def test_a_run_that_has_none_of_it_shows_none_of_it(run: Path) -> None:
    text = page(with_scripts(gather(run)))
    for part in ("prompt sensitivity", "device-hours", "by position", "Another grader",
                 "that the data chose"):  # fmt: skip
        assert part not in text


def test_the_tables_are_written(rich: Report) -> None:
    names = set(frames_of(with_scripts(rich)))
    assert names >= {
        "prompts", "chosen_checkpoints", "budget", "repeats", "perplexity_positions",
        "equal_entropy",
    }  # fmt: skip
    assert "regraded" not in names


def test_methods_describe_the_metrics_from_the_registry(rich: Report) -> None:
    text = page(with_scripts(rich))
    assert "From the registry of metrics" in text
    assert "Chen et al. (2021), arXiv:2107.03374" in text and "Bayes@N" in text


@pytest.mark.parametrize("width", [60, 120])
def test_a_terminal_shows_the_sections_of_the_page(rich: Report, width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    print_report(with_scripts(rich), console, verbose=True)
    text = " ".join(out.getvalue().split())
    assert max(map(cell_len, out.getvalue().splitlines())) <= width
    for part in (
        "prompt sensitivity", "device-hours", "perplexity by position", "repeated responses",
        "A checkpoint that the data chose", "majority votes", "beyond the samples",
        "reliability", "without guessable problems", "Algorithms",
    ):  # fmt: skip
        assert part in text, part


@pytest.mark.slow
def test_the_command_takes_a_second_grader(rich_run: Path, tmp_path: Path) -> None:
    other = make_regraded(tmp_path / "other", rich_run)
    words = [str(rich_run), "--terminal", "-v", "--regraded", str(other)]
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert "another grader" in " ".join(done.output.split())
    done = CliRunner().invoke(command, [*words, "--json"], standalone_mode=False)
    assert "--regraded" in str(done.exception)
