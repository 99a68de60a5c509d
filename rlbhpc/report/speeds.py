"""How fast the workers of a run made responses, from the records of their attempts."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from rlbhpc.errors import UserError
from rlbhpc.store import left_out
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan

#: A model at one of its steps.
Checkpoint = tuple[str, int]


def speeds(folder: Path) -> dict[Checkpoint, float]:
    """Response tokens per second of one device, by model and step.

    Over all attempts that ended: from when the model was loaded until the last verdict. A worker
    has as many devices as its record names, and counts as one where it names none.
    """
    layout = Layout(folder)
    plan = cache(lambda name: _shards(layout, name))
    tokens: Counter[Checkpoint] = Counter()
    seconds: Counter[Checkpoint] = Counter()
    for attempt in read_attempts(layout):
        if not (attempt.get("tokens") and "loaded" in attempt and "ended" in attempt):
            continue
        shard = plan(attempt["plan"]).get(attempt["shard"])
        if shard is not None:
            gpus = max(1, len(attempt.get("devices") or ()))
            tokens[shard] += attempt["tokens"]
            seconds[shard] += (attempt["ended"] - attempt["loaded"]) * gpus
    return {which: tokens[which] / time for which, time in seconds.items() if time > 0}


def _shards(layout: Layout, name: str) -> dict[int, Checkpoint]:
    """Which model each shard of a plan loads; nothing where it is gone, or damaged and told."""
    path = layout.plans / f"{name}.json"
    try:
        return {shard.number: (shard.model, shard.step) for shard in Plan.load(path).shards}
    except UserError as error:
        if path.exists():
            left_out.tell(layout.root, [Note(DAMAGED, f"speeds of workers: {error}")])
        return {}
