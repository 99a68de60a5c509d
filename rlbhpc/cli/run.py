"""``rlbhpc run``: work some shards of a stored plan; what array tasks call."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.debug_log import keep
from rlbhpc.sweep.drain import Drain
from rlbhpc.sweep.local import run_plan
from rlbhpc.sweep.remember import recall


@click.command(epilog="Example: rlbhpc run runs/math/plans/0a1b2c3d4e5f.json --shards 3,4")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--shards", help="Numbers of shards, such as 3,4. Default: all.")
@shared.minutes
@shared.grace
def run(plan: Path, shards: str | None, limit: float | None, grace: float) -> int:
    """Work shards of PLAN, a file that `rlbhpc sample` or `rlbhpc launch` wrote.

    A process works for each copy of the model that the GPUs hold. Samples that somebody has made
    in the meantime are not made again.
    """
    study, loaded = recall(plan, None if shards is None else _numbers(shards))
    keep(study.layout.logs, "run")
    with Drain(grace, limit) as drain:
        return run_plan(study, loaded, plan, drain)


def _numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdigit() for word in words):
        raise click.BadParameter(f"--shards: found {text!r}; allowed: numbers such as 3,4")
    return [int(word) for word in words]
