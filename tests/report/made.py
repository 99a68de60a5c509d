"""Runs made up for tests: a study, its results as counts or as whole samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlbhpc.engines.completion import Finish
from rlbhpc.problems.prompts import Prompt
from rlbhpc.report.aspect import Report
from rlbhpc.report.aspects import aspects_of
from rlbhpc.store import tables
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study
from rlbhpc.verify.verdict import Status

SET = "math"
MODELS = {"base": "base", "rl": "tuned"}
Array = Any


def make_study(
    folder: Path,
    problems: int,
    n: int,
    steps: tuple[int, ...] = (100,),
    analysis: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Study:
    """A base and a line of checkpoints trained from it, stored as a run's study."""
    every_arm = {**_SAMPLING, "n": n, **(sampling or {})}
    file = StudyFile.model_validate(
        {
            "name": "made-up",
            "question": "Did the boundary move?",
            "seed": 5,
            "output": str(folder),
            "models": {
                "base": {"path": "/models/base"},
                "tuned": {"path": "/models/tuned-{step}", "steps": list(steps), "base": "base"},
            },
            "problem_sets": {SET: {"set": "math500", "path": "/data/math500"}},
            "sampling": {"prompt": "plain", "temperature": 0.6, "max_tokens": 64, "n": n},
            "arms": {
                "base": {"model": "base", **every_arm},
                "rl": {"model": "tuned", **every_arm, "steps": list(steps)},
            },
            "analysis": dict(analysis or {}),
        }
    )
    ids = {f"{SET}/{i}": f"hash{i}" for i in range(problems)}
    digests = {"base": {0: "d0"}, "tuned": {s: f"d{s}" for s in (0, *steps)}}
    study = Study(file, digests, {"plain": Prompt("plain", "{question}", "p0")}, {SET: ids}, {})
    folder.mkdir(parents=True, exist_ok=True)
    study.layout.study.write_text(study.to_json())
    return study


_SAMPLING = {"prompt": "plain", "temperature": 0.6, "top_p": 0.95, "max_tokens": 64}


def put_counts(study: Study, arm: str, c: Array, n: int, step: int = 0) -> None:
    """Right samples per problem of one arm, as if imported."""
    cells = {(step, f"{SET}/{i}"): (n, int(right)) for i, right in enumerate(c)}
    tables.put_counts(study.layout, arm, SET, MODELS[arm], cells)


def put_samples(
    study: Study, arm: str, right: Array, step: int = 0, texts: Mapping[tuple[int, int], str] = {},
    verdicts: Mapping[tuple[int, int], Status] = {}, missing: int = 0, model: str = "",
    entropy: float = 0.1, logprobs: Callable[[int, int], Array] | None = None,
    graders: Sequence[str] = (), provenance: Mapping[str, Any] | None = None,
    answers: Mapping[tuple[int, int], str] = {}, stop_after: int = 0, first: int = 0,
    logprob_sum: Callable[[int, int], float] = lambda problem, sample: -3.0,
    lenient: Mapping[tuple[int, int], Status] | None = None,
) -> None:  # fmt: skip
    """Journal a matrix ``[problem, sample]`` of right and wrong, the last problems left out.

    ``logprobs`` gives the log-probabilities of the tokens of a response by problem and sample,
    ``graders`` the grader of each sample of a problem. A problem ends at the ``stop_after``-th
    right sample. The ``first`` row is of this problem. ``lenient`` gives the lenient verdicts that
    are not those of ``right``, which are strict and decide.
    """
    layout = study.layout
    matrix = np.asarray(right)
    names = [f"{SET}/{first + i}" for i in range(len(matrix))]
    prints = [study.request_fingerprint(arm, step, name) for name in names]
    cells = {Cell(arm, step, *ids): matrix.shape[1] for ids in zip(names, prints, strict=True)}
    decides = {} if lenient is None else {"decides": "strict"}
    grid = Grid(
        model or MODELS[arm],
        provenance={"engine": "hf", "prompt": "p0", **decides, **(provenance or {})},
    )
    grid.grown(cells).save(layout.grid(arm, SET))
    with JournalWriter(layout.journals(arm, SET), f"made-{step}") as writer:
        for i, row in enumerate(matrix[: len(matrix) - missing]):
            for j, solved in enumerate(row):
                if stop_after and row[:j].sum() == stop_after:
                    break
                key = SampleKey(arm, step, names[i], j)
                status = verdicts.get((i, j), Status.RIGHT if solved else Status.WRONG)
                long = status is not Status.RIGHT and j % 5 == 0
                writer.append(
                    Sample(
                        key, prints[i], sample_seed(study.seed, key), status,
                        Finish.LENGTH if long else Finish.EOS, 10 + j, logprob_sum(i, j),
                        entropy * (10 + j) * (1 + i % 5 / 10), answers.get((i, j), str(solved)),
                        grader=graders[j] if graders else "",
                        text=texts.get((i, j), f"Problem {i}, try {j}: the answer is {solved}."),
                        strict=int(status) if lenient is not None else -1,
                        lenient=-1 if lenient is None else int(lenient.get((i, j), status)),
                        logprobs=np.asarray(logprobs(i, j) if logprobs else (), np.float16),
                    )
                )  # fmt: skip


def rates(kind: str, problems: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Success rates of base and trained model whose comparison has a known answer."""
    base = rng.beta(0.35, 1.2, problems)
    if kind == "shrinks":
        lost = rng.random(problems) < 0.3
        return np.maximum(base, 0.02), np.where(lost, 0.0, np.maximum(base, 0.02) ** 0.7)
    if kind == "expands":
        new = rng.random(problems) < 0.3
        return np.where(new, 0.0, base), np.where(new, 0.05, base)
    if kind == "only sharpens":
        base = np.maximum(base, 0.05)
        return base, base**0.5
    if kind == "unchanged":
        return np.maximum(base, 0.05), np.maximum(base, 0.05)
    raise ValueError(kind)


def frames_of(report: Report) -> dict[str, pd.DataFrame]:
    """Every table of a report by name."""
    return {
        name: frame
        for aspect in aspects_of(report)
        for name, frame in aspect.frames(report).items()
    }
