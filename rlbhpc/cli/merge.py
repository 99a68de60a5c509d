"""``rlbhpc merge``: join stores of one study."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.table import print_json, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO
from rlbhpc.store import left_out
from rlbhpc.store.merge import merge as join
from rlbhpc.store.reader import purged
from rlbhpc.store.sources import Sources
from rlbhpc.study.layout import Layout


@click.command(epilog="Example: rlbhpc merge runs/math /media/stick/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@shared.as_json
def merge(run: Path, other: Path, as_json: bool) -> int:
    """Copy into the run in the folder RUN what the folder OTHER has of the same study.

    Everything is compared first: two different samples with one key, or a problem that was asked
    in two ways, stop the merge before anything is copied. OTHER stays as it is. Exit code 3 says
    that files or samples were left out, 4 that there was nothing new.
    """
    layout = Layout(run)
    keep(layout.logs, "merge", layout.attempts)
    done = join(layout, Layout(other))
    left_out.tell(run, [skipped.note for skipped in done.skipped])
    left_out.tell(other, purged(Sources.survey(Layout(other))))
    names = {"copied": done.copied, "left_out": done.left_out}
    notes = {"twins": done.twins, "skipped": done.skipped}
    if as_json:
        lists = {key: list(map(str, values)) for key, values in (names | notes).items()}
        print_json({"added": done.added} | lists)
    else:
        click.echo(f"{done.added:,} new samples, {len(done.copied):,} files copied to {run}.")
        damaged = [f"{path} is damaged and was left out" for path in done.left_out]
        for note in (*done.twins, *damaged):
            tell(note)
    if done.left_out:
        return INCOMPLETE
    return DONE if done.copied else NOTHING_TO_DO
