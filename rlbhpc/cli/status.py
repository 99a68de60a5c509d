"""``rlbhpc status``: how far a run is."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli.plan import block_row
from rlbhpc.cli.table import print_json, print_table
from rlbhpc.errors import DONE, INCOMPLETE
from rlbhpc.launch import status as look
from rlbhpc.launch.launches import layout_of
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
        if watch is None or not (found.missing or found.behind):
            return INCOMPLETE if found.missing or found.behind else DONE
        time.sleep(watch)


def as_record(found: look.Status) -> dict[str, Any]:
    """The status as JSON-ready values."""
    return {
        "samples": [{**block_row(p), "failed": p.failed} for p in found.blocks],
        "missing": found.missing,
        "launches": [
            {"launch": str(one.path), "shards": found.shards[one.path.name]}
            for one in found.launches
        ],
        "queue": found.queue,
        "tokens_per_second_and_worker": found.rate,
        "seconds_left": found.left,
        "behind": found.behind,
        "efficiency": asdict(found.efficiency) if found.efficiency else None,
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
    failed = sum(p.failed for p in found.blocks)
    if failed:
        click.echo(f"{failed:,} samples are stored as failed: rlbhpc launch --retry-failed\n")
    if not found.launches:
        click.echo("Nothing was launched.")
        return
    for one in found.launches:
        shards = [
            [state, len(numbers), ranges(numbers)]
            for state, numbers in found.shards[one.path.name].items()
        ]
        print_table(f"Shards of launch {one.path.name}", ["state", "shards", "which"], shards)
    newest = found.launches[-1]
    if found.queue is None:
        click.echo("Slurm does not answer; what is above is from the run's own files.")
    elif found.queue:
        click.echo("Queue: " + ", ".join(f"{n} {state}" for state, n in found.queue.items()))
    elif found.missing and not (newest.path / "submitted").exists():
        click.echo(f"Launch {newest.path.name} was not submitted: {newest.path / 'submit.sh'}")
    elif found.missing:
        click.echo("No job is in the queue; `rlbhpc launch` again makes what is missing.")
    for name in found.behind if not found.queue else []:
        what = "the cube lags behind the samples" if name == "compact" else "the report is old"
        click.echo(f"All samples are there, but {what}: `rlbhpc launch` again runs {name}.")
    if found.rate:
        left = f", {duration(found.left)} to go" if found.left else ""
        click.echo(f"{found.rate:,.0f} tokens/s per worker{left}")
    if found.efficiency:
        e = found.efficiency
        killed = f"; {e.killed} attempts have no end" if e.killed else ""
        click.echo(
            f"{e.gpu_hours:,.1f} device hours, {e.tokens_per_gpu_second:,.0f} useful tokens per"
            f" device second, {e.loading:.0%} spent on loading{killed}"
        )
    if found.failures:
        click.echo()
        table = [[one.cause, _few(one.jobs), one.action] for one in found.failures]
        print_table("Failures", ["cause", "jobs", "what to do"], table)


def _few(jobs: tuple[str, ...]) -> str:
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return ", ".join(jobs[:MOST_JOBS]) + more
