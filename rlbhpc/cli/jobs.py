"""The verbs for jobs: `launch`, `status`, `cancel`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.check import tell_of_old_verdicts
from rlbhpc.cli.sampling import block_row, print_summary
from rlbhpc.cli.shared import print_json, print_table, tell
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.launch import status as look
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.container import expanded
from rlbhpc.launch.launches import cancel as end_all
from rlbhpc.launch.launches import launch_in, layout_of
from rlbhpc.launch.prepare import SHARD_TOKENS, Prepared, prepare
from rlbhpc.launch.script import read_options
from rlbhpc.launch.send import reject_missing, start_estimates
from rlbhpc.launch.slurm import ranges
from rlbhpc.sweep.process import duration


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc launch math.yaml --submit -p gpu -A my-account --constraint=a100",
)
@click.argument("study", type=click.Path(path_type=Path))
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@shared.overrides
@click.option(
    "--cluster", metavar="NAME|FILE",
    help="Default: the study's, or by the host's name. 'local' is this machine.",
)  # fmt: skip
@click.option(
    "--only", type=click.Choice(["train", "sample"]), help="Leave out jobs of the other kind."
)
@click.option("--width", type=click.IntRange(min=1), help="Most array tasks in all.")
@click.option("--throttle", type=click.IntRange(min=1), help="Most array tasks that run at once.")
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Try again what is stored as failed.")
@click.option(
    "--retrain", is_flag=True, help="Set aside what another recipe has trained, and train anew."
)
@click.option("--submit", is_flag=True, help="Submit what was written; run it, if it is local.")
@click.option("--test-only", is_flag=True, help="Ask Slurm when each job would start.")
@shared.as_json
def launch(
    study: Path, sbatch: tuple[str, ...], overrides: tuple[str, ...], cluster: str | None,
    submit: bool, test_only: bool, as_json: bool, **more: Any,
) -> int:  # fmt: skip
    """Write STUDY as batch scripts for what is missing: train, sample, compact, report.

    The folder that is written holds complete scripts and submit.sh, to read, edit and run; with
    --submit that is done at once. The same command starts a study and goes on with it.

    Options that sbatch knows are passed on with their meaning: -p -A -t -q -c --constraint --gres
    and more.
    """
    options = read_options(sbatch)
    prepared = prepare(study, overrides, cluster=cluster, options=options, **more)
    for note in prepared.notes:
        tell(note)
    tell_of_old_verdicts(prepared.judged, tell)
    if not prepared.jobs:
        click.echo(
            "All that is missing is being made." if prepared.notes else "Nothing is missing."
        )
        return NOTHING_TO_DO
    launched = write_prepared(prepared)
    _tell(prepared, launched.folder, submit, as_json)
    if test_only:
        for name, answer in start_estimates(launched.folder).items():
            click.echo(f"{name}: {answer}")
    if submit:
        launched.submit(width=more["width"], say=tell if as_json else click.echo)
    if submit and prepared.draft.cluster_name == HERE:
        reject_missing(launch_in(launched.folder))
    return DONE


def _tell(prepared: Prepared, folder: Path, submit: bool, as_json: bool) -> None:
    draft = prepared.draft
    container = draft.cluster.container
    if container is not None and not expanded(container.image).is_file():
        tell(f"There is no {container.image} here; is it on the nodes?")
    if as_json:
        scripts = [f"{job.name}.sbatch" for job in prepared.jobs]
        record = {"cluster": draft.cluster_name, "plan": prepared.plan.name, "jobs": scripts}
        print_json({"folder": str(folder), **record})
        return
    if prepared.plan.samples:
        print_summary(prepared.plan)
    click.echo(f"{len(prepared.jobs)} scripts for cluster {draft.cluster_name} in {folder}")
    if not submit:
        what = "run" if draft.cluster_name == HERE else "submit"
        click.echo(f"To {what} them: {folder / 'submit.sh'}")


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
        ("Jobs that are held back", study_status.blocked, "what would start them"),
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


@click.command(epilog="Example: rlbhpc cancel runs/math")
@click.argument("run", type=click.Path(path_type=Path))
def cancel(run: Path) -> int:
    """End all jobs of RUN, a run's folder or a study file.

    Finished samples stay, and `rlbhpc launch` goes on from them. Exit code 4 says that no job was
    in the queue, 75 that Slurm did not answer or that a process submits or runs a launch.
    """
    done = end_all(layout_of(run))
    if done.rows is None:
        click.echo("Slurm does not answer: marked as cancelled, so that no job comes back.")
        return TRY_AGAIN
    if done.complaint:
        tell(done.complaint)
        return TRY_AGAIN
    if done.at_work:
        click.echo(
            f"{done.at_work}: marked as cancelled, so that nothing more starts; end that process,"
            " or cancel again once it has ended"
        )
        return TRY_AGAIN
    if not done.rows:
        click.echo("No job of this run is in the queue.")
        return NOTHING_TO_DO
    click.echo(f"{len(done.rows)} jobs cancelled; `rlbhpc launch` goes on from here.")
    return DONE
