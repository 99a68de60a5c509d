"""What the time on the devices went into, from the records of a run's attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlbhpc.sweep.progress import duration


@dataclass(frozen=True)
class Efficiency:
    """What the devices of all attempts that ended did; a worker without a GPU counts as one.

    ``on_gpus`` says whether any of them had one. ``tokens_per_gpu_second`` counts response tokens
    that were stored. ``loading`` is the share of the time that went into loading models, ``again``
    the share of loading one once more for a shard, after a preemption or a failure. ``unended``
    attempts were killed or are still at work; their time and tokens are in no other number, since
    nothing says when a killed one ended.
    """

    gpu_hours: float
    on_gpus: bool
    tokens_per_gpu_second: float
    loading: float
    again: float
    unended: int

    def __str__(self) -> str:
        """Say it in one line."""
        left_out = ""
        if self.unended:
            left_out = (
                "; attempts without an end, killed or still at work, are not counted:"
                f" {self.unended}"
            )
        if not self.gpu_hours:
            return f"no attempt has ended{left_out}"
        hours = f"{self.gpu_hours:,.1f} device hours"
        device = "device " if self.on_gpus else ""
        if not self.on_gpus or self.gpu_hours < 0.1:
            of = "device time" if self.on_gpus else "workers without a GPU"
            hours = f"{duration(self.gpu_hours * 3600)} of {of}"
        if not self.tokens_per_gpu_second:
            return f"{hours}, and no sample was stored{left_out}"
        again = f", {self.again:.0%} on loading again" if self.again else ""
        return (
            f"{hours}, {self.tokens_per_gpu_second:,.0f} useful tokens per {device}second, "
            f"{self.loading:.0%} of the time on loading{again}{left_out}"
        )


def efficiency(attempts: Sequence[Mapping[str, Any]]) -> Efficiency | None:
    """Add up the attempts; None where there is none."""
    seconds = loading = again = 0.0
    begun: set[tuple[str, int]] = set()
    for attempt in sorted(attempts, key=lambda record: float(record["started"])):
        shard = (attempt["plan"], attempt["shard"])
        if "ended" in attempt:
            gpus = max(1, len(attempt.get("devices") or ()))
            load = gpus * (attempt.get("loaded", attempt["ended"]) - attempt["started"])
            seconds += gpus * (attempt["ended"] - attempt["started"])
            loading += load
            again += load if shard in begun else 0
        begun.add(shard)
    ended = [attempt for attempt in attempts if "ended" in attempt]
    unended = len(attempts) - len(ended)
    on_gpus = any(attempt.get("devices") for attempt in ended)
    tokens = sum(attempt.get("tokens") or 0 for attempt in ended)
    if seconds <= 0:
        return Efficiency(0.0, on_gpus, 0.0, 0.0, 0.0, unended) if unended else None
    return Efficiency(
        seconds / 3600, on_gpus, tokens / seconds, loading / seconds, again / seconds, unended
    )
