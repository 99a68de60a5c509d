"""A small run with what :mod:`tests.report.rich` has not: what people, trainers and studies add."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rlbhpc.problems.problem import ANSWERED, BOTH
from rlbhpc.report.aspect import Report
from rlbhpc.report.gather import gather
from rlbhpc.store import tables
from rlbhpc.study.keys import SampleKey
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.remember import PROBE
from rlbhpc.verify.error_audit import Judgement, Side, Stratum, Word, store_judgement, write_sample
from tests.report.made import SET, make_study, put_samples
from tests.store.made import put_training
from tests.store.test_rollouts import rows as rollout_rows

PROBLEMS, N = 12, 16
STATISTIC = """
def statistic(n, c):
    return (c == n).astype(float)
"""
ASPECT = """
from rlbhpc.report.aspect import Aspect, Part
from rlbhpc.report.markup import el

ASPECT = Aspect(Part.SAMPLES, lambda report: ["Bare text.", el("p", "An aspect of this study.")])
"""


def make_extra(folder: Path) -> Report:
    """Two checkpoints, drawn at temperature 1 from all tokens; the first is the better one."""
    (folder / "statistic.py").write_text(STATISTIC)
    (folder / "aspect.py").write_text(ASPECT)
    own = {"statistics": [f"{folder}/statistic.py"], "aspects": [f"{folder}/aspect.py"]}
    study = make_study(
        folder / "run", PROBLEMS, N, (50, 1000),
        {"k": [1, 2, 5, 16], "confidence": 0.9, "bootstrap": 200, **own},
        {"temperature": 1.0, "top_p": 1.0},
    )  # fmt: skip
    rng = np.random.default_rng(4)
    chance = np.linspace(0, 0.8, PROBLEMS)[:, None]
    # Of problem 3 two responses are the same, and too improbable for that.
    texts = {(3, 0): "x" * 7000, (3, 1): "x" * 7000, (4, 0): "Yes", (4, 1): "Yes"}
    for arm, step, gain in (("base", 0, 0.0), ("rl", 50, 0.15), ("rl", 1000, 0.05)):
        right = rng.random((PROBLEMS, N)) < chance + gain
        put_samples(
            study, arm, right, step, texts if arm == "base" else {},
            provenance={"duplicates": {"copied.jsonl": 1234}},
            logprob_sum=lambda i, j: -200.0 if i == 3 else -1.0 - (i * j) % 5 / 4,
        )  # fmt: skip
    put_audit(study.layout)
    put_trainings(study.layout)
    return gather(study.layout.root)


def make_probe(folder: Path) -> Report:
    """Beginnings of questions under the base alone: two of twelve were never completed."""
    study = make_study(folder, PROBLEMS, 6)
    right = np.arange(6) < np.minimum(np.arange(PROBLEMS), 5)[:, None] - 1
    answers = {(i, j): (BOTH, ANSWERED)[j % 2] for i in range(2, PROBLEMS) for j in range(3)}
    put_samples(study, "base", right, answers=answers, provenance={PROBE: 0.4})
    return gather(folder)


def put_audit(layout: Layout) -> None:
    """Ten responses of either verdict read on each side; one of the base's was wrongly accepted."""
    strata = []
    for side in (Side("base", 0, SET), Side("rl", 1000, SET)):
        for place, accepted in enumerate((True, False)):
            drawn = tuple(
                SampleKey(side.arm, side.step, f"{SET}/{place}", sample) for sample in range(10)
            )
            strata.append(Stratum(side, "right" if accepted else "wrong", accepted, 80, drawn))
            for key in drawn:
                is_error = key == ("base", 0, f"{SET}/0", 0)
                word: Word = "right" if accepted and not is_error else "wrong"
                store_judgement(layout, Judgement(key, word))
    write_sample(layout, strata)


def put_trainings(layout: Layout) -> None:
    """Curves, rollouts of every visit to a problem, and what was written first and last."""
    steps = np.arange(1, 41)
    put_training(layout, "tuned", steps, {"reward": steps / 40.0, "kl": 1 / steps})
    tables.add_rollouts(layout.rollouts("tuned"), rollout_rows(range(1, 41)))
    written = [
        {"step": step, "problem": f"{SET}/1", "text": "word " * step * 80, "tokens": 40 * step,
         "correct": step == 3, "reward": step / 4}
        for step in (1, 2, 3)
    ]  # fmt: skip
    path = layout.training("tuned") / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
