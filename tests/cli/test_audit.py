"""The audit of style: the same responses under other readers and another grader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, UserError
from rlbhpc.report.aspects.graders import audited
from rlbhpc.report.gather import gather
from rlbhpc.report.page import page
from rlbhpc.store import checked
from rlbhpc.study.study import Study
from rlbhpc.sweep.remember import remember
from rlbhpc.verify.audit.style import JUDGINGS, REFERENCE
from tests.cli.test_store_verbs import call, printed
from tests.responses import sums_study, write_responses

STUDY = """
name: styles
models:
  base: {path: model}
  rl: {path: model}
problem_sets:
  gsm8k: {path: sums.jsonl, subset: test}
arms:
  base: {model: base, prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 8}
  rl: {model: rl, prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 8}
"""
PROBLEMS, SAMPLES = 24, 8
EXPECTED = Path(__file__).with_name("audited.txt")


def response(arm: str, gold: int, index: int) -> str:
    """Both arms are right three times in four; the base seldom draws a box, and goes on after."""
    answer = gold if index % 4 else gold + 1
    if arm == "rl":
        return f"<b>{index}</b> So \\boxed{{{answer}}}."
    return f"<i>{index}</i> The answer is {answer}.\n\nI checked it, all of it, with 3 other ways."


@pytest.fixture
def study(tmp_path: Path) -> Study:
    study = sums_study(tmp_path, STUDY, PROBLEMS)
    for arm in ("base", "rl"):
        responses = {
            problem.id: [response(arm, int(problem.gold), i) for i in range(SAMPLES)]
            for problem in study.problems("gsm8k")
        }
        write_responses(study, arm, responses)
    return study


def test_a_reader_that_misses_a_style_bends_the_comparison_and_is_told(study: Study) -> None:
    root = study.layout.root
    words = ("--compare", "base:rl", "--responses", 24 * 4)
    code, result = call("audit", root, *words)
    assert code == DONE, result.output
    assert printed(result) == EXPECTED.read_text()
    # Where no more than a stated share differs, nothing is listed.
    _, quiet = call("audit", root, *words, "--share", 71 / 96)
    assert "I checked it" not in quiet.output


def test_the_record_counts_every_judging_of_a_seeded_sample(study: Study) -> None:
    root = study.layout.root
    words = ("audit", root, "--compare", "base:rl", "--responses", 24 * 4, "--json")
    _, result = call(*words)
    record = json.loads(result.output)
    assert checked.read(study.layout.audit) == record
    base, trained = record["cells"]
    assert (base["arm"], trained["arm"]) == ("base", "rl")
    assert list(base["right"]) == list(JUDGINGS)
    for cell in (base, trained):
        assert cell["responses"] == sum(cell["n"]) == PROBLEMS * 4
        assert cell["differing"][REFERENCE] == 0
    # The same samples of both arms, and of both as many right ones.
    assert base["right"][REFERENCE] == trained["right"][REFERENCE]
    assert set(base["right"]["last box, ours"]) == {0}
    assert trained["right"]["last box, ours"] == trained["right"][REFERENCE]
    assert trained["differing"]["ours, math-verify"] == 0
    # "3 other ways" is the last value, and by accident the gold answer of nothing here.
    assert sum(base["right"]["last value, ours"]) == 0
    replays = [one["replay"] for one in base["witnesses"]]
    assert len(replays) == sum(right > 0 for right in base["right"][REFERENCE])
    assert set(replays) == {"equal text"}
    assert call(*words)[1].output == result.output
    every = json.loads(call("audit", root, "--responses", 24 * 4, "--json")[1].output)
    assert every["cells"] == record["cells"], "without a comparison every arm is audited"
    assert json.loads(call(*words, "--seed", 1)[1].output) != record


def test_the_report_says_whether_conclusions_survive(study: Study) -> None:
    pairs = [("base", "rl")]
    before = gather(study.layout.root, pairs)
    assert audited(before) == []
    call("audit", study.layout.root, "--compare", "base:rl")
    report = gather(study.layout.root, pairs)
    (one,) = audited(report)
    assert [judged.survives for judged in one.judged].count(False) == 4
    assert one.judged[0].words == ("undecided", "undecided")
    text = page(report)
    assert "Other readers and another grader" in text
    assert "does not survive 4 of 5 other judgings: last box, ours" in text


def test_a_damaged_record_is_one_clear_line(study: Study) -> None:
    call("audit", study.layout.root, "--compare", "base:rl")
    intact = study.layout.audit.read_bytes()
    for damaged in (b"{", b"{}", intact.replace(b'"responses": ', b'"responses": 1', 1)):
        assert damaged != intact
        study.layout.audit.write_bytes(damaged)
        report = gather(study.layout.root, [("base", "rl")])
        with pytest.raises(UserError, match="make it anew: rlbhpc audit"):
            audited(report)


def test_of_problems_that_stop_only_what_all_were_asked_for_is_audited(study: Study) -> None:
    arms = {n: arm.model_copy(update={"stop_after": 3}) for n, arm in study.file.arms.items()}
    remember(replace(study, file=study.file.model_copy(update={"arms": arms})))
    root = study.layout.root
    call("audit", root, "--compare", "base:rl", "--responses", 24 * 8)
    record = checked.read(study.layout.audit)
    # All have 8 samples; the third right one is the fourth.
    assert all(set(cell["n"]) == {3} for cell in record["cells"])
    assert all(set(cell["right"][REFERENCE]) == {2} for cell in record["cells"])
