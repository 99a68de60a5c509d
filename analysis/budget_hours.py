"""pass@k at equal cost in device-hours: what hours of a device buy from each arm.

Hours are those of the devices that made the responses, without loading the model. They are known
where the run sampled all compared arms itself.

In the report of a study: `analysis: {aspects: [./analysis/budget_hours.py]}`.
Example: python analysis/budget_hours.py runs/math -o figures
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from rlbhpc.errors import UserError
from rlbhpc.report.aspect import Report, once_each
from rlbhpc.report.aspects.responses import Budget, budget_aspect, budget_curves, token_costs
from rlbhpc.report.paper import main
from rlbhpc.store import left_out
from rlbhpc.store.left_out import DAMAGED, Note
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.attempt import read_attempts
from rlbhpc.sweep.plan import Plan

#: A model at one of its steps.
Checkpoint = tuple[str, int]

_SECONDS_PER_HOUR: Final = 3600


def tokens_per_second(folder: Path) -> dict[Checkpoint, float]:
    """Response tokens per second of one device, by model and step.

    Over all attempts that ended: from when the model was loaded until the last verdict. A worker
    has as many devices as its record names, and counts as one where it names none.
    """
    layout = Layout(folder)
    checkpoints_of = cache(lambda plan: _checkpoints_of_shards(layout, plan))
    tokens: Counter[Checkpoint] = Counter()
    device_seconds: Counter[Checkpoint] = Counter()
    for attempt in read_attempts(layout):
        if not (attempt.get("tokens") and "loaded" in attempt and "ended" in attempt):
            continue
        checkpoint = checkpoints_of(attempt["plan"]).get(attempt["shard"])
        if checkpoint is not None:
            devices = max(1, len(attempt.get("devices") or ()))
            tokens[checkpoint] += attempt["tokens"]
            device_seconds[checkpoint] += (attempt["ended"] - attempt["loaded"]) * devices
    return {
        checkpoint: tokens[checkpoint] / seconds
        for checkpoint, seconds in device_seconds.items()
        if seconds > 0
    }


def _checkpoints_of_shards(layout: Layout, plan: str) -> dict[int, Checkpoint]:
    """Which model each shard of a plan loads; empty where the plan is gone or damaged."""
    path = layout.plans / f"{plan}.json"
    try:
        return {shard.number: (shard.model, shard.step) for shard in Plan.load(path).shards}
    except UserError as error:
        if path.exists():
            left_out.warn_left_out(layout.root, [Note(DAMAGED, f"speeds of workers: {error}")])
        return {}


@once_each
def budgets_in_hours(report: Report) -> Iterator[Budget]:
    """Price the responses of each problem set at the speed of the model that made them."""
    speeds = tokens_per_second(report.folder)
    for costs in token_costs(report):
        if all((arm.model, arm.step) in speeds for arm, _ in costs):
            hour_costs = [
                (arm, tokens * len(tokens) / speeds[arm.model, arm.step] / _SECONDS_PER_HOUR)
                for arm, tokens in costs
            ]
            yield from budget_curves(report, hour_costs)


ASPECT = budget_aspect(
    "budget_hours",
    "device-hours for the problem set",
    "the mean length of that arm's responses and the tokens per second that its workers made, "
    "without loading the model",
    budgets_in_hours,
)

if __name__ == "__main__":
    main(__doc__, ASPECT.charts)
