"""What a plan will cost, from rates that were measured or given."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rlbhpc.launch.cluster import Cluster, copies_per_task
from rlbhpc.launch.jobs import SEALED_TOGETHER
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan

# Sealed or not, a response takes about so much where nothing was stored yet to measure it on.
BYTES_PER_TOKEN: Final = 6.0
BYTES_PER_SAMPLE: Final = 120.0
# Files of a launch besides one script per wave: parent, submit.sh, record, ids, two light jobs
# with their logs, the plan and the study.
FIXED_FILES: Final = 12


@dataclass(frozen=True)
class Rates:
    """How fast one worker is: response tokens per second once loaded, and seconds until loaded."""

    tokens: float
    start: float
    source: str


@dataclass(frozen=True)
class Prediction:
    """What a plan will cost.

    ``gpu_hours`` counts the GPUs of each worker, its start included; ``start_share`` is the part
    of that time in which models load.
    """

    gpu_hours: float
    start_share: float
    wall_seconds: float
    files: int
    megabytes: float
    sbatch_calls: int


def measured(layout: Layout) -> Rates | None:
    """Rates of the workers that have ended, over all launches of a run."""
    loads, tokens, seconds = [], 0, 0.0
    for attempt in read_attempts(layout):
        if "ended" in attempt and "loaded" in attempt and attempt.get("tokens"):
            loads.append(attempt["loaded"] - attempt["started"])
            tokens += attempt["tokens"]
            seconds += attempt["ended"] - attempt["loaded"]
    if seconds <= 0:
        return None
    return Rates(tokens / seconds, sum(loads) / len(loads), f"{len(loads)} attempts of this run")


def predict(
    plan: Plan, rates: Rates, cluster: Cluster, width: int, gpus_per_copy: int = 1
) -> Prediction:
    """Cost of a plan on ``width`` workers at a time.

    A worker holds one copy of the model, on ``gpus_per_copy`` GPUs.
    """
    times = [rates.start + shard.tokens / rates.tokens for shard in plan.shards]
    busy = sum(times)
    tasks = -(-len(times) // copies_per_task(cluster, gpus_per_copy))
    waves = -(-tasks // cluster.max_array_size)
    sealed_waves = -(-SEALED_TOGETHER // cluster.max_array_size)
    seals = max(0, waves - 1) // sealed_waves
    groups = sum(len({(s.arm, s.set_name) for s in shard.spans}) for shard in plan.shards)
    size = plan.tokens * BYTES_PER_TOKEN + plan.samples * BYTES_PER_SAMPLE
    return Prediction(
        gpu_hours=busy * gpus_per_copy / 3600,
        start_share=rates.start * len(times) / busy if busy else 0.0,
        wall_seconds=wall(times, width),
        # One journal per arm and set of a shard, one attempt and one log per task.
        files=groups + len(times) + tasks + waves + 2 * seals + FIXED_FILES,
        megabytes=size / 1e6,
        sbatch_calls=waves + seals + 2,
    )


def wall(times: Iterable[float], width: int) -> float:
    """Seconds until all is done when ``width`` workers take one piece after the other, in order."""
    free = [0.0] * width
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
