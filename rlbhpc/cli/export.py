"""``rlbhpc export``: write results in formats that other tools read."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.exchange.exports import FORMATS
from rlbhpc.exchange.exports import export as write
from rlbhpc.study.layout import Layout

_LIST = "\n".join(f"  {ending:9} {form.what}" for ending, form in FORMATS.items())


@click.command(
    epilog="Example: rlbhpc export runs/math counts.csv",
    help="Write the results of the run in the folder RUN to OUT, a file or folder whose ending "
    f"says how.\n\n\b\n{_LIST}",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def export(run: Path, out: Path) -> int:
    """Write results in the format that an ending names."""
    amount = write(Layout(run), out)
    click.echo(f"{out}: {amount or 'nothing to write'}")
    return DONE if amount else NOTHING_TO_DO
