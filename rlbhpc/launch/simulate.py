"""A sweep on machines that vanish, played through many times: how large should a shard be?

Each shard is worked in attempts. An attempt loads the model, then works until the shard is done,
the warning before the time limit comes, or the job is preempted; a preemption costs what is in
flight unless the drain time is long enough to finish it. Then the shard goes back into the queue.
Preemptions come as a Poisson process, so the time to the next one is exponential however long the
job has been running.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlbhpc.launch.predict import Rates, wall

# A shard that a thousand attempts cannot finish never will: its time limit is below its start.
MOST_ATTEMPTS = 1_000


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
    saved = min(1.0, site.drain / site.response) if site.response > 0 else 1.0
    lost = (1.0 - saved) * site.in_flight / rates.tokens
    usable = site.limit - site.drain
    open_ = np.arange(shards)
    for _ in range(MOST_ATTEMPTS):
        if not len(open_):
            break
        preempted = _next(rng, site.preemptions, len(open_))
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


def _next(rng: np.random.Generator, per_hour: float, count: int) -> NDArray[np.float64]:
    """Seconds until the next preemption of each worker."""
    if per_hour <= 0:
        return np.full(count, np.inf)
    return rng.exponential(3600.0 / per_hour, count)


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
