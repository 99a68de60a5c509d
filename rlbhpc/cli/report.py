"""The verbs that show what a run holds: `report`, `view`, `show`."""

from __future__ import annotations

import gc
import os
import platform
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, screen, tell, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, INCOMPLETE, NOTHING_TO_DO, UserError
from rlbhpc.study.layout import Layout

if TYPE_CHECKING:
    from rlbhpc.report.aspect import Report
    from rlbhpc.store.questions import Question
    from rlbhpc.store.samples import StoredSample
    from rlbhpc.view.run import OpenRun, ProblemRow, SampleRow

# Width of the names before the values of a sample.
LABEL_WIDTH: Final = 14


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
@click.option("--open", "opens", is_flag=True, help="Open the page in this machine's opened.")
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
    writes_page = not as_json and (out is not None or not terminal)
    if opens and not writes_page:
        raise click.UsageError("--open needs a page; leave --json out, or give -o with --terminal")
    # A report makes millions of values: the search for cycles takes a tenth of its time.
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)
    from rlbhpc.study.load import load_study

    folder = load_study(run).layout.root if run.is_file() else run
    keep(Layout(folder).logs, "report", Layout(folder).grids)
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
    if writes_page:
        page, *other_files = write_report(gathered, out)
        click.echo(f"{page} and {count_text(len(other_files), 'file')} beside it.")
        if opens:
            click.launch(str(page))
    if figures is not None:
        from rlbhpc.report.paper import DEFAULT_STYLE, save_figures

        figure_files = save_figures(gathered, figures, style or DEFAULT_STYLE)
        click.echo(f"{count_text(len(figure_files), 'file')} for a paper in {figures}.")
    return exit_code(gathered)


def exit_code(gathered: Report) -> int:
    """Tell whether all that the study asks for went into the report."""
    is_incomplete = any(arm.tally.missing for arm in gathered.measured_arms)
    return INCOMPLETE if is_incomplete else DONE


@click.command(
    epilog="Examples: rlbhpc view runs/math; rlbhpc view runs/math --open --problem math500/17; "
    "rlbhpc view runs/math -o web --problem math500/17"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on. Default: a free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in this machine's opened.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Write pages to this folder; serve nothing.",
)
@click.option(
    "--problem", "problems", multiple=True,
    help="Begin at this problem. With -o: write this one, and may be given again. Default: the "
    "table of all; with -o those lost and gained.",
)  # fmt: skip
def view(run: Path, port: int, opens: bool, out: Path | None, problems: tuple[str, ...]) -> int:
    """Look through the run in the folder RUN with a browser: problems, both arms, responses.

    Serves pages to this machine alone, under an address with a secret word in it, until you press
    Ctrl-C. On a node without a browser, the line with ssh makes the address work on yours. Text of
    models is shown, never executed; nothing is written but your judgements.
    """
    if out is None and len(problems) > 1:
        raise click.UsageError("--problem is given once, or with -o; choose others in the table")
    from rlbhpc.view.pages import write_copy
    from rlbhpc.view.run import OpenRun
    from rlbhpc.view.server import LOOPBACK, serve

    opened = OpenRun(run)
    opened.require_problems(problems)
    if out is not None:
        index, *problem_pages = write_copy(opened, out, problems)
        click.echo(f"{index} and {len(problem_pages)} problems beside it.")
        return DONE
    with serve(opened, port) as server, tempfile.TemporaryDirectory() as folder:
        used_port = server.server_port
        address = f"http://{LOOPBACK}:{used_port}/{server.viewer.token}/"
        if problems:
            address += f"problem?{urlencode({'problem': problems[0]})}"
        login = f"{os.environ.get('USER', 'you')}@{platform.node()}"
        click.echo(address)
        click.echo(f"From another machine: ssh -N -L {used_port}:{LOOPBACK}:{used_port} {login}")
        click.echo("Ctrl-C ends it.")
        if opens:
            # Any user can read the command line of a browser, so the token stands in a file.
            redirect = Path(folder) / "open.html"
            redirect.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
            click.launch(str(redirect))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()
    return DONE


@click.command(
    epilog="Examples: rlbhpc show runs/math --problem 17 --sample 3; "
    "rlbhpc show runs/math --arm base"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--problem", help="Problem id, with or without its set: show its samples.")
@click.option("--sample", type=click.IntRange(min=0), help="With --problem: show this response.")
@shared.as_json
def show(
    run: Path, arm: str | None, step: int | None, problem: str | None, sample: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Look at problems, samples and responses of the run in the folder RUN.

    Without --problem: every problem with its samples and how many are right. With --problem: its
    samples. With --problem and --sample: the response itself, with the question, its reference
    answer, verdict, tokens, seed and the file it stands in. Text of models is shown, never
    executed: control characters appear as their code points.
    """
    if sample is not None and problem is None:
        raise UserError("--sample needs --problem: say whose sample")
    from rlbhpc.view.run import Choice, OpenRun, ProblemRow, SampleRow

    opened = OpenRun(run, Choice(arm, step, problem, sample))
    if sample is not None:
        return _show_responses(opened, as_json)
    if problem is not None:
        return _show_rows("Samples", SampleRow._fields, opened.samples(), as_json)
    return _show_rows("Problems", ProblemRow._fields, opened.problems(), as_json)


def _show_rows(
    title: str, columns: tuple[str, ...], rows: Iterable[ProblemRow | SampleRow], as_json: bool
) -> int:
    """Print problems or samples as a table or as JSON, and give the exit code.

    ``columns`` are the fields of a row. `NOTHING_TO_DO` is the code where there is no row.
    """
    records = [row._asdict() for row in rows]
    if as_json:
        print_json(records, ascii_only=True)
    else:
        headings = [name.replace("_", " ") for name in columns]
        cells = [[_show_value(name, record[name]) for name in columns] for record in records]
        print_table(f"{title} ({len(records):,})", headings, cells)
    return DONE if records else NOTHING_TO_DO


def _show_value(name: str, value: Any) -> Any:
    """A value for a cell of a table."""
    # A seed is a name, not a number to be grouped by thousands.
    if isinstance(value, str) or name == "seed":
        return visible(str(value), lines=False)
    return value


def _show_responses(opened: OpenRun, as_json: bool) -> int:
    """Print the responses that were chosen, each with all that is known of it; gives the exit code.

    ``opened``: the run. What it finds has the sample, whose ``key`` says which one it is, and
    where it is stored. `tell` prints on stderr.
    """
    records = []
    for found in opened.responses():
        question = opened.questions.get(found.sample.key.problem)
        records.append(_response_record(found, question))
    if as_json:
        print_json(records, ascii_only=True)
    elif not records:
        tell("No such sample.")
    else:
        for record in records:
            _print_response(record)
    return DONE if records else NOTHING_TO_DO


def _print_response(record: dict[str, Any]) -> None:
    """Print one response: first its values, then the question and the text.

    `visible` replaces characters that would act on the terminal, since the text is a model's.
    """
    question = record.pop("question")
    text = record.pop("text")
    for name, value in record.items():
        if value != "" and value is not None:
            label = f"{name.replace('_', ' ')}:".ljust(LABEL_WIDTH)
            click.echo(f"{label}{visible(str(value), lines=False)}")
    if question is None:
        question = "(The question isn't stored in this run.)"
    click.echo(f"\n{visible(question)}\n\n{visible(text)}\n")


def _response_record(found: StoredSample, question: Question | None) -> dict[str, Any]:
    """A sample, the question that it answers and where it is stored, as JSON-ready values.

    Its sums of log-probs and entropies are over the response's tokens. ``origin`` is the file it
    stands in, "rule" the rule of the grader that decided, and "fingerprint" that of the request. A
    question is None where it is not stored.
    """
    from rlbhpc.engines.completion import as_conversation, finish_name
    from rlbhpc.verify.verdict import Status

    sample, origin = found
    tokens = sample.n_tokens
    mean_logprob = mean_entropy = None
    if tokens > 0 and sample.logprob_sum == sample.logprob_sum:  # NaN where none were measured
        mean_logprob = sample.logprob_sum / tokens
        mean_entropy = sample.entropy_sum / tokens
    return {
        "problem": sample.key.problem,
        "sample": sample.key.sample,
        "arm": sample.key.arm,
        "step": sample.key.step,
        "verdict": Status(sample.verdict).name.lower(),
        "rule": sample.rule,
        "answer": sample.answer,
        "reference": question and question.reference,
        "error": sample.error,
        "finish": finish_name(sample.finish),
        "n_tokens": tokens,
        "mean_logprob": mean_logprob,
        "mean_entropy": mean_entropy,
        "seed": sample.seed,
        "fingerprint": sample.fingerprint,
        "grader": sample.grader,
        "origin": origin,
        "question": question and question.question,
        "text": as_conversation(sample.trace, sample.text),
    }
