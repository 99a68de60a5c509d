"""``rlbhpc curves``: training curves on TensorBoard or Weights & Biases."""

from __future__ import annotations

import time
from pathlib import Path

import click

from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.report.boards import BOARDS, Copy
from rlbhpc.study.layout import Layout
from rlbhpc.study.load import load_study

# A look reads the step logs of all models.
LEAST_SECONDS = 5


@click.command(epilog="Example: rlbhpc curves runs/math --to tensorboard --watch 30")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "board", type=click.Choice([*BOARDS]), required=True, help="Where to.")
@click.option(
    "--watch", type=click.IntRange(min=LEAST_SECONDS), metavar="SECONDS",
    help="Look for new steps every so many seconds, until interrupted.",
)  # fmt: skip
def curves(run: Path, board: str, watch: int | None) -> int:
    """Copy the training curves of RUN, a run's folder or a study file, to a board.

    \b
      tensorboard  event files, one folder a model: tensorboard --logdir RUN/boards/tensorboard
      wandb        a W&B run a model, offline: wandb sync RUN/boards/wandb/wandb/offline-*;
                   with WANDB_MODE=online it is sent at once

    The copy is made anew from the step logs each time, where training runs or anywhere else.
    """  # noqa: D301 - click takes the backspace as "leave the lines below as they are"
    if not run.exists():
        raise UserError(f"{run}: neither a study file nor the folder of a run")
    with Copy(load_study(run).layout if run.is_file() else Layout(run), board) as copy:
        while True:
            if copy.look() or watch is None:
                models = ", ".join(f"{model} to step {last}" for model, last in copy.shown.items())
                click.echo(f"{copy.folder}: {models or 'no training step is logged'}")
            if watch is None:
                return DONE if copy.shown else NOTHING_TO_DO
            time.sleep(watch)
