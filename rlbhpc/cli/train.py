"""``rlbhpc train``: train the models of a study."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rlbhpc import plugins
from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.study.lineage import training_order, untrained_models
from rlbhpc.study.load import load_study
from rlbhpc.study.study import Study
from rlbhpc.sweep.process import Drain, devices

if TYPE_CHECKING:
    from rlbhpc.train.forecast import Forecast

BYTES_PER_MIB: Final = 2**20
BYTES_PER_GIB: Final = 2**30
# Settings of a training that decide its memory.
PRINTED_SETTINGS: Final = (
    "rollouts", "dtype", "recompute", "zero_stage", "offload", "micro_tokens",
)  # fmt: skip


@click.command(
    epilog="Examples: rlbhpc train math.yaml rl; rlbhpc train math.yaml --dry-run --ranks 8"
)
@click.argument("study", type=click.Path(path_type=Path))
@click.argument("models", nargs=-1)
@shared.overrides
@shared.minutes
@click.option("--dry-run", is_flag=True, help="Say what would be done and held; write nothing.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="For --dry-run: ranks that share the training.",
)
@click.option(
    "--memory",
    metavar="GIB",
    type=click.FloatRange(min=0, min_open=True),
    help="For --dry-run: a GPU's; refuse what does not fit it. Default: this one's.",
)
@click.option("--json", "as_json", is_flag=True, help="For --dry-run: print as JSON.")
def train(
    study: Path, models: tuple[str, ...], overrides: tuple[str, ...], limit: float | None,
    dry_run: bool, ranks: int, memory: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Train MODELS of STUDY, or all that it trains, each after the one it starts from.

    The same command again goes on from the last saved state. TERM, USR1 and USR2 ask it to save and
    stop with exit code 75: a rollout is dropped, an update is finished first.
    """
    resolved = load_study(study, overrides)
    plugins.reject_changed(resolved.plugins)
    for name in models:
        if name not in resolved.models:
            raise UserError(f"model {name!r} is none of {', '.join(resolved.models)}")
    ordered_models = training_order(resolved, models or resolved.models)
    missing_models = untrained_models(resolved, ordered_models)
    if not missing_models:
        click.echo("Nothing to train: every checkpoint is there.")
        return NOTHING_TO_DO
    if dry_run:
        _choose_accelerator()
        return _forecast(resolved, missing_models, ranks, memory, as_json)
    keep(resolved.layout.logs, "train")
    _choose_accelerator()
    _reject_unusable_gpus()
    with Drain(limit=limit) as drain:
        for name in missing_models:
            code = _train_one(resolved, name, drain)
            if code != DONE:
                return code
    return DONE


def _choose_accelerator() -> None:
    """Tell DeepSpeed whether there are GPUs, unless the user has."""
    has_gpu = bool(devices()) and sys.platform == "linux"
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if has_gpu else "cpu")


def _reject_unusable_gpus() -> None:
    """Refuse GPUs to a torch without CUDA, in which DeepSpeed ends with a traceback."""
    import torch

    gpus = devices() if os.environ["DS_ACCELERATOR"] == "cuda" else []
    if gpus and not torch.backends.cuda.is_built():
        raise UserError(
            f"GPU {gpus[0]}: torch {torch.__version__} is built without CUDA; install torch for "
            "CUDA, or train on processors with CUDA_VISIBLE_DEVICES=-1"
        )


def _forecast(
    study: Study, models: Sequence[str], ranks: int, memory_gib: float | None, as_json: bool
) -> int:
    """Print what each training will do and hold in memory; refuse what cannot fit, else give DONE.

    ``ranks`` are the processes of a training, one for each GPU, and ``memory_gib`` is the memory of
    one GPU, that of this machine's if not given.
    """
    from rlbhpc.train.forecast import device_memory, forecast, refuse_what_cannot_fit

    memory_bytes = device_memory() if memory_gib is None else int(memory_gib * BYTES_PER_GIB)
    forecasts = [forecast(study, name, ranks, memory_bytes) for name in models]
    if as_json:
        print_json([{**asdict(each), "total": each.total} for each in forecasts])
    else:
        for each in forecasts:
            _print_forecast(each)
    if memory_bytes:
        for each in forecasts:
            refuse_what_cannot_fit(each, memory_bytes)
    return DONE


def _print_forecast(forecast: Forecast) -> None:
    """Print the work of a training, its settings, and the memory of each rank.

    A rank is one process of a training, on a GPU of its own. ``work`` has counts by name, and
    ``memory`` has bytes by what they hold.
    """
    work = [(name, f"{count:,}") for name, count in forecast.work.items()]
    title = f"{forecast.model}: {forecast.algorithm}, {forecast.parameters:,} parameters"
    print_table(title, ["work", "in the whole run"], work)
    click.echo(", ".join(f"{name} {getattr(forecast.settings, name)}" for name in PRINTED_SETTINGS))
    rows = []
    for part, size in (*forecast.memory.items(), ("together, at least", forecast.total)):
        rows.append((part, f"{size / BYTES_PER_MIB:,.1f}"))
    title = f"{forecast.model}: memory of each of {forecast.ranks} ranks"
    print_table(title, ["part", "MiB"], rows)


def _train_one(study: Study, model: str, drain: Drain) -> int:
    """Train one model by RL or by distillation; gives the exit code.

    ``drain`` says when to stop early. `prepare` gives the run as its recipe sets it up, and
    `TrainingLine` shows on the terminal how far it is. ``rows`` is how many responses are sampled
    at once.
    """
    from rlbhpc.train.dynamics import TrainingLine
    from rlbhpc.train.loop import train as train_rl
    from rlbhpc.train.prepare import prepare
    from rlbhpc.train.recipes import rollout_rows
    from rlbhpc.train.rollout import rollout_engine
    from rlbhpc.train.sft import Distillation, fine_tune

    run = prepare(study, model)
    line = TrainingLine(model, run.settings.steps)
    if isinstance(run, Distillation):
        code = fine_tune(run, drain, line.show)
    else:
        rows = rollout_rows(study)
        code = train_rl(run, lambda: rollout_engine(run, rows), drain, line.show)
    line.finish()
    return code
