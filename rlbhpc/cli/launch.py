"""``rlbhpc launch``: a study as batch scripts for a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from rlbhpc.cli.plan import SHARD_TOKENS, print_summary
from rlbhpc.cli.table import print_json
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.launch import slurm
from rlbhpc.launch.cluster import choose
from rlbhpc.launch.container import expanded
from rlbhpc.launch.jobs import Job, jobs_of
from rlbhpc.launch.options import read_options
from rlbhpc.launch.script import Launch
from rlbhpc.launch.write import start_estimates, write_launch
from rlbhpc.launch.write import submit as submit_all
from rlbhpc.study.expand import with_absolute_paths
from rlbhpc.study.lineage import untrained
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.load import check_engines
from rlbhpc.sweep.plan import make_plan
from rlbhpc.sweep.presence import presence
from rlbhpc.sweep.remember import remember


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc launch math.yaml --submit -p gpu -A my-account --constraint=a100",
)
@click.argument("study", type=click.Path(path_type=Path))
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key.")
@click.option("--cluster", metavar="NAME|FILE", help="Default: the study's, or by the host's name.")
@click.option(
    "--only", type=click.Choice(["train", "sample"]), help="Leave out jobs of the other kind."
)
@click.option("--width", type=click.IntRange(min=1), help="Most array tasks in all.")
@click.option(
    "--shard-tokens", type=click.IntRange(min=1), default=SHARD_TOKENS, show_default=True,
    help="Expected response tokens of one shard.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Try again what is stored as failed.")
@click.option("--submit", is_flag=True, help="Submit what was written.")
@click.option("--test-only", is_flag=True, help="Ask Slurm when each job would start.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def launch(
    study: Path, sbatch: tuple[str, ...], overrides: tuple[str, ...], cluster: str | None,
    only: str | None, width: int | None, shard_tokens: int, retry_failed: bool, submit: bool,
    test_only: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Write STUDY as batch scripts for what is missing: train, sample, compact, report.

    The folder that is written holds complete scripts and submit.sh, to read, edit and run; with
    --submit that is done at once. The same command starts a study and goes on with it.

    Options that sbatch knows are passed on with their meaning: -p -A -t -q -c -N --constraint
    --gres and more.
    """
    options = read_options(sbatch)
    resolved = load_study(study, overrides)
    name, entry = choose(cluster or resolved.file.cluster)
    _refuse_live(resolved)
    check_engines(resolved)
    remember(resolved)
    made = make_plan(
        resolved, presence(resolved.layout, list(resolved.blocks())), shard_tokens, retry_failed
    )
    training = untrained(resolved, resolved.models)
    if not made.samples and not training:
        click.echo("Nothing is missing.")
        return NOTHING_TO_DO
    if training:
        from rlbhpc.train.recipes import check_recipes  # loads torch where it is

        check_recipes(resolved)
    made.save(resolved.layout.plans)
    there = with_absolute_paths(study, overrides)
    words = (str(study.absolute()), *(w for pair in there for w in ("--set", pair)))
    one = Launch(resolved, words, made.name, "", entry, name, options)
    jobs = _chosen(jobs_of(resolved, made, entry, width), only)
    folder = write_launch(one, jobs)
    if entry.container is not None and not expanded(entry.container.image).is_file():
        click.echo(f"There is no {entry.container.image} here; is it on the nodes?", err=True)
    if as_json:
        scripts = [f"{job.name}.sbatch" for job in jobs]
        print_json({"folder": str(folder), "cluster": name, "plan": made.name, "jobs": scripts})
    else:
        print_summary(made)
        click.echo(f"{len(jobs)} scripts for cluster {name} in {folder}")
        if not submit:
            click.echo(f"To submit them: {folder / 'submit.sh'}")
    if test_only:
        for name, answer in start_estimates(folder, jobs).items():
            click.echo(f"{name}: {answer}")
    return submit_all(folder) if submit else DONE


def _chosen(jobs: list[Job], only: str | None) -> list[Job]:
    """Jobs of one kind; those that they waited for are gone, so they wait for fewer."""
    if only is None:
        return jobs
    kept = [job for job in jobs if job.kind == only]
    names = {job.name for job in kept}
    return [replace(job, after=tuple(n for n in job.after if n in names)) for job in kept]


def _refuse_live(study: Study) -> None:
    """Two launches of one study would sample the same twice; nothing would be lost but time."""
    launches = sorted(study.layout.launches.glob("[0-9]*"))
    rows = slurm.live(launches)
    if rows:
        raise UserError(
            f"{len(rows)} jobs of this study are in the queue (first: {rows[0].job}); wait for "
            f"them, or end them: rlbhpc cancel {study.layout.root}"
        )
