"""Files of other tools, in the shape in which those tools write them."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlbhpc.cli.main import cli
from rlbhpc.errors import UserError
from rlbhpc.exchange.arriving import Target, impossible_checks
from rlbhpc.exchange.imports import import_files
from rlbhpc.report.gather import gather
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.study.layout import Layout
from tests.exchange.made import (
    NO_ANSWER,
    RIGHT,
    TIMEOUT,
    WRONG,
    cube_of,
    evalplus_row,
    limit_row,
    lines,
    prediction_row,
    take_in,
    take_in_pieces,
    verdicts,
    verl_row,
)

# --- limit-of-RLVR ------------------------------------------------------------------------------


def test_limit_of_rlvr_with_its_seeds_in_files_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "math500"
    lines(folder / "test_qwen-boxed_-1_seed0_t0.6_s0_e-1.jsonl",
          [limit_row(0, "4", ["4", "5", "4"]), limit_row(1, "7", ["1", "2", "3"])])  # fmt: skip
    lines(folder / "test_qwen-boxed_-1_seed1_t0.6_s0_e-1.jsonl",
          [limit_row(0, "4", ["5", "4"]), limit_row(1, "7", ["7", "2"])])  # fmt: skip
    (folder / "test_qwen-boxed_-1_seed0_t0.6_s0_e-1_metrics.json").write_text('{"acc": 33.3}')
    done = take_in(tmp_path / "run", folder)
    cube = cube_of(tmp_path / "run")
    assert done.samples == 10
    assert verdicts(cube, "0") == [RIGHT, WRONG, RIGHT, WRONG, RIGHT]
    assert verdicts(cube, "1") == [WRONG, WRONG, WRONG, RIGHT, WRONG]
    assert cube.finish.sel(problem="set/0").values.ravel().tolist() == [0, 0, 1, 0, 1]
    assert cube.rlb.texts("set/1", 3, 0).item() == "It is $\\boxed{7}$."
    assert take_in(tmp_path / "run", folder).samples == 0


def test_the_texts_can_be_judged_again(tmp_path: Path) -> None:
    row = limit_row(0, "\\frac{1}{2}", ["0.5", "\\frac{1}{2}", "2"])
    assert row["score"] == [False, True, False]
    path = lines(tmp_path / "a.jsonl", [row])
    take_in(tmp_path / "run", path, judge="math")
    cube = cube_of(tmp_path / "run")
    assert verdicts(cube, "0") == [RIGHT, RIGHT, WRONG]
    origin = json.loads(cube.attrs["provenance"])["imported"]["a.jsonl"]
    assert origin["judged_by"].startswith("math")
    assert origin["format"].startswith("limit-of-RLVR")


# --- verl ---------------------------------------------------------------------------------------


def test_verl_rollouts_know_a_problem_by_its_prompt(tmp_path: Path) -> None:
    lines(tmp_path / "d/20.jsonl", [verl_row("a", 1.0), verl_row("b", -1.0), verl_row("a", -1.0)])
    lines(tmp_path / "d/40.jsonl", [verl_row("b", 1.0, 40), verl_row("b", 1.0, 40)])
    assert take_in(tmp_path / "run", tmp_path / "d").samples == 5
    cube = cube_of(tmp_path / "run")
    assert cube.step.values.tolist() == [20, 40]
    by_step = {
        step: sorted(
            [value for value in column if value >= 0]
            for column in cube.verdict.sel(step=step).transpose("problem", "sample").values.tolist()
        )
        for step in (20, 40)
    }
    assert by_step == {20: [[WRONG], [RIGHT, WRONG]], 40: [[], [RIGHT, RIGHT]]}


def test_a_shaped_score_does_not_matter_where_the_texts_are_judged(tmp_path: Path) -> None:
    rows = [{**verl_row("a", 0.1), "output": f"\\boxed{{{n}}}", "gts": "2"} for n in (2, 3)]
    path = lines(tmp_path / "1.jsonl", rows)
    with pytest.raises(UserError, match=r"1\.jsonl:1: the score 0.1 is .* --judge-again math"):
        take_in(tmp_path / "run", path)
    take_in(tmp_path / "run", path, judge="math")
    cube = cube_of(tmp_path / "run")
    assert sorted(cube.verdict.values.ravel().tolist()) == [WRONG, RIGHT]


@pytest.mark.parametrize("gold", [2, 2.0])
def test_verl_writes_some_reference_answers_as_numbers(tmp_path: Path, gold: float) -> None:
    rows = [{**verl_row("a", 0.1), "output": f"\\boxed{{{n}}}", "gts": gold} for n in (2, 3)]
    take_in(tmp_path / "run", lines(tmp_path / "1.jsonl", rows), judge="math")
    values = cube_of(tmp_path / "run").verdict.values.ravel().tolist()
    assert values == [RIGHT, WRONG]


def test_verl_prefers_accuracy_to_a_shaped_score(tmp_path: Path) -> None:
    path = lines(tmp_path / "1.jsonl", [verl_row("a", -0.4, acc=True, pred="34")])
    take_in(tmp_path / "run", path)
    cube = cube_of(tmp_path / "run")
    assert cube.verdict.values.ravel().tolist() == [RIGHT]
    assert cube.answer.item() == answer_id("34")
    with pytest.raises(UserError, match=r"1\.jsonl:1: the score -0.4 is neither right nor wrong"):
        take_in(tmp_path / "other", path, metric="score")


def test_a_verl_record_without_a_score_has_a_place(tmp_path: Path) -> None:
    second = verl_row("b", 1.0)
    del second["score"]
    path = lines(tmp_path / "1.jsonl", [verl_row("a", 1.0), second])
    with pytest.raises(UserError, match=r"1\.jsonl:2: no score 'score'; its fields are input"):
        take_in(tmp_path / "run", path)


# --- code ---------------------------------------------------------------------------------------


def test_evalplus_counts_as_evalplus_does(tmp_path: Path) -> None:
    tasks = {
        "HumanEval/0": [("pass", "pass"), ("pass", "fail"), ("fail", "fail"), ("pass", "timeout")],
        "HumanEval/1": [("fail", "pass"), ("timeout", "timeout")],
    }
    rows = {task: [evalplus_row(task, *pair) for pair in pairs] for task, pairs in tasks.items()}
    path = tmp_path / "samples_eval_results.json"
    path.write_text(json.dumps({"date": "2025-01-01 10:00", "hash": "fe5", "eval": rows}))
    take_in(tmp_path / "plus", path)
    cube = cube_of(tmp_path / "plus")
    assert verdicts(cube, "HumanEval/0") == [RIGHT, WRONG, WRONG, TIMEOUT]
    assert verdicts(cube, "HumanEval/1") == [WRONG, TIMEOUT]
    assert cube.rlb.texts("set/HumanEval/1", 0, 0).item() == "def f(): ..."
    take_in(tmp_path / "base", path, metric="base")
    assert verdicts(cube_of(tmp_path / "base"), "HumanEval/0") == [RIGHT, RIGHT, WRONG, RIGHT]


@pytest.mark.parametrize(
    ("plus", "expected"),
    [(["success", "failed", "failed", "timed out"], [RIGHT, WRONG, WRONG, TIMEOUT]),
     ([], [RIGHT, RIGHT, WRONG, RIGHT])],
)  # fmt: skip
def test_early_evalplus_had_two_lists_a_task(
    tmp_path: Path, plus: list[str], expected: list[int]
) -> None:
    base = ["success", "success", "failed", "success"]
    task = {"nfiles": 4, "base": [[s, [1]] for s in base], "plus": [[s, []] for s in plus]}
    path = tmp_path / "samples_eval_results.json"
    path.write_text(json.dumps({"date": "2023-10-17 15:24", "eval": {"HumanEval/0": task}}))
    take_in(tmp_path / "run", path)
    assert verdicts(cube_of(tmp_path / "run"), "HumanEval/0") == expected


def test_livecodebench_counts_as_livecodebench_does(tmp_path: Path) -> None:
    rows = [
        {"question_title": "A", "question_id": "abc301_a", "difficulty": "easy",
         "output_list": ["```python\nx\n```", "no program", "…"], "code_list": ["x", "", "y"],
         "graded_list": [True, False, False], "pass@1": 1 / 3, "metadata": ["{}", "{}", "{}"]},
    ]  # fmt: skip
    path = tmp_path / "Scenario.codegeneration_3_0.2_eval_all.json"
    path.write_text(json.dumps(rows, indent=4))
    take_in(tmp_path / "run", path)
    cube = cube_of(tmp_path / "run")
    assert verdicts(cube, "abc301_a") == [RIGHT, NO_ANSWER, WRONG]
    assert float((cube.verdict == RIGHT).mean()) == pytest.approx(rows[0]["pass@1"])


def test_livecodebench_predictions_have_several_rows_a_question(tmp_path: Path) -> None:
    """Test output prediction and code execution: a row a test, and answers, not programs."""
    path = tmp_path / "Scenario.testoutputprediction_2_0.2_eval_all.json"
    path.write_text(json.dumps([prediction_row("abc301_a", test_id=n) for n in (0, 1)]))
    assert take_in(tmp_path / "tests", path).samples == 4
    cube = cube_of(tmp_path / "tests")
    assert verdicts(cube, "abc301_a/1") == [RIGHT, NO_ANSWER]
    path = tmp_path / "Scenario.codeexecution_2_0.2_eval_all.json"
    path.write_text(json.dumps([prediction_row("abc301_a", id=f"sample_{n}") for n in (0, 1)]))
    assert take_in(tmp_path / "execution", path).samples == 4
    assert verdicts(cube_of(tmp_path / "execution"), "abc301_a/sample_0") == [RIGHT, NO_ANSWER]


# --- tables of counts ---------------------------------------------------------------------------


def helm_row(instance: str, trial: int, right: float, count: int = 1) -> dict[str, Any]:
    stats = [
        {"name": {"name": name, "split": "test"}, "count": count, "sum": value, "mean": value}
        for name, value in (("exact_match", right), ("num_output_tokens", 17.0))
    ]
    return {"instance_id": instance, "train_trial_index": trial, "stats": stats}


def test_helm_statistics_are_added_up_over_trials(tmp_path: Path) -> None:
    path = tmp_path / "per_instance_stats.json"
    rows = [helm_row("id1", 0, 1.0), helm_row("id1", 1, 0.0), helm_row("id2", 0, 3.0, 4)]
    perturbed = {**helm_row("id1", 0, 0.0), "perturbation": {"name": "robustness"}}
    path.write_text(json.dumps([*rows, perturbed]))
    with pytest.raises(UserError, match="--metric which score decides; its scores are exact_match"):
        take_in(tmp_path / "run", path)
    assert take_in(tmp_path / "run", path, metric="exact_match").counts == 2
    cube = cube_of(tmp_path / "run")
    assert cube.n.sel(problem=["set/id1", "set/id2"]).values.ravel().tolist() == [2, 4]
    assert cube.c.sel(problem=["set/id1", "set/id2"]).values.ravel().tolist() == [1, 3]
    assert cube.step.values.tolist() == [0]
    with pytest.raises(UserError, match="num_output_tokens has the sum 17 over 1; allowed is"):
        take_in(tmp_path / "other", path, metric="num_output_tokens")


# --- whatever else comes ------------------------------------------------------------------------


def test_nothing_is_stored_of_files_that_contradict_each_other(tmp_path: Path) -> None:
    first = lines(tmp_path / "1.jsonl", [{"problem": "a", "sample": 0, "score": 1}])
    second = lines(tmp_path / "2.jsonl", [{"problem": "a", "sample": 0, "score": 0}])
    with pytest.raises(UserError, match="set/a sample 0 at step 0: arm theirs has another"):
        take_in(tmp_path / "run", first, second)
    assert not list((tmp_path / "run").rglob("*.journal"))
    assert list((tmp_path / "run").iterdir()) == []


def test_an_arm_takes_in_samples_or_counts(tmp_path: Path) -> None:
    """With both no cube can be made, and nothing could be read any more."""
    samples = lines(tmp_path / "a.jsonl", [{"problem": "a", "score": 1}])
    counts = lines(tmp_path / "b.jsonl", [{"problem": "b", "n": 4, "c": 1}])
    for number, files in enumerate(((samples, counts), (counts, samples))):
        run = tmp_path / str(number)
        take_in(run, files[0])
        for more in (files[1:], files):
            with pytest.raises(UserError, match=r"arm theirs would have samples and counts of set"):
                take_in(run, *more)
        assert cube_of(run).sizes["problem"] == 1


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [
        lines(tmp_path / folder / "out.jsonl", [{"problem": folder, "sample": 0, "score": 1}])
        for folder in "abc"
    ]
    run = tmp_path / "run"
    assert take_in(run, *paths[:2]).samples == 2
    assert take_in(run, paths[2]).samples == 1
    assert take_in(run, *reversed(paths)).samples == 0
    origins = json.loads(cube_of(run).attrs["provenance"])["imported"]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    assert [origin["sha256"] for origin in origins.values()] == digests
    names = ["out.jsonl", *(f"out.jsonl@{digest[:16]}" for digest in digests[1:])]
    assert list(origins) == names


def test_what_foreign_samples_lack_is_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"problem": "a", "score": 1, "text": "x", "n_tokens": 3}])
    done = take_in(tmp_path / "run", path)
    assert done.absent == ("seeds", "endings")
    message = impossible_checks(done.absent)
    assert message.startswith("Not in these files: seeds (two samples of one seed); endings")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sample": -1}, "sample number -1; allowed are 0 to 4,194,303"),
        ({"sample": 1 << 22}, "allowed are 0 to 4,194,303"),
        ({"step": 1 << 40}, "step, seed or token count that can't be stored"),
        ({"seed": 1 << 70}, "step, seed or token count that can't be stored"),
        ({"problem": "\ud800"}, "has an id that can't be stored"),
    ],
)
def test_numbers_that_cannot_be_stored_are_refused(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = lines(tmp_path / "a.jsonl", [{"problem": "a", "score": 1, **row}])
    with pytest.raises(UserError, match=message):
        take_in(tmp_path / "run", path)
    largest = lines(tmp_path / "b.jsonl", [{"problem": "a", "score": 1, "sample": (1 << 22) - 1}])
    assert take_in(tmp_path / "run", largest).samples == 1


@pytest.mark.parametrize("row", [{"n": 1 << 31}, {"step": -1 << 31}, {"problem": "\ud800"}])
def test_counts_that_cannot_be_stored_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "counts.json"
    path.write_text(json.dumps([{"problem": "a", "n": 4, "c": 2, **row}]))
    with pytest.raises(UserError, match=r"counts\.json: .* less than|has an id that can't"):
        take_in(tmp_path / "run", path)
    path.write_text(json.dumps([{"problem": "a", "n": (1 << 31) - 1, "c": 2}]))
    assert take_in(tmp_path / "run", path).counts == 1
    other = tmp_path / "other.csv"
    other.write_text("problem,n,c\na,4,2\n")
    with pytest.raises(UserError, match=r"a at step 0 has counts \(4, 2\) here and \(21"):
        take_in(tmp_path / "both", path, other)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("excel.csv", "\ufeffProblem;N;C\r\na;4;1\r\nb;4;0\r\n"),
        ("pandas.csv", ",problem,n,c\n0,a,4.0,1.0\n1,b,4.0,0.0\n"),
        ("spaces.csv", "problem, n, c\n\na, 4, 1\nb, 4, 0\n\n"),
        ("tabs.tsv", "problem\tn\tc\na\t4\t1\nb\t4\t0\n"),
        ("lines.jsonl", '{"problem": "a", "n": 4, "c": 1}\n{"problem": "b", "n": 4, "c": 0}\n'),
        (
            "nulls.json",
            '[{"problem": "a", "n": 4, "c": 1, "step": null}, {"problem": "b", "n": 4, "c": 0}]',
        ),
    ],
)
def test_counts_as_people_write_them(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, newline="")
    assert take_in(tmp_path / "run", tmp_path / name).counts == 2
    cube = cube_of(tmp_path / "run")
    assert cube.c.values.ravel().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "problem,sample,correct\na,0,True\na,1,False\na,2,1\na,3,no\n"),
        ("a.json", '[{"problem": "a", "score": v}, {"problem": "a", "score": 0.0}]'),
        ("a.jsonl", '{"problem": "a", "score": "1"}\n{"problem": "a", "score": "false"}\n'),
        ("a.json", '{"problem": "a", "score": 1}\n{"problem": "a", "score": 0}\n'),
        ("a.txt", '{"problem": "a", "score": 1}\n{"problem": "a", "score": 0}\n'),
    ],
)
def test_scored_responses_as_people_write_them(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text.replace("v", "true"))
    take_in(tmp_path / "run", tmp_path / name)
    assert verdicts(cube_of(tmp_path / "run"), "a")[:2] == [RIGHT, WRONG]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv.gz", "problem,correct\na,1\na,0\n"),
        ("a.json.gz", '[{"problem": "a", "score": 1}, {"problem": "a", "score": 0}]'),
        ("A.JSONL.GZ", '{"problem": "a", "score": 1}\n{"problem": "a", "score": 0}\n'),
    ],
)
def test_a_packed_file_is_read_as_what_is_in_it(tmp_path: Path, name: str, text: str) -> None:
    packed = gzip.compress(text.encode())
    (tmp_path / name).write_bytes(packed)
    take_in(tmp_path / "run", tmp_path / name)
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, WRONG]
    (tmp_path / name).write_bytes(packed[:-9])
    with pytest.raises(UserError, match="not a whole gzip file"):
        take_in(tmp_path / "half", tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.csv", "problem,n,c\na,4,1\na,4,1\n", r"a\.csv:3: a at step 0 stands in .*a\.csv:2"),
        ("a.csv", "problem,n,c\na,1,024,3\n", r"a\.csv:2: 4 cells; the first line names 3"),
        ("a.csv", "problem,n,c\na,4,\n", r"a\.csv:2: .* whole numbers \(one is empty\)"),
        ("a.csv", "problem,n,c\n,4,1\n", r"a\.csv:2: no id in the field 'problem'"),
        ("a.csv", "id,hits\na,4\n", r"with the fields id, hits it is of no known format"),
        ("a.csv", "problem,hit\na,1\n", r"a\.csv:2: no correct .* its fields problem, hit"),
        ("a.json", '[{"problem": "a", "n": 4.5, "c": 1}]', r"whole numbers .*4\.5"),
        ("a.jsonl", '{"problem": null, "score": 1}\n', "no id in the field 'problem'"),
        ("a.jsonl", '{"problem": NaN, "score": 1}\n', "no id in the field 'problem'"),
        (
            "a.jsonl",
            '{"problem": 1, "score": 1, "text": ["x"]}\n',
            "the response is a list; a text",
        ),
        (
            "a.jsonl",
            json.dumps({**limit_row(0, "4", ["4", "5"]), "pred": ["4"]}),
            "lists of different lengths: code has 2, pred has 1, score has 2, finish_reason has 2",
        ),
        (
            "a.jsonl",
            json.dumps({**limit_row(0, "4", ["4"]), "pred": "4"}),
            "a.jsonl:1: pred is a str; a list is needed",
        ),
        (
            "log.json",
            '{"samples": [{"id": 1, "epoch": 1, "target": "4", "scores": {}}]}',
            "sample 0: carries no verdict yet; evaluate it .* or .* --judge-again math",
        ),
        (
            "a.jsonl",
            '{"problem": 1, "score": 1, "finish": "tired"}',
            "finish 'tired'; allowed are eos, length",
        ),
        ("a.csv", "", r"a\.csv: holds nothing"),
        ("a.jsonl", "\n", r"a\.jsonl: holds nothing"),
        ("a.json", '{"results": [1]}', r"with the fields results it is of no known format"),
        ("a.jsonl", "\x1f\x8b", r"a\.jsonl:1: not JSON"),
        ("a.jsonl.gz", "{}", r"a\.jsonl\.gz: not a whole gzip file \(Not a gzipped file"),
    ],
)
def test_rows_that_mean_nothing_are_refused(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=complaint):
        take_in(tmp_path / "run", tmp_path / name)


def test_the_same_samples_are_no_other_samples(tmp_path: Path) -> None:
    """Nothing in them says so: unnumbered responses of a copy would be taken for more samples."""
    rows = [{"problem": p, "score": s} for p in "abc" for s in (1, 0)]
    first, copy = lines(tmp_path / "1.jsonl", rows), lines(tmp_path / "2.jsonl", rows)
    with pytest.raises(UserError, match=r"2\.jsonl: a copy of .*1\.jsonl; give the same samples"):
        take_in(tmp_path / "run", first, copy)
    take_in(tmp_path / "run", first)
    import_files(Layout(tmp_path / "run"), [copy], Target("base", "set", "other"))
    report = gather(tmp_path / "run", [("base", "theirs")])
    assert report.notes[0].startswith("theirs/set and base/set hold samples of the same file, 1.js")


def test_copies_in_a_folder_are_no_more_samples(tmp_path: Path) -> None:
    rows = [{"problem": p, "score": s} for p in "abc" for s in (1, 0)]
    folder = tmp_path / "theirs"
    path = lines(folder / "a.jsonl", rows)
    backup = lines(folder / "a.jsonl.bak", rows[1:])
    assert take_in(tmp_path / "run", folder).samples == 6
    assert take_in(tmp_path / "named", backup).samples == 5
    packed = folder / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UserError, match=r"a\.jsonl\.gz: a copy of .*a\.jsonl; give"):
        take_in(tmp_path / "packed", folder)


def test_a_cut_packed_file_of_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    rows = [{"problem": p, "score": 1} for p in "abc"]
    lines(tmp_path / "theirs/a.jsonl", rows)
    whole = gzip.compress(json.dumps(rows[0]).encode())
    (tmp_path / "theirs/b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"b\.jsonl\.gz: not a whole gzip file"):
        take_in(tmp_path / "run", tmp_path / "theirs")


def test_a_folder_without_results_says_what_could_be_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").write_text("x")
    with pytest.raises(UserError, match="rlbhpc import --help"):
        take_in(tmp_path / "run", tmp_path / "empty")
    with pytest.raises(UserError, match="no such file or folder"):
        take_in(tmp_path / "run", tmp_path / "absent")
    with pytest.raises(UserError, match="has no single reference answer in this file"):
        path = lines(tmp_path / "a.jsonl", [{"problem": "a", "score": 1, "text": "4"}])
        take_in(tmp_path / "run", path, judge="math")


def test_an_import_of_what_is_known_writes_a_lost_plan_again(tmp_path: Path) -> None:
    rows = [{"problem": problem, "score": 1} for problem in "aab"]
    path = lines(tmp_path / "a.jsonl", rows)
    take_in(tmp_path / "run", path)
    cube_of(tmp_path / "run")
    plan = Layout(tmp_path / "run").grid("theirs", "set")
    before = plan.read_bytes()
    assert take_in(tmp_path / "run", path.rename(tmp_path / "b.jsonl")).samples == 0
    assert plan.read_bytes() == before
    path.with_name("b.jsonl").rename(path)
    plan.unlink()
    with pytest.raises(UserError, match="`rlbhpc import` of their files"):
        cube_of(tmp_path / "run")
    assert take_in(tmp_path / "run", path).samples == 0
    assert plan.read_bytes() == before
    assert verdicts(cube_of(tmp_path / "run"), "a") == [RIGHT, RIGHT]


def test_what_of_a_folder_is_not_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    lines(folder / "a.jsonl", [{"problem": "a", "score": 1}])
    lines(folder / "gsm8k/b.jsonl", [{"problem": "b", "score": 1}])
    (folder / ".cache").mkdir()
    (folder / "metrics.json").write_text('{"accuracy": 1}')
    (folder / "notes.txt").write_text("x")
    words = ["import", tmp_path / "run", folder, "--arm", "a", "--set", "s"]
    output = CliRunner().invoke(cli, list(map(str, words))).output
    assert f"Not read of {folder}: gsm8k/, metrics.json. " in output
    assert "notes.txt" not in output and ".cache" not in output
    words[2] = folder / "a.jsonl"
    assert "Not read" not in CliRunner().invoke(cli, list(map(str, words))).output
    # The folder of an evaluation, which people type; damaged files and metrics are passed over.
    (folder / "a.jsonl").unlink()
    (folder / "eval").mkdir()
    (folder / "eval/half.json").write_text('[{"problem": ')
    (folder / "gsm8k").rename(folder / "eval/gsm8k")
    with pytest.raises(UserError, match=f"in {folder / 'eval/gsm8k'}: give that folder") as refused:
        take_in(tmp_path / "other", folder)
    assert take_in(tmp_path / "other", folder / "eval/gsm8k").samples == 1
    assert len(str(refused.value)) - 2 * len(str(folder)) < 150


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    """What is kept in memory of a response is its digest, not its text."""
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for number in range(1000):
            row = {"problem": str(number % 40), "score": number % 2, "text": "x" * 80_000}
            file.write(json.dumps(row) + "\n")
    take_in_pieces(tmp_path / "run", path)
    cube = cube_of(tmp_path / "run")
    assert np.isin(cube.verdict.values, (0, 1)).sum() == 1000
