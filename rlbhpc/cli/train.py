"""``rlbhpc train``: train the models of a study."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.study.lineage import untrained
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study

if TYPE_CHECKING:
    from rlbhpc.engines.engine import Engine
    from rlbhpc.train.settings import Settings


@click.command(epilog="Example: rlbhpc train math.yaml rl")
@click.argument("study", type=click.Path(path_type=Path))
@click.argument("models", nargs=-1)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override one key.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Stop by itself after so long.")
def train(
    study: Path, models: tuple[str, ...], overrides: tuple[str, ...], minutes: float | None
) -> int:
    """Train MODELS of STUDY, or all that it trains, each after the one it starts from.

    The same command again goes on from the last saved state. TERM, USR1 and USR2 ask it to finish
    the step, save and stop with exit code 75.
    """
    resolved = load_study(study, overrides)
    for name in models:
        if name not in resolved.models:
            raise UserError(f"model {name!r} is none of {', '.join(resolved.models)}")
    waiting = untrained(resolved, models or resolved.models)
    if not waiting:
        click.echo("Nothing to train: every checkpoint is there.")
        return NOTHING_TO_DO
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if _has_gpu() else "cpu")
    from rlbhpc.sweep.drain import Drain

    with Drain(limit=None if minutes is None else minutes * 60) as drain:
        for name in waiting:
            code = _train_one(resolved, name, drain)
            if code != DONE:
                return code
    return DONE


def _train_one(study: Study, model: str, drain: object) -> int:
    from rlbhpc.sweep.drain import Drain
    from rlbhpc.train.loop import train as train_rl
    from rlbhpc.train.prepare import prepare
    from rlbhpc.train.progress import TrainingLine
    from rlbhpc.train.sft import Distillation, fine_tune

    assert isinstance(drain, Drain)
    run = prepare(study, model)
    line = TrainingLine(model, run.settings.steps)
    if isinstance(run, Distillation):
        code = fine_tune(run, drain, line.show)
    else:
        code = train_rl(run, lambda base: _sampler(base, run.settings), drain, line.show)
    line.finish()
    return code


def _sampler(base: Path, settings: Settings) -> Engine:
    """What rollouts are sampled with, beside the learner on its device."""
    import torch

    from rlbhpc.engines.engine import make_engine

    if not torch.cuda.is_available():
        return make_engine("hf", base)
    # The learner has made its rank's GPU the current one.
    device = f"cuda:{torch.cuda.current_device()}"
    return make_engine("hf", base, device=device, dtype=settings.dtype)


def _has_gpu() -> bool:
    from rlbhpc.sweep.devices import devices

    return bool(devices()) and sys.platform == "linux"
