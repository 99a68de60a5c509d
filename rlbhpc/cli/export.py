"""``rlbhpc export``: write results in formats that other tools read."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.exchange.export import export as write
from rlbhpc.study.layout import Layout


@click.command(epilog="Example: rlbhpc export runs/math counts.csv")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def export(run: Path, out: Path) -> int:
    """Write the results of the run in the folder RUN to the file OUT, whose ending says how.

    \b
      .parquet  every sample with its text and per-token values
      .csv      n and c per problem and step (rlbhpc import reads it)
      .json     the same as a list of objects
      .nc       the cube as netCDF-4, one group per arm and problem set
    """  # noqa: D301 - click takes the backspace as "leave the lines below as they are"
    rows = write(Layout(run), out)
    click.echo(f"{out}: {rows:,} {'groups' if out.suffix == '.nc' else 'rows'}")
    return DONE if rows else NOTHING_TO_DO
