"""``rlbhpc report``: what a run says, in words, tables and figures."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    from rlbhpc.report.aspect import Report


@click.command(
    epilog="Examples: rlbhpc report runs/math; rlbhpc report runs/math --terminal; "
    "rlbhpc report runs/imported --compare base:rl -o out; "
    "rlbhpc report runs/math --figures paper/figures --style neurips; "
    "rlbhpc report runs/math --regraded runs/math-paper"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--terminal", is_flag=True, help="Print the answer; write the page only with -o.")
@click.option(
    "-v", "--verbose", is_flag=True, help="With --terminal: print every section of the page."
)
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
    "--figures", metavar="DIR", type=click.Path(path_type=Path),
    help="Write the figures for a paper there: PDF, PGF, PNG, and their numbers.",
)  # fmt: skip
@click.option(
    "--style", type=click.Choice(["neurips", "icml", "acl", "single", "double"]),
    help="With --figures: width and letters. Default: double, both columns of a page.",
)  # fmt: skip
@click.option(
    "--regraded",
    type=click.Path(path_type=Path),
    help="The same samples under another grader, from rlbhpc verify RUN --into.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's browser.")
def report(
    run: Path, terminal: bool, verbose: bool, as_json: bool, out: Path | None,
    compare: tuple[str, ...], figures: Path | None, style: str | None, regraded: Path | None,
    opens: bool,
) -> int:  # fmt: skip
    """Say what RUN, a run's folder or a study file, shows: did training move the boundary?

    Writes one HTML page that needs nothing else, and its numbers as CSV beside it. Exit code 3
    says that samples are still missing; the report then shows what there is.
    """
    if as_json and regraded is not None:
        raise click.UsageError("--regraded has nothing to add to --json; leave one of them out")
    if style is not None and figures is None:
        raise click.UsageError("--style is that of --figures DIR; say where the figures should go")
    if opens and (as_json or (terminal and out is None)):
        raise click.UsageError("--open needs a page; leave --json out, or give -o with --terminal")
    # A report makes millions of values: the search for cycles takes a tenth of its time.
    gc.disable()
    context = click.get_current_context()
    context.call_on_close(gc.enable)
    from rlbhpc.study.load import load_study

    folder = load_study(run).layout.root if run.is_file() else run
    keep(Layout(folder).logs, "report", Layout(folder).attempts)
    writes = not as_json and (out is not None or not terminal)
    from rlbhpc.cli.shared import screen
    from rlbhpc.report.aspects.robustness import lay_beside
    from rlbhpc.report.gather import gather, read_pair
    from rlbhpc.report.phrases import count_text
    from rlbhpc.report.terminal import print_answer, print_notes, print_report
    from rlbhpc.report.write import as_records, write_report

    pairs = [read_pair(text) for text in compare]
    gathered = gather(folder, pairs)
    if regraded is not None:
        lay_beside(gathered, regraded, pairs)
    if as_json:
        click.echo(as_records(gathered))
        return exit_code(gathered)
    console = screen()
    if terminal:
        print_report(gathered, console, verbose=verbose)
    else:
        print_answer(gathered, console)
        print_notes(gathered, console)
    if writes:
        paths = write_report(gathered, out)
        click.echo(f"{paths[0]} and {count_text(len(paths) - 1, 'file')} beside it.")
        if opens:
            click.launch(str(paths[0]))
    if figures is not None:
        from rlbhpc.report.paper import DEFAULT_STYLE, save_figures

        drawn = save_figures(gathered, figures, style or DEFAULT_STYLE)
        click.echo(f"{count_text(len(drawn), 'file')} for a paper in {figures}.")
    return exit_code(gathered)


def exit_code(gathered: Report) -> int:
    """Tell whether all that the study asks for went into the report."""
    return INCOMPLETE if any(arm.tally.missing for arm in gathered.measured_arms) else DONE
