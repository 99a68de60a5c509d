"""Judging a run anew: what changes, and how the new verdicts become a run of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rlbhpc.errors import DONE, INCOMPLETE, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.store.reader import open_cube
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status
from tests.cli.test_store_verbs import call, printed
from tests.report.scripts import FOLDER as ANALYSIS
from tests.responses import sums_study, write_responses

N = 40
GRADERS = ANALYSIS / "graders.py"
STUDY = """
name: sums
models:
  base: {path: model}
problem_sets:
  gsm8k: {path: sums.jsonl, subset: test}
arms:
  base: {model: base, prompt: qwen-boxed, temperature: 1, max_tokens: 64, n: 40}
storage: {tokens: all}
"""


def answers(problem: Problem) -> list[str]:
    """Forty responses: the first problem is solved once, the second half the time, none the third.

    The last accepted one is what the lenient grader takes and the sound one does not: a hundred
    times the gold answer.
    """
    gold = int(problem.gold)
    right = {4: 1, 5: N // 2, 6: 0}[gold]
    good = [f"Because <b>{i}</b>. \\boxed{{{gold}}}" for i in range(right)]
    return good + [f"So \\boxed{{{gold * 100}}}"] + ["No idea."] * (N - right - 1)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return sampled(tmp_path, STUDY)


def sampled(tmp_path: Path, text: str) -> Study:
    study = sums_study(tmp_path, text, 3)
    responses = {problem.id: answers(problem) for problem in study.problems("gsm8k")}
    write_responses(study, "base", responses, "math")
    return study


@pytest.mark.parametrize("problems", [20, 21])
def test_long_tables_and_long_answers_are_cut(tmp_path: Path, problems: int) -> None:
    """Whole are twenty rows and sixty characters."""
    golds = [10**60, *range(10**59 + 1, 10**59 + problems)]
    rows = [{"question": "?", "answer": f"It is.\n#### {gold}"} for gold in golds]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = sums_study(tmp_path, STUDY.replace("path: sums", "path: long"), 0)
    answers = {
        problem.id: [f"\\boxed{{{problem.gold}}}", f"\\boxed{{{problem.gold}00}}"]
        for problem in study.problems("gsm8k")
    }
    write_responses(study, "base", answers)
    text = call("verify", study.layout.root, "--grader", "math-paper")[1].stdout
    assert text.count(" (box/gold · 100) ") == 20
    assert f" {10**58}… " in text and str(10**59) not in text
    assert text.endswith("and 1 more; --json has all\n\n" if problems == 21 else "1\n\n")


def test_a_run_without_right_samples_is_judged_like_any_other(tmp_path: Path) -> None:
    study = sums_study(tmp_path, STUDY, 1)
    write_responses(study, "base", {problem.id: ["?"] for problem in study.problems("gsm8k")})
    code, result = call("verify", study.layout.root, "--into", tmp_path / "new")
    assert (code, printed(result)) == (
        DONE,
        "base/gsm8k: verdicts, stored and today\nstored     today      samples\n"
        "no_answer  no_answer        1\nBoth call the same samples right.\n"
        f"{tmp_path / 'new'} holds the run with the new verdicts; compact it, or show both beside "
        f"each other: rlbhpc report {study.layout.root} --regraded {tmp_path / 'new'}\n",
    )
    as_json = call("verify", study.layout.root, "--into", tmp_path / "other", "--json")
    assert json.loads(as_json[1].stdout)["base/gsm8k"]["problems"] == []


def test_a_grader_is_told_again_how_a_response_ended(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def verify(gold, response, problem=None, finish=''):\n    return finish == 'eos'\n"
    )
    own = STUDY.replace("subset: test", "subset: test, verifier: ./mine.py")
    study = sampled(tmp_path, own)
    code, result = call("verify", study.layout.root, "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    assert {row["after"] for row in found["verdicts"]} == {"right"}


def test_the_same_grader_changes_nothing(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    assert found["problems"] == found["answers"] == []
    assert sum(row["samples"] for row in found["verdicts"]) == 3 * N


@pytest.mark.parametrize("verb", ["verify", "audit"])
def test_samples_that_only_the_cube_has_are_told(study: Study, verb: str) -> None:
    call("compact", study.layout.root)
    (study.layout.journals("base", "gsm8k") / "one.journal").unlink()
    code, result = call(verb, study.layout.root)
    assert code == INCOMPLETE
    assert result.stderr.count(f"left out ({3 * N} purged)") == 1


def test_verdicts_are_compared_under_the_reading_that_decides(tmp_path: Path) -> None:
    study = sums_study(tmp_path, STUDY, 1)
    responses = {p.id: ["It is 4.", r"\boxed{4}"] for p in study.problems("gsm8k")}
    write_responses(study, "base", responses)
    code, result = call("verify", study.layout.root, "--into", tmp_path / "new", "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    verdicts = {(row["before"], row["after"]): row["samples"] for row in found["verdicts"]}
    assert verdicts == {("right", "right"): 1, ("no_answer", "no_answer"): 1}
    assert call("compact", tmp_path / "new")[0] == DONE
    group = open_cube(tmp_path / "new")["base/gsm8k"].to_dataset()
    assert group["strict"].values.ravel()[:2].tolist() == [Status.NO_ANSWER, Status.RIGHT]
    assert group["lenient"].values.ravel()[:2].tolist() == [Status.RIGHT, Status.RIGHT]


def test_another_grader_is_held_against_what_is_stored(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--grader", "math-paper", "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    # The lenient grader takes a hundred times the answer, once per problem.
    moved = [one["right_after"] - one["right_before"] for one in found["problems"]]
    assert moved == [1, 1, 1]
    assert all(row["after"].startswith("right") for row in found["answers"])
    changed = [
        row for row in found["verdicts"] if (row["before"], row["after"]) == ("wrong", "right")
    ]
    assert [row["samples"] for row in changed] == [3]
    first = found["pass_at_k"][0]
    assert first["before"] == pytest.approx((1 + N // 2) / (3 * N), abs=1e-6)
    assert first["after"] == pytest.approx((1 + N // 2 + 3) / (3 * N), abs=1e-6)


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlbhpc.cli.verify._choose_kind", lambda grader, problem: "math-paper")


def test_new_verdicts_become_a_run_of_their_own(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(study.layout.root)
    new = tmp_path / "new"
    lenient(monkeypatch)
    assert call("verify", study.layout.root, "--into", new)[0] == DONE
    assert before == files(study.layout.root)
    assert call("compact", new)[0] == DONE
    group = open_cube(new)["base/gsm8k"].to_dataset()
    counts = group.rlb.counts()
    assert counts["n"].values.ravel().tolist() == [N] * 3
    assert counts["c"].values.ravel().tolist() == [2, N // 2 + 1, 1]
    assert (group["verdict"].values == Status.MISSING).sum() == 0


def test_a_named_grader_stands_beside_the_run_in_its_report(tmp_path: Path) -> None:
    study = sampled(tmp_path, f"{STUDY}analysis: {{aspects: [{GRADERS}]}}\n")
    root, new = study.layout.root, tmp_path / "paper"
    assert call("verify", root, "--grader", "math-paper", "--into", new)[0] == DONE
    code, _ = call("report", root, "--regraded", new, "-o", tmp_path / "page")
    assert code == DONE
    text = (tmp_path / "page" / "report.html").read_text()
    assert "They differ on 3 samples" in text and "the other: math-paper-" in text
    assert "both graders" in text, "one arm is no comparison"
    rows = (tmp_path / "page" / "regraded.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=False))
    assert (last["k"], last["other"]) == (str(N), "1.0"), "every problem is solved if 400 is 4"
    assert float(last["own"]) == pytest.approx(2 / 3)


def test_a_grader_judges_only_problems_of_its_kind(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--grader", "code")
    assert code == DONE
    assert "Both call the same samples right." in result.stdout


def test_a_grader_that_changes_nothing_leaves_every_row_as_it_is(
    study: Study, tmp_path: Path
) -> None:
    root, new = study.layout.root, tmp_path / "new"
    assert call("verify", root, "--into", new)[0] == DONE
    assert call("seal", root, "--tokens", "all")[0] == DONE
    assert files(new / "parts") == files(root / "parts") != {}


def test_an_interrupted_one_goes_on_and_a_whole_one_is_never_touched(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "deep" / "new"
    words = ("verify", study.layout.root, "--into", new)
    whole = "rlbhpc.sweep.again.StoredRun.rewrite"
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(whole, lambda *_: 1 // 0)
        call(*words)
    assert call(*words)[0] == DONE
    kept = files(new)
    lenient(monkeypatch)
    with pytest.raises(UserError, match="holds something already"):
        call(*words)
    assert files(new) == kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arm", "bsae"], "no samples of arm 'bsae'; there are base"),
        (["--into", "RUN"], "holds something already"),
        (["--into", "OTHER"], "holds something already"),
        (["--into", "SAME"], "holds something already"),
        (["--into", "NEW", "--arm", "base"], "leave --arm and --step out"),
    ],
)
def test_what_cannot_be_done_is_said(
    study: Study, tmp_path: Path, words: list[str], message: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    # Another run of the same study, drawn elsewhere: as precious as any.
    same = shutil.copytree(study.layout.root, tmp_path / "same")
    assert call("seal", same)[0] == DONE
    places = {
        "RUN": str(study.layout.root), "OTHER": str(other), "NEW": str(tmp_path / "n"),
        "SAME": str(same),
    }  # fmt: skip
    kept = files(same)
    with pytest.raises(UserError, match=message):
        call("verify", study.layout.root, *(places.get(word, word) for word in words))
    assert (other / "precious").exists()
    assert files(same) == kept
