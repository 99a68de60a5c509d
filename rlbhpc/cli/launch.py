"""``rlbhpc launch``: a study as batch scripts for a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlbhpc.cli import shared
from rlbhpc.cli.check import tell_of_old_verdicts
from rlbhpc.cli.plan import print_summary
from rlbhpc.cli.table import print_json, tell
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.launch.api import written
from rlbhpc.launch.cluster import HERE
from rlbhpc.launch.container import expanded
from rlbhpc.launch.launches import launch_in
from rlbhpc.launch.prepare import SHARD_TOKENS, Prepared, prepare
from rlbhpc.launch.script import read_options
from rlbhpc.launch.send import reject_missing, start_estimates


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
    launched = written(prepared)
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
