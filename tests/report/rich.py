"""A small run that has everything a report can show, made up with known directions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from rlbhpc.problems.prompts import Prompt
from rlbhpc.store import checked, tables
from rlbhpc.study.layout import Layout
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study
from rlbhpc.sweep.plan import Plan, Shard
from tests.report.made import SET, put_samples
from tests.store.made import put_training

PROBLEMS, N = 30, 32
STEPS = (50, 100, 150)
# From arm to model, temperature and steps.
ARMS: dict[str, tuple[str, float, tuple[int, ...]]] = {
    "base": ("start", 0.6, (0,)),
    "base-hot": ("start", 1.0, (0,)),
    "grpo": ("grpo-run", 0.6, STEPS),
    "grpo-hot": ("grpo-run", 1.0, STEPS[-1:]),
    "ppo": ("ppo-run", 0.6, STEPS[-1:]),
    "no-think": ("start", 0.6, (0,)),
    "base-boxed": ("start", 0.6, (0,)),
    "grpo-boxed": ("grpo-run", 0.6, STEPS[-1:]),
}
# What an arm asks with, where that is not the plain prompt.
PROMPTS = {"no-think": "no-think", "base-boxed": "boxed", "grpo-boxed": "boxed"}
# Tokens per second of the workers that made the samples, by model.
SPEEDS = {"start": 400.0, "grpo-run": 200.0, "ppo-run": 200.0}
_SAMPLING = {"top_p": 0.95, "max_tokens": 64}


def make_regraded(folder: Path, run: Path, problems: int = PROBLEMS) -> Path:
    """The same run as a lenient grader sees it, as ``rlbhpc verify --again --into`` writes it."""
    make_rich(folder, problems, lenient=True)
    layout = Layout(folder)
    layout.study.write_text(Layout(run).study.read_text())
    layout.regraded.write_text(json.dumps({"from": str(run), "done": True}))
    return folder


def make_rich(folder: Path, problems: int = PROBLEMS, *, lenient: bool = False) -> Study:
    """Two algorithms, three checkpoints, two temperatures and prompts, curves and scores.

    A ``lenient`` grader accepts one wrong answer of the base to each of a sixth of the problems.
    """
    trained = {"steps": list(STEPS), "base": "start"}
    file = StudyFile.model_validate(
        {
            "name": "rich",
            "seed": 5,
            "output": str(folder),
            "models": {
                "start": {"path": "/models/start"},
                "grpo-run": {"path": "/models/grpo-{step}", **trained},
                "ppo-run": {"path": "/models/ppo-{step}", **trained},
            },
            "problem_sets": {SET: {"set": "math500", "path": "/data/math500"}},
            "storage": {"tokens": "all"},
            "arms": {
                arm: {
                    "model": model, "temperature": t, "n": N, "steps": list(steps), **_SAMPLING,
                    "prompt": PROMPTS.get(arm, "plain"),
                }
                for arm, (model, t, steps) in ARMS.items()
            },
        }
    )  # fmt: skip
    ids = {f"{SET}/{i}": f"hash{i}" for i in range(problems)}
    digests = {"start": {0: "d0"}}
    digests |= {m: {s: f"{m}{s}" for s in (0, *STEPS)} for m in ("grpo-run", "ppo-run")}
    prompts = {name: Prompt(name, "{question}", name) for name in ("plain", "no-think", "boxed")}
    study = Study(file, digests, prompts, {SET: ids}, {})
    folder.mkdir(parents=True, exist_ok=True)
    study.layout.study.write_text(study.to_json())
    put_everything(study, problems, lenient=lenient)
    return study


def put_everything(study: Study, problems: int, *, lenient: bool) -> None:
    """Samples that are sharper with every step and lose the hardest problems."""
    rng = np.random.default_rng(7)
    a_sixth = -(-problems // 6)
    rates = np.sort(rng.beta(0.4, 1.2, problems))
    for arm, (model, temperature, steps) in ARMS.items():
        for step in steps:
            sharper = rates ** (1 - step / 300) * (1.15 - 0.25 * temperature)
            sharper[: step * problems // 900] = 0
            if arm == "no-think":
                sharper = np.where(np.arange(problems) % 5 == 0, 0.04, 0)
            right = rng.random((problems, N)) < np.minimum(sharper, 1)[:, None]
            if arm in PROMPTS:
                # The base minds the other prompt.
                right[: problems // 3, : N // 2] &= arm == "grpo-boxed"
            if lenient and arm == "base":
                right[np.arange(a_sixth), right[:a_sixth].argmin(axis=1)] = True
            entropy = temperature - step / 400 + rng.uniform(0, 0.02)
            # The base writes its responses to one problem twice, as if seeds had been used twice.
            twice = 2 * problems // 3
            texts = {(twice, j): f"Try {j % (N // 2)}" for j in range(N) if arm == "base"}
            put_samples(
                study,
                arm,
                right,
                step,
                texts,
                model=model,
                entropy=entropy,
                logprobs=partial(_tokens, step) if arm in {"base", "grpo"} else None,
            )
    layout = study.layout
    put_attempts(study)
    for model, speed in (("grpo-run", 1.0), ("ppo-run", 0.8)):
        t = np.arange(1, 151)
        noise = rng.normal(0, 0.01, len(t))
        metrics = {
            "critic/rewards/mean": 0.1 + 0.3 * (1 - np.exp(-speed * t / 60)) + noise,
            "response_length/mean": 500 + 2 * speed * t,
            "actor/entropy": 0.7 * np.exp(-speed * t / 90) + 0.1,
            "actor/ppo_kl": 0.01 * t / 150 + abs(noise),
            "actor/pg_clipfrac": 0.02 + abs(noise) / 5,
            "actor/grad_norm": 0.3 + abs(noise) * 5,
        }
        put_training(layout, model, t, metrics)
    put_scores(layout, min(problems, 10), rng)


def _tokens(step: int, problem: int, sample: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Log-probabilities of 120 tokens: the start unsure, the end sure, training mends the start."""
    if sample >= 4:
        return np.zeros(90)  # too short for three parts
    first = -1.0 + step / 300 + problem / 100
    return np.concatenate([np.full(40, first), np.full(40, -0.5), np.full(40, -0.1)])


def put_attempts(study: Study) -> None:
    """Records of one worker per checkpoint, half of them with two devices."""
    pairs = [("start", 0), *(("grpo-run", step) for step in STEPS), ("ppo-run", STEPS[-1])]
    shards = tuple(
        Shard(number, "hf", model, step, 1000, ()) for number, (model, step) in enumerate(pairs)
    )
    plan = Plan(study.hash, shards)
    plan.save(study.layout.plans)
    for shard in shards:
        devices = ["0", "1"][: 1 + shard.number % 2]
        record = {
            "plan": plan.name, "shard": shard.number, "started": 0.0, "loaded": 50.0,
            "ended": 150.0, "devices": devices,
            "tokens": 100 * SPEEDS[shard.model] * len(devices),
        }  # fmt: skip
        checked.write(study.layout.attempts / f"{shard.number}.json", record)


def put_scores(layout: Layout, problems: int, rng: np.random.Generator) -> None:
    """Log-probabilities of base, trained and reference texts under base and trained models."""
    level = {"base": 0.14, "grpo": 0.08, "reference": 0.35}
    for source, steps in (("base", (0,)), ("grpo", STEPS), ("reference", (0,))):
        for scorer, scorer_steps in (("start", (0,)), ("grpo-run", STEPS)):
            if source == "reference" and scorer != "start":
                continue
            rows = [
                (f"{SET}/{p}", s, step, at, 80, -80 * x, 20.0, 0)
                for step in steps for at in scorer_steps for p in range(problems) for s in range(8)
                for x in [level[source] * (1 + at / 400) * rng.lognormal(0, 0.3)]
                if scorer == "start" or source != "grpo" or step == at
            ]  # fmt: skip
            columns = [pa.array(column) for column in zip(*rows, strict=True)]
            table = pa.table(columns, names=tables.SCORE_ROWS.names)
            tables.add_scores(layout, source, SET, scorer, table)
