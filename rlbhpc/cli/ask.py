"""``rlbhpc ask``: from two models to an answer in one command."""

from __future__ import annotations

import time
from pathlib import Path

import click

from rlbhpc.cli import blas as blas  # before NumPy
from rlbhpc.cli.init import pair_options
from rlbhpc.cli.report import exit_code
from rlbhpc.cli.table import screen, tell
from rlbhpc.debug_log import keep
from rlbhpc.launch.ask import draft, fetch, find_study, make_results
from rlbhpc.report.gather import gather
from rlbhpc.report.page import PAGE
from rlbhpc.report.terminal import print_answer, print_sentences
from rlbhpc.study.load import load_study


@click.command(
    epilog="Example: rlbhpc ask --base Qwen/Qwen2.5-7B --trained checkpoints/rl --on math500"
)
@pair_options(required=True)
def ask(base: str, trained: str, sets: str | None, cluster: str | None, output: Path | None) -> int:
    """Ask whether training moved the boundary of --base: write the study, run it, print the answer.

    The same command after any interruption goes on with what is left. To change the study, edit
    the file that it names first and call it again.
    """
    begun = time.monotonic()

    def say(line: str) -> None:
        tell(f"[{time.monotonic() - begun:5.0f} s] {line}")

    pair = draft(base, trained, sets, cluster)
    fetch(pair, say)
    file = find_study(pair, output)
    study = load_study(file)
    samples = sum(block.size for block in study.blocks())
    say(f"study {file}: {samples:,} samples in all, sizes {pair.size.words}")
    keep(study.layout.logs, "ask")
    layout = make_results(file, say)
    report = gather(layout.root)
    console = screen()
    print_answer(report, console)
    print_sentences(report, console)
    say(f"the whole report: {layout.report / PAGE}")
    return exit_code(report)
