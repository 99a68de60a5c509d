"""``rlbhpc image``: build and check Apptainer images."""

from __future__ import annotations

from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.table import print_json
from rlbhpc.errors import DONE
from rlbhpc.files import sha256_of
from rlbhpc.launch import container


@click.group(epilog="Example: rlbhpc image build cpu -o images/rlbhpc-cpu.sif")
def image() -> None:
    """Build and check the Apptainer images that jobs run in.

    Where images cannot be built, build them elsewhere from the same checkout and copy the .sif.
    """


@image.command(epilog="Example: rlbhpc image build gpu -o /project/images/rlbhpc-gpu.sif")
@click.argument("kind", type=click.Choice(container.KINDS))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: rlbhpc-KIND.sif.")
def build(kind: str, output: Path | None) -> int:
    """Build the image KIND from the checkout's containers/KIND.def."""
    sif = container.build(kind, output or Path(f"rlbhpc-{kind}.sif"))
    click.echo(f"{sif}: sha256 {sha256_of(sif)}")
    return DONE


@image.command(epilog="Example: rlbhpc image verify rlbhpc-gpu.sif")
@click.argument("sif", type=click.Path(path_type=Path))
@shared.as_json
def verify(sif: Path, as_json: bool) -> int:
    """Check that rlbhpc starts in the image SIF; show its labels and digest."""
    record = container.verify(sif)
    if as_json:
        print_json(record)
        return DONE
    for name, value in sorted(record["labels"].items()):
        click.echo(f"{name}: {value}")
    click.echo(f"{record['rlbhpc']}\nsha256 {record['sha256']}")
    return DONE
