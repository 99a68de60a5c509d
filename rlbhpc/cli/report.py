"""``rlbhpc report``: what a run says, in words, tables and figures."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from rlbhpc.cli.table import WIDTH_OF_A_PIPE
from rlbhpc.errors import DONE, INCOMPLETE
from rlbhpc.report.details import details
from rlbhpc.report.gather import Report, gather, read_pair
from rlbhpc.report.phrases import plain, several
from rlbhpc.report.regraded import read_regraded
from rlbhpc.report.tables import as_records
from rlbhpc.report.terminal import print_report
from rlbhpc.report.write import write_report
from rlbhpc.study.load import load_study


@click.command(
    epilog="Examples: rlbhpc report runs/math; rlbhpc report runs/math --terminal; "
    "rlbhpc report runs/imported --compare base:rl -o out; "
    "rlbhpc report runs/math --regraded runs/math-paper"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--terminal", is_flag=True, help="Print the report; write it only with -o.")
@click.option("--json", "as_json", is_flag=True, help="Print the conclusions, write nothing.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Folder to write to. Default: RUN/report."
)
@click.option(
    "--compare",
    metavar="BASE:TRAINED",
    multiple=True,
    help="Compare these arms, not those of the study; may be given again.",
)
@click.option(
    "--regraded",
    type=click.Path(path_type=Path),
    help="The same samples under another grader, from rlbhpc verify RUN --again --into.",
)
def report(
    run: Path, terminal: bool, as_json: bool, out: Path | None, compare: tuple[str, ...],
    regraded: Path | None,
) -> int:  # fmt: skip
    """Say what RUN, a run's folder or a study file, shows: did training move the boundary?

    Writes one HTML page that needs nothing else, and its numbers as CSV beside it. Exit code 3
    says that samples are still missing; the report then shows what there is.
    """
    pairs = [read_pair(text) for text in compare]
    found = gather(_folder(run), pairs)
    if as_json and regraded is not None:
        raise click.UsageError("--regraded has nothing to add to --json; leave one of them out")
    verdicts = None if regraded is None else read_regraded(found, regraded, pairs)
    if as_json:
        click.echo(as_records(found))
        return exit_code(found)
    more = details(found, verdicts)
    if terminal:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = WIDTH_OF_A_PIPE
        print_report(found, more, console)
    else:
        for one in found.final:
            click.echo(f"{plain(one.title)}: {one.conclusion.headline}.")
    if out is not None or not terminal:
        paths = write_report(found, out, more)
        click.echo(f"{paths[0]} and {several(len(paths) - 1, 'table')} beside it.")
    return exit_code(found)


def exit_code(found: Report) -> int:
    """Tell whether all that was asked for went into the report."""
    return INCOMPLETE if any(one.tally.missing for one in found.measured) else DONE


def _folder(run: Path) -> Path:
    """The run of a study file, or the folder itself."""
    return load_study(run).layout.root if run.is_file() else run
