"""A large study, made up: its cube is written directly, since 80 million samples take hours else.

The reader, the comparisons and the page are those of any run. Rates follow a known direction per
arm, so that the matrix has every word in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlbhpc.problems.prompts import Prompt
from rlbhpc.store import cube, cube_schema
from rlbhpc.store.grid import Grid
from rlbhpc.store.sources import Sources
from rlbhpc.study.keys import Cell
from rlbhpc.study.schema import StudyFile
from rlbhpc.study.study import Study

#: Problems of each set, as many as the public sets have.
SETS: Final = {
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "minerva": 272,
    "math500": 500,
    "olympiad": 675,
}
#: Trained arms, by what training did to them.
ARMS: Final = {"grpo": "loses", "ppo": "gains", "dapo": "both", "rloo": "sharpens", "sft": "same"}
CHECKPOINTS: Final = 10
SAMPLES: Final = 1024
_SAMPLING: Final = {"prompt": "plain", "temperature": 0.6, "top_p": 0.95, "max_tokens": 4096}


def make_large(
    folder: Path,
    sets: Mapping[str, int] = SETS,
    checkpoints: int = CHECKPOINTS,
    samples: int = SAMPLES,
) -> Study:
    """Write a study of one base and five trained arms, and its cube."""
    study = _study(folder, sets, checkpoints, samples)
    rng = np.random.default_rng(0)
    version = cube.begin_version(study.layout)
    root = cube.create(version / cube.STORE)
    for set_name, problems in sets.items():
        base = np.maximum(rng.beta(0.3, 1.2, problems), 2e-4)
        noise = _noise((problems, samples), rng)
        for arm, kind in {"base": "same", **ARMS}.items():
            steps = study.arms[arm].steps
            grid = Grid(study.arms[arm].model, provenance={"engine": "vllm"})
            ids = [f"{set_name}/{i}" for i in range(problems)]
            grid = grid.grown(
                {
                    Cell(arm, step, id_, study.request_fingerprint(arm, step, id_)): samples
                    for step in steps
                    for id_ in ids
                }
            )
            grid.save(study.layout.grid(arm, set_name))
            group = cube.create_samples(root, arm, set_name, grid)
            for place in range(len(steps)):
                share = (place + 1) / len(steps) if arm != "base" else 0.0
                rates = _trained(kind, base, share)
                right = rng.random((problems, samples), np.float32) < rates[:, None]
                _write_step(group, grid, place, right, noise)
    cube.consolidate(version / cube.STORE)
    # As a compaction leaves it: with what it was made from, so that nothing is newer.
    inputs = Sources.survey(study.layout).inputs
    sources = {"schema_version": cube_schema.SCHEMA_VERSION, "inputs": inputs}
    cube.publish_version(study.layout, version, sources)
    return study


def _study(folder: Path, sets: Mapping[str, int], checkpoints: int, samples: int) -> Study:
    steps = [100 * (i + 1) for i in range(checkpoints)]
    trained = {"steps": steps, "base": "start"}
    file = StudyFile.model_validate(
        {
            "name": "large",
            "question": "Does training move the boundary, and does it depend on the algorithm?",
            "seed": 5,
            "output": str(folder),
            "models": {
                "start": {"path": "/models/start"},
                **{arm: {"path": f"/models/{arm}-{{step}}", **trained} for arm in ARMS},
            },
            "problem_sets": {name: {"set": "math500", "path": f"/data/{name}"} for name in sets},
            "arms": {
                "base": {"model": "start", "n": samples, **_SAMPLING},
                **{arm: {"model": arm, "n": samples, "steps": steps, **_SAMPLING} for arm in ARMS},
            },
        }
    )
    ids = {name: {f"{name}/{i}": f"{i}" for i in range(size)} for name, size in sets.items()}
    digests = {"start": {0: "d0"}} | {arm: {s: f"{arm}{s}" for s in (0, *steps)} for arm in ARMS}
    study = Study(file, digests, {"plain": Prompt("plain", "{question}", "p0")}, ids, {})
    folder.mkdir(parents=True, exist_ok=True)
    study.layout.study.write_text(study.to_json())
    return study


def _trained(kind: str, base: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Success rates after a share of the training."""
    place = np.arange(len(base)) % 20
    sharper = base ** (1 - 0.5 * share)
    lost = place < 5 * share
    new = (place > 19 - 5 * share) & (base < 0.02)
    if kind == "loses":
        return np.where(lost, 0.0, sharper)
    if kind == "gains":
        return np.where(new, 0.05, sharper)
    if kind == "both":
        return np.where(lost, 0.0, np.where(new, 0.05, base))
    return sharper if kind == "sharpens" else base


def _noise(shape: tuple[int, int], rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """All that is stored of samples beside their verdicts: drawn once per problem set."""
    tokens = rng.integers(100, 2500, shape, np.int32)
    return {
        "finish": (rng.random(shape, np.float32) < 0.1).astype(np.int8),
        "n_tokens": tokens,
        "logprob_sum": -tokens * np.float32(0.3),
        "entropy_sum": tokens * rng.random(shape, np.float32),
        "answer": rng.integers(1, 1 << 10, shape, np.int64) ** 2 >> 8,
        "seed": np.arange(tokens.size, dtype=np.int64).reshape(shape),
    }


def _write_step(
    group: Any, grid: Grid, place: int, right: NDArray[np.bool_], noise: dict[str, NDArray[Any]]
) -> None:
    variables = noise | {
        "verdict": right.astype(np.int8),
        "answer": np.where(right, 0, noise["answer"]),
    }
    for row in range(grid.chunk_rows):
        band = slice(row * grid.chunk.problems, (row + 1) * grid.chunk.problems)
        arrays = {name: values[band][:, :, None] for name, values in variables.items()}
        solved = right[band].sum(axis=1, dtype=np.int32)[:, None]
        n = np.full_like(solved, right.shape[1])
        cube.write_band(group, grid, row, place, arrays | {"n": n, "c": solved})
