"""Rows are the same whatever was judged before, beside what, and in which order."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.engines.completion import Completion, Finish
from rlbhpc.problems.problem import Problem
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.schema import Verification
from rlbhpc.sweep.judge import Judge, SampleRequest, make_sample, verifying_processes
from rlbhpc.sweep.worker import Recorder
from rlbhpc.verify.kinds.code import UNSAFE
from rlbhpc.verify.registry import verify
from rlbhpc.verify.verdict import Reading, Status, Verdict

PROBLEMS = {
    p.id: p
    for p in [
        Problem("m/1", {"question": "?"}, r"\frac{1}{2}", "math"),
        Problem("m/2", {"question": "?"}, "x^2", "math"),
        Problem("c/1", {"question": "?"}, "B", "choice"),
        Problem("m/3", {"question": "?"}, "7", "math"),
    ]
}
ANSWERS = ["1/2", "0.5", r"\frac12", r"\dfrac{1}{2}", "x^2", "x^{2}", "x*x", "3", "", "B", "(B)"]


def completions(n: int = 200) -> list[tuple[SampleRequest, Completion]]:
    rng = random.Random(4)
    made = []
    for tag in range(n):
        key = SampleKey("base", 0, rng.choice(list(PROBLEMS)), tag)
        finish = rng.choice([Finish.EOS, Finish.EOS, Finish.EOS, Finish.ERROR])
        answer = rng.choice(ANSWERS)
        places = [f"{tag}: so it is \\boxed{{{answer}}}.", f"The answer is {answer}"]
        text = rng.choice(places) if answer else "I give up."
        none = np.zeros(1, np.float32)
        done = Completion(tag, np.zeros(1, np.int32), none, none, text, finish)
        made.append((SampleRequest(key, tag, 7), done))
    return made


def rows(judge: Judge, finished: list[tuple[SampleRequest, Completion]], batch: int) -> list[tuple]:
    found: list[Sample] = []
    for at in range(0, len(finished), batch):
        found += judge.samples(finished[at : at + batch])
    return [(s.key, s.verdict, s.answer, s.rule, s.grader, s.text) for s in found]


def test_rows_do_not_depend_on_batches_or_order() -> None:
    finished = completions()
    first = Judge(PROBLEMS, Verification())
    expected = rows(first, finished, 200)
    shuffled = random.Random(1).sample(finished, len(finished))
    for batch in (1, 7):
        again = Judge(PROBLEMS, Verification())
        assert sorted(rows(again, shuffled, batch)) == sorted(expected)
        assert again.close() == first.close()


def test_rows_are_what_the_verifier_says_of_each_alone() -> None:
    finished = completions(60)
    for (asked, done), row in zip(
        finished, rows(Judge(PROBLEMS, Verification()), finished, 60), strict=True
    ):
        problem = PROBLEMS[asked.key.problem]
        if done.finish is Finish.ERROR:
            assert row[1] == Status.FAILED
        else:
            alone = verify(problem.verifier, problem.gold, done.text, problem)
            assert row[1:5] == (alone.strict, alone.canonical, row[3], alone.grader)
            assert alone.rule.endswith(row[3])


def test_the_paper_verdict_stands_beside_the_sound_one() -> None:
    """The lenient grader takes a hundred times the gold answer for it."""
    texts = {"m/3": r"so $\boxed{700}$", "m/2": r"$\boxed{x^2}$", "c/1": r"$\boxed{B}$"}
    finished = []
    for tag, (name, text) in enumerate(texts.items()):
        none = np.zeros(1, np.float32)
        done = Completion(tag, np.zeros(1, np.int32), none, none, text, Finish.EOS)
        finished.append((SampleRequest(SampleKey("base", 0, name, 0), tag, 7), done))
    finished.append((finished[0][0], replace(finished[0][1], finish=Finish.ERROR)))
    judge = Judge(PROBLEMS, Verification(paper=True))
    said = [(row.verdict, row.paper) for row in judge.samples(finished)]
    assert said == [
        (Status.WRONG, Status.RIGHT),
        (Status.RIGHT, Status.RIGHT),
        (Status.RIGHT, Status.MISSING),  # no answer that the study's grader was made for
        (Status.FAILED, Status.MISSING),
    ]
    assert "math-paper" in judge.close()
    plain = Judge(PROBLEMS, Verification()).samples(finished)
    assert {row.paper for row in plain} == {Status.MISSING}
    assert [row.verdict for row in plain] == [verdict for verdict, _ in said]


@pytest.mark.parametrize(
    ("decides", "verdict"), [("strict", Status.NO_ANSWER), ("lenient", Status.RIGHT)]
)
def test_a_row_has_both_verdicts_and_the_study_says_which_decides(
    decides: Reading, verdict: Status
) -> None:
    asked, done = completions(1)[0]
    unstated = Verdict(Status.RIGHT, "7", "7", stated=False)
    row = make_sample(asked, done, unstated, decides)
    assert (row.strict, row.lenient, row.verdict) == (Status.NO_ANSWER, Status.RIGHT, verdict)
    row = make_sample(asked, done, Verdict(Status.WRONG, "8", "8"), decides)
    assert (row.strict, row.lenient, row.verdict) == (Status.WRONG,) * 3


def test_a_verifier_is_told_that_a_response_was_cut() -> None:
    none = np.zeros(1, np.float32)
    for finish, verdict in ((Finish.EOS, Status.RIGHT), (Finish.LENGTH, Status.NO_ANSWER)):
        done = Completion(0, np.zeros(1, np.int32), none, none, "The answer is 7", finish)
        asked = SampleRequest(SampleKey("base", 0, "m/3", 0), 11, 7)
        (sample,) = Judge(PROBLEMS, Verification()).samples([(asked, done)])
        assert sample.verdict == verdict


def test_a_row_joins_what_was_asked_and_what_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UNSAFE, raising=False)
    logprobs = np.array([-0.5, -0.25], np.float32)
    done = Completion(
        0, np.array([5, 6], np.int32), logprobs, -2 * logprobs, r"so \boxed{7}", Finish.LENGTH, "x"
    )
    asked = SampleRequest(SampleKey("base", 3, "m/3", 4), 11, 7)
    (sample,) = Judge(PROBLEMS, Verification()).samples([(asked, done)])
    assert UNSAFE not in os.environ
    kept = {"token_ids", "logprobs", "entropies", "grader"}
    assert {name: value for name, value in vars(sample).items() if name not in kept} == {
        "key": asked.key, "fingerprint": 7, "seed": 11, "verdict": 1, "finish": 1, "paper": -1,
        "strict": 1, "lenient": 1,
        "n_tokens": 2, "logprob_sum": -0.75, "entropy_sum": 1.5, "answer": "7", "rule": "text",
        "text": done.text, "error": "x", "trace": "",
    }  # fmt: skip
    assert [getattr(sample, name).tolist() for name in ("token_ids", "logprobs", "entropies")] == [
        [5, 6], [-0.5, -0.25], [1.0, 0.5],
    ]  # fmt: skip
    Judge(PROBLEMS, Verification(unsafe=True))
    assert os.environ.pop(UNSAFE) == "1"


@pytest.mark.parametrize(("processors", "processes"), [(1, 1), (2, 1), (3, 1), (5, 2), (8, 4)])
def test_verifying_takes_half_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int, processes: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    assert verifying_processes() == processes


class _Slow(Judge):
    """Takes its time with every batch, as a verifier does that waits for a deadline."""

    def samples(self, finished):  # type: ignore[no-untyped-def]
        time.sleep(0.2)
        return super().samples(finished)


def test_a_verifier_that_waits_does_not_hold_up_the_engine(tmp_path: Path) -> None:
    stored: list[Sample] = []
    judge = _Slow(PROBLEMS, Verification())
    finished = completions(600)
    recorder = Recorder(judge, lambda arm, name: tmp_path / arm / name, "a", stored.append)
    with recorder:
        for pair in finished:
            recorder.put(*pair)
        assert len(stored) < len(finished), "handing over waited for the verdicts"
    assert sorted(s.key for s in stored) == sorted(asked.key for asked, _ in finished)
