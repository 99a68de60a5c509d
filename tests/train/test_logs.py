"""What a step leaves on disk and on the terminal, down to the last number."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from rlbhpc.store import tables
from rlbhpc.store.cube_schema import answer_id
from rlbhpc.store.tables import log_lines
from rlbhpc.train import dynamics
from rlbhpc.train.batch import Response, Rollout
from rlbhpc.train.dynamics import Logs, StepLog, TrainingLine, describe
from rlbhpc.verify.verdict import Status, Verdict

pytestmark = pytest.mark.engine


def rollout(
    group: int, status: Status, reward: float, tokens: int, cut: bool = False, answer: str = ""
) -> Rollout:
    response = Response((1, 2, 3), np.arange(tokens, dtype=np.int32))
    logprobs = np.full(tokens, -0.5, np.float32)
    verdict = Verdict(status, canonical=answer)
    return Rollout(
        f"toy/{group}", "4", group, response, logprobs, 0.25 * tokens, cut, "so 4", verdict, reward
    )


# A group that is mixed, one that is all right, one all wrong, and one with a reward alone.
STEP = [
    rollout(0, Status.RIGHT, 1.0, 4, answer="4"),
    rollout(0, Status.WRONG, 0.0, 8, cut=True, answer="5"),
    rollout(1, Status.RIGHT, 1.0, 2, answer="4"),
    rollout(1, Status.RIGHT, 1.0, 2, answer="4"),
    rollout(2, Status.NO_ANSWER, 0.5, 8, cut=True),
    rollout(2, Status.WRONG, 0.0, 6, answer="5"),
    rollout(3, Status.WRONG, 0.5, 1, answer="5"),
    rollout(3, Status.ERROR, math.nan, 1),
]


def test_a_step_is_described_by_what_was_scored() -> None:
    assert describe(STEP) == {
        "critic/rewards/mean": pytest.approx(4 / 7),
        "critic/rewards/std": pytest.approx((3.5 / 7 - (4 / 7) ** 2) ** 0.5),
        "critic/score/mean": 3 / 8,
        "response_length/mean": 4.0,
        "response_length/max": 8.0,
        "response_length/min": 1.0,
        "response_length/clip_ratio": 0.25,
        "actor/entropy": 0.25,
        "frac_reward_zero_std": 0.5,  # of one reward alone nothing differs
        "frac_unscored": 0.125,
        "frac_all_correct": 0.25,
        "frac_all_wrong": 0.5,
    }
    unscored = describe(STEP[-1:])
    assert math.isnan(unscored["critic/rewards/mean"]) and unscored["frac_unscored"] == 1


def test_files_of_a_step(tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0)
    logs.add_metrics(1, {"b": 2.0, "a": 1.0}, [STEP[7], STEP[1], STEP[2]])
    # The first is learnt from with another reward, the last one not at all.
    shaped = Rollout(**{**vars(STEP[0]), "reward": 0.75})
    logs.hold_rollouts(1, [STEP[0], STEP[1], STEP[2]], [shaped, STEP[1]], [1.5, -1.5])
    logs.add_timings(1, {"begin": 5.0, "gen": 8.0, "update": 9.0}, STEP[:2])
    assert not tables.rollout_parts(tmp_path / "rollouts"), "held until a state is saved"
    logs.flush()
    logs.flush()
    assert (tmp_path / "dynamics.jsonl").read_text() == '{"step": 1, "a": 1.0, "b": 2.0}\n'
    text = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    common = {"step": 1, "text": "so 4", "correct": False}
    assert text == [
        {**common, "problem": "toy/3", "reward": None, "tokens": 1, "truncated": False},
        {**common, "problem": "toy/0", "reward": 0.0, "tokens": 8, "truncated": True},
    ]
    assert log_lines(tmp_path / "timings.jsonl") == [
        {"step": 1, "perf/throughput": 18 / 4, "timing_s/gen": 3.0, "timing_s/step": 4.0,
         "timing_s/update": 1.0},
    ]  # fmt: skip
    rows = tables.read_rollouts(tmp_path / "rollouts").to_pylist()
    assert [repr(row["advantage"]) for row in rows] == ["1.5", "-1.5", "nan"]
    for row in rows:
        del row["advantage"]
    first = {"train_step": 1, "problem": "toy/0", "rollout": 0, "group": 0}
    right, wrong = ({"verdict": int(s), "answer": answer_id(a)}
                    for s, a in ((Status.RIGHT, "4"), (Status.WRONG, "5")))  # fmt: skip
    sizes = [
        {"n_tokens": n, "logprob_sum": -0.5 * n, "entropy_sum": 0.25 * n, "reward": reward}
        for n, reward in ((4, 0.75), (8, 0.0), (2, 1.0))
    ]
    assert rows == [
        {**first, **right, **sizes[0]},
        {**first, "rollout": 1, **wrong, **sizes[1]},
        {**first, "problem": "toy/1", "group": 1, **right, **sizes[2]},
    ]


def test_an_answer_that_is_none_has_no_number(tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0)
    logs.hold_rollouts(1, STEP[4:5], [], [])
    logs.flush()
    (row,) = tables.read_rollouts(tmp_path / "rollouts").to_pylist()
    assert row["answer"] == -1


def test_a_run_that_goes_on_writes_the_later_lines_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "deep" / "dynamics.jsonl"
    log = StepLog(path, 0)
    for step in (1, 2, 3):
        log.append(step, {"x": step})
        assert len(log_lines(path)) == step, "a kill takes no line along"
    StepLog(path, 2)
    assert log_lines(path) == [{"step": 1, "x": 1}, {"step": 2, "x": 2}]
    assert [left.name for left in path.parent.iterdir()] == ["dynamics.jsonl"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


METRICS = {
    "critic/rewards/mean": 0.51234, "response_length/mean": 12.0, "actor/entropy": 1.5,
    "actor/grad_norm": 0.25, "sft/loss": 2.0, "other": 9.0,
}  # fmt: skip
WORDS = "loss 2 · reward 0.512 · length 12 · entropy 1.5 · grad 0.25"


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        # Half a minute a line where nobody watches, and the last one.
        (
            io.StringIO(),
            f"rl: step 6/9 · {WORDS} · 30 s to go\nrl: step 7/9 · {WORDS} · 15 s to go\n",
        ),
        (
            Terminal(),
            f"\r\x1b[2Krl: step 5/9 · {WORDS} · 40 s to go"
            f"\r\x1b[2Krl: step 6/9 · {WORDS} · 30 s to go"
            f"\r\x1b[2Krl: step 7/9 · {WORDS} · 15 s to go\n",
        ),
    ],
)
def test_the_line_of_a_training(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, said: str
) -> None:
    """It went on behind step 3; the first look is at once, the next two ten seconds apart."""
    moments = iter([100.0, 100.1, 120.0, 130.0, 130.1])
    monkeypatch.setattr(dynamics.time, "monotonic", lambda: next(moments))
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    line = TrainingLine("rl", 9)
    line.finish()
    assert stream.getvalue() == ""
    for step in (4, 5, 6):
        line.show(step, METRICS)
    line.show(7, METRICS)
    line.finish()
    assert stream.getvalue() == said


def test_ranks_behind_the_first_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(dynamics, "LINE_SECONDS", 0.0)
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    line = TrainingLine("rl", 9)
    line.show(1, {"rollout_corr/kl": 1.0})
    line.finish()
    assert stream.getvalue() == ""
