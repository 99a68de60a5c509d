"""``rlbhpc cancel``: end a run's jobs; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli.table import tell
from rlbhpc.errors import DONE, NOTHING_TO_DO, TRY_AGAIN
from rlbhpc.launch.launches import cancel as end_all
from rlbhpc.launch.launches import layout_of


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
