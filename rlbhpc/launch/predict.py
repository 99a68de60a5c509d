"""What a plan will cost, from rates that were measured or given, on machines that may vanish.

A sweep is played through many times to say how large a shard should be. Each shard is worked in
attempts. An attempt loads the model, then works until the shard is done, the warning before the
time limit comes, or the job is preempted; a preemption costs what is in flight unless the drain
time is long enough to finish it. Then the shard goes back into the queue. Preemptions come as a
Poisson process, so the time to the next one is exponential however long the job has been running.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rlbhpc.launch.cluster import Cluster
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
# A shard that a thousand attempts cannot finish never will: its time limit is below its start.
MOST_ATTEMPTS = 1_000


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
    of that time in which models load. ``loss`` is what one preemption without warning costs: the
    responses in flight, half-made on average, in tokens; what is finished is stored.
    """

    gpu_hours: float
    start_share: float
    wall_seconds: float
    files: int
    megabytes: float
    sbatch_calls: int
    loss_tokens: float


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


def predict(plan: Plan, rates: Rates, cluster: Cluster, width: int, in_flight: int) -> Prediction:
    """Cost of a plan on ``width`` workers at a time, each with ``in_flight`` responses at once."""
    times = [rates.start + shard.tokens / rates.tokens for shard in plan.shards]
    busy = sum(times)
    waves = -(-len(times) // cluster.max_array_size)
    sealed_waves = -(-SEALED_TOGETHER // cluster.max_array_size)
    seals = max(0, waves - 1) // sealed_waves
    groups = sum(len({(s.arm, s.set_name) for s in shard.spans}) for shard in plan.shards)
    mean = plan.tokens / max(1, plan.samples)
    size = plan.tokens * BYTES_PER_TOKEN + plan.samples * BYTES_PER_SAMPLE
    return Prediction(
        gpu_hours=busy * max(1, cluster.sample.gpus) / 3600,
        start_share=rates.start * len(times) / busy if busy else 0.0,
        wall_seconds=wall(times, width),
        # One journal per arm and set of a shard, one attempt and one log per task.
        files=groups + 2 * len(times) + waves + 2 * seals + FIXED_FILES,
        megabytes=size / 1e6,
        sbatch_calls=waves + seals + 2,
        loss_tokens=in_flight * mean / 2,
    )


def wall(times: Iterable[float], width: int) -> float:
    """Seconds until all is done when ``width`` workers take one piece after the other, in order."""
    free = [0.0] * width
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def rows_in_flight(options: Mapping[str, Any]) -> int:
    """Responses that an engine makes at once, by its settings or their usual default."""
    for key in ("max_num_seqs", "rows"):
        value = options.get(key)
        if isinstance(value, int):
            return value
    return 256


@dataclass(frozen=True)
class Site:
    """What a worker meets: ``preemptions`` per hour, and times in seconds.

    ``limit`` is a job's time limit, ``drain`` lies between a warning and the end, ``pause`` is what
    a requeued job waits, and ``response`` what one response takes; those in flight are half-made on
    average. ``in_flight`` response tokens are lost when nothing in flight can be finished.
    """

    preemptions: float
    limit: float
    drain: float
    pause: float
    response: float
    in_flight: float


@dataclass(frozen=True)
class Outcome:
    """A sweep that was played through; ``overhead`` is busy time beyond the sampling itself."""

    shards: int
    wall_seconds: float
    busy_hours: float
    overhead: float
    attempts_per_shard: float
    finished: bool


def simulate(
    tokens: float, shards: int, rates: Rates, site: Site, width: int, seed: int = 0
) -> Outcome:
    """Play through ``tokens`` response tokens in ``shards`` equal shards on ``width`` workers."""
    rng = np.random.default_rng(seed)
    need = np.full(shards, tokens / shards / rates.tokens)
    work = float(need.sum())
    busy, waited = np.zeros(shards), np.zeros(shards)
    attempts = np.zeros(shards, np.int64)
    # What a drain saves of the half-made responses, and the time that it takes.
    saved = min(1.0, site.drain / site.response) if site.response else 1.0
    lost = (1.0 - saved) * site.in_flight / rates.tokens
    usable = site.limit - site.drain
    open_ = np.arange(shards)
    for _ in range(MOST_ATTEMPTS):
        if not len(open_):
            break
        until = np.full(len(open_), usable)
        if site.preemptions:
            preempted = rng.exponential(3600.0 / site.preemptions, len(open_))
            until = np.minimum(preempted, usable)
        wanted = rates.start + need[open_]
        done = wanted <= until
        spent = np.where(done, wanted, until)
        gained = np.maximum(0.0, spent - rates.start - np.where(done, 0.0, lost))
        busy[open_] += spent
        waited[open_] += np.where(done, 0.0, site.pause)
        attempts[open_] += 1
        need[open_] = np.maximum(0.0, need[open_] - gained)
        open_ = open_[~done]
    total = float(busy.sum())
    return Outcome(
        shards=shards,
        wall_seconds=wall((busy + waited).tolist(), width),
        busy_hours=total / 3600,
        overhead=total / work - 1.0 if work else 0.0,
        attempts_per_shard=float(attempts.mean()),
        finished=not len(open_),
    )


def curve(
    tokens: float, shards: int, rates: Rates, site: Site, width: int
) -> tuple[list[Outcome], list[tuple[float, Outcome]]]:
    """The same work in fewer and in more shards, and with shorter and longer drain times."""
    counts = sorted(
        {max(1, round(shards * factor)) for factor in (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)}
    )
    sizes = [simulate(tokens, count, rates, site, width) for count in counts]
    drains = sorted({0.0, 30.0, 60.0, 120.0, 300.0, site.drain})
    times = [
        (drain, simulate(tokens, shards, rates, replace(site, drain=drain), width))
        for drain in drains
        if drain < site.limit
    ]
    return sizes, times
