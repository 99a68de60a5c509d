"""``rlbhpc watch``: keep the answer current while somebody's training runs."""

from __future__ import annotations

import time
from pathlib import Path

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import screen, tell
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE
from rlbhpc.launch.ask import draft
from rlbhpc.launch.script import read_options
from rlbhpc.launch.watch import watch_training


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: rlbhpc watch checkpoints/grpo --base Qwen/Qwen2.5-7B --n 64 --every 100",
)
@click.argument("checkpoints", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("sbatch", metavar="[SBATCH OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--base", metavar="FOLDER|HUB", required=True, help="What the training started from.")
@click.option("--on", "sets", metavar="SET,SET", help="Problem sets, or a .jsonl file of yours.")
@click.option("--n", type=click.IntRange(min=1), help="Samples per problem.")
@click.option("--prompt", metavar="NAME|FILE.txt", help="Default: what the base's makers ask by.")
@click.option("--cluster", metavar="NAME", help="An entry of the cluster table, or 'local'.")
@click.option("--every", type=click.IntRange(min=1), default=1, help="Only steps divisible by it.")
@click.option("--last", type=click.IntRange(min=1), metavar="STEP", help="End after this step.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True,
              help="Between two looks for checkpoints.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The study file.")
@shared.overrides
def watch(
    checkpoints: Path, sbatch: tuple[str, ...], base: str, sets: str | None, n: int | None,
    prompt: str | None, cluster: str | None, every: int, last: int | None, seconds: float,
    output: Path | None, overrides: tuple[str, ...],
) -> int:  # fmt: skip
    """Follow a training that writes to the folder CHECKPOINTS: sample each new checkpoint.

    Reads what TRL, Transformers, verl, OpenRLHF, DeepSpeed and prime-rl write, FSDP and ZeRO
    states too. A checkpoint is taken once it is whole, and kept by hard links below `watched/`, so
    that the training may remove its own. After each round the answer is printed and the report
    written anew. Ends after --last, or when you press Ctrl-C; the same command goes on.
    """
    from rlbhpc.report.gather import gather
    from rlbhpc.report.terminal import print_answer
    from rlbhpc.report.write import write_report

    begun = time.monotonic()

    def say(line: str) -> None:
        tell(f"[{time.monotonic() - begun:5.0f} s] {line}")

    pair = draft(base, str(checkpoints), sets, cluster, n, prompt)
    file = output or Path(f"{pair.name}.yaml")
    rounds = watch_training(
        checkpoints, pair, file, say, seconds=seconds, every_steps=every, last_step=last,
        overrides=overrides, options=read_options(sbatch),
    )  # fmt: skip
    for layout in rounds:
        keep(layout.logs, "watch", layout.attempts)
        report = gather(layout.root)
        print_answer(report, screen())
        page, *_ = write_report(report, None)
        say(f"the report: {page}")
    return DONE
