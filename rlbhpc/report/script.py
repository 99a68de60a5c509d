"""What the scripts of ``analysis/`` share: runs in, figures with their numbers out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rlbhpc.errors import NOTHING_TO_DO, UserError
from rlbhpc.report.aspect import Draw, Report
from rlbhpc.report.draw.chart import Chart
from rlbhpc.report.draw.paper import save
from rlbhpc.report.gather import gather, read_pair


def main(about: str, draw: Draw) -> None:
    """Run a script whose arguments are those of all scripts.

    ``draw``: draws the figures of one run.
    """
    draw_runs(arguments(about).parse_args(), draw)


def arguments(about: str) -> argparse.ArgumentParser:
    """Describe what every script takes; a script may add to it."""
    parser = argparse.ArgumentParser(description=about.strip().partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--compare", action="append", default=[], metavar="BASE:TRAINED", help="arms to compare"
    )
    return parser


def draw_runs(options: argparse.Namespace, draw: Draw) -> None:
    """Gather each run, draw, and write PDF, PNG, CSV and JSON."""
    try:
        pairs = [read_pair(text) for text in options.compare]
        for run in options.runs:
            report = gather(run, pairs)
            # Runs may draw figures of the same name, so several get a folder each.
            folder = options.out / report.name if len(options.runs) > 1 else options.out
            drawn = False
            for name, chart in draw(report):
                drawn = True
                print(save(chart, folder, name, _about(report))[0])
            if not drawn:
                raise UserError(f"{run}: has nothing for this figure; its first lines say what "
                                "it shows (--help)", NOTHING_TO_DO)  # fmt: skip
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def main_published(
    about: str,
    draw: Callable[[Sequence[Report]], Iterator[tuple[str, Chart]]],
    runs: bool = False,
) -> None:
    """Run a script that draws published numbers.

    ``draw``: draws the numbers, with these runs laid over them. ``runs``: whether it can lay runs
    over them.
    """
    parser = argparse.ArgumentParser(description=about.strip().partition("\n")[0])
    if runs:
        parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="runs to lay over")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args()
    try:
        reports = [gather(run) for run in options.runs] if runs else []
        for name, chart in draw(reports):
            print(save(chart, options.out, name, {"runs": [report.name for report in reports]})[0])
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.code)


def _about(report: Report) -> dict[str, object]:
    s = report.settings
    return {
        "run": report.folder.name,
        "study_hash": report.study_hash,
        "interval": s.prob,
        "bootstrap_replicates": s.replicates,
        "seed": s.seed,
        "notes": list(report.notes),
    }
