"""Samples and stores made up for tests. Everything about a sample follows from its key."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.keys import Cell, SampleKey, sample_seed
from rlbhpc.study.layout import Layout

ARM, SET = "base", "math"


def problem(number: int) -> str:
    return f"{SET}/{number}"


def sample(number: int, index: int, step: int = 0, *, fingerprint: int = 7) -> Sample:
    key = SampleKey(ARM, step, problem(number), index)
    digest = hashlib.sha256(repr((key, fingerprint)).encode()).digest()
    tokens = 1 + digest[0]
    verdict = digest[1] % 6
    return Sample(
        key,
        fingerprint,
        sample_seed(fingerprint, key),
        verdict,
        digest[2] % 3,
        tokens,
        -tokens * (digest[3] + 1) / 64,
        tokens * (digest[4] + 1) / 128,
        answer="" if verdict == 2 else str(digest[5] % 9),
        text=f"Problem {number}, try {index}.\nThe answer is {digest[5] % 9}.",
    )


def samples(problems: Iterable[int], n: int, steps: Iterable[int] = (0,)) -> list[Sample]:
    problems = list(problems)
    return [sample(p, i, s) for s in steps for p in problems for i in range(n)]


def cells(
    problems: Iterable[int], n: int, steps: Iterable[int] = (0,), *, fingerprint: int = 7
) -> dict[Cell, int]:
    """What a grid asks for: ``n`` samples of each problem at each step."""
    problems = list(problems)
    return {Cell(ARM, s, problem(p), fingerprint): n for s in steps for p in problems}


def journal(layout: Layout, rows: Iterable[Sample], attempt: str) -> None:
    with JournalWriter(layout.journals(ARM, SET), attempt) as writer:
        for row in rows:
            writer.append(row)


def shuffled(rows: Iterable[Sample], seed: int) -> list[Sample]:
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    return rows


def contents(store: Path) -> dict[str, bytes]:
    """Every file of a cube with its bytes."""
    store = store.resolve()
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file()
    }


def put_training(
    layout: Layout, model: str, train_step: Sequence[int], metrics: Mapping[str, Sequence[float]]
) -> None:
    """The log of a training, as it lies beside its state."""
    path = layout.training(model) / "dynamics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as log:
        for i, step in enumerate(train_step):
            row = {name: float(metrics[name][i]) for name in sorted(metrics)}
            log.write(json.dumps({"step": int(step), **row}) + "\n")
