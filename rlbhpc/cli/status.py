"""``rlbhpc status``: how far a run is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
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
    help=f"Look again every so many seconds, at least {LEAST_SECONDS}, until all is there or "
    "no job is left.",
)  # fmt: skip
@shared.as_json
def status(run: Path, watch: int | None, as_json: bool) -> int:
    """Show how far RUN, a run's folder or a study file, is.

    Samples are counted in the run's own files, so this also works without Slurm and without
    accounting. Exit code 3 says that samples are missing.
    """
    layout = layout_of(run)
    while True:
        study_status = look.status(layout)
        if as_json:
            print_json(as_record(study_status))
        else:
            show(study_status)
        unfinished = study_status.missing or study_status.behind
        if watch is None or not unfinished or study_status.stands_still:
            return INCOMPLETE if unfinished else DONE
        time.sleep(watch)


def as_record(study_status: look.Status) -> dict[str, Any]:
    """The status as JSON-ready values."""
    return {
        "samples": [{**block_row(p), "failed": p.failed} for p in study_status.blocks],
        "missing": study_status.missing,
        "launches": [
            {"launch": str(entry.path), "shards": study_status.shards[entry.path.name]}
            for entry in study_status.launches
        ],
        "queue": study_status.queue,
        "at_work": study_status.at_work,
        "tokens_per_second_and_worker": study_status.rate,
        "seconds_left": study_status.left,
        "behind": study_status.behind,
        "failures": [
            {"cause": entry.cause, "jobs": list(entry.jobs), "action": entry.action}
            for entry in (*study_status.blocked, *study_status.failures)
        ],
    }


def show(study_status: look.Status) -> None:
    """Print the status for a person."""
    names = ["arm", "problem_set", "step", "requested", "present", "missing", "solved"]
    if any(p.block.stop_after for p in study_status.blocks):
        names.append("stopped")
    rows = [block_row(p) for p in study_status.blocks]
    print_table("Samples", names, [[row[name] for name in names] for row in rows])
    failed = sum(p.failed for p in study_status.blocks)
    if failed:
        click.echo(f"{failed:,} samples are stored as failed: rlbhpc launch --retry-failed\n")
    if not study_status.launches:
        click.echo("Nothing was launched.")
        return
    for entry in study_status.launches:
        shards = [
            [state, len(numbers), ranges(numbers)]
            for state, numbers in study_status.shards[entry.path.name].items()
        ]
        print_table(f"Shards of launch {entry.path.name}", ["state", "shards", "which"], shards)
    newest = study_status.launches[-1]
    if study_status.at_work:
        click.echo(f"At work: {study_status.at_work}")
    if study_status.queue is None:
        click.echo("Slurm does not answer; what is above is from the run's own files.")
    elif study_status.queue:
        click.echo("Queue: " + ", ".join(f"{n} {state}" for state, n in study_status.queue.items()))
    elif study_status.missing and not (newest.path / "submitted").exists():
        click.echo(f"Launch {newest.path.name} was not submitted: {newest.path / 'submit.sh'}")
    elif study_status.missing and not study_status.at_work:
        click.echo("No job is in the queue; `rlbhpc launch` again makes what is missing.")
    is_idle = not study_status.queue and not study_status.at_work
    for name in study_status.behind if is_idle else []:
        what = "the cube lags behind the samples" if name == "compact" else "the report is old"
        click.echo(f"All samples are there, but {what}: `rlbhpc launch` again runs {name}.")
    if study_status.rate:
        to_go = f", {duration(study_status.left)} to go" if study_status.left else ""
        click.echo(f"{study_status.rate:,.0f} tokens/s per worker{to_go}")
    for title, entries, advice in (
        ("Jobs that cannot start", study_status.blocked, "what would start them"),
        ("Failures", study_status.failures, "what to do"),
    ):
        if entries:
            click.echo()
            table = [[entry.cause, few(entry.jobs), entry.action] for entry in entries]
            print_table(title, ["cause", "jobs", advice], table)


def few(jobs: tuple[str, ...]) -> str:
    """Some of the jobs, and how many more there are."""
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return ", ".join(jobs[:MOST_JOBS]) + more
