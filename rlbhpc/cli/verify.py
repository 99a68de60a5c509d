"""The verbs that look at verdicts again: `verify` by today's grader, `audit` by people."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from rlbhpc.cli import shared
from rlbhpc.cli.shared import print_json, print_table, visible
from rlbhpc.debug_log import keep
from rlbhpc.errors import DONE, NOTHING_TO_DO, UserError
from rlbhpc.problems.problem import Problem
from rlbhpc.stats import pass_at_k
from rlbhpc.study.layout import Layout
from rlbhpc.sweep.again import Comparison, StoredRun, grade_again
from rlbhpc.sweep.audit import (
    Answers,
    Audit,
    Shown,
    crosstable,
    disagreements,
    draw,
    exchange_judgements,
    read_again,
)
from rlbhpc.verify.error_audit import (
    ErrorRate,
    ErrorRates,
    Judgement,
    Side,
    Word,
    load_error_rates,
    load_judgements,
    store_judgement,
)
from rlbhpc.verify.kinds.judge import open_judge
from rlbhpc.verify.registry import KINDS

# Answers on which two graders differ that are printed; --json has all.
PRINTED_ANSWERS: Final = 20
# Characters of a model's text that fit into a cell of a table.
CELL_WIDTH: Final = 60
WORD_OF_KEY: Final[Mapping[str, Word]] = {"r": "right", "w": "wrong", "u": "unclear"}
# What ends the reading: q, Ctrl-C, Ctrl-D.
QUIT_KEYS: Final = ("q", "\x03", "\x04")


@click.command(
    epilog="Examples: rlbhpc verify runs/math; rlbhpc verify runs/math --into runs/math-regraded; "
    "rlbhpc verify runs/math --grader math-paper --into runs/math-paper"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--into", type=click.Path(path_type=Path), help="Keep the result as a new run.")
@click.option("--grader", type=click.Choice(list(KINDS)), help="Judge with this grader.")
@shared.judging_workers
@shared.as_json
def verify(
    run: Path, arm: str | None, step: int | None, into: Path | None, grader: str | None,
    workers: int, as_json: bool,
) -> int:  # fmt: skip
    """Judge every response of the run in the folder RUN with the grader of today.

    Shows what changes, per problem and on the curve. The run itself stays as it is: with --into
    the new verdicts become a run of their own, which compacts and reports like any other. How often
    verdicts are wrong, `rlbhpc audit` finds out.
    """
    layout = Layout(run)
    keep(layout.logs, "verify", layout.grids)
    stored = StoredRun(layout, arm, step)
    # What is left to give is a problem: the answer is the kind of grader that judges it.
    choose_kind = partial(_choose_kind, grader)
    target = None if into is None else Layout(into)
    comparisons = grade_again(stored, choose_kind, target, workers)
    if as_json:
        records = {str(group): _comparison_record(c) for group, c in comparisons.items()}
        print_json(records)
        return DONE
    for group, comparison in comparisons.items():
        _print_comparison(str(group), comparison, grader or "today")
    if into is not None:
        click.echo(
            f"{into} holds the run with the new verdicts; compact it, or show both beside each "
            f"other: rlbhpc report {run} --regraded {into}"
        )
    return DONE


def _choose_kind(grader: str | None, problem: Problem) -> str:
    """The kind of grader for a problem: the one asked for where it fits, else the study's.

    A kind such as math or math-paper names a grader; what stands before the dash is its family. The
    one that the user asked for, ``grader``, judges only problems of its own family.
    """
    study_kind = problem.verifier
    if not study_kind and grader is None:
        raise UserError(
            f"{problem.id} was imported, and no study says what judges it; name a grader, such as "
            "--grader math"
        )
    # `math-paper` reads what `math` reads, and nothing of a program.
    family = study_kind.split("-")[0]
    if grader and family in ("", grader.split("-")[0]):
        return grader
    return study_kind


def _print_comparison(group: str, comparison: Comparison, grader: str) -> None:
    """Print what changes in one arm, set and step when ``grader`` judges.

    ``comparison.table`` counts samples by their stored and their new verdict. Disagreements are the
    answers that one of the two calls right and the other does not. A curve is pass@k over k.
    """
    verdicts = []
    for (stored, new), samples in sorted(comparison.table.items()):
        verdicts.append([stored.name.lower(), new.name.lower(), samples])
    print_table(f"{group}: verdicts, stored and {grader}", ["stored", grader, "samples"], verdicts)
    if not comparison.disagreements:
        click.echo("Both call the same samples right.\n")
        return
    curves = paired_curves(*comparison.counts())
    print_table(f"{group}: pass@k", ["k", "stored", grader], curves)
    printed = comparison.disagreements[:PRINTED_ANSWERS]
    answers = [[_fit_cell(value) for value in row] for row in printed]
    print_table(
        f"{group}: answers on which they differ",
        ["problem", "answer", "stored", grader, "samples"],
        answers,
    )
    unprinted = len(comparison.disagreements) - PRINTED_ANSWERS
    if unprinted > 0:
        click.echo(f"and {unprinted:,} more; --json has all\n")


def _comparison_record(comparison: Comparison) -> dict[str, Any]:
    """What changes in one arm, set and step as JSON-ready values.

    ``comparison`` has the same samples with two verdicts: before, as stored, and after, by the
    grader that was asked for. Its table counts samples by both; "problems" are those whose number
    of right samples changes.
    """
    verdicts = [
        {"before": stored.name.lower(), "after": new.name.lower(), "samples": samples}
        for (stored, new), samples in sorted(comparison.table.items())
    ]
    curves = [
        {"k": k, "before": stored, "after": new}
        for k, stored, new in paired_curves(*comparison.counts())
    ]
    return {
        "verdicts": verdicts,
        "pass_at_k": curves,
        "problems": [vars(problem) for problem in comparison.changed],
        "answers": [answer._asdict() for answer in comparison.disagreements],
    }


def paired_curves(
    samples: Sequence[int], stored_right: Sequence[int], new_right: Sequence[int]
) -> Iterator[tuple[int, float, float]]:
    """Mean pass@k over the problems by two counts of right samples, for k the powers of two.

    Gives k, the mean by the stored verdicts and that by the new ones. Each argument has one number
    a problem; k goes up to the fewest samples of a problem. pass@k is the chance that one of k
    samples of a problem is right.
    """
    fewest = min(samples, default=0)
    k = 1
    while k <= fewest:
        stored = float(pass_at_k(samples, stored_right, k).mean())
        new = float(pass_at_k(samples, new_right, k).mean())
        yield k, round(stored, 6), round(new, 6)
        k *= 2


def _fit_cell(value: Any) -> Any:
    """Model text cut to fit a cell of a table; other values as they are."""
    if not isinstance(value, str):
        return value
    text = value if len(value) <= CELL_WIDTH else value[: CELL_WIDTH - 1] + "…"
    return visible(text, lines=False)


@click.command(
    epilog="Examples: rlbhpc audit runs/math; rlbhpc audit runs/math --judgements mine.jsonl; "
    "rlbhpc audit runs/math --judge http://localhost:8000/v1/some-model"
)
@click.argument("run", type=click.Path(path_type=Path))
@shared.one_arm
@shared.one_step
@click.option("--responses", type=click.IntRange(min=5), default=200, show_default=True,
    help="Draw about so many responses of each arm on each problem set.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Which responses.")
@click.option("--judgements", type=click.Path(path_type=Path, dir_okay=False),
    help="Take judgements from this file of JSON lines, and write what is to be read into it.",
)  # fmt: skip
@click.option("--judge", metavar="URL/MODEL",
    help="Ask a served model, or the model in a folder, where rules could not read an answer.",
)  # fmt: skip
@click.option("--key-env", help="With --judge: the environment variable with the server's key.")
@shared.judging_workers
def audit(
    run: Path, arm: str | None, step: int | None, responses: int, seed: int,
    judgements: Path | None, judge: str | None, key_env: str | None, workers: int,
) -> int:  # fmt: skip
    """Find out how often the verdicts of the run in the folder RUN are wrong, for each arm.

    Draws responses and shows question, response and reference answer, but neither arm nor verdict.
    You say whether the answer is right: r, w, or u for unclear; q ends, and the same command goes
    on. First come right answers to problems that are hardly ever solved, then those on which
    Math-Verify or a judge disagrees. What you say becomes rates of false right and false wrong
    verdicts with intervals, which `rlbhpc report` carries into its answer.

    Verdicts stay as they are. What Math-Verify and the judge say is kept beside them, in the run's
    folder audit/.
    """
    layout = Layout(run)
    keep(layout.logs, "audit", layout.grids)
    stored = StoredRun(layout, arm, step)
    answers = read_again(stored, workers, open_judge(judge, key_env) if judge else None)
    sample = draw(stored, answers, responses, seed)
    if judgements is not None:
        judged = exchange_judgements(layout, sample, judgements)
        unread = _count_unread(layout, sample)
        shared.tell(f"{judgements}: {judged:,} judgements taken; {unread:,} to read")
        if unread:
            shared.tell(
                'Write "right", "wrong" or "unclear" as the judgement of any line, then give the '
                "same command again."
            )
    elif _is_terminal():
        _read_responses(layout, sample)
    _print_second_readers(layout, answers)
    _print_error_rates(load_error_rates(layout))
    unread = _count_unread(layout, sample)
    if unread:
        click.echo(
            f"{unread:,} drawn responses are to be read: give the command at a terminal, or with "
            "--judgements FILE."
        )
    return DONE if sample.strata else NOTHING_TO_DO


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _read_responses(layout: Layout, sample: Audit) -> None:
    """Show one response after the other until there is none, or the reader quits.

    ``sample`` is the drawn responses; its queue are those that nobody has judged yet. Each
    judgement is stored at once.
    """
    queue = sample.queue(load_judgements(layout))
    for number, key in enumerate(queue, start=1):
        click.clear()
        click.echo(_format_response(sample.shown[key], f"{number:,} of {len(queue):,}"))
        word = _ask_for_judgement()
        if word is None:
            return
        store_judgement(layout, Judgement(key, word, reader=os.environ.get("USER", "")))


def _format_response(shown: Shown, position: str) -> str:
    """Question, response and reference answer; ``position`` says how far the reader is."""
    sections = (("Question", shown.question), ("Response", shown.response), ("Gold", shown.gold))
    texts = [f"{click.style(name, bold=True)}\n{visible(text)}\n" for name, text in sections]
    texts.append(f"({position}) Is its answer right? r, w, u for unclear, q to quit")
    return "\n".join(texts)


def _ask_for_judgement() -> Word | None:
    """Wait for a key that judges a response: right, wrong or unclear; None if the reader quits."""
    while True:
        key = click.getchar().lower()
        if key in QUIT_KEYS:
            return None
        if key in WORD_OF_KEY:
            return WORD_OF_KEY[key]


def _count_unread(layout: Layout, sample: Audit) -> int:
    """Drawn responses that nobody has judged."""
    return len(sample.queue(load_judgements(layout)))


def _print_second_readers(layout: Layout, answers: Answers) -> None:
    """Print how often the readers of an answer agree: the rules, Math-Verify and a judge.

    The rules are rlbhpc's own grader; Math-Verify and the judge, a model, read the same answers a
    second time. ``answers`` has a reading of each distinct answer, with its number of samples.
    """
    columns = ["rules", "Math-Verify", "judge", "answers", "samples"]
    print_table("Answers by reader", columns, crosstable(answers.values()))
    disputed = disagreements(answers.values())
    if not disputed:
        return
    rows = [
        [reading.problem, _fit_cell(reading.gold), _fit_cell(reading.text),
         "right" if reading.right else "wrong", reading.rule, reading.math_verify,
         reading.judge or "-", reading.samples]
        for reading in disputed[:PRINTED_ANSWERS]
    ]  # fmt: skip
    columns = ["problem", "gold", "answer", "rules", "rule", "Math-Verify", "judge", "samples"]
    print_table("Answers on which a second reader disagrees", columns, rows)
    unprinted = len(disputed) - PRINTED_ANSWERS
    if unprinted > 0:
        click.echo(f"and {unprinted:,} more in {layout.second_readings}\n")


def _print_error_rates(rates: Mapping[Side, ErrorRates]) -> None:
    """Print how often verdicts are wrong, with intervals, one line a side.

    A side is an arm at one step on one problem set. A rate is estimated from responses that people
    have read, whose number is ``rate.read``.
    """
    columns = ["arm", "false right, %", "of read", "false wrong, %", "of read"]
    rows = []
    for side, both in rates.items():
        row: list[Any] = [str(side)]
        for rate in (both.false_right, both.false_wrong):
            row += [_format_rate(rate), rate.read]
        rows.append(row)
    print_table("Error rates of the verdicts, with 95 % intervals", columns, rows)


def _format_rate(rate: ErrorRate) -> str:
    """A rate in percent with its interval."""
    if math.isnan(rate.rate):
        return "unknown"
    return f"{100 * rate.rate:.2f} [{100 * rate.low:.2f}, {100 * rate.high:.2f}]"
