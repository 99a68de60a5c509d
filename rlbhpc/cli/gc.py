"""``rlbhpc gc``: remove journals that are sealed."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.store import left_out
from rlbhpc.store.seal import IDLE_HOURS
from rlbhpc.store.seal import gc as clean
from rlbhpc.store.sources import of_run
from rlbhpc.study.layout import Layout


@click.command(epilog="Example: rlbhpc gc runs/math")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--idle",
    type=click.FloatRange(min=0),
    default=IDLE_HOURS,
    show_default=True,
    help="Hours without change after which a journal that was never closed has no writer any "
    "more. 0 is safe when no job of the study is running.",
)
@shared.as_json
def gc(run: Path, idle: float, as_json: bool) -> int:
    """Remove the journals of the run in the folder RUN whose samples are sealed.

    All parts are read and checked first. Exit code 3 says that some samples cannot be used, 4
    that there was nothing to remove.
    """
    layout = Layout(run)
    keep(layout.logs, "gc", layout.attempts)
    done = [clean(layout, *group, idle_hours=idle) for group in of_run(layout)]
    removed = [path for cleaning in done for path in cleaning.removed]
    freed = sum(cleaning.freed for cleaning in done)
    kept = [journal for cleaning in done for journal in cleaning.kept]
    notes = [skipped.note for cleaning in done for skipped in cleaning.skipped]
    left_out.tell(run, notes)
    if as_json:
        names = [str(path) for path in removed]
        stay = [{"path": str(path), "reason": reason} for path, reason in kept]
        print_json(
            {"removed": names, "freed": freed, "kept": stay, "notes": [note.text for note in notes]}
        )
    else:
        click.echo(f"{len(removed):,} files removed, {freed / 1e6:,.1f} MB freed.")
        for line in map(str, kept):
            tell(line)
    return DONE if removed else NOTHING_TO_DO
