"""``rlbhpc demo``: a small run to look at, without models, GPUs or torch."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import click

from rlbhpc.errors import DONE, NOTHING_TO_DO
from rlbhpc.exchange.arriving import Target
from rlbhpc.exchange.imports import import_files
from rlbhpc.study.layout import Layout

ARMS: Final = ("base", "rl")


def samples_file(arm: str) -> str:
    """The file of an arm's samples, below the package; tools/make_demo.py writes it."""
    return f"cli/demo_samples/{arm}.jsonl.gz"


@click.command(epilog="Example: rlbhpc demo && rlbhpc report demo --compare base:rl --terminal")
@click.argument("folder", type=click.Path(path_type=Path), default="demo")
def demo(folder: Path) -> int:
    """Write a small run to FOLDER ("demo" by default), to try report, view, show and export on.

    A base model and the same model after RL answered 128 problems of Countdown 256 times each.
    They are the quickstart's, and their samples come with the package.
    """
    layout = Layout(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sample_count = 0
    for arm in ARMS:
        with as_file(files("rlbhpc") / samples_file(arm)) as path:
            imported = import_files(layout, (path,), Target(arm, "countdown", arm), None, None)
        sample_count += imported.samples
    if not sample_count:
        click.echo(f"{folder} holds the demo already.")
        return NOTHING_TO_DO
    click.echo(f"{folder}: {sample_count:,} samples of {' and '.join(ARMS)} on 128 problems. Try:")
    click.echo(f"  rlbhpc report {folder} --compare base:rl --terminal   # the answer")
    click.echo(f"  rlbhpc report {folder} --compare base:rl --open       # the page")
    click.echo(f"  rlbhpc view {folder} --open                           # the responses")
    return DONE
