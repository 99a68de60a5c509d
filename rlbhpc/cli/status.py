"""``rlbhpc status``: how far a run is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli.plan import block_row
from rlbhpc.cli.table import print_json, print_table
from rlbhpc.errors import DONE, INCOMPLETE
from rlbhpc.launch import status as look
from rlbhpc.launch.run_folder import layout_of
from rlbhpc.launch.slurm import ranges
from rlbhpc.sweep.progress import duration

# Each look asks Slurm two questions, and a controller serves many users.
LEAST_SECONDS = 60
MOST_JOBS = 6


@click.command(epilog="Example: rlbhpc status runs/math --watch 300")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--watch", type=click.IntRange(min=LEAST_SECONDS), metavar="SECONDS",
    help=f"Look again every so many seconds, at least {LEAST_SECONDS}, until all is there.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def status(run: Path, watch: int | None, as_json: bool) -> int:
    """Show how far RUN, a run's folder or a study file, is.

    Samples are counted in the run's own files, so this also works without Slurm and without
    accounting. Exit code 3 says that samples are missing.
    """
    layout = layout_of(run)
    while True:
        found = look.status(layout)
        if as_json:
            print_json(as_record(found))
        else:
            show(found)
        if watch is None or not found.missing:
            return INCOMPLETE if found.missing else DONE
        time.sleep(watch)


def as_record(found: look.Status) -> dict[str, Any]:
    """The status as JSON-ready values."""
    return {
        "samples": [{**block_row(p), "failed": int(p.failed.sum())} for p in found.blocks],
        "missing": found.missing,
        "launch": str(found.launch.path) if found.launch else None,
        "shards": found.shards,
        "queue": found.queue,
        "tokens_per_second_and_worker": found.rate,
        "seconds_left": found.left,
        "failures": [
            {"cause": one.cause, "jobs": list(one.jobs), "action": one.action}
            for one in found.failures
        ],
    }


def show(found: look.Status) -> None:
    """Print the status for a person."""
    names = ["arm", "problem_set", "step", "requested", "present", "missing", "solved"]
    rows = [block_row(p) for p in found.blocks]
    print_table("Samples", names, [[row[name] for name in names] for row in rows])
    failed = sum(int(p.failed.sum()) for p in found.blocks)
    if failed:
        click.echo(f"{failed:,} samples are stored as failed: rlbhpc launch --retry-failed\n")
    if found.launch is None:
        click.echo("Nothing was launched.")
        return
    shards = [[state, len(them), ranges(them)] for state, them in found.shards.items()]
    print_table(f"Shards of launch {found.launch.path.name}", ["state", "shards", "which"], shards)
    if found.queue is None:
        click.echo("Slurm does not answer; what is above is from the run's own files.")
    elif found.queue:
        click.echo("Queue: " + ", ".join(f"{n} {state}" for state, n in found.queue.items()))
    elif found.missing:
        click.echo("No job is in the queue; `rlbhpc launch` again makes what is missing.")
    if found.rate:
        left = f", {duration(found.left)} to go" if found.left else ""
        click.echo(f"{found.rate:,.0f} tokens/s per worker{left}")
    if found.failures:
        click.echo()
        table = [[one.cause, _few(one.jobs), one.action] for one in found.failures]
        print_table("Failures", ["cause", "jobs", "what to do"], table)


def _few(jobs: tuple[str, ...]) -> str:
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return ", ".join(jobs[:MOST_JOBS]) + more
