"""Looking again at a run: the thin list, another grader, what readers say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click import UsageError

from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.store.reader import open_cube
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status
from tests.cli.test_store_verbs import call, printed
from tests.responses import sums_study, write_responses
from tests.verify.test_chain_judge import Server
from tests.verify.test_chain_judge import server as server

N = 40
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


COMPARED = """\
base/gsm8k: verdicts, math and math-paper
math   math-paper  samples
wrong  right             3
wrong  no_answer        96
right  right            21
base/gsm8k: pass@k
 k      math  math-paper
 1     0.175         0.2
 2  0.268803    0.309829
 4  0.348995    0.416632
 8  0.399454     0.52104
16  0.466667    0.682051
32       0.6    0.921368
base/gsm8k: answers on which they differ
problem                 answer  math                  math-paper              samples
gsm8k/510724caa138ce0d  400     wrong (box/rational)  right (box/gold · 100)        1
gsm8k/df629bcf472f1700  600     wrong (box/rational)  right (box/gold · 100)        1
gsm8k/e10b92f95f2d16ee  500     wrong (box/rational)  right (box/gold · 100)        1
"""
READ = """\
base/gsm8k, step 0: chains
problem                  n  right  read  valid  unclear
gsm8k/510724caa138ce0d  40      1     1      0        0
Agreement of readers
readers   both  same  kappa
A B, a-b     1     0    0.0
pass@k of these problems
 k  right answers  valid chains
 1          0.025           0.0
 2           0.05           0.0
 4            0.1           0.0
 8            0.2           0.0
16            0.4           0.0
32            0.8           0.0
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


def test_the_thin_list_is_judged_on_a_second_path(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--json")
    assert code == DONE
    (row,) = json.loads(result.stdout)
    assert (row["right"], row["n"], row["gold"], row["second"]) == (1, N, "4", "agrees")
    code, result = call("verify", study.layout.root)
    assert printed(result) == (
        "Accepted answers to problems solved at most 2 times\n"
        "arm   step  problem                 right   n  gold  answer  rule  second  why\n"
        "base     0  gsm8k/510724caa138ce0d      1  40  4     4       text  agrees  math-verify: "
        "symbolic\n"
        "1 such answers; the second path disagrees with 0 of them.\n"
        "Read them: rlbhpc show RUN --problem … --sample …, or rlbhpc review RUN.\n"
    )
    code, result = call("verify", study.layout.root, "--at-most", N // 2)
    assert "2 such answers" not in result.stdout, "twenty right answers are twenty to read"
    assert f"{1 + N // 2} such answers" in result.stdout


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
    thin = call("verify", study.layout.root)[1].stdout
    assert f" {10**59 + 1} " in thin
    assert f" {10**58}… " in thin and str(10**59) not in thin
    text = call("verify", study.layout.root, "--compare", "math", "math-paper")[1].stdout
    assert text.count(" (box/gold · 100) ") == 20
    assert text.endswith("and 1 more; --json has all\n\n" if problems == 21 else "1\n\n")


def test_a_run_without_right_samples_has_nothing_to_read(tmp_path: Path) -> None:
    study = sums_study(tmp_path, STUDY, 1)
    write_responses(study, "base", {problem.id: ["?"] for problem in study.problems("gsm8k")})
    code, result = call("verify", study.layout.root)
    assert (code, printed(result)) == (
        NOTHING_TO_DO,
        "Accepted answers to problems solved at most 2 times\nproblem\n"
        "0 such answers; the second path disagrees with 0 of them.\n",
    )
    code, result = call("review", study.layout.root)
    assert (code, printed(result)) == (
        NOTHING_TO_DO,
        "Sheets to read\nof  chains  page\n"
        "No problem is solved by more than none and at most 5% of samples.\n",
    )
    code, result = call("verify", study.layout.root, "--again", "--into", tmp_path / "new")
    assert (code, printed(result)) == (
        DONE,
        "base/gsm8k: verdicts, stored and today\nstored     today      samples\n"
        "no_answer  no_answer        1\nBoth call the same samples right.\n"
        f"{tmp_path / 'new'} holds the run with the new verdicts; compact it, or show both beside "
        f"each other: rlbhpc report {study.layout.root} --regraded {tmp_path / 'new'}\n",
    )
    as_json = call("verify", study.layout.root, "--again", "--into", tmp_path / "other", "--json")
    assert json.loads(as_json[1].stdout)["base/gsm8k"]["problems"] == []


def test_a_second_look_has_the_time_that_the_study_gives(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def verify(gold, response, problem=None):\n    while True:\n        pass\n"
    )
    own = STUDY.replace("subset: test", "subset: test, verifier: ./mine.py")
    study = sampled(tmp_path, own + "verification: {timeout: 0.1}\n")
    code, result = call("verify", study.layout.root, "--json")
    assert code == DONE
    (row,) = json.loads(result.stdout)
    assert row["second"] == "cannot tell"
    assert "no verdict within 0.4 s" in row["why"]


def test_a_grader_is_told_again_how_a_response_ended(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def verify(gold, response, problem=None, finish=''):\n    return finish == 'eos'\n"
    )
    own = STUDY.replace("subset: test", "subset: test, verifier: ./mine.py")
    study = sampled(tmp_path, own)
    code, result = call("verify", study.layout.root, "--again", "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    assert {row["after"] for row in found["verdicts"]} == {"right"}


def test_the_same_grader_changes_nothing(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--again", "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    assert found["problems"] == found["answers"] == []
    assert sum(row["samples"] for row in found["verdicts"]) == 3 * N


@pytest.mark.parametrize("words", [(), ("--again",), ("--compare", "math", "math-paper")])
def test_samples_that_only_the_cube_has_are_told(study: Study, words: tuple[str, ...]) -> None:
    call("compact", study.layout.root)
    (study.layout.journals("base", "gsm8k") / "one.journal").unlink()
    code, result = call("verify", study.layout.root, *words)
    assert code == INCOMPLETE
    assert result.stderr.count(f"left out ({3 * N} purged)") == 1


def test_two_graders_side_by_side(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--compare", "math", "math-paper", "--json")
    assert code == DONE
    (found,) = json.loads(result.stdout).values()
    # The lenient grader takes a hundred times the answer, once per problem.
    moved = [one["right_after"] - one["right_before"] for one in found["problems"]]
    assert moved == [1, 1, 1]
    assert all(row["after"].startswith("right") for row in found["answers"])
    assert found["verdicts"] == [
        {"before": "wrong", "after": "right", "samples": 3},
        {"before": "wrong", "after": "no_answer", "samples": 96},
        {"before": "right", "after": "right", "samples": 21},
    ]
    assert printed(call("verify", study.layout.root, "--compare", "math", "math-paper")[1]) == (
        COMPARED
    )
    first = found["pass_at_k"][0]
    assert first["before"] == pytest.approx((1 + N // 2) / (3 * N), abs=1e-6)
    assert first["after"] == pytest.approx((1 + N // 2 + 3) / (3 * N), abs=1e-6)


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlbhpc.cli.verify.kind_of", lambda problem, verification: "math-paper")


def test_new_verdicts_become_a_run_of_their_own(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(study.layout.root)
    new = tmp_path / "new"
    lenient(monkeypatch)
    assert call("verify", study.layout.root, "--again", "--into", new)[0] == DONE
    assert before == files(study.layout.root)
    assert call("compact", new)[0] == DONE
    group = open_cube(new)["base/gsm8k"].to_dataset()
    counts = group.rlb.counts()
    assert counts["n"].values.ravel().tolist() == [N] * 3
    assert counts["c"].values.ravel().tolist() == [2, N // 2 + 1, 1]
    assert (group["verdict"].values == Status.MISSING).sum() == 0


def test_a_named_grader_stands_beside_the_run_in_its_report(study: Study, tmp_path: Path) -> None:
    root, new = study.layout.root, tmp_path / "paper"
    assert call("verify", root, "--again", "--grader", "math-paper", "--into", new)[0] == DONE
    code, _ = call("report", root, "--regraded", new, "-o", tmp_path / "page")
    assert code == DONE
    text = (tmp_path / "page" / "report.html").read_text()
    assert "They differ on 3 samples" in text and "the other: math-paper-1" in text
    rows = (tmp_path / "page" / "regraded.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=False))
    assert (last["k"], last["other"]) == (str(N), "1.0"), "every problem is solved if 400 is 4"
    assert float(last["own"]) == pytest.approx(2 / 3)


def test_a_grader_judges_only_problems_of_its_kind(study: Study) -> None:
    code, result = call("verify", study.layout.root, "--again", "--grader", "code")
    assert code == DONE
    assert "Both call the same samples right." in result.stdout


def test_a_grader_that_changes_nothing_leaves_every_row_as_it_is(
    study: Study, tmp_path: Path
) -> None:
    root, new = study.layout.root, tmp_path / "new"
    assert call("verify", root, "--again", "--into", new)[0] == DONE
    assert call("seal", root, "--tokens", "all")[0] == DONE
    assert files(new / "parts") == files(root / "parts") != {}


def test_an_interrupted_one_goes_on_and_a_whole_one_is_never_touched(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "deep" / "new"
    words = ("verify", study.layout.root, "--again", "--into", new)
    whole = "rlbhpc.sweep.again.Stored.judged"
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
        ([], "give the folder RUN, or --benchmark"),
        (["RUN", "--into", "NEW"], "--into and --grader go with --again"),
        (["RUN", "--grader", "math"], "--into and --grader go with --again"),
        (["RUN", "--again", "--compare", "math", "code"], "either --again or --compare"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call("verify", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arm", "bsae"], "no samples of arm 'bsae'; there are base"),
        (["--again", "--into", "RUN"], "holds something already"),
        (["--again", "--into", "OTHER"], "holds something already"),
        (["--again", "--into", "SAME"], "holds something already"),
        (["--again", "--into", "NEW", "--arm", "base"], "leave --arm and --step out"),
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


def test_a_served_model_judges_beside_the_readers(study: Study, server: Server) -> None:
    root = study.layout.root
    judge = f"{server.url}/some/model"
    server.answer = lambda prompt: "<500>"
    code, result = call("review", root, "--judge", judge, "--json")
    assert code == INCOMPLETE
    (row,) = json.loads(result.stdout)
    assert (row["unclear"], row["without_verdict"]) == (1, 1)
    code, result = call("review", root, "--judge", judge)
    assert printed(result) == (
        "What some/model says\n"
        "of                  valid  invalid  unclear  without_verdict\n"
        "base/gsm8k, step 0      0        0        1                1\n"
    )
    assert result.stderr.startswith("1 without a verdict: ") and "status 500" in result.stderr
    server.answer = lambda prompt: "Sound.\nVerdict: valid"
    assert call("review", root, "--judge", judge)[0] == DONE
    server.prompts.clear()
    sent = "model messages max_tokens seed temperature top_p"
    assert server.request.keys() == set(sent.split()), "no log-probabilities"
    assert call("review", root, "--judge", judge)[0] == DONE
    assert server.prompts == []
    (found,) = json.loads(call("review", root, "--results", "--json")[1].stdout)
    (said,) = found["models"]
    assert (said["model"], said["valid"]) == (f"some/model at {server.url}", 1)
    assert found["problems"][0]["read"] == 0
    assert found["pass_at_k"] == []
    assert "pass@k of these problems" not in call("review", root, "--results")[1].stdout


def test_a_sheet_goes_out_and_judgements_come_back(study: Study, tmp_path: Path) -> None:
    root = study.layout.root
    code, result = call("review", root, "--results")
    assert code == NOTHING_TO_DO
    assert result.stdout == "No sheet was made yet; leave --results out to make them.\n"
    code, result = call("review", root, "--rate", 0.001)
    assert code == NOTHING_TO_DO
    assert "No problem is solved by more than none and at most 0% of samples." in result.stdout
    with pytest.raises(UsageError, match="--key-env goes with --judge"):
        call("review", root, "--key-env", "KEY")
    code, result = call("review", root, "--json")
    assert code == DONE
    (sheet,) = json.loads(result.stdout)
    assert printed(call("review", root)[1]) == (
        "Sheets to read\nof                  chains  page\n"
        f"base/gsm8k, step 0       1  {sheet['page']}\n"
    )
    page = Path(sheet["page"]).read_text()
    assert "Because &lt;b&gt;0&lt;/b&gt;" in page and "<b>0</b>" not in page
    facts = json.loads(Path(sheet["page"]).with_name("sheet.json").read_text())
    (chain,) = facts["chains"]
    for reader, word in (("A B", "valid"), ("a-b", "invalid")):
        given = tmp_path / "judged.json"
        record = {
            "format": "rlbhpc-review-1", "sheet": facts["id"], "reviewer": reader,
            "judgements": {chain["id"]: word}, "notes": {},
        }  # fmt: skip
        given.write_text(json.dumps(record))
        code, result = call("review", root, "--take", given)
        assert result.stdout.startswith(f"{reader}: 1 of 1 chains of base/gsm8k, step 0")
        (found,) = json.loads(call("review", root, "--results", "--json")[1].stdout)
        assert found["problems"][0]["valid"] == (word == "valid")
    assert found["agreement"][0]["same"] == 0
    assert printed(call("review", root, "--results")[1]) == READ
    assert found["pass_at_k"][0] == {"k": 1, "right": 1 / N, "valid": 0.0}
    given.write_text(given.read_text().replace(facts["id"], "0" * 16))
    with pytest.raises(UserError, match="made on sheet"):
        call("review", root, "--take", given)
    given.write_text('{"sheet": ["no", "name"]}')
    with pytest.raises(UserError, match="made on sheet"):
        call("review", root, "--take", given)
