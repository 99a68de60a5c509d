"""The labelled benchmark of answers: what it holds, and how we do on it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.verify import verify
from rlbhpc.verify.benchmark import table
from rlbhpc.verify.benchmark.cases import cases

# What stands around a value where the case is about the value alone.
BOXED = "Working it through, we obtain $\\boxed{"


def test_the_cases_are_many_and_all_different():
    every = cases()
    assert len({(case.gold, case.response) for case in every}) == len(every) >= 1000
    assert len({case.family for case in every}) >= 20
    assert all(case.reason for case in every)
    assert 0.3 < sum(case.right for case in every) / len(every) < 0.7


def test_no_wrong_value_in_a_box_is_accepted_and_hardly_a_right_one_refused():
    values = [case for case in cases() if case.response.startswith(BOXED)]
    assert len(values) > 2000
    verdicts = [verify("math", case.gold, case.response).right for case in values]
    judged = list(zip(values, verdicts, strict=True))
    assert [case for case, right in judged if right and not case.right] == []
    refused = [case for case, right in judged if case.right and not right]
    assert len(refused) <= len(values) // 50, refused


def test_a_score_counts_each_way_to_differ():
    score = table.Score()
    for expected, says, times in ((True, True, 8), (False, False, 4), (True, False, 2)):
        for _ in range(times):
            score.add(expected, says)
    score.add(expected=False, says=True)
    assert score == table.Score(cases=15, agrees=12, accepted_wrong=1, refused_right=2)


@pytest.mark.slow
def test_the_verb_shows_both_graders(monkeypatch):
    few = [case for case in cases() if case.family in ("ratios", "labels")]
    monkeypatch.setattr(table, "cases", lambda: few)
    result = CliRunner().invoke(cli, ["verify", "--benchmark", "--json"])
    rows = {row["family"]: row for row in json.loads(result.stdout)}
    assert rows["all"]["ours"]["cases"] == len(few) == rows["all"]["theirs"]["cases"]
    labels = rows["labels"]
    assert 0 < labels["theirs"]["agrees"] < labels["ours"]["agrees"] <= labels["ours"]["cases"]
    shown = CliRunner().invoke(cli, ["verify", "--benchmark"]).stdout
    assert "Math-Verify: agrees" in shown and "labels" in shown


def test_without_a_run_the_verb_says_what_it_needs():
    result = CliRunner().invoke(cli, ["verify"])
    assert result.exit_code != 0
    assert "--benchmark" in result.output
