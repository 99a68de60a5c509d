"""The verbs for jobs and their site: `launch`, `status`, `cancel`, `doctor`, `image`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.check import tell_of_old_verdicts
from rlbhpc.cli.sampling import block_row, print_summary
from rlbhpc.cli.shared import print_json, print_table, tell
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, TRY_AGAIN, UserError
from rlbhpc.launch import container
from rlbhpc.launch import doctor as probes
from rlbhpc.launch import status as run_status
from rlbhpc.launch.api import write_prepared
from rlbhpc.launch.cluster import HERE, choose, table_folders
from rlbhpc.launch.launches import LaunchFolder, layout_of, open_launch
from rlbhpc.launch.launches import cancel as cancel_jobs
from rlbhpc.launch.prepare import SHARD_TOKENS, Prepared, prepare
from rlbhpc.launch.script import read_options
from rlbhpc.launch.send import reject_missing
from rlbhpc.launch.slurm import format_ranges
from rlbhpc.launch.status import Failure, Status
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.process import duration

# Each look asks Slurm two questions, and a controller serves many users.
SHORTEST_WATCH_SECONDS: Final = 60
# Jobs of one cause that are printed by name.
PRINTED_JOBS: Final = 6


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
@click.option("--submit", is_flag=True, help="Submit what was written; run it, if it is local.")
@shared.as_json
def launch(
    study: Path, sbatch: tuple[str, ...], overrides: tuple[str, ...], cluster: str | None,
    submit: bool, as_json: bool, **settings: Any,
) -> int:  # fmt: skip
    """Write STUDY as batch scripts for what is missing: train, sample, compact, report.

    The folder that is written holds complete scripts and submit.sh, to read, edit and run; with
    --submit that is done at once. The same command starts a study and goes on with it.

    Options that sbatch knows are passed on with their meaning: -p -A -t -q -c --constraint --gres
    and more.
    """
    options = read_options(sbatch)
    prepared = prepare(study, overrides, cluster=cluster, options=options, **settings)
    for note in prepared.notes:
        tell(note)
    tell_of_old_verdicts(prepared.judged, tell)
    if not prepared.jobs:
        is_running = bool(prepared.notes)
        click.echo("All that is missing is being made." if is_running else "Nothing is missing.")
        return NOTHING_TO_DO
    launched = write_prepared(prepared)
    if as_json:
        _print_launch_record(prepared, launched.folder)
    else:
        _print_launch(prepared, launched.folder, submit)
    if submit:
        launched.submit(say=tell if as_json else click.echo)
        if prepared.draft.cluster_name == HERE:
            reject_missing(open_launch(launched.folder))
    return DONE


def _print_launch_record(prepared: Prepared, folder: Path) -> None:
    """Print a launch as JSON: its folder, cluster, plan and the files of its scripts.

    The plan is the file that lists the samples to draw.
    """
    _tell_absent_image(prepared)
    print_json({
        "folder": str(folder),
        "cluster": prepared.draft.cluster_name,
        "plan": prepared.plan.name,
        "jobs": [f"{job.name}.sbatch" for job in prepared.jobs],
    })  # fmt: skip


def _print_launch(prepared: Prepared, folder: Path, submit: bool) -> None:
    """Print what was written for a launch; ``submit`` says that it is submitted next.

    The plan lists the samples to draw; `HERE` is the cluster that is this machine.
    """
    _tell_absent_image(prepared)
    cluster_name = prepared.draft.cluster_name
    if prepared.plan.samples:
        print_summary(prepared.plan)
    click.echo(f"{len(prepared.jobs)} scripts for cluster {cluster_name} in {folder}")
    if not submit:
        verb = "run" if cluster_name == HERE else "submit"
        click.echo(f"To {verb} them: {folder / 'submit.sh'}")


def _tell_absent_image(prepared: Prepared) -> None:
    settings = prepared.draft.cluster.container
    if settings is not None and not container.expand_path(settings.image).is_file():
        tell(f"There is no {settings.image} here; is it on the nodes?")


@click.command(epilog="Example: rlbhpc status runs/math --watch 300")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--watch", type=click.IntRange(min=SHORTEST_WATCH_SECONDS), metavar="SECONDS",
    help=f"Look again every so many seconds, at least {SHORTEST_WATCH_SECONDS}, until all is there "
    "or no job is left.",
)  # fmt: skip
@shared.as_json
def status(run: Path, watch: int | None, as_json: bool) -> int:
    """Show how far RUN, a run's folder or a study file, is.

    Samples are counted in the run's own files, so this also works without Slurm and without
    accounting. Exit code 3 says that samples are missing.
    """
    layout = layout_of(run)
    while True:
        now = run_status.status(layout)
        if as_json:
            print_json(_status_record(now))
        else:
            print_status(now)
        is_unfinished = bool(now.missing or now.behind)
        if watch is None or not is_unfinished or now.stands_still:
            return INCOMPLETE if is_unfinished else DONE
        time.sleep(watch)


def _status_record(now: Status) -> dict[str, Any]:
    """The status of a run as JSON-ready values.

    A block is the samples of one arm on one problem set. Shards are the numbered units of work of a
    launch, here by state. "behind" names the jobs whose result is older than the samples.
    """
    failures = [
        {"cause": failure.cause, "jobs": list(failure.jobs), "action": failure.action}
        for failure in (*now.blocked, *now.failures)
    ]
    return {
        "samples": [{**block_row(block), "failed": block.failed} for block in now.blocks],
        "missing": now.missing,
        "launches": [
            {"launch": str(launch.path), "shards": now.shards[launch.path.name]}
            for launch in now.launches
        ],
        "queue": now.queue,
        "at_work": now.at_work,
        "tokens_per_second_and_worker": now.rate,
        "seconds_left": now.left,
        "behind": now.behind,
        "failures": failures,
    }


def print_status(now: Status) -> None:
    """Print the status of a run for a person.

    A block is the samples of one arm (a model as it is sampled) on one problem set at one step, and
    `block_row` gives its counts. Shards are the numbered units of work of a launch, here by state.
    ``behind`` names the jobs, compact and report, whose result is older than the samples.
    """
    columns = ["arm", "problem_set", "step", "requested", "present", "missing", "solved"]
    if any(block.block.stop_after for block in now.blocks):
        columns.append("stopped")
    rows = [block_row(block) for block in now.blocks]
    print_table("Samples", columns, [[row[name] for name in columns] for row in rows])
    failed = sum(block.failed for block in now.blocks)
    if failed:
        click.echo(f"{failed:,} samples are stored as failed: rlbhpc launch --retry-failed\n")
    if not now.launches:
        click.echo("Nothing was launched.")
        return
    for launch in now.launches:
        shards = [
            [state, len(numbers), format_ranges(numbers)]
            for state, numbers in now.shards[launch.path.name].items()
        ]
        print_table(f"Shards of launch {launch.path.name}", ["state", "shards", "which"], shards)
    _print_queue(now, now.launches[-1])
    if not now.queue and not now.at_work:
        for name in now.behind:
            delay = "the cube lags behind the samples" if name == "compact" else "the report is old"
            click.echo(f"All samples are there, but {delay}: `rlbhpc launch` again runs {name}.")
    if now.rate:
        to_go = f", {duration(now.left)} to go" if now.left else ""
        click.echo(f"{now.rate:,.0f} tokens/s per worker{to_go}")
    _print_failures("Jobs that are held back", now.blocked, "what would start them")
    _print_failures("Failures", now.failures, "what to do")


def _print_queue(now: Status, newest: LaunchFolder) -> None:
    """Print who works on a run, and what to do where nobody does.

    ``now.queue`` counts Slurm's jobs by state, None where Slurm does not answer. ``at_work`` says
    who submits or runs a launch. ``newest`` is the newest launch, whose file `submitted` appears
    once something of it is submitted.
    """
    if now.at_work:
        click.echo(f"At work: {now.at_work}")
    if now.queue is None:
        click.echo("Slurm does not answer; what is above is from the run's own files.")
    elif now.queue:
        counts = ", ".join(f"{count} {state}" for state, count in now.queue.items())
        click.echo(f"Queue: {counts}")
    elif now.missing and not (newest.path / "submitted").exists():
        click.echo(f"Launch {newest.path.name} was not submitted: {newest.path / 'submit.sh'}")
    elif now.missing and not now.at_work:
        click.echo("No job is in the queue; `rlbhpc launch` again makes what is missing.")


def _print_failures(title: str, failures: Sequence[Failure], advice: str) -> None:
    """Print causes, jobs and actions as a table; ``advice`` heads the actions."""
    if failures:
        click.echo()
        rows = [[each.cause, _name_some(each.jobs), each.action] for each in failures]
        print_table(title, ["cause", "jobs", advice], rows)


def _name_some(jobs: tuple[str, ...]) -> str:
    """Some of the jobs, and how many more there are."""
    names = ", ".join(jobs[:PRINTED_JOBS])
    unnamed = len(jobs) - PRINTED_JOBS
    return f"{names} and {unnamed} more" if unnamed > 0 else names


@click.command(epilog="Example: rlbhpc cancel runs/math")
@click.argument("run", type=click.Path(path_type=Path))
def cancel(run: Path) -> int:
    """End all jobs of RUN, a run's folder or a study file.

    Finished samples stay, and `rlbhpc launch` goes on from them. Exit code 4 says that no job was
    in the queue, 75 that Slurm did not answer or that a process submits or runs a launch.
    """
    # The rows are the jobs that were in the queue, None where Slurm does not answer.
    cancelled = cancel_jobs(layout_of(run))
    if cancelled.rows is None:
        click.echo("Slurm does not answer: marked as cancelled, so that no job comes back.")
        return TRY_AGAIN
    if cancelled.complaint:
        tell(cancelled.complaint)
        return TRY_AGAIN
    if cancelled.at_work:
        click.echo(
            f"{cancelled.at_work}: marked as cancelled, so that nothing more starts; end that"
            " process, or cancel again once it has ended"
        )
        return TRY_AGAIN
    if not cancelled.rows:
        click.echo("No job of this run is in the queue.")
        return NOTHING_TO_DO
    click.echo(f"{len(cancelled.rows)} jobs cancelled; `rlbhpc launch` goes on from here.")
    return DONE


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc doctor runs --write my-site; then rlbhpc doctor runs --rehearse",
)
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--write", "entry_name", metavar="NAME", help="Write a first cluster entry (or FILE.yaml)."
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Warn a task, which must come back, and cancel it, which must keep it away.",
)
@click.option("--cluster", metavar="NAME|FILE", help="For --rehearse.")
@shared.as_json
def doctor(
    folder: Path, sbatch: tuple[str, ...], entry_name: str | None, rehearse: bool,
    cluster: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Look at this site and at FOLDER, where runs will be kept; or at a run, and why jobs ended.

    Of a run's folder or a study file that was launched it names each cause that ended jobs or keeps
    them from starting, the line of the log that shows it, and what mends it. Exit code 3 says that
    something was found that does not work.
    """
    options = read_options(sbatch)
    if rehearse:
        _, site = choose(cluster)
        works = probes.rehearse(folder, site, options, click.echo)
        return DONE if works else INCOMPLETE
    is_run = folder.is_file() or (folder / "study.json").is_file()
    if entry_name is None and is_run:
        return _diagnose_run(layout_of(folder), as_json)
    findings = probes.examine(folder)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [[each.what, each.found, each.verdict, each.advice] for each in findings]
        print_table("This site", ["what", "found", "", "what to do"], rows)
    if entry_name is not None:
        _write_entry(_entry_path(entry_name))
    return INCOMPLETE if any(finding.verdict == "bad" for finding in findings) else DONE


def _write_entry(path: Path) -> None:
    """Write a first entry of the cluster table to a file; refuse to replace one."""
    try:
        probes.write_entry(path)
    except OSError as error:
        if isinstance(error, FileExistsError) and path.exists():
            raise UserError(f"{path} exists; choose another name or remove it") from None
        advice = "name a folder in RLBHPC_CLUSTERS"
        raise UserError(f"{error.filename}: {error.strerror}; {advice}") from None
    tell(f"{path} written; read it and fill in what is missing")


def _entry_path(name: str) -> Path:
    """The file of a cluster's entry: what ends in .yaml is a path, as for ``--cluster``."""
    if name.endswith(".yaml"):
        return Path(name)
    if not name or "/" in name:
        raise UserError(f"--write: a name without '/', or a path that ends in .yaml; got {name!r}")
    return table_folders()[0] / f"{name}.yaml"


def _diagnose_run(layout: Layout, as_json: bool) -> int:
    """Print why jobs of a run ended or do not start, and give the exit code.

    A cause has the jobs it concerns, a line of a log as evidence, and what to do.
    """
    causes, now = run_status.diagnose(layout)
    code = INCOMPLETE if causes else DONE
    if as_json:
        print_json([asdict(cause) for cause in causes])
        return code
    for cause in causes:
        click.echo(f"{cause.cause} ({_name_some(cause.jobs)})")
        if cause.evidence:
            click.echo(f"    {cause.evidence}")
        click.echo(f"    next: {cause.action}")
    if not causes:
        queued_jobs = sum((now.queue or {}).values())
        state = "rlbhpc status says what is missing."
        if now.at_work:
            state = f"At work: {now.at_work}."
        elif queued_jobs:
            state = f"{queued_jobs} jobs are in the queue."
        click.echo(f"No job of {layout.root} ended badly. {state}")
    return code
