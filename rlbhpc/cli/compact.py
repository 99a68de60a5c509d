"""``rlbhpc compact``: derive the cube."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.store import left_out
from rlbhpc.store.compact import compact as derive
from rlbhpc.store.seal import seal_and_clean
from rlbhpc.study.layout import Layout


@click.command(epilog="Example: rlbhpc compact runs/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rebuild", is_flag=True, help="Take nothing over from the cube that is there.")
@click.option(
    "--seal", is_flag=True,
    help="First seal journals and remove those that are sealed, as the jobs of a launch do.",
)  # fmt: skip
@shared.as_json
def compact(run: Path, rebuild: bool, seal: bool, as_json: bool) -> int:
    """Bring the cube of the run in the folder RUN up to date with all samples.

    The cube is derived from journals and parts, which stay as they are. Its bytes depend on the
    samples alone, so that it can be deleted and derived anew at any time, also while jobs are
    writing. Exit code 4 says that there was nothing new.
    """
    layout = Layout(run)
    keep(layout.logs, "compact", layout.attempts)
    if seal:
        seal_and_clean(layout)
    done = derive(layout, rebuild=rebuild)
    left_out.tell(run, done.notes)
    if as_json:
        print_json(
            {
                "cube": str(layout.cube),
                "bands": done.bands,
                "kept": done.linked,
                "left_out": [note.text for note in done.notes],
            }
        )
        return DONE if done.new else NOTHING_TO_DO
    if not done.new:
        click.echo(f"{layout.cube} holds everything already.")
        return NOTHING_TO_DO
    click.echo(f"{layout.cube}: {done.bands:,} bands derived, {done.linked:,} kept.")
    return DONE
