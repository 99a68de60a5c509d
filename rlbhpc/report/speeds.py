"""How fast the workers of a run made responses, from the records of their attempts."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from rlbhpc.errors import UserError
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.plan import Plan

#: A model at one of its steps.
Checkpoint = tuple[str, int]


def speeds(folder: Path) -> dict[Checkpoint, float]:
    """Response tokens per second of one device, by model and step.

    Over all attempts that ended: from when the model was loaded until the last verdict. A worker
    has as many devices as its record names, and counts as one where it names none.
    """
    layout = Layout(folder)
    plan = cache(lambda name: _shards(layout.plans / f"{name}.json"))
    tokens: Counter[Checkpoint] = Counter()
    seconds: Counter[Checkpoint] = Counter()
    for path in sorted(layout.attempts.glob("*.json")):
        one = _record(path)
        if not (one.get("tokens") and "loaded" in one and "ended" in one and "plan" in one):
            continue
        shard = plan(one["plan"]).get(one.get("shard", -1))
        if shard is not None:
            tokens[shard] += one["tokens"]
            seconds[shard] += (one["ended"] - one["loaded"]) * max(1, len(one.get("devices") or ()))
    return {which: tokens[which] / time for which, time in seconds.items() if time > 0}


def _record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _shards(path: Path) -> dict[int, Checkpoint]:
    """Which model each shard of a plan loads; nothing where the plan is gone."""
    try:
        return {shard.number: (shard.model, shard.step) for shard in Plan.load(path).shards}
    except UserError:
        return {}
