"""Journals as the jobs of a large study leave them: every attempt has samples from everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey
from rlbhpc.study.layout import Layout

ARM, SET = "base", "made"
_WORDS = [f"token{i}" for i in range(500)]
_RIGHT, _WRONG = 1, 0


def plan(layout: Layout, problems: int, n: int, steps: int) -> Grid:
    """Ask for ``n`` samples of some problems at some steps."""
    cells = [Cell(ARM, s, f"{SET}/{p}", p + 1) for s in range(steps) for p in range(problems)]
    grid = Grid("made").grown(dict.fromkeys(cells, n))
    grid.save(layout.grid(ARM, SET))
    return grid


def write(layout: Layout, grid: Grid, attempts: int, texts: int = 1000) -> None:
    """Deal all samples of a grid out to attempts in random order; responses of ``texts`` bytes."""
    keys = len(grid.steps) * len(grid.problems) * grid.n
    order = np.random.default_rng(0).permutation(keys)
    deals = zip(range(attempts), np.array_split(order, attempts), strict=True)
    with ProcessPoolExecutor(2) as pool:
        for _ in pool.map(partial(_attempt, layout, grid, texts), deals):
            pass


def _attempt(layout: Layout, grid: Grid, texts: int, deal: tuple[int, NDArray[np.int64]]) -> None:
    number, keys = deal
    with JournalWriter(layout.journals(ARM, SET), f"attempt-{number:05}") as out:
        for sample in _samples(grid, texts, number, keys):
            out.append(sample)


def _samples(grid: Grid, texts: int, number: int, keys: NDArray[np.int64]) -> Iterator[Sample]:
    rng = np.random.default_rng([1, number])
    lot = random.Random(number)
    pool = [" ".join(lot.choices(_WORDS, k=texts // 8))[:texts] for _ in range(64)]
    rates = np.random.default_rng(2).beta(0.25, 2, len(grid.problems))
    cell, index = np.divmod(keys, grid.n)
    step, problem = np.divmod(cell, len(grid.problems))
    right = rng.random(len(keys)) < rates[problem]
    wrong = np.minimum(rng.zipf(1.6, len(keys)), 100_000)
    tokens = rng.integers(100, 2500, len(keys))
    logprob, entropy = -tokens * rng.gamma(4, 0.1, len(keys)), tokens * rng.gamma(4, 0.1, len(keys))
    columns = (keys, step, problem, index, right, wrong, tokens, logprob, entropy)
    for key, s, p, i, correct, answer, length, total, spread in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield Sample(
            SampleKey(ARM, grid.steps[s], grid.problems[p], i),
            p + 1,
            key,
            _RIGHT if correct else _WRONG,
            length % 2,
            length,
            total,
            spread,
            "0" if correct else str(answer),
            "rational",
            "made",
            pool[key % len(pool)],
        )
