"""What the killed processes do: go on with a run from wherever the one before them died."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rlbhpc.store import merge, seal
from rlbhpc.store.compact import compact
from rlbhpc.store.grid import Grid
from rlbhpc.store.journal import JournalWriter
from rlbhpc.store.sample_rows import Sample
from rlbhpc.study.layout import Layout
from tests.store import made, reading

PROBLEMS, N, STEPS = 5, 6, (0, 40)

Ack = Callable[[str], None]


def sample(step: int, problem: int, index: int) -> Sample:
    """A sample with per-token values; everything follows from its key."""
    bare = made.sample(problem, index, step)
    rng = np.random.default_rng([step, problem, index])
    values = -rng.exponential(1, bare.n_tokens).astype(np.float16)
    ids = rng.integers(0, 150_000, bare.n_tokens, np.int32)
    fields = {name: getattr(bare, name) for name in bare.__dataclass_fields__}
    return Sample(**fields | {"token_ids": ids, "logprobs": values, "entropies": -values})


def grid(steps: tuple[int, ...] = STEPS) -> Grid:
    return Grid("model").grown(made.cells(range(PROBLEMS), N, steps))


def produce(root: Path, ack: Ack) -> None:
    """Draw what is missing, in an order of its own, into two journals."""
    layout, asked = Layout(root), grid()
    missing = np.argwhere(reading.scan(layout, made.ARM, made.SET, asked).missing).tolist()
    random.shuffle(missing)
    folder = layout.journals(made.ARM, made.SET)
    with (
        JournalWriter(folder, uuid.uuid4().hex, sync_seconds=0) as one,
        JournalWriter(folder, uuid.uuid4().hex) as other,
    ):
        for i, (step, problem, index) in enumerate(missing):
            (one, other)[i % 2].append(sample(STEPS[step], problem, index))
            ack(f"{STEPS[step]} {problem} {index}")


def seal_all(root: Path, ack: Ack) -> None:
    seal.seal(Layout(root), made.ARM, made.SET, grid(), "sampled")


def clean(root: Path, ack: Ack) -> None:
    seal.gc(Layout(root), made.ARM, made.SET, idle_hours=0)


def whole(root: Path, ack: Ack) -> None:
    """A run from its first sample to its last file."""
    produce(root, ack)
    seal_all(root, ack)
    clean(root, ack)


def join(root: Path, ack: Ack) -> None:
    """Merge two halves and seal the whole."""
    for half in ("here", "there"):
        merge.merge(Layout(root / "both"), Layout(root / half))
    seal_all(root / "both", ack)
    clean(root / "both", ack)


def derive(root: Path, ack: Ack) -> None:
    compact(Layout(root))


def whole_with_cube(root: Path, ack: Ack) -> None:
    """A run whose cube is derived while its samples are in journals, and again from parts."""
    grid().save(Layout(root).grid(made.ARM, made.SET))
    produce(root, ack)
    derive(root, ack)
    seal_all(root, ack)
    clean(root, ack)
    derive(root, ack)
